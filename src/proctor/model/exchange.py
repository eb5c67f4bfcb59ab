"""The HTTP side of the scripted model: an ASGI application that answers requests from scripts."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from hmac import compare_digest
from typing import Final

import anyio
from anyio.lowlevel import checkpoint
from msgspec.structs import replace
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from proctor.clock import Clock
from proctor.errors import WireError
from proctor.model import messages, responses
from proctor.model.connection import Connection, Door, RefusalReason
from proctor.model.journal import Journal, JournalItem, JournalRow
from proctor.model.player import Hang, Player, Refusal, RequestKind, ServedReply
from proctor.model.wire import Pause, Reply, ReplyRequest, Wire

_COUNT_TOKENS: Final = "/v1/messages/count_tokens"
WIRES: Final[dict[str, Wire]] = {"/v1/responses": responses, "/v1/messages": messages, _COUNT_TOKENS: messages}

_CHUNK_BYTES: Final = 32 * 1024
_JSON: Final = "application/json"
_STREAM_HEADERS: Final = [(b"content-type", b"text/event-stream"), (b"cache-control", b"no-cache")]
_CLOSE: Final = {"connection": "close"}
_NO_TOKEN: Final = "-" * 57
_NO_MODELS: Final = b'{"object":"list","data":[],"models":[],"has_more":false}'


@dataclass(slots=True, kw_only=True)
class ScriptSlot:
    """One script that is being played, the journal of its requests, and its clients."""

    player: Player
    token: str
    """The part of the URL that only the agent of this attempt knows."""
    journal: Journal
    clients: dict[Connection, None] = field(default_factory=dict)
    """The connections on which the token was received. The one idle for longest is first."""
    received_bytes: int = 0
    """The size of all request bodies that are being received."""


class Exchange:
    """The ASGI application. Paths are `/a/<key>/<token>/v1/<endpoint>`."""

    def __init__(self, clock: Clock, door: Door) -> None:
        self.slots: dict[str, ScriptSlot] = {}
        self._clock = clock
        self._door = door
        self._open: set[anyio.CancelScope] = set()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with anyio.CancelScope() as life:
            self._open.add(life)
            try:
                await self._admit(Request(scope, receive), send)
            except ClientDisconnect:  # before the request was complete
                return
            finally:
                self._open.discard(life)

    def abandon(self) -> None:
        """Cancel all answers in progress."""
        for life in self._open:
            life.cancel()

    def forget(self, key: str) -> None:
        """Stop a script. An agent process that plays several scripts may use the same connection for another one."""
        if (slot := self.slots.pop(key, None)) is not None:
            for connection in tuple(slot.clients):
                connection.join(self._door.strangers)

    def _find(self, first: str, key: str, token: str) -> ScriptSlot | None:
        slot = self.slots.get(key)
        # Compared even if no script has this key, so that the time says nothing about keys.
        is_same = compare_digest(token.encode(), (_NO_TOKEN if slot is None else slot.token).encode())
        return slot if is_same and first == "a" else None

    async def _admit(self, request: Request, send: Send) -> None:
        path: str = request.scope["path"]
        connection: Connection = request.scope["state"]["connection"]
        _, first, key, token, rest = (path.split("/", 4) + [""] * 4)[:5]
        slot = self._find(first, key, token)
        # The body of a request that is refused here is not read.
        if slot is None:
            connection.refuse(RefusalReason.PATH, method=request.method, path=path)
            await Response(status_code=404, headers=_CLOSE)(request.scope, request.receive, send)
        elif not self._door.admit(connection, slot.clients):
            row = self._row(request, path=f"/{rest}")
            slot.journal.add(replace(row, kind=RequestKind.REFUSED, status=429, error="too many requests at a time"))
            await Response(status_code=429, headers=_CLOSE)(request.scope, request.receive, send)
        else:
            await self.respond(slot, request, send, path=f"/{rest}")

    def _row(self, request: Request, *, path: str) -> JournalRow:
        return JournalRow(at_ms=self._clock.wall_ms(), method=request.method, path=path, kind=RequestKind.SIDE)

    async def respond(self, slot: ScriptSlot, request: Request, send: Send, *, path: str) -> None:
        """Answer a client of a script. `path` is the part of the URL after the token."""
        row = self._row(request, path=path)
        wire = WIRES.get(path)

        async def decline(status: int, code: str, message: str) -> None:
            slot.journal.add(replace(row, kind=RequestKind.REFUSED, status=status, error=message))
            refusal = Refusal(status=status, code=code, message=message)
            await _refuse(refusal, wire=wire or responses, request=request, send=send)

        async def complete(body: bytes) -> None:
            slot.journal.add(replace(row, status=200, is_complete=True))
            await Response(body, media_type=_JSON)(request.scope, request.receive, send)

        body = await _read_body(slot, request, most_bytes=self._door.limits.body_bytes)
        try:
            if body is None:
                await decline(413, "too_large", "the request is too large")
            elif request.method == "HEAD" or (request.method, path) == ("GET", "/v1/models"):
                # A HEAD request only checks whether the server is reachable.
                await complete(_NO_MODELS)
            elif (request.method, path) == ("POST", _COUNT_TOKENS):
                await complete(messages.count_tokens(body))
            elif wire is None or request.method != "POST":
                await decline(404, "no_endpoint", f"there is no endpoint {request.method} {path}")
            else:
                await self._play(slot, wire, row, wire.parse_request(body), request=request, send=send)
        except WireError as error:
            await decline(400, "invalid_request", error.what)

    async def _play(
        self,
        slot: ScriptSlot,
        wire: Wire,
        row: JournalRow,
        reply_request: ReplyRequest,
        *,
        request: Request,
        send: Send,
    ) -> None:
        served = slot.player.serve(reply_request)
        items = slot.journal.describe(reply_request.parts)
        number = slot.journal.add(_journal_row(row, reply_request, served, items))

        async def deliver() -> None:
            match served.answer:
                case Reply(failure=failure) if failure is not None and not reply_request.is_streamed:
                    refusal = Refusal(status=500, code=failure.code, message=failure.message)
                    await _refuse(refusal, wire=wire, request=request, send=send)
                case Reply() as reply:
                    is_streamed = reply_request.is_streamed
                    served.is_complete = await _stream(wire, reply, is_streamed=is_streamed, send=send)
                case Refusal() as refusal:
                    await anyio.sleep(refusal.delay_s)
                    await _refuse(refusal, wire=wire, request=request, send=send)
                case Hang():
                    await anyio.sleep_forever()

        client_aborted = await _run_until_disconnect(request.receive, deliver)
        slot.journal.amend(number, is_complete=served.is_complete, client_aborted=client_aborted)


def _journal_row(
    row: JournalRow, request: ReplyRequest, served: ServedReply, items: tuple[JournalItem, ...]
) -> JournalRow:
    refusal = served.answer if isinstance(served.answer, Refusal) else None
    return replace(
        row,
        kind=served.kind,
        status=refusal.status if refusal else None if isinstance(served.answer, Hang) else 200,
        step=served.step,
        try_number=served.try_number,
        digest=served.digest,
        model=request.model,
        tools=tuple(tool.full_name for tool in request.tools),
        items=items,
        has_output_schema=request.has_output_schema,
        error=refusal.message if refusal else None,
    )


async def _read_body(slot: ScriptSlot, request: Request, *, most_bytes: int) -> bytes | None:
    """Return the body; None if all bodies that the script receives at a time exceed the limit.

    A body that is too large is read to its end, so that the client can receive the answer, but not kept.
    """
    chunks: list[bytes] = []
    size_bytes, is_too_large = 0, False
    try:
        async for chunk in request.stream():
            size_bytes += len(chunk)
            slot.received_bytes += len(chunk)
            is_too_large = is_too_large or slot.received_bytes > most_bytes
            if is_too_large:
                chunks.clear()
            else:
                chunks.append(chunk)
    finally:
        slot.received_bytes -= size_bytes
    return None if is_too_large else b"".join(chunks)


async def _refuse(refusal: Refusal, *, wire: Wire, request: Request, send: Send) -> None:
    body = refusal.body
    if body is None:
        body = wire.render_error(refusal.message, code=refusal.code, status=refusal.status)
    headers = {} if refusal.retry_after_s is None else {"retry-after": str(refusal.retry_after_s)}
    response = Response(body, status_code=refusal.status, headers=headers, media_type=_JSON)
    await response(request.scope, request.receive, send)


async def _stream(wire: Wire, reply: Reply, *, is_streamed: bool, send: Send) -> bool:
    """Send a reply and return whether it was sent completely. Events are batched, but flushed before each pause."""
    headers = _STREAM_HEADERS if is_streamed else [(b"content-type", _JSON.encode())]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    buffer = bytearray()
    event_count = 0

    async def flush() -> None:
        await send({"type": "http.response.body", "body": bytes(buffer), "more_body": True})
        buffer.clear()
        # The server's send waits only if the client is slow, so other streams need an explicit chance to run.
        await checkpoint()

    break_off = reply.break_off
    for piece in wire.render(reply) if is_streamed else messages.render_unstreamed(reply):
        if isinstance(piece, Pause):
            await flush()
            await anyio.sleep(piece.delay_s)
            continue
        if break_off is not None and event_count == break_off.after:
            break
        event_count += 1
        buffer += piece
        if len(buffer) >= _CHUNK_BYTES:
            await flush()
    if break_off is not None:
        if break_off.how == "garbled":
            await send(
                {"type": "http.response.body", "body": bytes(buffer) + wire.render_garbage(), "more_body": False}
            )
            return False
        await flush()
        if break_off.how == "silent":
            await anyio.sleep_forever()
        # The server closes the connection of a response that was not ended.
        return False
    await send({"type": "http.response.body", "body": bytes(buffer), "more_body": False})
    return True


async def _run_until_disconnect(receive: Receive, work: Callable[[], Awaitable[None]]) -> bool:
    """Run `work` until it is done or the client disconnects. Return whether the client disconnected first."""
    is_done = is_disconnected = False

    async def watch() -> None:
        nonlocal is_disconnected
        while (await receive())["type"] != "http.disconnect":
            pass
        is_disconnected = not is_done
        tasks.cancel_scope.cancel()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(watch)
        await work()
        is_done = True
        tasks.cancel_scope.cancel()
    return is_disconnected
