"""An HTTP server in the fence that answers every request with 200 and records it."""

import select
import socket
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from .protocol import text_of
from .service import LOOPBACK

MAX_CALLS = 1_000
MAX_BODY_BYTES = 1024 * 1024
MAX_BODIES_BYTES = 4 * 1024 * 1024
"""Limit of all bodies together."""
_IDLE_S = 10.0
_END_S = 2.0
_MAX_LINE_BYTES = 1024


class Sink:
    """A running sink."""

    def __init__(self) -> None:
        self._calls: list[dict[str, str]] = []
        self._is_cut = False
        self._left_bytes = MAX_BODIES_BYTES
        self._lock = threading.Lock()
        sink = self

        class Handler(_Handler):
            def record(self, call: dict[str, str] | None) -> None:
                sink._record(call)

        self._server = _Server((LOOPBACK, 0), Handler)
        self.url = f"http://{LOOPBACK}:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)
        self._thread.start()

    def finish(self) -> dict[str, Any]:
        """Receive what was sent before this call. Return the calls in the order in which they were complete."""
        self._server.shutdown()
        while select.select([self._server.fileno()], [], [], 0)[0]:
            self._server.handle_request()
        self._server.wait_for_handlers(_END_S)
        with self._lock:
            return {"calls": list(self._calls), "isCut": self._is_cut}

    def _record(self, call: dict[str, str] | None) -> None:
        with self._lock:
            size_bytes = 0 if call is None else len(call["body"])
            if len(self._calls) >= MAX_CALLS or size_bytes > self._left_bytes or call is None:
                self._is_cut = True
            else:
                self._left_bytes -= size_bytes
                self._calls.append(call)


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def __init__(self, address: tuple[str, int], handler: type[BaseHTTPRequestHandler]) -> None:
        self._handlers: list[threading.Thread] = []
        super().__init__(address, handler)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        self._handlers.append(threading.current_thread())
        super().process_request_thread(request, client_address)

    def wait_for_handlers(self, within_s: float) -> None:
        deadline_s = time.monotonic() + within_s
        for thread in list(self._handlers):
            thread.join(max(0.0, deadline_s - time.monotonic()))

    def server_bind(self) -> None:
        # Without the look-up of a host name, which may wait for a network.
        socket.socket.bind(self.socket, self.server_address)
        self.server_address = self.socket.getsockname()
        self.server_name, self.server_port = LOOPBACK, self.server_address[1]

    def handle_error(self, request: Any, client_address: Any) -> None:
        pass  # a connection that broke


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    timeout = _IDLE_S

    def record(self, call: dict[str, str] | None) -> None:
        """Record a call; None if it is too large or is not valid HTTP."""
        raise NotImplementedError

    def __getattr__(self, name: str) -> Any:
        if name.startswith("do_"):
            return self._answer
        raise AttributeError(name)

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        self.record(None)
        super().send_error(code, message, explain)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        pass

    def _answer(self) -> None:
        body = self._read_body()
        if body is None:
            self.close_connection = True
            self.send_error(400)
            return
        self.record({"method": self.command, "path": self.path, "body": text_of(body)})
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def _read_body(self) -> bytes | None:
        """Return the body; None if it is invalid or too large."""
        if "chunked" in self.headers.get("Transfer-Encoding", "").lower():
            return self._read_chunks()
        length = self.headers.get("Content-Length", "0")
        if not (length.isascii() and length.isdigit()) or len(length) > 9 or int(length) > MAX_BODY_BYTES:
            return None
        body = self.rfile.read(int(length))
        return body if len(body) == int(length) else None

    def _read_chunks(self) -> bytes | None:
        body = b""
        while len(body) <= MAX_BODY_BYTES:
            try:
                size_bytes = int(self.rfile.readline(_MAX_LINE_BYTES).partition(b";")[0], 16)
            except ValueError:
                return None
            if size_bytes == 0:
                while self.rfile.readline(_MAX_LINE_BYTES).strip():
                    pass
                return body
            if not 0 < size_bytes <= MAX_BODY_BYTES:
                return None
            body += self.rfile.read(size_bytes)
            self.rfile.readline(_MAX_LINE_BYTES)
        return None
