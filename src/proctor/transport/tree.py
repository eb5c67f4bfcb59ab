"""A contained process tree: find its processes, read its exit status, and stop all of it in bounded time."""

import os
import select
import signal
import subprocess
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain

import anyio
import anyio.to_thread

from proctor.contain import cgroup
from proctor.contain.identity import (
    ProcessIdentity,
    descendants,
    find_agent,
    find_leader,
    identify,
    pin,
    send_signal,
)
from proctor.contain.ladder import Variant
from proctor.contain.launch import LaunchPlan
from proctor.contain.reap import kill_trees

_FIRST_POLL_S = 0.004
_LONGEST_POLL_S = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class StopDeadlines:
    """How many seconds each stage of starting and stopping a process tree may take."""

    appear_s: float = 2.0
    """From the start of the wrapper until the agent is seen inside it."""
    eof_s: float = 1.0
    """From closing stdin until SIGTERM."""
    term_s: float = 1.0
    """From SIGTERM until the tree is killed; 0 skips SIGTERM."""
    kill_s: float = 5.0
    """How long to wait for the processes to end after SIGKILL."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExitStatus:
    """How a process ended, as far as its wrapper reports it."""

    code: int | None = None
    """The exit code; None if the process was killed by a signal or did not end."""
    signal: int | None = None
    """The signal that killed the process; None if it exited or did not end."""
    is_exact: bool = True
    """False if the wrapper's report is ambiguous or missing.

    bwrap and the warden report 128+n both for death by signal n and for that exit code; `code` and `signal` are then
    both set. unshare reports 1 both for exit code 1 and for death by SIGKILL. A process that survives SIGKILL has
    neither.
    """


def decode_exit(returncode: int, *, variant: Variant) -> ExitStatus:
    """Return the exit status for the return code of a wrapper.

    >>> decode_exit(137, variant=Variant.BWRAP)
    ExitStatus(code=137, signal=9, is_exact=False)
    >>> decode_exit(1, variant=Variant.UNSHARE)
    ExitStatus(code=1, signal=None, is_exact=False)
    >>> decode_exit(-9, variant=Variant.CGROUP)
    ExitStatus(code=None, signal=9, is_exact=True)
    """
    if returncode < 0:
        return ExitStatus(signal=-returncode)
    if variant is Variant.UNSHARE:
        return ExitStatus(code=returncode, is_exact=returncode != 1)
    if variant is not Variant.CGROUP and 128 < returncode <= 128 + signal.SIGRTMAX:
        return ExitStatus(code=returncode, signal=returncode - 128, is_exact=False)
    return ExitStatus(code=returncode)


class ProcessTree:
    """The wrapper that Proctor started, the first process of its namespace, and the agent; each held by a pidfd.

    With a pid namespace, the death of the wrapper ends all processes. A warden must be asked by SIGTERM; once it has
    ended, so have all others. With a cgroup, the wrapper process is replaced by the agent, and its death ends no other
    process.
    """

    def __init__(self, popen: subprocess.Popen[bytes], *, plan: LaunchPlan, deadlines: StopDeadlines) -> None:
        wrapper = identify(popen.pid)
        assert wrapper is not None, "a child is in /proc until its parent collects it"
        self.wrapper = wrapper
        self.agent: ProcessIdentity | None = None
        self.is_gone = False
        self._popen = popen
        self._plan = plan
        self._deadlines = deadlines
        self._is_wrapper = plan.wrapper_test()
        self._leader: ProcessIdentity | None = None
        self._wrapper_fd: int | None = os.pidfd_open(popen.pid)
        self._leader_fd: int | None = None
        self._agent_fd: int | None = None

    @property
    def exit(self) -> ExitStatus | None:
        returncode = self._popen.poll()
        return None if returncode is None else decode_exit(returncode, variant=self._plan.containment.variant)

    async def wait_for_agent(self) -> None:
        """Wait until the wrapper has executed the agent or has ended, or the deadline passes."""
        with anyio.move_on_after(self._deadlines.appear_s):
            await self._until_seen()

    async def wait(self, *, deadline_s: float) -> ExitStatus | None:
        """Wait at most `deadline_s` seconds for the wrapper to end. Return None if it still runs then."""
        # Does not wait for EOF: any process that inherited a pipe may hold it open.
        if self._popen.poll() is None and self._wrapper_fd is not None:
            with anyio.move_on_after(deadline_s):
                # A late start still has to be seen, to distinguish an agent that ran from one that never did.
                await self._until_seen()
                await _until_dead(self._wrapper_fd)
        return self.exit

    async def stop(self) -> ExitStatus:
        """Stop the whole tree, after stdin was closed: wait, then SIGTERM to the agent, then kill all that is left."""
        if await self.wait(deadline_s=self._deadlines.eof_s) is None:
            self._find_processes()
        if self.exit is None and self._agent_fd is not None and self._deadlines.term_s > 0:
            # Not to the wrapper: on SIGTERM bwrap kills the tree at once, and unshare ignores it.
            send_signal(self._agent_fd, signal.SIGTERM)
            await self.wait(deadline_s=self._deadlines.term_s)
        if self.exit is None:
            self._kill_containment()
            await self.wait(deadline_s=self._deadlines.kill_s)
        if not self.is_gone:
            await self._kill_remaining()
        return self.exit or ExitStatus(is_exact=False)

    def kill_now(self) -> None:
        """Kill the tree by all its known processes and its marker, without awaiting. Blocks for bounded time.

        For a tree whose processes were not all seen, or whose `stop` was cancelled.
        """
        if self._plan.containment.variant is Variant.WARDEN and self._popen.poll() is None:
            # The warden must go on living while the others are killed, to adopt the processes they leave behind.
            self._kill_containment()
            with suppress(subprocess.TimeoutExpired):
                self._popen.wait(timeout=self._deadlines.kill_s)
        known = [each for each in (self.wrapper, self._leader, self.agent) if each is not None]
        cgroups = {} if self._plan.cgroup is None else {self._plan.marker: self._plan.cgroup}
        deaths = kill_trees({self._plan.marker: known}, cgroups=cgroups, timeout_s=self._deadlines.kill_s)
        with suppress(subprocess.TimeoutExpired):
            self._popen.wait(timeout=self._deadlines.kill_s)
        self.is_gone = not deaths.survived and self._popen.returncode is not None

    def release(self) -> None:
        """Close the pidfds, and remove the cgroup if the tree has ended."""
        pins = (self._wrapper_fd, self._leader_fd, self._agent_fd)
        self._wrapper_fd = self._leader_fd = self._agent_fd = None
        for pidfd in pins:
            if pidfd is not None:
                os.close(pidfd)
        if self.is_gone and self._plan.cgroup is not None:
            cgroup.remove(self._plan.cgroup)

    def _kill_containment(self) -> None:
        if self._plan.cgroup is not None:
            cgroup.kill(self._plan.cgroup)
        elif self._wrapper_fd is not None:
            if self._plan.containment.variant is Variant.WARDEN:
                send_signal(self._wrapper_fd, signal.SIGTERM)
                # A stopped warden (its agent may send it SIGSTOP) would not receive the SIGTERM.
                send_signal(self._wrapper_fd, signal.SIGCONT)
            else:
                send_signal(self._wrapper_fd, signal.SIGKILL)

    async def _kill_remaining(self) -> None:
        """Kill processes that may be left after the wrapper has ended, and set `is_gone`."""
        if self.exit is not None and self._leader_fd is not None:
            # Killing its first process ends a namespace. That process is dead only when all others in it are.
            send_signal(self._leader_fd, signal.SIGKILL)
            with anyio.move_on_after(self._deadlines.kill_s):
                await _until_dead(self._leader_fd)
                self.is_gone = True
        elif self.exit is not None and self._is_empty():
            self.is_gone = True
        else:
            await anyio.to_thread.run_sync(self.kill_now)

    def _is_empty(self) -> bool:
        if self._plan.cgroup is not None:
            return not cgroup.members(self._plan.cgroup)
        # A warden that was killed by a signal may have left processes running.
        return self._plan.containment.variant is Variant.WARDEN and self._popen.returncode >= 0

    async def _until_seen(self) -> None:
        """Poll until the agent is seen or the wrapper has ended."""
        pause_s = _FIRST_POLL_S
        while self.agent is None and self.exit is None and self._wrapper_fd is not None:
            # The end of the wrapper cuts a pause short: many probes last no longer than one.
            with anyio.move_on_after(pause_s):
                await _until_dead(self._wrapper_fd)
            self._find_processes()
            pause_s = min(pause_s * 2, _LONGEST_POLL_S)

    def _find_processes(self) -> None:
        """Store the first process of the namespace and the agent, if they exist yet."""
        if self._leader_fd is None and self._plan.containment.rung == 1:
            leader = find_leader(self.wrapper.pid)
            if leader is not None:
                self._leader, self._leader_fd = leader, pin(leader)
        if self.agent is None:
            agent = find_agent(self._candidates(), is_wrapper=self._is_wrapper)
            if agent is not None:
                self.agent, self._agent_fd = agent, pin(agent)

    def _candidates(self) -> Iterable[int]:
        """Return the pids among which the agent's is. The wrapper's own is one only in a cgroup, which it joins.

        In a namespace, only processes inside it are: a wrapper that is a script may run other programs first.
        """
        if self._plan.cgroup is not None:
            return (self.wrapper.pid,)
        if self._plan.containment.rung != 1:
            return descendants(self.wrapper.pid)
        return () if self._leader is None else chain((self._leader.pid,), descendants(self._leader.pid))


async def _until_dead(pidfd: int) -> None:
    poll = select.poll()
    poll.register(pidfd, select.POLLIN)
    if poll.poll(0):
        return
    # Each waiter uses its own copy: anyio allows only one waiter per descriptor.
    copy = os.dup(pidfd)
    try:
        await anyio.wait_readable(copy)
    finally:
        os.close(copy)
