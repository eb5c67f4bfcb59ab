"""What well-formed missions may still get wrong, each fault with its file and line."""

import re
from collections.abc import Iterator, Sequence
from pathlib import PurePath
from typing import Final

import msgspec

from proctor.errors import InputError
from proctor.spec.duration import parse_duration_s
from proctor.spec.expect import ExpectSpec, Verified
from proctor.spec.glob import compile_glob
from proctor.spec.literal import INSTEAD, WRITTEN_OUT, literal_secrets
from proctor.spec.missions import SUFFIX, Written
from proctor.spec.model import MissionSpec, WorkspaceSpec
from proctor.spec.pattern import compile_pattern
from proctor.spec.pointer import is_pointer

MAX_ID_CHARS: Final = 64  # two ids and a count make a folder's name
NO_ID: Final = f"an id is lower-case words, digits and single dashes, at most {MAX_ID_CHARS} characters"

_ID = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")


def is_id(word: str) -> bool:
    return len(word) <= MAX_ID_CHARS and _ID.fullmatch(word) is not None


def id_like(word: str) -> str | None:
    """
    >>> id_like("Fix It!"), id_like("!")
    ('fix-it', None)
    """
    return re.sub(r"[^a-z0-9]+", "-", word.lower()).strip("-")[:MAX_ID_CHARS].rstrip("-") or None


def mission_faults(missions: Sequence[Written], *, is_scripted: bool) -> Iterator[InputError]:
    """`is_scripted` where any flow's model is."""
    first: dict[str, Written] = {}
    for each in missions:
        id_ = each.mission.id
        yield from _id_faults(each)
        if id_ in first:
            what = f"`{id_}` is already on line {first[id_].line_of('id')}"
            yield each.problem("spec.duplicate-id", what, key="id")
        first.setdefault(id_, each)
        yield from _own_faults(each, is_scripted=is_scripted)
        if each.is_in_own_file:
            # Those of the spec itself are found with its other keys.
            for key in literal_secrets(msgspec.to_builtins(each.mission)):
                yield each.problem("spec.secret-literal", WRITTEN_OUT, key=key, suggestion=INSTEAD)


def _id_faults(written: Written) -> Iterator[InputError]:
    id_ = written.mission.id
    if is_id(id_):
        return
    like, what = id_like(id_), NO_ID
    suggestion = f"Write `{like}`." if like else None
    if written.is_in_own_file:
        what = f"the file's name is the mission's id, and {NO_ID}"
        suggestion = f"Call it `{like}{SUFFIX}`, or move it out of the folder." if like else None
    yield written.problem("spec.type", what, key="id", suggestion=suggestion)


def _own_faults(written: Written, *, is_scripted: bool) -> Iterator[InputError]:
    mission = written.mission
    if is_scripted and mission.script is None:
        what = "a scripted model needs the mission's `script`"
        suggestion = "Add `script: scripts/….yaml`, or give every flow a real model."
        yield written.problem("spec.missing-key", what, key="script", suggestion=suggestion)
    yield from _workspace_faults(written, mission.workspace)
    yield from _expect_faults(written, mission)
    durations = [(f"probes[{at}].timeout", probe.timeout) for at, probe in enumerate(mission.probes)]
    if mission.hooks is not None:
        durations.append(("hooks.timeout", mission.hooks.timeout))
    for key, duration in durations:
        try:
            parse_duration_s(duration)
        except ValueError as error:
            yield written.problem("spec.type", str(error), key=key)


def _workspace_faults(written: Written, workspace: WorkspaceSpec) -> Iterator[InputError]:
    if workspace.git is not None and workspace.copy is not None:
        what = "a workspace is a copy of a folder or a clone of a repository"
        yield written.problem("spec.unsupported", what, key="workspace.copy", suggestion="Keep `copy` or `git`.")
    if workspace.git is not None and workspace.ref is None:
        suggestion = "Add `ref:` with a branch, a tag or the id of a commit; HEAD is one."
        what = "a clone needs its `ref`"
        yield written.problem("spec.missing-key", what, key="workspace.ref", suggestion=suggestion)
    if workspace.git is None and workspace.ref is not None:
        what = "only a repository has refs"
        yield written.problem("spec.unsupported", what, key="workspace.ref", suggestion="Add `git:` with its path.")


def _expect_faults(written: Written, mission: MissionSpec) -> Iterator[InputError]:
    expect = mission.expect
    if expect.verified in (Verified.YES, Verified.NO) and not mission.probes:
        what = "without a probe nothing is ever verified, nor found wrong"
        suggestion = "Add a probe, or expect `unknown`."
        yield written.problem("spec.unsupported", what, key="expect.verified", suggestion=suggestion)
    for group in ("result", "trace", "workspace"):
        stated = getattr(expect, group)
        if stated is not None and stated == type(stated)():
            what = "nothing is stated here, so nothing could be missed"
            yield written.problem(
                "spec.missing-key", what, key=f"expect.{group}", suggestion="State something, or take it out."
            )
    if expect.matches is not None:
        try:
            compile_pattern(expect.matches)
        except ValueError as error:
            yield written.problem("spec.type", f"no pattern (RE2): {error}", key="expect.matches")
    yield from _pointer_faults(written, expect)
    yield from _glob_faults(written, expect)


def _pointer_faults(written: Written, expect: ExpectSpec) -> Iterator[InputError]:
    for group in ("has", "non_empty"):
        for at, pointer in enumerate(getattr(expect.result, group, ())):
            if not is_pointer(pointer):
                what = f"`{pointer}` is no JSON pointer"
                suggestion = f"Write `/{pointer.lstrip('/')}`." if "~" not in pointer else "`~` is written `~0`."
                yield written.problem("spec.type", what, key=f"expect.result.{group}[{at}]", suggestion=suggestion)


def _glob_faults(written: Written, expect: ExpectSpec) -> Iterator[InputError]:
    if expect.workspace is None:
        return
    for group in ("changed", "untouched", "only"):
        for at, glob in enumerate(getattr(expect.workspace, group) or ()):
            if glob.startswith(("/", "./")) or ".." in PurePath(glob).parts:
                what = "paths are those in the workspace, as in `src/*.py`"
                yield written.problem("spec.type", what, key=f"expect.workspace.{group}[{at}]")
            try:
                compile_glob(glob)
            except ValueError as error:
                yield written.problem("spec.type", f"no glob: {error}", key=f"expect.workspace.{group}[{at}]")
