import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path

import anyio
import msgspec
import pytest

from proctor.contain.cgroup import our_cgroup
from proctor.contain.identity import descendants, identify, is_alive
from proctor.contain.intent import IntentLog, open_intents, owner_folders
from proctor.contain.launch import new_marker
from proctor.contain.reap import ReapResult, reap_leftovers
from proctor.errors import MachineError
from tests.lab import wait_until
from tests.transport.ways import HAS_CGROUP

Start = Callable[..., subprocess.Popen[bytes]]


@pytest.fixture
def start() -> Iterator[Start]:
    """Starts a shell that waits, or a line that says `up` when it is; all are killed at the end."""
    started: list[subprocess.Popen[bytes]] = []

    # Not `exec cat`: for a moment a process that is being executed shows no environment at all.
    def start(line: str = "echo up; read -r _", *, env: Mapping[str, str] | None = None) -> subprocess.Popen[bytes]:
        popen = subprocess.Popen(
            ["sh", "-c", line],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
            env={**os.environ, **(env or {})},
        )
        started.append(popen)
        assert popen.stdout is not None
        assert popen.stdout.readline() == b"up\n"
        return popen

    yield start
    for popen in started:
        with popen:
            popen.kill()


def leave(spawns: Path, write: Callable[[IntentLog], object]) -> str:
    """An owner that writes its intents and dies. Gives back its name."""

    async def main() -> str:
        async with open_intents(spawns) as book:
            write(book)
            return book.folder.name

    return anyio.run(main)


def declare(marker: str, popen: subprocess.Popen[bytes] | None = None) -> Callable[[IntentLog], object]:
    def write(book: IntentLog) -> None:
        intent = book.declare(marker, argv=["cat"])
        if popen is not None:
            wrapper = identify(popen.pid)
            assert wrapper is not None
            book.identify(intent, wrapper=wrapper, agent=None)

    return write


def test_where_nothing_was_ever_spawned_there_is_nothing_to_reap(tmp_path: Path) -> None:
    assert reap_leftovers(tmp_path / "none") == ()


def test_a_marked_process_whose_pid_was_never_written_down_is_killed(tmp_path: Path, start: Start) -> None:
    marker = new_marker()
    popen = start(env={"PROCTOR_SPAWN": marker})
    owner = leave(tmp_path, declare(marker))

    assert reap_leftovers(tmp_path) == (
        ReapResult(owner=owner, marker=marker, argv=("cat",), killed=(popen.pid,), is_gone=True),
    )
    assert popen.wait(10) == -signal.SIGKILL
    assert owner_folders(tmp_path) == []


@pytest.mark.requirement("attempt.no-orphans")
def test_a_known_process_is_killed_with_descendants_that_carry_no_marker_even_if_stopped(
    tmp_path: Path, start: Start
) -> None:
    popen = start("setsid env -i sleep 300 & sleep 300 & kill -STOP $! ; echo up; wait")
    tree = [identify(pid) for pid in descendants(popen.pid)]
    assert len(tree) == 2
    popen.send_signal(signal.SIGSTOP)
    marker = new_marker()
    leave(tmp_path, declare(marker, popen))

    [reaped] = reap_leftovers(tmp_path)

    assert set(reaped.killed) == {popen.pid, *(each.pid for each in tree if each)}
    assert not any(each and is_alive(each) for each in tree)
    assert popen.wait(10) == -signal.SIGKILL


def test_a_pid_that_now_means_another_process_is_left_alone(tmp_path: Path, start: Start) -> None:
    popen = start()

    def write(book: IntentLog) -> None:
        intent = book.declare("reused", argv=["cat"])
        identity = identify(popen.pid)
        assert identity is not None
        other_start = msgspec.structs.replace(identity, start_ticks=identity.start_ticks - 1)
        other_boot = msgspec.structs.replace(identity, boot_id="another")
        book.identify(intent, wrapper=other_start, agent=other_boot)

    owner = leave(tmp_path, write)

    assert reap_leftovers(tmp_path) == (
        ReapResult(owner=owner, marker="reused", argv=("cat",), killed=(), is_gone=True),
    )
    assert popen.poll() is None
    assert owner_folders(tmp_path) == []


@pytest.mark.requirement("attempt.no-orphans")
def test_a_live_owners_processes_are_left_alone_while_a_dead_ones_are_killed(tmp_path: Path, start: Start) -> None:
    theirs, ours = new_marker(), new_marker()
    dead, live = start(env={"PROCTOR_SPAWN": theirs}), start(env={"PROCTOR_SPAWN": ours})
    leave(tmp_path, declare(theirs, dead))

    async def main() -> None:
        async with open_intents(tmp_path) as book:
            declare(ours, live)(book)
            assert [each.marker for each in reap_leftovers(tmp_path)] == [theirs]
            assert owner_folders(tmp_path) == [book.folder]

    anyio.run(main)
    assert dead.wait(10) == -signal.SIGKILL
    assert live.poll() is None


def test_a_reaper_that_carries_the_marker_itself_spares_itself_and_its_children(tmp_path: Path, start: Start) -> None:
    us, child = identify(os.getpid()), start()
    assert us is not None

    def write(book: IntentLog) -> None:
        book.identify(book.declare("us", argv=["proctor"]), wrapper=us, agent=None)

    leave(tmp_path, write)

    assert [each.killed for each in reap_leftovers(tmp_path)] == [()]
    assert child.poll() is None


# A Proctor that a leftover process runs: it has a child, its guard if there are cgroups, and reaps.
NESTED = """
import os, subprocess, sys
from pathlib import Path
from proctor.contain import cgroup
from proctor.contain.identity import children
from proctor.contain.reap import reap_leftovers

if len(sys.argv) > 2:
    Path(sys.argv[2], "cgroup.procs").write_text(str(os.getpid()))
    cgroup.make(cgroup.our_cgroup() / "agent")
child = subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL)
before = set(children(os.getpid()))
for each in reap_leftovers(Path(sys.argv[1])):
    print(each.killed, each.is_gone)
child.poll()
print(len(before), before - set(children(os.getpid())))
child.kill()
"""


def run_nested(marker: str, *words: str) -> tuple[int, list[str]]:
    """Run it in a marked shell. Returns the shell's pid and what was printed."""
    shell = subprocess.Popen(
        ["sh", "-c", '"$@"; exit 0', "sh", sys.executable, "-c", NESTED, *words],
        stdout=subprocess.PIPE,
        env={**os.environ, "PROCTOR_SPAWN": marker},
        text=True,
    )
    printed, _ = shell.communicate(timeout=60)
    return shell.pid, printed.splitlines()


@pytest.mark.proctor_process
@pytest.mark.requirement("attempt.no-orphans")
def test_a_reaper_below_a_leftover_kills_the_leftover_and_spares_its_own_children(tmp_path: Path) -> None:
    marker = new_marker()
    leave(tmp_path, declare(marker))

    shell, printed = run_nested(marker, str(tmp_path))

    assert printed == [f"({shell},) True", "1 set()"]


@pytest.fixture
def group() -> Iterator[Path]:
    """A cgroup, removed once its last process has ended."""
    group = our_cgroup().with_name(f"proctor-test-{new_marker()}")
    group.mkdir()
    yield group

    def is_removed() -> bool:
        with suppress(OSError):
            group.rmdir()
        return not group.exists()

    wait_until(is_removed)


@pytest.mark.skipif(not HAS_CGROUP, reason="no cgroup is delegated here")
@pytest.mark.proctor_process
@pytest.mark.requirement("attempt.no-orphans")
def test_a_reaper_in_the_cgroup_of_a_leftover_spares_itself_and_its_own_guard(tmp_path: Path, group: Path) -> None:
    marker = new_marker()
    leave(tmp_path, lambda book: book.declare(marker, argv=["cat"], cgroup=group))

    shell, printed = run_nested(marker, str(tmp_path), str(group))

    assert printed == [f"({shell},) True", "2 set()"]


def test_what_cannot_be_killed_in_time_is_told_and_stays_on_the_books(tmp_path: Path, start: Start) -> None:
    marker = new_marker()
    popen = start(env={"PROCTOR_SPAWN": marker})
    owner = leave(tmp_path, declare(marker, popen))

    # With no time at all the kill is sent, but its effect is not waited for; either answer must fit the books.
    [reaped] = reap_leftovers(tmp_path, timeout_s=0)

    assert reaped.killed == (popen.pid,)
    assert [each.name for each in owner_folders(tmp_path)] == ([] if reaped.is_gone else [owner])
    assert popen.wait(10) == -signal.SIGKILL


def test_where_leftovers_cannot_be_looked_for_none_are_said_to_be_gone(tmp_path: Path) -> None:
    (tmp_path / "spawns").write_text("no folder")
    with pytest.raises(MachineError, match="cannot read spawn intents"):
        reap_leftovers(tmp_path / "spawns")
