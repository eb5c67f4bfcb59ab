"""Observe a service in the fence: start it, send requests, and stop it."""

import http.client
import socket
import threading
import time
from contextlib import suppress
from typing import Any

from .protocol import answer, text_of
from .service import LOOPBACK, Service, find_free_port

REQUEST_S = 10.0
MAX_BODY_BYTES = 1024 * 1024
MAX_BODIES_BYTES = 4 * 1024 * 1024
"""Limit of all bodies of one run."""
_MAX_HEADER_CHARS = 64 * 1024


def main() -> None:
    answer(observe)


def observe(request: dict[str, Any]) -> dict[str, Any]:
    """Run the service and send the requests in turn."""
    exchanges = list[dict[str, Any]]()
    service = run_service(request, request["argv"], {}, exchanges)
    return {"service": service, "exchanges": exchanges}


def run_service(
    request: dict[str, Any], argv: list[str], env: dict[str, str], exchanges: list[dict[str, Any]]
) -> dict[str, Any]:
    """Start the service, send the requests if it listens, and stop it. Append one observation for each request."""
    deadline_s = time.monotonic() + request["withinS"]
    try:
        service = Service(argv, port=find_free_port(), env=env)
    except (OSError, ValueError) as error:
        return {"startError": str(error)}
    ready = service.wait_until_ready(request["readyS"])
    if ready["isListening"]:
        left_bytes = MAX_BODIES_BYTES
        for each in request["requests"]:
            within_s = min(REQUEST_S, deadline_s - time.monotonic())
            exchanges.append(send(each, port=service.port, within_s=within_s, limit_bytes=left_bytes))
            left_bytes -= len(exchanges[-1]["body"])
    stop = service.stop(request["stopS"])
    return {"ready": ready, "stop": stop, "output": service.output()}


def send(request: dict[str, Any], *, port: int, within_s: float, limit_bytes: int) -> dict[str, Any]:
    """Send one request over a new connection. Return what was received, or the problem if that is no HTTP response."""
    observed: dict[str, Any] = {"status": None, "headers": [], "body": "", "problem": None}
    if within_s <= 0:
        return {**observed, "problem": "not-sent"}
    began_s = time.monotonic()
    connection = http.client.HTTPConnection(LOOPBACK, port, timeout=within_s)
    deadline = None
    try:
        connection.connect()
        # A time limit of the socket starts again with each byte, this one does not.
        deadline = _Deadline(connection.sock, within_s)
        body = None if request["body"] is None else request["body"].encode()
        connection.request(request["method"], request["path"], body=body, headers=dict(request["headers"]))
        observed.update(_receive(connection.getresponse(), min(limit_bytes, MAX_BODY_BYTES)))
    except TimeoutError:
        observed["problem"] = "timeout"
    except (http.client.HTTPException, ValueError):
        observed["problem"] = "invalid"
    except OSError:
        observed["problem"] = "connection"
    finally:
        if deadline is not None:
            deadline.cancel()
        connection.close()
    if deadline is not None and deadline.has_passed:
        observed["problem"] = "timeout"
    observed["afterMs"] = round((time.monotonic() - began_s) * 1000)
    return observed


def _receive(response: http.client.HTTPResponse, limit_bytes: int) -> dict[str, Any]:
    body = response.read(limit_bytes + 1)
    headers = response.getheaders()
    problem = None
    if len(body) > limit_bytes:
        problem = "too-large"
    elif response.length or sum(len(name) + len(value) for name, value in headers) > _MAX_HEADER_CHARS:
        # Less than the stated length, or more than a header is for.
        headers, problem = [], "invalid"
    return {
        "status": response.status,
        "headers": headers,
        "body": text_of(body[:limit_bytes]),
        "problem": problem,
    }


class _Deadline:
    """Ends a connection after a time, whatever happens on it."""

    def __init__(self, connection: socket.socket, within_s: float) -> None:
        self.has_passed = False
        self._connection = connection
        self._timer = threading.Timer(within_s, self._end)
        self._timer.daemon = True
        self._timer.start()

    def cancel(self) -> None:
        self._timer.cancel()

    def _end(self) -> None:
        self.has_passed = True
        with suppress(OSError):
            self._connection.shutdown(socket.SHUT_RDWR)
