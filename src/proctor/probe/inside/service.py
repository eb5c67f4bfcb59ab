"""Start a program of the product in the fence, observe it, and end all that it leaves."""

import ctypes
import os
import secrets
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from typing import IO, Any

from .protocol import text_of

LOOPBACK = "127.0.0.1"

_STEP_S = 0.02
_TAIL_BYTES = 64 * 1024
_LISTEN = "0A"
_CONNECT_S = 1.0
_KILL_S = 2.0
_LEFT_NAMED = 10
_SHELL = ("bash", "-c")
_PR_SET_CHILD_SUBREAPER = 36
# Below the ports that the kernel gives to clients, of which any could be taken at any moment.
_FIRST_PORT, _PORTS = 15_000, 17_000
_TRIES = 1_000
_reservations: list[socket.socket] = []


def find_free_port() -> int:
    """Return a port of the loopback interface that is free, and that no other program in a fence gets until this
    process ends."""
    for _ in range(_TRIES):
        port = _FIRST_PORT + secrets.randbelow(_PORTS)
        # An abstract name is visible wherever the port is: in the same network namespace, whatever the file systems.
        reservation = socket.socket(socket.AF_UNIX)
        try:
            reservation.bind(f"\0proctor-port-{port}")
            with socket.socket() as found:
                found.bind(("", port))
        except OSError:
            reservation.close()
            continue
        _reservations.append(reservation)
        return port
    raise OSError("no port is free")


class Program:
    """A running program of the product and what was observed of it."""

    def __init__(self, argv: Sequence[str], *, env: Mapping[str, str]) -> None:
        """Start the program, with `env` added to the environment. Raises OSError or ValueError if it cannot start."""
        _adopt_orphans()
        self._argv = tuple(argv)
        self._before = set(_descendants())
        self._began_s = time.monotonic()
        self._process = subprocess.Popen(
            self._argv,
            env={**os.environ, **env},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        self._outputs = [_Tail(stream) for stream in (self._process.stdout, self._process.stderr) if stream is not None]

    def finish(self, within_s: float, *, linger_s: float) -> dict[str, Any]:
        """Wait until the program exits, and `linger_s` for what it started. Return what was observed; end the rest."""
        deadline_s = self._began_s + within_s
        while self._process.poll() is None and time.monotonic() < deadline_s:
            time.sleep(_STEP_S)
        exit_code = self._process.poll()
        self._wait_for_others(min(deadline_s, time.monotonic() + linger_s))
        return {"exit": exit_code, "left": self._end_others()}

    def output(self) -> dict[str, str]:
        """Return the last part of what the program printed, each character one byte. Call it after the end."""
        stdout, stderr = (each.text() for each in self._outputs)
        return {"stdout": stdout, "stderr": stderr}

    def _others(self) -> list[int]:
        """Return the processes that the program started and, if it still runs, the program itself."""
        self._process.poll()
        return [pid for pid in _descendants() if pid not in self._before]

    def _wait_for_others(self, deadline_s: float) -> None:
        while self._others() and time.monotonic() < deadline_s:
            time.sleep(_STEP_S)

    def _end_others(self) -> list[str]:
        """Kill what still runs. Return the names of these processes, without that of the program itself."""
        left = [_name(pid) for pid in self._others() if pid != self._process.pid]
        deadline_s = time.monotonic() + _KILL_S
        while (running := self._others()) and time.monotonic() < deadline_s:
            for pid in running:
                with suppress(OSError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(_STEP_S)
        return left[:_LEFT_NAMED]


class Service(Program):
    """A running service and what was observed of it."""

    def __init__(self, argv: Sequence[str], *, port: int, env: Mapping[str, str] | None = None) -> None:
        """Start the service. `{port}` in its command is replaced, and the variable PORT is set."""
        self.port = port
        super().__init__([word.replace("{port}", str(port)) for word in argv], env={**(env or {}), "PORT": str(port)})

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
            "otherPorts": sorted(_listening_ports(self._others()) - {self.port}),
        }

    def stop(self, within_s: float) -> dict[str, Any]:
        """Send SIGTERM and wait. Return what was observed; then end what is left.

        Counts every process that this one has started since the service: others must have ended.
        """
        had_ended = self._process.poll() is not None
        began_s = time.monotonic()
        if not had_ended:
            self._terminate()
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(within_s)
            self._wait_for_others(began_s + within_s)
        return {
            "hadEnded": had_ended,
            "exit": self._process.poll(),
            "afterMs": round((time.monotonic() - began_s) * 1000),
            "isStillListening": self._connects(),
            "left": self._end_others(),
        }

    def _terminate(self) -> None:
        # A shell does not pass a signal on, and it ends before the program that it waits for.
        if self._argv[:2] == _SHELL:
            with suppress(OSError):
                os.killpg(self._process.pid, signal.SIGTERM)
        else:
            self._process.terminate()

    def _connects(self) -> bool:
        try:
            socket.create_connection((LOOPBACK, self.port), timeout=_CONNECT_S).close()
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


def _adopt_orphans() -> None:
    """Become the parent of every process below this one whose own parent ends, so that none gets out of sight."""
    if ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "cannot adopt orphans")


def _descendants() -> list[int]:
    """Return the processes below this one that still run."""
    children: dict[int, list[int]] = {}
    states: dict[int, str] = {}
    for name in os.listdir("/proc"):  # noqa: PTH208
        if name.isdigit() and len(fields := _stat(int(name))) > 1:
            states[int(name)] = fields[0]
            children.setdefault(int(fields[1]), []).append(int(name))
    found, unseen = list[int](), [os.getpid()]
    while unseen:
        below = children.pop(unseen.pop(), [])
        unseen += below
        found += below
    return [pid for pid in found if states[pid] not in ("Z", "X")]


def _stat(pid: int) -> list[str]:
    """Return the fields of a process from its state on; none if it has ended."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:  # noqa: PTH123
            return file.read().rpartition(")")[2].split()
    except OSError:
        return []


def _name(pid: int) -> str:
    try:
        with open(f"/proc/{pid}/comm", encoding="utf-8", errors="replace") as file:  # noqa: PTH123
            return file.read().strip()
    except OSError:
        return "?"


def _listening_ports(pids: Collection[int]) -> set[int]:
    """Return the TCP ports that these processes listen on, as far as their descriptors can be read."""
    sockets = {link for pid in pids for link in _descriptors(pid)}
    ports = set()
    for name in ("tcp", "tcp6"):
        with suppress(OSError), open(f"/proc/net/{name}", encoding="ascii") as file:  # noqa: PTH123
            rows = [line.split() for line in file.read().splitlines()[1:]]
            ports |= {
                int(row[1].rpartition(":")[2], 16)
                for row in rows
                if row[3] == _LISTEN and f"socket:[{row[9]}]" in sockets
            }
    return ports


def _descriptors(pid: int) -> list[str]:
    found = list[str]()
    with suppress(OSError):
        for name in os.listdir(f"/proc/{pid}/fd"):  # noqa: PTH208
            with suppress(OSError):
                found.append(os.readlink(f"/proc/{pid}/fd/{name}"))  # noqa: PTH115
    return found
