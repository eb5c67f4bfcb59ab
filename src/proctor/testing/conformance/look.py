"""What there is on this machine beside us: processes, found by what stands on their command lines."""

import os
import secrets
import signal
from collections.abc import Callable
from pathlib import Path

import anyio

from proctor.contain.identity import children, descendants
from proctor.runtime.base import Executable
from proctor.testing.conformance.case import must

WAIT_S = 20.0
_LOOK_S = 0.02


def new_nap() -> str:
    """By this a command that lasts is known from all others on the machine."""
    return f"nap-{secrets.token_hex(8)}"


def napping(nap: str) -> str:
    """A command that lasts until it is ended."""
    # Not `sleep`: some agents will not have it (seen with Claude Code 2.1).
    return f"tail -F {nap}"


def processes_with(text: str) -> list[int]:
    """Live processes with this on their command line; zombies have none."""
    pids = [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]
    return [pid for pid in pids if pid != os.getpid() and text.encode() in b" ".join(_words(pid))]


async def until(holds: Callable[[], bool], what: str) -> None:
    """Another process does it, so nobody can tell us."""
    with anyio.move_on_after(WAIT_S):
        while not holds():  # noqa: ASYNC110
            await anyio.sleep(_LOOK_S)
    must(holds(), f"{what}: not within {WAIT_S:g} s")


async def until_asleep(nap: str) -> None:
    # The command itself: an agent's sandbox has it on its command line long before it runs.
    line = napping(nap).encode()
    await until(
        lambda: any(b" ".join(_words(pid)).strip() == line for pid in processes_with(nap)),
        "the agent's command does not run",
    )


async def until_gone(nap: str) -> None:
    await until(lambda: not processes_with(nap), "what the agent started still runs")


def agents_of(program: Executable | None) -> list[int]:
    """Processes below us that run the program, by its own file or as the script of an interpreter, parents first."""
    if program is None:
        return []
    paths = {program.path.encode(), program.real_path.encode()}
    # A wrapper has it further back on its command line.
    return [pid for pid in descendants(os.getpid()) if paths & set(_words(pid)[:3])]


def parent_of(nap: str) -> list[int]:
    """Of the command itself: whoever runs it, where that is no program of its own."""
    commands = [pid for pid in processes_with(nap) if b" ".join(_words(pid)).strip() == napping(nap).encode()]
    return [pid for pid in descendants(os.getpid()) if set(children(pid)) & set(commands)]


def kill(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)


def _words(pid: int) -> list[bytes]:
    try:
        return Path("/proc", str(pid), "cmdline").read_bytes().split(b"\0")
    except OSError:
        return []
