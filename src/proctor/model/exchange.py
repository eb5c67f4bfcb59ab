"""The HTTP side of the scripted model: an ASGI application that answers requests from scripts."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
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
from proctor.model.journal import Journal, JournalRow, last_texts
from proctor.model.player import Hang, Player, Refusal, RequestKind, ServedReply
from proctor.model.wire import Pause, Reply, ReplyRequest, Wire

WIRES: Final[dict[str, Wire]] = {"responses": responses, "messages": messages}

_CHUNK_BYTES: Final = 32 * 1024
_JSON: Final = "application/json"
_STREAM_HEADERS: Final = [(b"content-type", b"text/event-stream"), (b"cache-control", b"no-cache")]
_NO_MODELS: Final = b'{"object":"list","data":[],"models":[],"has_more":false}'


@dataclass(frozen=True, slots=True, kw_only=True)
class ScriptSlot:
    """One script that is being played, and the journal of its requests."""

    player: Player
    journal: Journal = field(default_factory=Journal)


class Exchange:
    """The ASGI application. Paths are `/a/<key>/v1/<endpoint>`."""

    def __init__(self, clock: Clock) -> None:
        self.slots: dict[str, ScriptSlot] = {}
        self._clock = clock
        self._open: set[anyio.CancelScope] = set()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with anyio.CancelScope() as life:
            self._open.add(life)
            try:
                await self._respond(Request(scope, receive), send)
            except ClientDisconnect:  # before the request was complete
                return
            finally:
                self._open.discard(life)

    def abandon(self) -> None:
        """Cancel all answers in progress."""
        for life in self._open:
            life.cancel()

    async def _respond(self, request: Request, send: Send) -> None:
        body = await request.body()
        path: str = request.scope["path"]
        _, first, key, version, endpoint = (path.split("/", 4) + [""] * 4)[:5]
        slot = self.slots.get(key)
        wire = WIRES.get(endpoint)
        if slot is None or first != "a" or (version != "v1" and request.method != "HEAD"):
            refusal = Refusal(status=404, code="no_script", message=f"there is no script at {path}")
            await _refuse(refusal, wire=wire or responses, request=request, send=send)
            return
        row = JournalRow(at_ms=self._clock.wall_ms(), method=request.method, path=path, kind=RequestKind.SIDE)
        if request.method == "HEAD" or (request.method, endpoint) == ("GET", "models"):
            # A HEAD request only checks whether the server is reachable.
            slot.journal.add(replace(row, status=200, is_complete=True))
            await Response(_NO_MODELS, media_type=_JSON)(request.scope, request.receive, send)
        elif (request.method, endpoint) == ("POST", "messages/count_tokens"):
            try:
                token_count = messages.count_tokens(body)
            except WireError as error:
                await _refuse_invalid(slot, row, error, wire=messages, request=request, send=send)
                return
            slot.journal.add(replace(row, status=200, is_complete=True))
            await Response(token_count, media_type=_JSON)(request.scope, request.receive, send)
        elif wire is None or request.method != "POST":
            refusal = Refusal(
                status=404, code="no_endpoint", message=f"there is no endpoint {request.method} {endpoint}"
            )
            slot.journal.add(replace(row, kind=RequestKind.REFUSED, status=404, error=refusal.message))
            await _refuse(refusal, wire=wire or responses, request=request, send=send)
        else:
            await self._play(slot, wire, row, body=body, request=request, send=send)

    async def _play(
        self, slot: ScriptSlot, wire: Wire, row: JournalRow, *, body: bytes, request: Request, send: Send
    ) -> None:
        try:
            reply_request = wire.parse_request(body)
        except WireError as error:
            await _refuse_invalid(slot, row, error, wire=wire, request=request, send=send)
            return
        served = slot.player.serve(reply_request)
        number = slot.journal.add(_journal_row(row, reply_request, served))

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


def _journal_row(row: JournalRow, request: ReplyRequest, served: ServedReply) -> JournalRow:
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
        heard=last_texts(request.items),
        has_output_schema=request.has_output_schema,
        error=refusal.message if refusal else None,
    )


async def _refuse_invalid(
    slot: ScriptSlot, row: JournalRow, error: WireError, *, wire: Wire, request: Request, send: Send
) -> None:
    slot.journal.add(replace(row, kind=RequestKind.REFUSED, status=400, error=error.what))
    refusal = Refusal(status=400, code="invalid_request", message=error.what)
    await _refuse(refusal, wire=wire, request=request, send=send)


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
