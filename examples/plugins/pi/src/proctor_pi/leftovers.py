"""What the agent's commands have left running beside it, ended; the agent itself lives on."""

import os
import signal
from typing import Final

import anyio

from proctor.contain.identity import descendants, identify, pin, send_signal
from proctor.transport.process import AgentProcess

_ROUNDS: Final = 20
_PAUSE_S: Final = 0.01


async def end_leftovers(process: AgentProcess) -> None:
    """Bounded. What forks while it is killed is met again in the next round.

    Orphans have become children of the containment's first process, so they are found below it; in a cgroup, where
    there is none, they are not, and go with the session.
    """
    for _ in range(_ROUNDS):
        left = _leftovers(process)
        if not left:
            return
        for pid in left:
            identity = identify(pid)
            pidfd = None if identity is None else pin(identity)
            if pidfd is not None:
                send_signal(pidfd, signal.SIGKILL)
                os.close(pidfd)
        await anyio.sleep(_PAUSE_S)


def _leftovers(process: AgentProcess) -> list[int]:
    agent = process.agent
    if agent is None:
        return []
    everybody = list(descendants(process.wrapper.pid))
    return [pid for pid in everybody if pid != agent.pid and agent.pid not in descendants(pid)]
