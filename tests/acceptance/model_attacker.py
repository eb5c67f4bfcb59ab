"""A second local client that attacks the scripted model of another process: a program of its own, without Proctor.

It is given the process id and the ids of the attempts, which a spec gives away. It finds the ports, then guesses,
enumerates, replays and sends garbage, and holds half-open connections, until its stdin is closed. After each round it
touches the gate. It prints how often each attack was answered, by status.
"""

import json
import secrets
import selectors
import socket
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

HALF_OPEN = 200
HUGE_BYTES = 96 * 1024 * 1024
DEADLINE_S = 5

TOOLS = [
    {"type": "function", "name": "exec_command", "parameters": {"properties": {"cmd": {"type": "string"}}}},
    {"name": "Bash", "type": "custom"},
]
RESPONSES = json.dumps({"model": "m", "stream": True, "input": "Tell me.", "tools": TOOLS[:1]}).encode()
MESSAGES = json.dumps(
    {"model": "m", "stream": True, "messages": [{"role": "user", "content": "Tell me."}], "tools": TOOLS[1:]}
).encode()

GARBAGE = (
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(500),  # TLS
    b"\r\n\r\n\x00\x00\x00garbage\xff\xfe\r\n\r\n",
    b"GET / HTTP/9.9\r\n\r\n",
    b"GET /%ff%00%0d%0a/../../a HTTP/1.1\r\nhost: x\r\n\r\n",
    b"POST /a/x/v1/responses HTTP/1.1\r\nhost: x\r\ncontent-length: -5\r\n\r\n",
    b"POST /a/x/v1/responses HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\nzz\r\nnot a chunk",
    b"POST /a/x/v1/responses HTTP/1.1\r\nhost: x\r\ncontent-length: 5\r\ncontent-length: 6\r\n\r\nabcdef",
    b"GET /a/x/v1/models HTTP/1.1\r\nhost: x\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n",
    b"GET /a/x/v1/models HTTP/1.1\r\nhost: x\r\n" + b"x-long: " + b"y" * 200_000,
    b"GET /a/x/v1/models HTTP/1.1\r\nhost: x\r\n\r\n" * 200,  # pipelined
)


def ports_of(pid: int) -> list[int]:
    """The loopback ports on which a process listens."""
    try:
        links = [str(entry.readlink()) for entry in Path(f"/proc/{pid}/fd").iterdir()]
        lines = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    except OSError:
        return []
    return [int(row[1].rpartition(":")[2], 16) for row in lines if row[3] == "0A" and f"socket:[{row[9]}]" in links]


def paths(attempts: list[str]) -> Iterator[str]:
    """Guesses of where a script is."""
    yield from ("/", "/v1", "/a", "/a/", "/a//v1", "/a/script/v1", "/a/script//v1")
    for attempt in attempts:
        yield from (f"/a/{attempt}/v1", f"/a/{attempt}//v1", f"/a/{attempt}", f"/{attempt}/v1")
        yield from (f"/a/{attempt}/{token}/v1" for token in ("", "x", "0" * 43, secrets.token_urlsafe(32), attempt))


def requests(attempts: list[str]) -> Iterator[bytes]:
    for path in paths(attempts):
        for method, end, body in (
            ("GET", "/models", b""),
            ("HEAD", "", b""),
            ("POST", "/responses", RESPONSES),
            ("POST", "/messages", MESSAGES),
            ("POST", "/messages/count_tokens", MESSAGES),
        ):
            head = (
                f"{method} {path}{end} HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: {len(body)}\r\n\r\n"
            )
            yield head.encode() + body


def status_of(port: int, data: bytes) -> str:
    """The status of the answer, or what became of the connection."""
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=DEADLINE_S) as client:
            client.sendall(data)
            return client.recv(4096)[9:12].decode(errors="replace") or "closed"
    except TimeoutError:
        return "silent"
    except OSError:
        return "closed"


def huge(port: int, attempt: str) -> str:
    head = f"POST /a/{attempt}/v1/responses HTTP/1.1\r\nhost: x\r\ncontent-length: {HUGE_BYTES}\r\n\r\n"
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=DEADLINE_S) as client:
            client.sendall(head.encode())
            chunk, sent = b" " * 1024 * 1024, 0
            while sent < HUGE_BYTES:
                sent += client.send(chunk[: HUGE_BYTES - sent])
            return client.recv(4096)[9:12].decode() or "closed"
    except TimeoutError:
        return "silent"
    except OSError:
        return "closed"


def half_open(port: int, attempt: str, number: int) -> socket.socket | None:
    """A connection on which a request never becomes complete."""
    starts = (
        b"",
        b"POST /a/",
        f"POST /a/{attempt}/v1/responses HTTP/1.1\r\nhost: x\r\n".encode(),
        f"POST /a/{attempt}/v1/responses HTTP/1.1\r\nhost: x\r\ncontent-length: 100\r\n\r\n{{".encode(),
    )
    try:
        client = socket.create_connection(("127.0.0.1", port), timeout=DEADLINE_S)
        client.sendall(starts[number % len(starts)])
        client.setblocking(False)
    except OSError:
        return None
    return client


def main() -> None:
    pid, gate, attempts = int(sys.argv[1]), Path(sys.argv[2]), sys.argv[3:]
    answers: dict[str, Counter[str]] = {name: Counter() for name in ("guess", "garbage", "huge", "half-open")}
    held: list[socket.socket] = []
    with selectors.DefaultSelector() as waiting:
        waiting.register(sys.stdin, selectors.EVENT_READ)
        while not waiting.select(0):
            for port in ports_of(pid):
                for number in range(HALF_OPEN):
                    client = half_open(port, attempts[number % len(attempts)], number)
                    answers["half-open"]["refused" if client is None else "opened"] += 1
                    if client is not None:
                        held.append(client)
                answers["guess"].update(status_of(port, data) for data in requests(attempts))
                answers["garbage"].update(status_of(port, data) for data in GARBAGE)
                answers["huge"].update([huge(port, attempts[0])])
                gate.touch()
            del held[: -3 * HALF_OPEN]
            waiting.select(0.05)
    sys.stdout.write(json.dumps(answers))


if __name__ == "__main__":
    main()
