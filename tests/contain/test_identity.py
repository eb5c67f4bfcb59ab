import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import msgspec

from proctor.contain.identity import (
    ProcessIdentity,
    descendants,
    find_agent,
    find_marked,
    identify,
    is_alive,
    pin,
    send_signal,
)


@contextmanager
def running(
    argv: Sequence[str], *, says: bytes = b"", env: Mapping[str, str] | None = None
) -> Iterator[subprocess.Popen[bytes]]:
    """A process that has said what it says, killed at the end."""
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=env) as popen:
        try:
            assert popen.stdout is not None
            assert popen.stdout.read(len(says)) == says
            yield popen
        finally:
            popen.kill()


def identity_of(pid: int) -> ProcessIdentity:
    identity = identify(pid)
    assert identity is not None
    return identity


def test_we_are_alive_and_known_by_our_own_program() -> None:
    us = identity_of(os.getpid())

    assert is_alive(us)
    assert us.exe == str(Path(sys.executable).resolve())


def test_nobody_is_identified_where_there_is_nobody() -> None:
    with subprocess.Popen(["true"]) as popen:
        pass

    assert identify(popen.pid) is None


def test_the_same_pid_started_at_another_time_or_boot_is_another_process() -> None:
    us = identity_of(os.getpid())

    assert not is_alive(msgspec.structs.replace(us, start_ticks=us.start_ticks + 1))
    assert not is_alive(msgspec.structs.replace(us, boot_id="another"))


def test_a_zombie_is_not_alive_and_cannot_be_pinned() -> None:
    with subprocess.Popen(["sleep", "300"]) as popen:
        identity = identity_of(popen.pid)
        assert is_alive(identity)
        popen.kill()
        os.waitid(os.P_PID, popen.pid, os.WEXITED | os.WNOWAIT)

        assert identify(popen.pid) is not None
        assert not is_alive(identity)
        assert pin(identity) is None


def test_a_process_whose_first_thread_has_ended_is_alive() -> None:
    code = (
        "import ctypes, threading, os\n"
        "def stay():\n"
        "    while open(f'/proc/{os.getpid()}/stat').read().rpartition(')')[2].split()[0] != 'Z': pass\n"
        "    os.write(1, b'Z')\n"
        "    threading.Event().wait(300)\n"
        "threading.Thread(target=stay).start()\n"
        "ctypes.CDLL(None).pthread_exit(None)\n"
    )
    with running([sys.executable, "-c", code], says=b"Z") as popen:
        assert is_alive(identity_of(popen.pid))


def test_a_name_full_of_parentheses_does_not_hide_the_start_time(tmp_path: Path) -> None:
    program = tmp_path / "a) S (b"
    cat = shutil.which("cat")
    assert cat is not None
    program.symlink_to(cat)

    with running([str(program)]) as plain:
        assert plain.stdin is not None
        assert is_alive(identity_of(plain.pid))
        assert identity_of(plain.pid).start_ticks >= identity_of(os.getpid()).start_ticks


def test_descendants_are_listed_generation_by_generation() -> None:
    with running(["sh", "-c", "sh -c 'sleep 300 & echo $$; wait' & echo $$; wait"]) as popen:
        assert popen.stdout is not None
        said = {int(popen.stdout.readline()) for _ in range(2)}

        child, grandchild = descendants(popen.pid)

        assert said == {popen.pid, child}
        assert grandchild in descendants(child)
        os.kill(grandchild, signal.SIGKILL)


def test_the_agent_is_the_nearest_process_with_another_line_even_if_it_runs_the_wrappers_program() -> None:
    # As a wrapper does: fork, then execute the agent in the child; the agent has a child of its own.
    wrap = "import os, sys\nif os.fork() == 0:\n    os.execv(sys.argv[1], sys.argv[1:])\nos.wait()\n"
    agent = "import subprocess\nwith subprocess.Popen(['cat']):\n    print('up', flush=True)\n"
    whole = [sys.executable, "-c", wrap, sys.executable, "-c", agent]
    with running(whole, says=b"up\n") as wrapper:
        wrapper_line = "".join(f"{word}\0" for word in whole).encode()
        pids = [wrapper.pid, *descendants(wrapper.pid)]
        found = find_agent(pids, is_wrapper=lambda line: line == wrapper_line)

        assert found is not None
        assert found.pid == next(descendants(wrapper.pid))
        assert found.exe == identity_of(wrapper.pid).exe


def test_a_wrapper_that_becomes_the_agent_is_the_agent() -> None:
    with running([sys.executable, "-c", "print('up', flush=True); input()"], says=b"up\n") as popen:
        assert find_agent([popen.pid], is_wrapper=lambda _: False) == identity_of(popen.pid)
        assert find_agent([popen.pid], is_wrapper=lambda _: True) is None, "it has not executed anything yet"


def test_the_marked_are_found_by_their_environment_and_others_are_not() -> None:
    def env(marker: str) -> dict[str, str]:
        return {**os.environ, "PROCTOR_SPAWN": marker}

    with (
        running(["cat"], env=env("identity-test-1")) as one,
        running(["cat"], env=env("identity-test-2")) as two,
        running(["cat"], env=env("identity-test-22")),
    ):
        found = set(find_marked({"identity-test-1", "identity-test-2"}))

        assert found == {("identity-test-1", identity_of(one.pid)), ("identity-test-2", identity_of(two.pid))}


def test_find_marked_with_an_attempt_yields_only_its_processes_of_that_spawn() -> None:
    def env(marker: str, attempt: str | None) -> dict[str, str]:
        return {**os.environ, "PROCTOR_SPAWN": marker} | ({"PROCTOR_ATTEMPT": attempt} if attempt else {})

    with (
        running(["cat"], env=env("identity-test-3", "a.codex.r1.1")) as one,
        running(["cat"], env=env("identity-test-3", "a.codex.r1.11")),
        running(["cat"], env=env("identity-test-3", None)),
        running(["cat"], env=env("identity-test-4", "a.codex.r1.1")),
    ):
        found = list(find_marked({"identity-test-3"}, attempt="a.codex.r1.1"))

        assert found == [("identity-test-3", identity_of(one.pid))]


def test_a_signal_by_pidfd_arrives_and_one_to_the_dead_is_no_error() -> None:
    with running(["cat"]) as popen:
        pidfd = pin(identity_of(popen.pid))
        assert pidfd is not None
        send_signal(pidfd, signal.SIGTERM)

        assert popen.wait(10) == -signal.SIGTERM
        send_signal(pidfd, signal.SIGTERM)
        os.close(pidfd)
