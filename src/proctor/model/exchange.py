"""The HTTP side of the scripted model: one request in, one answer out, by ASGI."""

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
from proctor.model.journal import Journal, JournalRow, heard
from proctor.model.player import Hang, Kind, Player, Refusal, Served
from proctor.model.wire import Ask, Pause, Reply, Wire

WIRES: Final[dict[str, Wire]] = {"responses": responses, "messages": messages}

_CHUNK_BYTES: Final = 32 * 1024
_JSON: Final = "application/json"
_STREAM_HEADERS: Final = [(b"content-type", b"text/event-stream"), (b"cache-control", b"no-cache")]
_NO_MODELS: Final = b'{"object":"list","data":[],"models":[],"has_more":false}'


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """Where one script is played, and what was asked there."""

    player: Player
    journal: Journal = field(default_factory=Journal)


class Exchange:
    """The ASGI application. Paths are `/a/<key>/v1/<endpoint>`."""

    def __init__(self, clock: Clock) -> None:
        self.stages: dict[str, Stage] = {}
        self._clock = clock
        self._open: set[anyio.CancelScope] = set()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with anyio.CancelScope() as life:
            self._open.add(life)
            try:
                await self._respond(Request(scope, receive), send)
            except ClientDisconnect:  # before it had said all it wanted to ask
                return
            finally:
                self._open.discard(life)

    def abandon(self) -> None:
        """Breaks off whatever is being answered."""
        for life in self._open:
            life.cancel()

    async def _respond(self, request: Request, send: Send) -> None:
        body = await request.body()
        path: str = request.scope["path"]
        _, first, key, version, endpoint = (path.split("/", 4) + [""] * 4)[:5]
        stage = self.stages.get(key)
        wire = WIRES.get(endpoint)
        if stage is None or first != "a" or (version != "v1" and request.method != "HEAD"):
            refusal = Refusal(status=404, code="no_script", message=f"no script is played at {path}")
            await _refuse(refusal, wire=wire or responses, request=request, send=send)
            return
        row = JournalRow(at_ms=self._clock.wall_ms(), method=request.method, path=path, kind=Kind.SIDE)
        if request.method == "HEAD" or (request.method, endpoint) == ("GET", "models"):
            # A HEAD only looks whether anybody is there.
            stage.journal.add(replace(row, status=200, is_complete=True))
            await Response(_NO_MODELS, media_type=_JSON)(request.scope, request.receive, send)
        elif (request.method, endpoint) == ("POST", "messages/count_tokens"):
            try:
                counted = messages.count_tokens(body)
            except WireError as error:
                await _refuse_unread(stage, row, error, wire=messages, request=request, send=send)
                return
            stage.journal.add(replace(row, status=200, is_complete=True))
            await Response(counted, media_type=_JSON)(request.scope, request.receive, send)
        elif wire is None or request.method != "POST":
            refusal = Refusal(status=404, code="no_endpoint", message=f"no {request.method} of {endpoint} here")
            stage.journal.add(replace(row, kind=Kind.REFUSED, status=404, error=refusal.message))
            await _refuse(refusal, wire=wire or responses, request=request, send=send)
        else:
            await self._play(stage, wire, row, body=body, request=request, send=send)

    async def _play(
        self, stage: Stage, wire: Wire, row: JournalRow, *, body: bytes, request: Request, send: Send
    ) -> None:
        try:
            ask = wire.read_ask(body)
        except WireError as error:
            await _refuse_unread(stage, row, error, wire=wire, request=request, send=send)
            return
        served = stage.player.serve(ask)
        number = stage.journal.add(_journaled(row, ask, served))

        async def deliver() -> None:
            match served.answer:
                case Reply(failure=failure) if failure is not None and not ask.is_streamed:
                    refusal = Refusal(status=500, code=failure.code, message=failure.message)
                    await _refuse(refusal, wire=wire, request=request, send=send)
                case Reply() as reply:
                    served.is_complete = await _stream(wire, reply, is_streamed=ask.is_streamed, send=send)
                case Refusal() as refusal:
                    await anyio.sleep(refusal.delay_s)
                    await _refuse(refusal, wire=wire, request=request, send=send)
                case Hang():
                    await anyio.sleep_forever()

        is_gone = await _unless_gone(request.receive, deliver)
        stage.journal.amend(number, is_complete=served.is_complete, client_aborted=is_gone)


def _journaled(row: JournalRow, ask: Ask, served: Served) -> JournalRow:
    refusal = served.answer if isinstance(served.answer, Refusal) else None
    return replace(
        row,
        kind=served.kind,
        status=refusal.status if refusal else None if isinstance(served.answer, Hang) else 200,
        step=served.step,
        try_number=served.try_number,
        digest=served.digest,
        model=ask.model,
        tools=tuple(tool.full_name for tool in ask.tools),
        heard=heard(ask.items),
        has_output_schema=ask.has_output_schema,
        error=refusal.message if refusal else None,
    )


async def _refuse_unread(
    stage: Stage, row: JournalRow, error: WireError, *, wire: Wire, request: Request, send: Send
) -> None:
    stage.journal.add(replace(row, kind=Kind.REFUSED, status=400, error=error.what))
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
    """Sends events many at a time, but none later than a silence that follows it. True when all was sent."""
    headers = _STREAM_HEADERS if is_streamed else [(b"content-type", _JSON.encode())]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    buffer = bytearray()
    event_count = 0

    async def flush() -> None:
        await send({"type": "http.response.body", "body": bytes(buffer), "more_body": True})
        buffer.clear()
        # The server's send waits only when the client is slow; other streams must have their turn too.
        await checkpoint()

    break_off = reply.break_off
    for piece in wire.render(reply) if is_streamed else messages.render_whole(reply):
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
        # Left without its end, the stream is cut by the server.
        return False
    await send({"type": "http.response.body", "body": bytes(buffer), "more_body": False})
    return True


async def _unless_gone(receive: Receive, work: Callable[[], Awaitable[None]]) -> bool:
    """Works until done or until the client goes; True where the client went first."""
    is_done = is_gone = False

    async def watch() -> None:
        nonlocal is_gone
        while (await receive())["type"] != "http.disconnect":
            pass
        is_gone = not is_done
        tasks.cancel_scope.cancel()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(watch)
        await work()
        is_done = True
        tasks.cancel_scope.cancel()
    return is_gone
