"""A contained process tree as its parent sees it: who is in it, how it ended, and a stop that always ends."""

import os
import select
import signal
import subprocess
from contextlib import suppress
from dataclasses import dataclass

import anyio
import anyio.to_thread

from proctor.contain import cgroup
from proctor.contain.identity import Identity, children, find_agent, identify, pin, send_signal
from proctor.contain.ladder import Variant
from proctor.contain.launch import LaunchPlan
from proctor.contain.reap import kill_trees

_FIRST_LOOK_S = 0.004
_LONGEST_LOOK_S = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """How long each stage may take: the agent to appear, then to end by itself, by SIGTERM, by SIGKILL."""

    appear_s: float = 2.0
    eof_s: float = 1.0
    term_s: float = 1.0
    kill_s: float = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ExitStatus:
    """How a process ended, as far as its wrapper tells.

    `is_exact` is false where that is not known: bwrap says 128+n for death by signal n and for that exit code, so both
    are given; unshare says 1 for exit code 1 and for death by SIGKILL; what outlives SIGKILL says nothing.
    """

    code: int | None = None
    signal: int | None = None
    is_exact: bool = True


def decode_exit(returncode: int, *, variant: Variant) -> ExitStatus:
    """
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
    """The wrapper we spawned, the first process of its namespace, and the agent; each pinned by a pidfd.

    In a namespace the wrapper's death ends all. A warden has to be asked, and has ended all when it ends; in a cgroup
    the wrapper has become the agent, and its death ends nobody else.
    """

    def __init__(self, popen: subprocess.Popen[bytes], *, plan: LaunchPlan, patience: Patience) -> None:
        wrapper = identify(popen.pid)
        assert wrapper is not None, "our own child is in /proc until we collect it"
        self.wrapper = wrapper
        self.agent: Identity | None = None
        self.is_gone = False
        self._popen = popen
        self._plan = plan
        self._patience = patience
        self._is_wrapper = plan.wrapper_test()
        self._leader: Identity | None = None
        self._wrapper_fd: int | None = os.pidfd_open(popen.pid)
        self._leader_fd: int | None = None
        self._agent_fd: int | None = None

    @property
    def exit(self) -> ExitStatus | None:
        returncode = self._popen.poll()
        return None if returncode is None else decode_exit(returncode, variant=self._plan.containment.variant)

    async def appear(self) -> None:
        """Until the wrapper has executed the agent or has ended. Nothing tells us, so we look."""
        pause_s = _FIRST_LOOK_S
        with anyio.move_on_after(self._patience.appear_s):
            while self.agent is None and self.exit is None:
                await anyio.sleep(pause_s)
                self._look()
                pause_s = min(pause_s * 2, _LONGEST_LOOK_S)

    async def wait(self, *, deadline_s: float) -> ExitStatus | None:
        # Not for EOF: whoever inherited a pipe may hold it open.
        if self._popen.poll() is None and self._wrapper_fd is not None:
            with anyio.move_on_after(deadline_s):
                await _until_dead(self._wrapper_fd)
        return self.exit

    async def stop(self) -> ExitStatus:
        """For a tree whose stdin is closed: patience, then SIGTERM to the agent, then an end to the whole tree."""
        if await self.wait(deadline_s=self._patience.eof_s) is None:
            self._look()
        if self.exit is None and self._agent_fd is not None and self._patience.term_s > 0:
            # Not to the wrapper: bwrap answers by killing the tree without grace, unshare ignores it.
            send_signal(self._agent_fd, signal.SIGTERM)
            await self.wait(deadline_s=self._patience.term_s)
        if self.exit is None:
            self._strike()
            await self.wait(deadline_s=self._patience.kill_s)
        if not self.is_gone:
            await self._sweep()
        return self.exit or ExitStatus(is_exact=False)

    def put_down(self) -> None:
        """Without awaiting anything: for a tree that was never seen whole, or whose stop was itself cut off."""
        if self._plan.containment.variant is Variant.WARDEN and self._popen.poll() is None:
            # Killed with the others, it could not adopt what they leave behind.
            self._strike()
            with suppress(subprocess.TimeoutExpired):
                self._popen.wait(timeout=self._patience.kill_s)
        known = [each for each in (self.wrapper, self._leader, self.agent) if each is not None]
        cgroups = {} if self._plan.cgroup is None else {self._plan.marker: self._plan.cgroup}
        deaths = kill_trees({self._plan.marker: known}, cgroups=cgroups, patience_s=self._patience.kill_s)
        with suppress(subprocess.TimeoutExpired):
            self._popen.wait(timeout=self._patience.kill_s)
        self.is_gone = not deaths.survived and self._popen.returncode is not None

    def release(self) -> None:
        pins = (self._wrapper_fd, self._leader_fd, self._agent_fd)
        self._wrapper_fd = self._leader_fd = self._agent_fd = None
        for pidfd in pins:
            if pidfd is not None:
                os.close(pidfd)
        if self.is_gone and self._plan.cgroup is not None:
            cgroup.remove(self._plan.cgroup)

    def _strike(self) -> None:
        if self._plan.cgroup is not None:
            cgroup.kill(self._plan.cgroup)
        elif self._wrapper_fd is not None:
            if self._plan.containment.variant is Variant.WARDEN:
                send_signal(self._wrapper_fd, signal.SIGTERM)
                # A warden that was stopped, by its agent say, would not hear of it.
                send_signal(self._wrapper_fd, signal.SIGCONT)
            else:
                send_signal(self._wrapper_fd, signal.SIGKILL)

    async def _sweep(self) -> None:
        """What may be left when the wrapper has ended."""
        if self.exit is not None and self._leader_fd is not None:
            # The death of its first process ends a namespace, and that death is over when all the others are.
            send_signal(self._leader_fd, signal.SIGKILL)
            with anyio.move_on_after(self._patience.kill_s):
                await _until_dead(self._leader_fd)
                self.is_gone = True
        elif self.exit is not None and self._is_empty():
            self.is_gone = True
        else:
            await anyio.to_thread.run_sync(self.put_down)

    def _is_empty(self) -> bool:
        if self._plan.cgroup is not None:
            return not cgroup.members(self._plan.cgroup)
        # A warden that was killed has left who knows what.
        return self._plan.containment.variant is Variant.WARDEN and self._popen.returncode >= 0

    def _look(self) -> None:
        """Note the namespace's first process, which is the wrapper's child, and the agent, once there are such."""
        if self._leader_fd is None and self._plan.containment.rung == 1:
            for leader in filter(None, map(identify, children(self.wrapper.pid)[:1])):
                self._leader, self._leader_fd = leader, pin(leader)
        if self._agent_fd is None:
            agent = find_agent(self.wrapper.pid, is_wrapper=self._is_wrapper)
            if agent is not None:
                self.agent, self._agent_fd = agent, pin(agent)


async def _until_dead(pidfd: int) -> None:
    poll = select.poll()
    poll.register(pidfd, select.POLLIN)
    if poll.poll(0):
        return
    # A copy each: several may wait for one death, but only one for one descriptor.
    copy = os.dup(pidfd)
    try:
        await anyio.wait_readable(copy)
    finally:
        os.close(copy)
