"""A program around an agent that ends all its descendants: `warden.py PARENT PROGRAM WORD...`, PARENT being our caller.

It adopts whatever loses its parent below it, and kills its children until it has none: when the agent has ended, when
its own parent has, or when asked to by SIGTERM. It is run by its path and imports nothing of ours.
"""

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36


def main(parent: int, argv: list[str]) -> int:
    # All of them: any other that an agent sends would end us.
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    prctl = ctypes.CDLL(None).prctl
    prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
    us = os.getpid()
    # Looked at when the death signal is set: who died before will not send it.
    if os.getppid() != parent:
        return 126
    agent = os.fork()
    if agent == 0:
        # If we are killed, so is the agent; what it has left behind then is not.
        prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() == us:
            become(argv, mask=mask)
        os._exit(127)
    # The agent's pipes must end with the agent.
    null = os.open("/dev/null", os.O_RDWR)
    for descriptor in range(3):
        os.dup2(null, descriptor)
    ends: dict[int, int] = {}
    while agent not in ends and signal.sigwait({signal.SIGCHLD, signal.SIGTERM}) == signal.SIGCHLD:
        bury(ends, options=os.WNOHANG)
    end_children(ends)
    return exit_code(ends[agent])


def become(argv: list[str], *, mask: set[int | signal.Signals]) -> None:
    """The agent, or words on stderr why not."""
    # An interpreter ignores these two, and what it executes would too.
    for number in (signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, mask)
    try:
        os.execv(argv[0], argv)  # noqa: S606
    except OSError as error:
        os.write(2, f"proctor-warden: {argv[0]}: {error.strerror}\n".encode())


def bury(ends: dict[int, int], *, options: int) -> bool:
    """Collect dead children, all there are or with no options one; false if there is no child at all."""
    try:
        while (dead := os.waitpid(-1, options))[0] != 0:
            # A pid may come again, the agent's never before it was collected.
            ends.setdefault(*dead)
            if not options:
                break
    except ChildProcessError:
        return False
    return True


def end_children(ends: dict[int, int]) -> None:
    """Kill our children, whose pids mean nobody else until we collect them; their own become ours and are next."""
    has_any = True
    while has_any:
        with open("/proc/thread-self/children", encoding="ascii") as file:  # noqa: PTH123
            children = file.read().split()
        for pid in children:
            try:
                os.kill(int(pid), signal.SIGKILL)
            except PermissionError:
                continue
        has_any = bury(ends, options=0)


def exit_code(status: int) -> int:
    """As shells and bwrap tell it: a death by signal n is 128+n."""
    return os.WEXITSTATUS(status) if os.WIFEXITED(status) else 128 + os.WTERMSIG(status)


if __name__ == "__main__":
    # Without the interpreter's own end, which costs some milliseconds.
    os._exit(main(int(sys.argv[1]), sys.argv[2:]))
