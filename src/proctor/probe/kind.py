"""What a kind of probe is given, and what it gives back."""

import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Protocol

from proctor.contain.fences import Fences
from proctor.contain.intent import IntentBook
from proctor.contain.ladder import Containment
from proctor.contain.launch import new_marker, wrap
from proctor.evidence.redact import Redactor
from proctor.probe.model import Verdict
from proctor.transport.process import Finished, run_once

MAX_OUTPUT_BYTES: Final = 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Bench:
    """A fresh copy of the workspace, and the only way to run something in it: contained, with no inherited variable.

    `fence` makes the fences for a program; without it files and network are open. What a kind shows of an output it
    redacts before it cuts: half a secret is not recognised.
    """

    workspace: Path
    env: Mapping[str, str]
    containment: Containment
    intents: IntentBook
    redactor: Redactor
    fence: Callable[[str], Fences] | None = None

    def has_tool(self, program: str) -> bool:
        """Whether the machine, not the workspace, offers it."""
        return shutil.which(program, path=self.env["PATH"]) is not None

    async def run(self, argv: Sequence[str], *, timeout_s: float, max_output_bytes: int = MAX_OUTPUT_BYTES) -> Finished:
        fences = None if self.fence is None else self.fence(argv[0])
        plan = wrap(self.containment, argv, env=self.env, cwd=self.workspace, marker=new_marker(), fences=fences)
        return await run_once(plan, intents=self.intents, timeout_s=timeout_s, max_output_bytes=max_output_bytes)


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """A kind's verdict, with what it was drawn from. `summary` says what was observed, never what was expected."""

    verdict: Verdict
    summary: str
    argv: tuple[str, ...] = ()
    finished: Finished | None = None


class Kind(Protocol):
    """One way to probe. What it raises becomes a row that says it could not judge."""

    async def __call__(self, spec: Any, bench: Bench) -> Judgement: ...


def sanitised(*, search_path: str, home: Path, temporary: Path) -> dict[str, str]:
    """The whole environment of a probe. A relative entry of PATH would find the agent's programs, so it is left out.

    >>> sanitised(search_path="/usr/bin:.::bin", home=Path("/h"), temporary=Path("/t"))["PATH"]
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
    """Where a probe's programs are looked for."""
    return os.pathsep.join(entry for entry in search_path.split(os.pathsep) if Path(entry).is_absolute())
