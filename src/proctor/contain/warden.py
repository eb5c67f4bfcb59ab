"""Standalone program that runs an agent and kills all of the agent's descendants at the end.

Usage: `warden.py PARENT PROGRAM ARGUMENT...`, where PARENT is the pid of the Proctor process that starts it. The warden
is a subreaper: descendants whose parent ends become its children. When the agent ends, when Proctor ends or on SIGTERM
it kills its children until none is left. The file is run by path and imports nothing from Proctor.
"""

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36


def main(parent: int, argv: list[str]) -> int:
    # Every signal is blocked, because an agent could end the warden with any of them.
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    prctl = ctypes.CDLL(None).prctl
    prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
    warden = os.getpid()
    # Checked after the death signal is set: a parent that died before that sends none.
    if os.getppid() != parent:
        return 126
    agent = os.fork()
    if agent == 0:
        # If the warden is killed, the agent dies with it. The agent's descendants do not.
        prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() == warden:
            execute(argv, mask=mask)
        os._exit(127)
    # The warden must not hold the agent's pipes open after the agent has ended.
    null = os.open("/dev/null", os.O_RDWR)
    for descriptor in range(3):
        os.dup2(null, descriptor)
    statuses: dict[int, int] = {}
    while agent not in statuses and signal.sigwait({signal.SIGCHLD, signal.SIGTERM}) == signal.SIGCHLD:
        collect_children(statuses, options=os.WNOHANG)
    kill_children(statuses)
    return exit_code(statuses[agent])


def execute(argv: list[str], *, mask: set[int | signal.Signals]) -> None:
    """Replace this process with the agent. If that fails, write the reason to stderr and return."""
    # Python ignores these two signals, and an executed program would inherit that.
    for number in (signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, mask)
    try:
        os.execv(argv[0], argv)  # noqa: S606
    except OSError as error:
        os.write(2, f"proctor-warden: {argv[0]}: {error.strerror}\n".encode())


def collect_children(statuses: dict[int, int], *, options: int) -> bool:
    """Wait for dead children and add their wait statuses, keyed by pid. Return False if there is no child left.

    With WNOHANG collect all that are dead now. Without options wait for exactly one.
    """
    try:
        while (dead := os.waitpid(-1, options))[0] != 0:
            # A pid can be reused, but the agent's not before it was collected: the first status for its pid is its own.
            statuses.setdefault(*dead)
            if not options:
                break
    except ChildProcessError:
        return False
    return True


def kill_children(statuses: dict[int, int]) -> None:
    """Kill and collect children until none is left.

    Only direct children are killed: their pids cannot be reused before they are collected here. Their own children
    then become children of the warden and are killed in the next round.
    """
    has_any = True
    while has_any:
        with open("/proc/thread-self/children", encoding="ascii") as file:  # noqa: PTH123
            children = file.read().split()
        for pid in children:
            try:
                os.kill(int(pid), signal.SIGKILL)
            except PermissionError:
                continue
        has_any = collect_children(statuses, options=0)


def exit_code(status: int) -> int:
    """Return the exit code that shells and bwrap use for a wait status: death by signal n is 128+n."""
    return os.WEXITSTATUS(status) if os.WIFEXITED(status) else 128 + os.WTERMSIG(status)


if __name__ == "__main__":
    # Skips the interpreter's shutdown, which costs some milliseconds.
    os._exit(main(int(sys.argv[1]), sys.argv[2:]))
