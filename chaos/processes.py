"""What is alive of what a stage's Proctors started."""

import os
from dataclasses import dataclass
from pathlib import Path

_AGENTS = frozenset({b"codex", b"fake-codex", b"fake-exec", b"fake-claude"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    pid: int
    argv: bytes

    @property
    def is_server(self) -> bool:
        return b"app-server" in self.argv or b"fake-codex" in self.argv

    @property
    def is_agent(self) -> bool:
        """By its program, or the script that its interpreter runs."""
        return any(word.rpartition(b"/")[2] in _AGENTS for word in self.argv.split(b"\0")[:3])


def alive(folder: Path, *, but: int | None = None) -> list[Found]:
    """By marker and by argv: whatever names this folder in either. Zombies are nobody's."""
    found, mark = [], str(folder).encode()
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) in (but, os.getpid()):
            continue
        try:
            argv, environ = (entry / "cmdline").read_bytes(), (entry / "environ").read_bytes()
        except OSError:
            continue
        if argv and (mark in argv or mark in environ):
            found.append(Found(pid=int(entry.name), argv=argv))
    return found


def agents(folder: Path, *, player: int) -> list[Found]:
    """Those that a fault may hit: agents themselves. The wrappers around them end with them, and a command of theirs
    that is killed is a result, which an undisturbed run has otherwise.
    """
    return [each for each in alive(folder, but=player) if b"bwrap\0" not in each.argv and each.is_agent]
