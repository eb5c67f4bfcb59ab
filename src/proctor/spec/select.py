"""Which of the missions: by id, glob, tag and place. Pure; a selection that comes to nothing is refused."""

import re
from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase

from proctor.errors import InputError
from proctor.spec.collected import raise_collected
from proctor.spec.model import MissionSpec
from proctor.spec.near import nearest, suggest
from proctor.spec.running import SelectSpec

_RANGE = re.compile(r"([0-9]{1,9})(?:-([0-9]{1,9}))?")
_MOST_TOLD = 20


def select(missions: Sequence[MissionSpec], wanted: SelectSpec) -> tuple[MissionSpec, ...]:
    """Those that every key lets through, in their order. `range` counts among `missions`.

    InputError, with a key of `wanted`, where it names what is not there, or where nothing is left.
    """
    if problems := tuple(_problems(missions, wanted)):
        raise_collected(problems)
    first, last = (1, len(missions)) if wanted.range is None else places(wanted.range)
    chosen = tuple(
        mission
        for place, mission in enumerate(missions, start=1)
        if first <= place <= last
        and (not wanted.ids or mission.id in wanted.ids)
        and (not wanted.globs or any(fnmatchcase(mission.id, glob) for glob in wanted.globs))
        and (not wanted.tags or not set(wanted.tags).isdisjoint(mission.tags))
    )
    if not chosen:
        what = f"each part fits some mission, but no mission fits them all: {_told([m.id for m in missions])}"
        raise InputError("spec.selection", what)
    return chosen


def places(range_: str) -> tuple[int, int]:
    """The first and the last. InputError where it is no range.

    >>> places("2-5"), places("7")
    ((2, 5), (7, 7))
    """
    found = _RANGE.fullmatch(range_.strip())
    if found is None or not 1 <= int(found[1]) <= int(found[2] or found[1]):
        raise InputError("spec.selection", f"`{range_}` is no range: write it like 2-5 or 7, counting from 1")
    return int(found[1]), int(found[2] or found[1])


def _problems(missions: Sequence[MissionSpec], wanted: SelectSpec) -> Iterator[InputError]:
    ids = [mission.id for mission in missions]
    tags = sorted({tag for mission in missions for tag in mission.tags})
    for at, id_ in enumerate(wanted.ids):
        if id_ not in ids:
            close = nearest(id_, ids)
            hint = f"Did you mean `{close}`?" if close else f"Missions: {_told(ids)}."
            yield _unknown(f"no mission is called `{id_}`", key=f"ids[{at}]", suggestion=hint)
    for at, glob in enumerate(wanted.globs):
        if not any(fnmatchcase(id_, glob) for id_ in ids):
            yield _unknown(f"no mission fits `{glob}`", key=f"globs[{at}]", suggestion=f"Missions: {_told(ids)}.")
    for at, tag in enumerate(wanted.tags):
        if tag not in tags:
            hint = suggest(tag, tags, noun="Tags") if tags else "No mission has any tag."
            yield _unknown(f"no mission has the tag `{tag}`", key=f"tags[{at}]", suggestion=hint)
    if wanted.range is not None:
        try:
            first, _ = places(wanted.range)
        except InputError as error:
            yield _unknown(error.what, key="range", suggestion=None)
        else:
            if first > len(ids):
                what = f"`{wanted.range}` begins after the last mission"
                yield _unknown(what, key="range", suggestion=f"Write a range within 1-{len(ids)}.")


def _unknown(what: str, *, key: str, suggestion: str | None) -> InputError:
    return InputError("spec.selection", what, key=key, suggestion=suggestion)


def _told(ids: Sequence[str]) -> str:
    more = len(ids) - _MOST_TOLD
    return ", ".join(ids[:_MOST_TOLD]) + (f" and {more} more" if more > 0 else "")
