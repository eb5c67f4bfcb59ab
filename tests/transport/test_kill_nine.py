import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import anyio
import pytest

from proctor.contain.identity import is_alive
from proctor.contain.intent import open_intents, owner_folders
from proctor.contain.launch import LaunchPlan
from proctor.contain.reap import reap_leftovers
from proctor.transport.process import open_process

from .ways import WAYS

Plan = Callable[[str], LaunchPlan]
SettleAt = Callable[[int], Sequence[int]]

every_way = pytest.mark.parametrize("containment", WAYS, indirect=True)
ORCHESTRATOR = Path(__file__).with_name("orchestrator.py")


@contextmanager
def orchestrating(spawns: Path, line: str) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    """Another Proctor with one agent, and that agent's host pid."""
    argv = [sys.executable, str(ORCHESTRATOR), str(spawns), "sh", "-c", line]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as popen:
        try:
            assert popen.stdout is not None
            yield popen, int(popen.stdout.readline())
        finally:
            popen.kill()


@pytest.mark.proctor_process
@every_way
@pytest.mark.usefixtures("containment")
@pytest.mark.requirement("attempt.no-orphans")
@pytest.mark.parametrize("agent", ["ends at EOF but is stopped", "ignores EOF"])
def test_after_kill_nine_the_tree_ends_at_once_and_a_reaping_clears_the_books(
    agent: str, nap: str, settle_at: SettleAt, tmp_path: Path
) -> None:
    last = "cat" if "stopped" in agent else f"sleep {nap}"
    with orchestrating(tmp_path / "spawns", f"sleep {nap} & setsid env -i sleep {nap} & exec {last}") as (
        popen,
        agent_pid,
    ):
        settle_at(2 if "stopped" in agent else 3)
        if "stopped" in agent:
            os.kill(agent_pid, signal.SIGSTOP)
        popen.kill()
        popen.wait(20)

        settle_at(0)
        [reaped] = reap_leftovers(tmp_path / "spawns")
        assert reaped.is_gone
        assert owner_folders(tmp_path / "spawns") == []


@pytest.mark.proctor_process
@every_way
@pytest.mark.usefixtures("containment")
def test_an_interrupted_proctor_stops_its_tree_and_settles_its_books(
    nap: str, settle_at: SettleAt, tmp_path: Path
) -> None:
    with orchestrating(tmp_path / "spawns", f"setsid env -i sleep {nap} & exec sleep {nap}") as (popen, _):
        settle_at(2)
        popen.send_signal(signal.SIGINT)
        popen.wait(20)

        settle_at(0)
        assert owner_folders(tmp_path / "spawns") == []


@pytest.mark.proctor_process
@pytest.mark.requirement("attempt.no-orphans")
def test_the_processes_of_a_second_live_proctor_are_untouched(
    shell: Plan, nap: str, settle_at: SettleAt, tmp_path: Path
) -> None:
    async def main() -> None:
        async with (
            open_intents(tmp_path / "spawns") as book,
            open_process(shell("exec cat"), intents=book) as process,
        ):
            with orchestrating(tmp_path / "spawns", f"exec sleep {nap}") as (popen, _):
                settle_at(1)
                assert reap_leftovers(tmp_path / "spawns") == ()
                popen.kill()
                popen.wait(20)
                assert len(reap_leftovers(tmp_path / "spawns")) == 1
                settle_at(0)
            assert process.agent is not None
            assert is_alive(process.agent)
            await process.send(b"still here")
            assert await process.receive() == b"still here"

    anyio.run(main)
