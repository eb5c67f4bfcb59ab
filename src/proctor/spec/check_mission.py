"""Check the meaning of decoded missions. Each error names its file, line and key."""

import re
from collections.abc import Iterator, Sequence
from pathlib import PurePath
from typing import Final

import msgspec

from proctor.errors import InputError
from proctor.spec.duration import parse_duration_s
from proctor.spec.expect import ExpectedVerdict, ExpectSpec
from proctor.spec.glob import compile_glob
from proctor.spec.literal import LITERAL_MESSAGE, LITERAL_SUGGESTION, literal_secrets
from proctor.spec.missions import SUFFIX, MissionSource
from proctor.spec.model import MissionSpec, WorkspaceSpec
from proctor.spec.pattern import compile_pattern
from proctor.spec.pointer import is_pointer
from proctor.spec.probe_options import is_inside
from proctor.spec.suggest import MAX_WORD

MAX_ID_CHARS: Final = 64  # the name of an attempt's folder contains two ids and two numbers

_ID = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")


def is_id(word: str) -> bool:
    """Return whether a word is a valid id of a campaign, mission or flow."""
    return len(word) <= MAX_ID_CHARS and _ID.fullmatch(word) is not None


def not_an_id(word: str) -> str:
    """Return the message about an invalid id."""
    rule = f"write lower-case words and digits, joined by single dashes, at most {MAX_ID_CHARS} characters"
    return f"`{word[:MAX_WORD]}` is not an id: {rule}"


def suggest_id(word: str) -> str | None:
    """Return the valid id that is closest to a word; None if it has no letter or digit.

    >>> suggest_id("Fix It!"), suggest_id("!")
    ('fix-it', None)
    """
    return re.sub(r"[^a-z0-9]+", "-", word.lower()).strip("-")[:MAX_ID_CHARS].rstrip("-") or None


def mission_errors(missions: Sequence[MissionSource], *, is_scripted: bool) -> Iterator[InputError]:
    """Yield the errors of all missions. `is_scripted` says whether a flow uses the scripted model."""
    first: dict[str, MissionSource] = {}
    for each in missions:
        id_ = each.mission.id
        yield from _id_errors(each)
        if id_ in first:
            what = f"the id `{id_}` is already used on line {first[id_].line_of('id')}"
            yield each.error("spec.duplicate-id", what, key="id")
        first.setdefault(id_, each)
        yield from _own_errors(each, is_scripted=is_scripted)
        if each.is_in_own_file:
            # Secrets of inline missions are found together with those of the spec.
            for key in literal_secrets(msgspec.to_builtins(each.mission)):
                yield each.error("spec.secret-literal", LITERAL_MESSAGE, key=key, suggestion=LITERAL_SUGGESTION)


def _id_errors(source: MissionSource) -> Iterator[InputError]:
    id_ = source.mission.id
    if is_id(id_):
        return
    like, what = suggest_id(id_), not_an_id(id_)
    suggestion = f"Write `{like}`." if like else None
    if source.is_in_own_file:
        what = f"the file name is the mission's id, and {what}"
        suggestion = f"Rename the file to `{like}{SUFFIX}`, or move it out of the folder." if like else None
    yield source.error("spec.type", what, key="id", suggestion=suggestion)


def _own_errors(source: MissionSource, *, is_scripted: bool) -> Iterator[InputError]:
    mission = source.mission
    if is_scripted and mission.script is None:
        what = "a flow uses the scripted model, which needs the mission's `script`"
        suggestion = "Add `script: scripts/….yaml`, or give every flow a real model."
        yield source.error("spec.missing-key", what, key="script", suggestion=suggestion)
    yield from _workspace_errors(source, mission.workspace)
    yield from _expect_errors(source, mission)
    yield from _probe_errors(source, mission)
    yield from _inside_glob_errors(source, "protect", mission.protect)
    if mission.hooks is not None:
        try:
            parse_duration_s(mission.hooks.timeout)
        except ValueError as error:
            yield source.error("spec.type", str(error), key="hooks.timeout")


def _probe_errors(source: MissionSource, mission: MissionSpec) -> Iterator[InputError]:
    for at, probe in enumerate(mission.probes):
        for each in probe.problems():
            yield source.error(each.code, each.what, key=f"probes[{at}].{each.key}", suggestion=each.suggestion)
    stated = {probe.criterion for probe in mission.probes}
    for at, waiver in enumerate(mission.waive):
        if waiver.criterion not in stated:
            what = f"no probe of the mission has the criterion `{waiver.criterion}`"
            yield source.error("spec.unsupported", what, key=f"waive[{at}].criterion")


def _workspace_errors(source: MissionSource, workspace: WorkspaceSpec) -> Iterator[InputError]:
    if workspace.git is not None and workspace.copy is not None:
        what = "`copy` and `git` exclude each other"
        yield source.error("spec.unsupported", what, key="workspace.copy", suggestion="Remove one of the two.")
    if workspace.copy is None and workspace.exclude:
        what = "`exclude` has no effect without `copy`"
        yield source.error("spec.unsupported", what, key="workspace.exclude", suggestion="Remove `exclude`.")
    for at, path in enumerate(workspace.exclude):
        if not is_inside(path):
            what = f"`{path}` is not a path inside the copied folder, such as `build` or `docs/out`"
            yield source.error("spec.unsupported", what, key=f"workspace.exclude[{at}]")
    if workspace.git is not None and workspace.ref is None:
        suggestion = "Add `ref:` with a branch, a tag or a commit id, such as HEAD."
        what = "`git` needs the key `ref`"
        yield source.error("spec.missing-key", what, key="workspace.ref", suggestion=suggestion)
    if workspace.git is None and workspace.ref is not None:
        what = "`ref` has no effect without `git`"
        yield source.error(
            "spec.unsupported",
            what,
            key="workspace.ref",
            suggestion="Add `git:` with the path of the repository, or remove `ref`.",
        )


def _expect_errors(source: MissionSource, mission: MissionSpec) -> Iterator[InputError]:
    expect = mission.expect
    if expect.verified in (ExpectedVerdict.YES, ExpectedVerdict.NO) and not mission.probes:
        what = f"`verified: {expect.verified.value}` needs a probe, and the mission has none"
        suggestion = "Add a probe, or write `verified: unknown`."
        yield source.error("spec.unsupported", what, key="expect.verified", suggestion=suggestion)
    for group in ("result", "trace", "workspace"):
        part = getattr(expect, group)
        if part is not None and part == type(part)():
            what = f"`{group}` is empty, so it checks nothing"
            yield source.error(
                "spec.missing-key", what, key=f"expect.{group}", suggestion=f"Add an expectation, or remove `{group}`."
            )
    if expect.matches is not None:
        try:
            compile_pattern(expect.matches)
        except ValueError as error:
            yield source.error(
                "spec.type", f"`{expect.matches[:MAX_WORD]}` is not a valid RE2 pattern: {error}", key="expect.matches"
            )
    yield from _pointer_errors(source, expect)
    yield from _glob_errors(source, expect)


def _pointer_errors(source: MissionSource, expect: ExpectSpec) -> Iterator[InputError]:
    for group in ("has", "non_empty"):
        for at, pointer in enumerate(getattr(expect.result, group, ())):
            if not is_pointer(pointer):
                what = f"`{pointer}` is not a JSON pointer"
                suggestion = f"Write `/{pointer.lstrip('/')}`." if "~" not in pointer else "Write `~0` for `~`."
                yield source.error("spec.type", what, key=f"expect.result.{group}[{at}]", suggestion=suggestion)


def _glob_errors(source: MissionSource, expect: ExpectSpec) -> Iterator[InputError]:
    if expect.workspace is None:
        return
    for group in ("changed", "untouched", "only"):
        yield from _inside_glob_errors(source, f"expect.workspace.{group}", getattr(expect.workspace, group) or ())


def _inside_glob_errors(source: MissionSource, key: str, globs: Sequence[str]) -> Iterator[InputError]:
    for at, glob in enumerate(globs):
        if glob.startswith(("/", "./")) or ".." in PurePath(glob).parts:
            what = f"`{glob}` is not a path inside the workspace, such as `src/*.py`"
            yield source.error("spec.type", what, key=f"{key}[{at}]")
        try:
            compile_glob(glob)
        except ValueError as error:
            yield source.error("spec.type", f"`{glob}` is not a valid glob: {error}", key=f"{key}[{at}]")
