"""The interface of a kind of probe: its input, its result and its environment."""

import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Protocol

from proctor.contain.fences import Fences
from proctor.contain.intent import IntentLog
from proctor.contain.ladder import Containment
from proctor.contain.launch import new_marker, wrap
from proctor.evidence.redact import Redactor
from proctor.probe.model import Fault, Verdict
from proctor.transport.process import ProcessResult, run_once

MAX_OUTPUT_BYTES: Final = 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeWorkspace:
    """A fresh copy of the workspace for one probe, and the only way to run a program in it."""

    workspace: Path
    env: Mapping[str, str]
    """The complete environment of the probe's programs; nothing is inherited."""
    containment: Containment
    intents: IntentLog
    redactor: Redactor
    """Must be applied to program output before the output is shortened: a partial secret is not recognized."""
    fence: Callable[[str], Fences] | None = None
    """Returns the fences for a program; None leaves files and network unrestricted."""

    def has_tool(self, program: str) -> bool:
        """Return whether the machine (not the workspace) has the program."""
        return shutil.which(program, path=self.env["PATH"]) is not None

    async def run(
        self, argv: Sequence[str], *, timeout_s: float, max_output_bytes: int = MAX_OUTPUT_BYTES
    ) -> ProcessResult:
        """Run a program in the workspace, contained. Raises MachineError if it cannot be started."""
        fences = None if self.fence is None else self.fence(argv[0])
        plan = wrap(self.containment, argv, env=self.env, cwd=self.workspace, marker=new_marker(), fences=fences)
        return await run_once(plan, intents=self.intents, timeout_s=timeout_s, max_output_bytes=max_output_bytes)


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """The verdict of a probe kind, with the observation behind it."""

    verdict: Verdict
    summary: str
    """What was observed, never what was expected: an agent may be shown it."""
    argv: tuple[str, ...] = ()
    """The command line that was run; empty if none was."""
    finished: ProcessResult | None = None
    """The result of the command; None if none was run."""
    fault: Fault | None = None
    """Where the cause lies if the verdict is `unavailable`; None for other verdicts."""


class ProbeKind(Protocol):
    """One kind of probe. An exception that it raises is recorded as the verdict `unavailable`.

    A MachineError, or an OSError that says that the machine lacks a resource, is the machine's fault. Any other
    exception lies with the workspace: the same probe could judge the untouched one.
    """

    async def __call__(self, spec: Any, bench: ProbeWorkspace) -> Judgement: ...


def probe_environment(*, search_path: str, home: Path, temporary: Path) -> dict[str, str]:
    """Return the complete environment of a probe. Relative entries of PATH, which the agent could fill, are left out.

    >>> probe_environment(search_path="/usr/bin:.::bin", home=Path("/h"), temporary=Path("/t"))["PATH"]
    '/usr/bin'
    """
    return {
        "PATH": search_path_of(search_path),
        "HOME": str(home),
        "TMPDIR": str(temporary),
        "LANG": "C.UTF-8",
        "PYTHONDONTWRITEBYTECODE": "1",
    }


def search_path_of(search_path: str) -> str:
    """Return a search path without its relative entries: where a probe's programs are looked up."""
    return os.pathsep.join(entry for entry in search_path.split(os.pathsep) if Path(entry).is_absolute())
