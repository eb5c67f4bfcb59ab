"""Find out who killed an agent process: the kernel when memory ran out, or the agent's own commands."""

from pathlib import Path
from typing import Final, Literal

from proctor.transport.process import ExitStatus

_VMSTAT: Final = Path("/proc/vmstat")
_COUNTER: Final = "oom_kill "

Killer = Literal["agent", "kernel"]


class KillerWatch:
    """Counts the processes that the kernel kills on this machine because memory runs out, from the creation on."""

    def __init__(self) -> None:
        self._kills_before = _count_kills()

    def find_killer(self, status: ExitStatus, *, is_in_reach: bool) -> Killer | None:
        """Return who sent the signal that ended a process; None if none did, or if the sender is unknown.

        `is_in_reach` is whether the agent's own commands can send it signals. Proctor's own signals are not asked
        about. Who else sent one is not recorded by the kernel, so an operator's `kill -9` counts as the agent's.
        """
        # unshare reports 1 both for that exit code and for SIGKILL.
        is_killed = status.signal is not None or (status.code == 1 and not status.is_exact)
        kills = _count_kills()
        if not is_killed or kills is None or self._kills_before is None:
            return None
        if kills > self._kills_before:
            return "kernel"
        return "agent" if is_in_reach and status.signal is not None else None


def _count_kills() -> int | None:
    try:
        lines = _VMSTAT.read_text().splitlines()
    except OSError:
        return None
    return next((int(line.removeprefix(_COUNTER)) for line in lines if line.startswith(_COUNTER)), None)
