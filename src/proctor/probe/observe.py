"""Run one of the programs in `probe/inside` in the fence of a probe, and decode what it observed."""

import secrets
import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Generic, TypeVar

import anyio.to_thread
import msgspec

from proctor import decoding
from proctor.probe import inside
from proctor.probe.kind import ProbeWorkspace
from proctor.probe.view import View
from proctor.transport.process import ProcessResult

MAX_OBSERVATION_BYTES: Final = 32 * 1024 * 1024
_PROGRAMS: Final = Path(inside.__path__[0])
# The folder is not on sys.path of an isolated Python.
_START: Final = "import sys; sys.path.insert(0, sys.argv[1]); from inside.{0} import main; main()"

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Observed(Generic[T]):
    """What a program in the fence reported, and how it ended."""

    value: T | None
    """The observations; None if there are none, they do not parse or the program itself did not write them. That is a
    failure of the workspace unless the program could not be run."""
    finished: ProcessResult


async def observe(
    workspace: ProbeWorkspace,
    program: str,
    request: msgspec.Struct,
    type_: type[T],
    *,
    timeout_s: float,
    records: Sequence[str],
    view: View | None = None,
    python: str = sys.executable,
) -> Observed[T]:
    """Run `inside/PROGRAM.py` in the probe's fence, by default with Proctor's Python, and decode its observations.

    `records` is the command of the product that the program runs: the row names its programs. The request must hold
    steps and never an expectation: what runs in the fence can read it. Raises MachineError if the program cannot be
    started.
    """
    folder = workspace.tools
    await anyio.to_thread.run_sync(_lay_out_programs, folder)
    word = f"{secrets.token_hex(16)}\n".encode()
    finished = await workspace.run(
        (python, "-I", "-B", "-c", _START.format(program), str(folder)),
        timeout_s=timeout_s,
        max_output_bytes=MAX_OBSERVATION_BYTES,
        stdin=word + msgspec.json.encode(request),
        view=view,
        records=records,
    )
    is_whole = finished.exit is not None and finished.exit.code == 0 and not finished.stdout_cut
    value: T | None = None
    if is_whole and finished.stdout.startswith(word):
        value = _decode(finished.stdout.removeprefix(word), type_)
    return Observed(value=value, finished=finished)


def _lay_out_programs(folder: Path) -> None:
    """Copy the programs to a folder that the fence shows read-only: Proctor's own folders may be hidden there."""
    if not (folder / "inside").exists():
        shutil.copytree(_PROGRAMS, folder / "inside", ignore=shutil.ignore_patterns("__pycache__"))


def _decode(data: bytes, type_: Any) -> Any:
    try:
        return decoding.decode(data, type_)
    except (msgspec.DecodeError, msgspec.ValidationError, UnicodeDecodeError, RecursionError):
        return None
