"""What the cgroup and the warden catch when they themselves are attacked, and what they state they miss."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import anyio
import pytest

from proctor.contain.identity import children, identify, is_alive
from proctor.contain.intent import open_intents, owner_folders, read_intents
from proctor.contain.ladder import Containment, Variant
from proctor.contain.launch import LaunchPlan
from proctor.contain.reap import reap_leftovers
from proctor.transport.process import StopDeadlines, open_process
from tests.lab import wait_until

from .ways import HAS_CGROUP

Plan = Callable[[str], LaunchPlan]
SettleAt = Callable[[int], Sequence[int]]

SHORT = StopDeadlines(eof_s=0.1, term_s=0.1)
ORCHESTRATOR = Path(__file__).with_name("orchestrator.py")
cgroup = pytest.mark.parametrize("containment", [Variant.CGROUP] if HAS_CGROUP else [], indirect=True)
warden = pytest.mark.parametrize("containment", [Variant.WARDEN], indirect=True)


@contextmanager
def orchestrating(spawns: Path, line: str) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    argv = [sys.executable, str(ORCHESTRATOR), str(spawns), "sh", "-c", line]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as popen:
        try:
            assert popen.stdout is not None
            yield popen, int(popen.stdout.readline())
        finally:
            popen.kill()


def kill_all(pids: Sequence[int]) -> None:
    for pid in pids:
        os.kill(pid, signal.SIGKILL)


@pytest.mark.proctor_process
@cgroup
@pytest.mark.usefixtures("containment")
@pytest.mark.requirement("attempt.no-orphans")
def test_when_the_guard_is_killed_with_its_proctor_the_next_one_ends_the_cgroup(
    nap: str, settle_at: SettleAt, tmp_path: Path
) -> None:
    # Nothing but the cgroup tells whose the orphan is.
    line = f"sleep {nap} & (setsid env -i sleep {nap} &) ; exec sleep {nap}"
    with orchestrating(tmp_path / "spawns", line) as (popen, _):
        tree = settle_at(3)
        [guard] = [pid for pid in children(popen.pid) if "proctor-guard" in Path(f"/proc/{pid}/cmdline").read_text()]
        os.kill(guard, signal.SIGKILL)
        popen.kill()
        popen.wait(20)
        assert set(settle_at(3)) == set(tree), "nobody is left to end them"

        [folder] = owner_folders(tmp_path / "spawns")
        [intent] = read_intents(folder)
        [reaped] = reap_leftovers(tmp_path / "spawns")

        settle_at(0)
        assert (set(reaped.killed), reaped.is_gone) == (set(tree), True)
        assert intent.cgroup is not None
        assert not Path(intent.cgroup).parent.exists()


@cgroup
def test_nothing_is_left_of_a_cgroup_when_its_tree_is_gone(shell: Plan, tmp_path: Path) -> None:
    plan = shell("exec cat")
    assert plan.cgroup is not None

    async def main() -> None:
        async with open_intents(tmp_path / "spawns") as book:
            async with open_process(plan, intents=book) as process:
                assert plan.cgroup is not None
                assert (plan.cgroup / "cgroup.procs").read_text().split() == [str(process.wrapper.pid)]
            assert not plan.cgroup.exists()

    anyio.run(main)


@cgroup
def test_a_process_that_moves_itself_out_of_the_cgroup_is_missed_as_stated(
    shell: Plan, containment: Containment, nap: str, settle_at: SettleAt, tmp_path: Path
) -> None:
    out = Path(containment.tools[1]).parent / "cgroup.procs"
    # In a subshell that ends: a child of the agent's would be ended with it while that still lives.
    line = f"(setsid env -i sh -c 'echo $$ >{out}; exec sleep {nap}' &) ; exec sleep {nap}"

    async def main() -> None:
        async with open_intents(tmp_path / "spawns") as book, open_process(shell(line), intents=book, deadlines=SHORT):
            settle_at(2)

    anyio.run(main)
    [escaped] = settle_at(1)
    kill_all([escaped])
    assert any("can move itself out" in each for each in containment.misses)


@pytest.mark.proctor_process
@warden
@pytest.mark.requirement("attempt.no-orphans")
def test_when_the_warden_is_killed_too_an_unmarked_process_is_missed_as_stated_and_marked_ones_are_reaped(
    containment: Containment, nap: str, settle_at: SettleAt, tmp_path: Path
) -> None:
    line = f"sleep {nap} & setsid sleep {nap} & setsid env -i sleep {nap} & exec sleep {nap}"
    with orchestrating(tmp_path / "spawns", line) as (popen, agent):
        settle_at(4)
        [its_warden] = children(popen.pid)
        popen.send_signal(signal.SIGSTOP)
        os.kill(its_warden, signal.SIGKILL)
        popen.kill()
        popen.wait(20)
        # The agent itself dies with its warden.
        wait_until(lambda: (identity := identify(agent)) is None or not is_alive(identity))
        left = settle_at(3)

        [reaped] = reap_leftovers(tmp_path / "spawns")

        [missed] = settle_at(1)
        assert {*reaped.killed, missed} == set(left)
        assert Path(f"/proc/{missed}/environ").read_bytes() == b""
        kill_all([missed])
    assert any("kill -9 of the warden" in each for each in containment.misses)


@warden
@pytest.mark.requirement("attempt.no-orphans")
def test_an_agent_that_kills_its_warden_ends_itself_and_its_marked_children(
    shell: Plan, nap: str, settle_at: SettleAt, tmp_path: Path
) -> None:
    async def main() -> None:
        async with open_intents(tmp_path / "spawns") as book:
            plan = shell(f"echo $$; sleep {nap} & setsid sleep {nap} & read _; kill -9 $PPID; exec sleep {nap}")
            async with open_process(plan, intents=book, deadlines=SHORT) as process:
                agent = identify(int(await process.receive()))
                assert agent is not None
                settle_at(2)
                await process.send(b"go\n")
                await process.wait(deadline_s=20)
                # Before anything is stopped: the agent dies with its warden.
                wait_until(lambda: not is_alive(agent), deadline_s=10)
            assert read_intents(book.folder) == []

    anyio.run(main)
    settle_at(0)


@warden
@pytest.mark.parametrize("name", ["STOP", "TERM", "HUP", "USR1", "INT"])
def test_no_signal_that_an_agent_sends_its_warden_lets_anything_live(
    name: str, shell: Plan, nap: str, settle_at: SettleAt, tmp_path: Path
) -> None:
    async def main() -> None:
        async with open_intents(tmp_path / "spawns") as book:
            plan = shell(f"setsid env -i sleep {nap} & echo up; read _; kill -{name} $PPID; exec sleep {nap}")
            async with open_process(plan, intents=book, deadlines=SHORT) as process:
                assert await process.receive() == b"up\n"
                await process.send(b"go\n")

    anyio.run(main)
    settle_at(0)


@warden
def test_a_tree_that_forks_on_and_on_is_ended(shell: Plan, nap: str, settle_at: SettleAt, tmp_path: Path) -> None:
    hop = tmp_path / "hop.sh"
    hop.write_text(f'[ "$1" -gt 1000 ] && exec sleep {nap}\nsetsid env -i sh "$0" $(($1 + 1)) {nap} &\n')

    async def main() -> None:
        async with open_intents(tmp_path / "spawns") as book:
            plan = shell(f"sh {hop} 1 {nap} & echo up; exec cat")
            async with open_process(plan, intents=book, deadlines=SHORT) as process:
                assert await process.receive() == b"up\n"

    anyio.run(main)
    settle_at(0)
