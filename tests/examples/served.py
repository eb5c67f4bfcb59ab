"""The example application in a process of its own, as a user starts it."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.lab import wait_until

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"


@dataclass(frozen=True, slots=True)
class Served:
    """A running server. All it starts has its folder in the environment."""

    url: str
    folder: Path
    log: Path
    process: "subprocess.Popen[bytes]"

    def stop(self) -> None:
        """As a service manager does; it must go in order."""
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(timeout=60)
        assert "Application shutdown complete." in self.log.read_text()

    def processes(self) -> list[int]:
        return processes_of(self.folder)


def processes_of(folder: Path) -> list[int]:
    """Live processes that were started with this folder in their environment."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                if str(folder).encode() in (entry / "environ").read_bytes():
                    found.append(int(entry.name))
            except OSError:  # gone meanwhile, or another user's
                continue
    return found


@contextmanager
def served(folder: Path, *, script: Path = EXAMPLES / "scripts" / "webapp.yaml", **env: str) -> Iterator[Served]:
    """Killed if it is still there in the end."""
    log = folder / "server.log"
    own = {name: str(folder / name.lower()) for name in ("XDG_CACHE_HOME", "XDG_STATE_HOME", "PROCTOR_ROOT")}
    with log.open("wb") as written:
        process = subprocess.Popen(
            [sys.executable, str(EXAMPLES / "webapp" / "app.py")],
            env={**os.environ, **own, "SCRIPT": str(script), "PORT": "0", **env},
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=written,
            stderr=subprocess.STDOUT,
        )
    try:
        found: list[str] = []

        def is_up() -> bool:
            assert process.poll() is None, log.read_text()
            found[:] = re.findall(r"running on (http://\S+)", log.read_text())
            return bool(found)

        wait_until(is_up, deadline_s=60)
        yield Served(found[0], folder, log, process)
    finally:
        process.kill()
        process.wait()
