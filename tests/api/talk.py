"""Scripts for conversations, and what is looked at after them."""

import os
import signal
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Any, TypeVar

import anyio
import yaml

from proctor import places
from tests.lab import processes_with, wait_until

T = TypeVar("T")
DEADLINE_S = 90.0
_numbers = count(1)


def nap() -> str:
    """A command that runs for long and is like no other, even where tests run side by side."""
    return f"sleep 3{os.getpid()}.{next(_numbers)}"


def script(folder: Path, *steps: Mapping[str, Any]) -> Path:
    """A script file of these steps."""
    file = folder / f"script-{len(list(folder.iterdir()))}.yaml"
    file.write_text(yaml.safe_dump({"version": 1, "steps": list(steps)}))
    return file


def bounded(work: Callable[[], Awaitable[T]]) -> T:
    """Run it to its end, or fail."""

    async def in_time() -> T:
        with anyio.fail_after(DEADLINE_S):
            return await work()

    return anyio.run(in_time)


def scratch() -> set[str]:
    """Folders of runs and sessions in the user's cache."""
    runs = places.cache_dir() / "runs"
    return {each.name for each in runs.iterdir()} if runs.is_dir() else set()


def assert_gone(command: str) -> None:
    """What was killed is gone a moment later."""
    wait_until(lambda: not processes_with(command), deadline_s=10)


def kill_agents() -> None:
    """The app-servers that this test process started, and what is around them."""
    for agent in processes_with("app-server\0--listen"):
        # One that is gone already went with another.
        with suppress(OSError):
            above = agent
            while above > 1 and above != os.getpid():
                above = int(Path(f"/proc/{above}/stat").read_text().rpartition(")")[2].split()[1])
            if above == os.getpid():
                os.kill(agent, signal.SIGKILL)
