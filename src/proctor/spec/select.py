"""Select missions by id, glob, tag and position. Pure."""

import re
from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase

from proctor.errors import InputError
from proctor.spec.campaign_options import SelectSpec
from proctor.spec.collect_errors import raise_collected
from proctor.spec.model import MissionSpec
from proctor.spec.suggest import nearest, suggest

_RANGE = re.compile(r"([0-9]{1,9})(?:-([0-9]{1,9}))?")
_MAX_LISTED = 20


def select(missions: Sequence[MissionSpec], selection: SelectSpec) -> tuple[MissionSpec, ...]:
    """Return the missions that match every key of a selection, in order. `range` counts positions in `missions`.

    Raises InputError if the selection names an unknown mission or tag, or if no mission matches.
    """
    if errors := tuple(_find_errors(missions, selection)):
        raise_collected(errors)
    first, last = (1, len(missions)) if selection.range is None else parse_range(selection.range)
    chosen = tuple(
        mission
        for position, mission in enumerate(missions, start=1)
        if first <= position <= last
        and (not selection.ids or mission.id in selection.ids)
        and (not selection.globs or any(fnmatchcase(mission.id, glob) for glob in selection.globs))
        and (not selection.tags or not set(selection.tags).isdisjoint(mission.tags))
    )
    if not chosen:
        what = f"no mission matches all parts of the selection: {_list_ids([m.id for m in missions])}"
        raise InputError("spec.selection", what)
    return chosen


def parse_range(range_: str) -> tuple[int, int]:
    """Return the first and the last position of a range. Raises InputError if it is not a range.

    >>> parse_range("2-5"), parse_range("7")
    ((2, 5), (7, 7))
    """
    match = _RANGE.fullmatch(range_.strip())
    if match is None or not 1 <= int(match[1]) <= int(match[2] or match[1]):
        raise InputError("spec.selection", f"`{range_}` is not a range: write it like 2-5 or 7, counting from 1")
    return int(match[1]), int(match[2] or match[1])


def _find_errors(missions: Sequence[MissionSpec], selection: SelectSpec) -> Iterator[InputError]:
    ids = [mission.id for mission in missions]
    tags = sorted({tag for mission in missions for tag in mission.tags})
    for at, id_ in enumerate(selection.ids):
        if id_ not in ids:
            close = nearest(id_, ids)
            hint = f"Did you mean `{close}`?" if close else f"Missions: {_list_ids(ids)}."
            yield _error(f"no mission has the id `{id_}`", key=f"ids[{at}]", suggestion=hint)
    for at, glob in enumerate(selection.globs):
        if not any(fnmatchcase(id_, glob) for id_ in ids):
            yield _error(
                f"no mission's id matches `{glob}`", key=f"globs[{at}]", suggestion=f"Missions: {_list_ids(ids)}."
            )
    for at, tag in enumerate(selection.tags):
        if tag not in tags:
            hint = suggest(tag, tags, noun="Tags") if tags else "No mission has tags."
            yield _error(f"no mission has the tag `{tag}`", key=f"tags[{at}]", suggestion=hint)
    if selection.range is not None:
        try:
            first, _ = parse_range(selection.range)
        except InputError as error:
            yield _error(error.what, key="range", suggestion=None)
        else:
            if first > len(ids):
                what = f"the range `{selection.range}` begins after the last mission"
                yield _error(what, key="range", suggestion=f"Write a range within 1-{len(ids)}.")


def _error(what: str, *, key: str, suggestion: str | None) -> InputError:
    return InputError("spec.selection", what, key=key, suggestion=suggestion)


def _list_ids(ids: Sequence[str]) -> str:
    more = len(ids) - _MAX_LISTED
    return ", ".join(ids[:_MAX_LISTED]) + (f" and {more} more" if more > 0 else "")
