"""The live processes that the Proctors of a stage started."""

import os
from dataclasses import dataclass
from pathlib import Path

_AGENTS = frozenset({b"codex", b"fake-codex", b"fake-exec", b"fake-claude"})


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveProcess:
    pid: int
    argv: bytes

    @property
    def is_server(self) -> bool:
        return b"app-server" in self.argv or b"fake-codex" in self.argv

    @property
    def may_kill_itself(self) -> bool:
        """Whether its own commands could kill it. A kill then counts as the agent's doing, and is not retried."""
        return b"fake-claude" in self.argv

    @property
    def is_agent(self) -> bool:
        """Whether it is an agent, by its program or by the script that its interpreter runs."""
        return any(word.rpartition(b"/")[2] in _AGENTS for word in self.argv.split(b"\0")[:3])


def alive(folder: Path, *, but: int | None = None) -> list[LiveProcess]:
    """Return the processes that have this folder in their environment or command line. Zombies have neither."""
    found, mark = [], str(folder).encode()
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) in (but, os.getpid()):
            continue
        try:
            argv, environ = (entry / "cmdline").read_bytes(), (entry / "environ").read_bytes()
        except OSError:
            continue
        if argv and (mark in argv or mark in environ):
            found.append(LiveProcess(pid=int(entry.name), argv=argv))
    return found


def agents(folder: Path, *, player: int) -> list[LiveProcess]:
    """Return the processes that a fault may hit: only the agents themselves.

    Their wrappers end with them. Killing one of their commands would change the result of the trial.
    """
    return [each for each in alive(folder, but=player) if b"bwrap\0" not in each.argv and each.is_agent]
