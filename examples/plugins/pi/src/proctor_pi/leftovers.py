"""What the agent's commands have left running beside it, ended; the agent itself lives on."""

import os
import signal
from typing import Final

import anyio

from proctor.contain.identity import descendants, identify, is_alive, pin, send_signal
from proctor.transport.process import AgentProcess

_ROUNDS: Final = 20
_PAUSE_S: Final = 0.01


async def end_leftovers(process: AgentProcess) -> None:
    """Bounded. What forks while it is killed is met again in the next round.

    Orphans have become children of the containment's first process, so they are found below it; in a cgroup, where
    there is none, they are not, and go with the session.
    """
    for _ in range(_ROUNDS):
        pins = {pid: pidfd for pid in _leftovers(process) if (pidfd := _pinned(pid)) is not None}
        if not pins:
            return
        # Looked at again now that they are pinned: a pid may have been given to somebody else meanwhile.
        still = _leftovers(process)
        for pid, pidfd in pins.items():
            if pid in still:
                send_signal(pidfd, signal.SIGKILL)
            os.close(pidfd)
        await anyio.sleep(_PAUSE_S)


def _pinned(pid: int) -> int | None:
    identity = identify(pid)
    return None if identity is None else pin(identity)


def _leftovers(process: AgentProcess) -> list[int]:
    agent = process.agent
    if agent is None or not is_alive(process.wrapper):
        return []
    everybody = list(descendants(process.wrapper.pid))
    return [pid for pid in everybody if pid != agent.pid and agent.pid not in descendants(pid)]
