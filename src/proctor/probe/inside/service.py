"""Start a service in the fence, wait until it listens, and stop it."""

import os
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import IO, Any

from .protocol import text_of

_STEP_S = 0.02
_TAIL_BYTES = 64 * 1024
_LISTEN = "0A"
_CONNECT_S = 1.0


def find_free_port() -> int:
    """Return a port of the loopback interface that is free now."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
        return port


class Service:
    """A running service and what was observed of it."""

    def __init__(self, argv: Sequence[str], *, port: int, env: Mapping[str, str] | None = None) -> None:
        """Start the service. `{port}` in its command is replaced, and the variable PORT is set."""
        self.port = port
        self._before = set(_other_processes())
        self._began_s = time.monotonic()
        self._process = subprocess.Popen(
            [word.replace("{port}", str(port)) for word in argv],
            env={**os.environ, **(env or {}), "PORT": str(port)},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        self._outputs = [_Tail(stream) for stream in (self._process.stdout, self._process.stderr) if stream is not None]

    def wait_until_ready(self, within_s: float) -> dict[str, Any]:
        """Wait until the port accepts a connection. Return what was observed."""
        deadline_s = self._began_s + within_s
        is_listening = False
        while not is_listening and time.monotonic() < deadline_s and self._process.poll() is None:
            is_listening = self._connects()
            if not is_listening:
                time.sleep(_STEP_S)
        # A service that forks away has exited, and listens all the same.
        is_listening = is_listening or self._connects()
        return {
            "isListening": is_listening,
            "afterMs": round((time.monotonic() - self._began_s) * 1000),
            "exit": self._process.poll(),
            "otherPorts": sorted(_listening_ports() - {self.port}),
        }

    def stop(self, within_s: float) -> dict[str, Any]:
        """Send SIGTERM and wait. Return what was observed; then end what is left."""
        had_ended = self._process.poll() is not None
        began_s = time.monotonic()
        if not had_ended:
            self._process.terminate()
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(within_s)
        observed = {
            "hadEnded": had_ended,
            "exit": self._process.poll(),
            "afterMs": round((time.monotonic() - began_s) * 1000),
            "isStillListening": self._connects(),
            "left": [_name(pid) for pid in _other_processes() if pid not in self._before],
        }
        for pid in _other_processes():
            if pid not in self._before:
                with suppress(OSError):
                    os.kill(pid, signal.SIGKILL)
        return observed

    def output(self) -> dict[str, str]:
        """Return the last part of what the service printed, each character one byte. Call it after `stop`."""
        stdout, stderr = (each.text() for each in self._outputs)
        return {"stdout": stdout, "stderr": stderr}

    def _connects(self) -> bool:
        try:
            socket.create_connection(("127.0.0.1", self.port), timeout=_CONNECT_S).close()
        except OSError:
            return False
        return True


class _Tail:
    """Reads a stream to its end and keeps the last part."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._data = b""
        self._thread = threading.Thread(target=self._drain, args=(stream,), daemon=True)
        self._thread.start()

    def _drain(self, stream: IO[bytes]) -> None:
        with suppress(OSError, ValueError):
            while piece := os.read(stream.fileno(), _TAIL_BYTES):
                self._data = (self._data + piece)[-_TAIL_BYTES:]

    def text(self) -> str:
        self._thread.join(timeout=1.0)
        return text_of(self._data)


def _other_processes() -> list[int]:
    """Return the processes of this namespace that are neither this one, nor above it, nor zombies."""
    own, pid = set(), os.getpid()
    while pid > 0:
        own.add(pid)
        pid = _parent(pid)
    found = [int(name) for name in os.listdir("/proc") if name.isdigit()]  # noqa: PTH208
    return [pid for pid in found if pid not in own and _state(pid) not in ("Z", "X", "")]


def _stat(pid: int) -> list[str]:
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:  # noqa: PTH123
            return file.read().rpartition(")")[2].split()
    except OSError:
        return []


def _state(pid: int) -> str:
    return next(iter(_stat(pid)), "")


def _parent(pid: int) -> int:
    fields = _stat(pid)
    return int(fields[1]) if len(fields) > 1 else 0


def _name(pid: int) -> str:
    try:
        with open(f"/proc/{pid}/comm", encoding="utf-8", errors="replace") as file:  # noqa: PTH123
            return file.read().strip()
    except OSError:
        return "?"


def _listening_ports() -> set[int]:
    ports = set()
    for name in ("tcp", "tcp6"):
        with suppress(OSError), open(f"/proc/net/{name}", encoding="ascii") as file:  # noqa: PTH123
            rows = [line.split() for line in file.read().splitlines()[1:]]
            ports |= {int(row[1].rpartition(":")[2], 16) for row in rows if row[3] == _LISTEN}
    return ports
