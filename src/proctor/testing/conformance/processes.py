"""Find and end processes on this machine, by the spawn intents and by their command lines."""

import os
import secrets
import signal
from collections.abc import Callable, Collection
from pathlib import Path

import anyio

from proctor import places
from proctor.contain.identity import ProcessIdentity, descendants, is_alive
from proctor.contain.intent import Intent, owner_folders, read_intents
from proctor.runtime.base import Executable
from proctor.testing.conformance.case import must

WAIT_S = 20.0
_LOOK_S = 0.02


def new_nap() -> str:
    """Return a unique text by which a long-running command is recognized on this machine."""
    return f"nap-{secrets.token_hex(8)}"


def napping(nap: str) -> str:
    """Return a command that runs until it is ended."""
    # Not `sleep`: some agents refuse it (seen with Claude Code 2.1).
    return f"tail -F {nap}"


def processes_with(text: str) -> list[int]:
    """Return the pids of live processes with this text on their command line. Zombies have no command line."""
    pids = [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]
    return [pid for pid in pids if pid != os.getpid() and text.encode() in b" ".join(_words(pid))]


async def until(holds: Callable[[], bool], what: str) -> None:
    """Poll until a condition is true, for at most WAIT_S seconds. Raises UnprovenError if it does not become true."""
    with anyio.move_on_after(WAIT_S):
        while not holds():  # noqa: ASYNC110
            await anyio.sleep(_LOOK_S)
    must(holds(), f"{what}: not within {WAIT_S:g} s")


async def until_asleep(nap: str) -> None:
    # Compares the whole command line: an agent's sandbox process contains the command before the command itself runs.
    line = napping(nap).encode()
    await until(
        lambda: any(b" ".join(_words(pid)).strip() == line for pid in processes_with(nap)),
        "the agent's command does not start",
    )


async def until_gone(nap: str) -> None:
    await until(lambda: not processes_with(nap), "a process that the agent started still runs")


def wake(nap: str) -> None:
    """End the command, as if it were finished."""
    for pid in processes_with(nap):
        if b" ".join(_words(pid)).strip() == napping(nap).encode():
            os.kill(pid, signal.SIGTERM)


def unsettled_intents() -> dict[str, Intent]:
    """Return the spawn intents of this process that are not settled yet, by marker."""
    owners = [each for each in owner_folders(places.spawns_dir()) if each.name.startswith(f"{os.getpid()}-")]
    return {intent.marker: intent for owner in owners for intent in read_intents(owner)}


def spawned(*, but: Collection[str] = ()) -> list[ProcessIdentity]:
    """Return the live agents in these intents. Finds agents that changed their command line too (node does)."""
    agents = [intent.agent for marker, intent in unsettled_intents().items() if marker not in but]
    return [agent for agent in agents if agent is not None and is_alive(agent)]


def strays_of(program: Executable | None) -> set[int]:
    """Return the pids of descendants that run the program, directly or as an interpreter's script."""
    if program is None:
        return set()
    paths = {program.path.encode(), program.real_path.encode()}
    # A wrapper has the program at a later position of its command line.
    return {pid for pid in descendants(os.getpid()) if paths & set(_words(pid)[:3])}


def kill(agent: ProcessIdentity) -> None:
    os.kill(agent.pid, signal.SIGKILL)


def _words(pid: int) -> list[bytes]:
    try:
        return Path("/proc", str(pid), "cmdline").read_bytes().split(b"\0")
    except OSError:
        return []
