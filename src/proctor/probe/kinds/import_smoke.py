"""The probe kind `import_smoke`: import modules of the workspace, each in a fresh interpreter.

The program that imports a module shares a process with it. What forges the answer without knowing the request is
caught: the answer must begin with the random word of its request, like that of every program in the fence, report a
module with a random name as missing, and report a random name as missing in a module that is asked for names. So
neither `os._exit(0)`, nor text printed as an answer, nor import hooks that find everything, nor a module that has every
name passes. The module must be what its file left when it was run to its end.

This still gets through, which is why the verdict is labelled `inside`: a module that searches the frames of its
interpreter for the request and answers in its place; one that patches this program's functions by name; a `python` of
the workspace that is not one; and names that exist but do nothing.
"""

import os
import secrets
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

import anyio
import anyio.to_thread
import msgspec

from proctor.errors import MachineError
from proctor.probe.command import describe_exit, is_in_workspace, judge_missing
from proctor.probe.kind import Judgement, ProbeWorkspace
from proctor.probe.model import ControlsRecord, Fault, Verdict
from proctor.probe.observe import Observed, observe
from proctor.probe.view import View
from proctor.spec.command_probes import ImportSmoke
from proctor.spec.duration import parse_duration_s
from proctor.workspace.name import quoted

_INSTALLED: Final = ("site-packages", "dist-packages")
_NAMED: Final = 5


class _ImportRequest(msgspec.Struct, frozen=True, kw_only=True):
    """What the program in the fence does."""

    module: str
    path: list[str]
    names: list[str]
    missing: str
    """A module that does not exist."""


class _Imported(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the program in the fence saw."""

    file: str | None
    """The file that was run to its end, as an absolute path; None if none was."""
    error: str | None
    has: list[str]
    """Those of the names that the module has."""
    missing: str | None
    """Why the module that does not exist could not be imported."""


async def judge(spec: ImportSmoke, workspace: ProbeWorkspace) -> Judgement:
    """Import each module, until one fails."""
    missing = judge_missing(spec.argv, workspace)
    if missing is not None:
        return missing
    until_s = anyio.current_time() + parse_duration_s(spec.timeout)
    judgement: Judgement | None = None
    for module in spec.modules:
        try:
            judgement = await _judge_module(module, spec, workspace, left_s=max(0.0, until_s - anyio.current_time()))
        except MachineError as problem:
            if anyio.current_time() >= until_s:  # the modules before this one left no time to start another
                return Judgement(verdict=Verdict.FAIL, summary=f"{module}: {_late(spec)}", argv=spec.argv)
            at_fault = Fault.WORKSPACE if is_in_workspace(spec.python) else Fault.MACHINE
            return Judgement(verdict=Verdict.UNAVAILABLE, summary=str(problem), argv=spec.argv, fault=at_fault)
        if judgement.verdict is not Verdict.PASS:
            return judgement
    assert judgement is not None, "a spec has at least one module"
    count = f"{len(spec.modules)} module{'' if len(spec.modules) == 1 else 's'}"
    return replace(judgement, summary=f"{count} imported")


async def _judge_module(module: str, spec: ImportSmoke, workspace: ProbeWorkspace, *, left_s: float) -> Judgement:
    names = spec.names.get(module, [])
    absent = f"c{secrets.token_hex(8)}"
    request = _ImportRequest(
        module=module,
        path=spec.path,
        names=[*names, absent] if names else [],
        missing=f"c{secrets.token_hex(8)}",
    )
    seen = await observe(
        workspace, "imports", request, _Imported, timeout_s=left_s, records=spec.argv, python=spec.python
    )
    finished = seen.finished
    judgement = Judgement(verdict=Verdict.FAIL, summary="", argv=spec.argv, finished=finished)
    if finished.timed_out:
        return replace(judgement, summary=f"{module}: {_late(spec)}")
    ended = describe_exit(finished, timeout_s=left_s)
    if finished.exit is None:
        return replace(judgement, verdict=Verdict.UNAVAILABLE, fault=Fault.MACHINE, summary=f"the interpreter {ended}")
    if seen.value is not None:
        judgement = replace(judgement, controls=_judge_controls(seen.value, request, absent=absent))
    view = workspace.view
    wrong = await anyio.to_thread.run_sync(lambda: _find_wrong(seen, request, judgement.controls, view, ended=ended))
    if wrong is None:
        return replace(judgement, verdict=Verdict.PASS)
    return replace(judgement, summary=f"{module}: {wrong}")


def _late(spec: ImportSmoke) -> str:
    return f"it was not imported within {parse_duration_s(spec.timeout):g} s"


def _judge_controls(seen: _Imported, request: _ImportRequest, *, absent: str) -> ControlsRecord:
    # The message of an honest error contains the name that was not found.
    is_missing = seen.missing is not None and request.missing in seen.missing
    # An answer is accepted only from the program that got the request.
    return ControlsRecord(passing_passed=True, failing_failed=is_missing and absent not in seen.has)


def _find_wrong(
    seen: Observed[_Imported], request: _ImportRequest, controls: ControlsRecord | None, view: View, *, ended: str
) -> str | None:
    """Return what was observed that is wrong with an import; None if nothing is."""
    found = seen.value
    if found is None or controls is None:
        return f"the interpreter {ended} without an answer"
    if found.error is not None:
        return found.error
    if not controls.failing_failed:
        return "tampered: modules or names that do not exist are reported as existing"
    if not _is_in_view(found.file, view):
        return "it is not imported from a file of the workspace"
    lacking = [name for name in request.names[:-1] if name not in found.has]
    if lacking:
        return f"it has no {_list(lacking)}"
    return None


def _is_in_view(file: str | None, view: View) -> bool:
    """Return whether a file is in the workspace and does not belong to an installed package."""
    top = view.place.resolve()
    if file is None or "\0" in file or ".." in Path(file).parts or not Path(file).is_relative_to(top):
        return False
    path = Path(file).relative_to(top)
    place = view.find(str(path))
    if place is None:
        return False
    real = Path(os.path.realpath(place))
    layer = next((layer for layer in map(Path.resolve, view.layers) if real.is_relative_to(layer)), None)
    if layer is None or not real.is_file():
        return False
    return {*path.parts, *real.relative_to(layer).parts}.isdisjoint(_INSTALLED)


def _list(names: Sequence[str]) -> str:
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return f"{', '.join(quoted(name) for name in names[:_NAMED])}{more}"
