"""Ends the processes that the agent's commands left running. The agent itself continues."""

import os
import signal
from typing import Final

import anyio

from proctor.contain.identity import descendants, identify, is_alive, pin, send_signal
from proctor.transport.process import AgentProcess

_ROUNDS: Final = 20
_PAUSE_S: Final = 0.01
_EMPTY_LOOKS: Final = 2


async def end_leftovers(process: AgentProcess) -> None:
    """Kill what the agent's commands left running. Bounded: processes that fork meanwhile are killed in the next round.

    Orphans become children of the containment's first process, and are found below it. A cgroup has no such process:
    there they are not found, and end with the session.
    """
    empty_looks = 0
    for _ in range(_ROUNDS):
        pins = {pid: pidfd for pid in _leftovers(process) if (pidfd := _pin_pid(pid)) is not None}
        # One look can miss an orphan: its new parent may have been listed before the orphan moved there.
        empty_looks = 0 if pins else empty_looks + 1
        if empty_looks == _EMPTY_LOOKS:
            return
        # Listed again now that they are pinned: a pid may belong to another process by now.
        still = _leftovers(process)
        for pid, pidfd in pins.items():
            if pid in still:
                send_signal(pidfd, signal.SIGKILL)
            os.close(pidfd)
        await anyio.sleep(_PAUSE_S)


def _pin_pid(pid: int) -> int | None:
    identity = identify(pid)
    return None if identity is None else pin(identity)


def _leftovers(process: AgentProcess) -> list[int]:
    agent = process.agent
    if agent is None or not is_alive(process.wrapper):
        return []
    pids = list(descendants(process.wrapper.pid))
    return [pid for pid in pids if pid != agent.pid and agent.pid not in descendants(pid)]
