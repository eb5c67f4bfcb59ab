"""Select missions by id, glob, tag and position. Pure."""

import re
from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase

from proctor.errors import InputError
from proctor.spec.campaign_options import SelectSpec
from proctor.spec.collect_errors import raise_collected
from proctor.spec.model import MissionSpec
from proctor.spec.suggest import suggest_nearest

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
        what = f"no mission matches all parts of the selection; {_list('missions', [each.id for each in missions])}"
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
            what = f"no mission has the id `{id_}`; {_list('missions', ids)}"
            yield _error(what, key=f"ids[{at}]", suggestion=suggest_nearest(id_, ids))
    for at, glob in enumerate(selection.globs):
        if not any(fnmatchcase(id_, glob) for id_ in ids):
            what = f"no mission's id matches `{glob}`; {_list('missions', ids)}"
            yield _error(what, key=f"globs[{at}]", suggestion=None)
    for at, tag in enumerate(selection.tags):
        if tag not in tags:
            what = f"no mission has the tag `{tag}`; {_list('tags', tags) if tags else 'the missions have no tags'}"
            yield _error(what, key=f"tags[{at}]", suggestion=suggest_nearest(tag, tags))
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


def _list(what: str, names: Sequence[str]) -> str:
    more = len(names) - _MAX_LISTED
    return f"the {what} are: {', '.join(names[:_MAX_LISTED])}" + (f" and {more} more" if more > 0 else "")
