"""Agents in a web application: sessions on one warm process, events by SSE, approvals as buttons.

Run it with `SCRIPT=examples/scripts/webapp.yaml python examples/webapp/app.py` and open the address it prints; or with
MODEL=openai/gpt-5.5 and OPENAI_API_KEY set. KEEP=1 keeps the evidence on disk.

It has no login: an address that cannot be guessed is all that protects a session, and any program that can reach the
port can open a new one. HOSTS names the hosts under which a browser may reach it, separated by commas.
"""

import os
import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

import anyio
import msgspec
import uvicorn
from anyio.abc import TaskGroup, TaskStatus
from fastapi import Body, FastAPI, Header, HTTPException, Request
from fastapi.responses import FileResponse, JSONResponse, PlainTextResponse, StreamingResponse
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

import proctor

SCRIPT, MODEL = os.environ.get("SCRIPT"), os.environ.get("MODEL")
EVIDENCE: proctor.EvidenceKept = "disk" if "KEEP" in os.environ else "memory"
HOSTS = frozenset(os.environ.get("HOSTS", "127.0.0.1,localhost,::1").lower().split(","))
PAGE = Path(__file__).with_name("page.html")
# Another site must not frame the page, because a click on its buttons allows a command.
PAGE_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "Referrer-Policy": "no-referrer",
}


class SameOrigin:
    """Refuses requests that another web site makes from the user's browser.

    Every page may send requests to 127.0.0.1, and a page whose name is made to resolve to 127.0.0.1 (DNS rebinding) may
    read the answers too. The first names another `Origin`, the second another `Host`.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan" or is_same_origin(scope):
            await self._app(scope, receive, send)
        elif scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1008})
        else:
            await PlainTextResponse("this request comes from another site", 403)(scope, receive, send)


def is_same_origin(scope: Scope) -> bool:
    """Whether a request names one of our hosts, and no other site as its origin. Programs name no origin."""
    headers = Headers(scope=scope)
    hosts, origins = headers.getlist("host"), headers.getlist("origin")
    if len(hosts) != 1 or len(origins) > 1 or host_name(f"//{hosts[0]}") not in HOSTS:
        return False
    if origins:
        # The scheme is left out: a proxy in front may speak https to the browser and http to us.
        return origins[0].lower().partition("://")[2] == hosts[0].lower()
    is_page = scope["type"] == "http" and scope["method"] == "GET" and scope["path"] == "/"
    return is_page or headers.get("sec-fetch-site", "none") in ("same-origin", "none")


def host_name(address: str) -> str | None:
    try:
        return urlsplit(address).hostname
    except ValueError:
        return None


@dataclass
class Waiting:
    """A question that the browser has not answered yet."""

    answered: anyio.Event = field(default_factory=anyio.Event)
    decision: proctor.Decision = proctor.Decision.DENY


@dataclass
class Room:
    """One conversation. It stays open until it is closed or the server stops, with or without a browser."""

    id: str
    session: proctor.Session
    waiting: dict[str, Waiting]
    closed: anyio.Event = field(default_factory=anyio.Event)


@dataclass
class Rooms:
    """All conversations of this server by id, each in its own task. Who knows an id may read and answer."""

    pool: proctor.Pool
    tasks: TaskGroup
    open: dict[str, Room] = field(default_factory=dict)

    async def hold(self, *, task_status: TaskStatus[str]) -> None:
        waiting: dict[str, Waiting] = {}

        async def decide(question: proctor.Question) -> proctor.Decision:
            asked = waiting[question.request] = Waiting()
            try:
                await asked.answered.wait()
                return asked.decision
            finally:
                del waiting[question.request]

        room = None
        try:
            async with self.pool.session(approvals=decide, approval_deadline="10m", script=SCRIPT) as session:
                # Not `session.id`, which counts up and can be guessed.
                room = Room(secrets.token_urlsafe(32), session, waiting)
                self.open[room.id] = room
                task_status.started(room.id)
                await room.closed.wait()
        except proctor.ProctorError as error:
            if room is None:
                raise  # the request that opens the session gets the error
            print(f"the evidence of {room.session.id} could not be kept: {error}")
        finally:
            if room is not None:
                del self.open[room.id]


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    async with (
        proctor.pool(model=MODEL, login=MODEL and "api-key", evidence=EVIDENCE) as pool,
        anyio.create_task_group() as tasks,
    ):
        app.state.rooms = Rooms(pool, tasks)
        yield
        tasks.cancel_scope.cancel()


app = FastAPI(lifespan=lifespan)
app.add_middleware(SameOrigin)


def room_of(request: Request, room: str) -> Room:
    rooms: Rooms = request.app.state.rooms
    if (open_room := rooms.open.get(room)) is None:
        raise HTTPException(404, "no such session")
    return open_room


@app.exception_handler(proctor.InputError)
async def refuse(_: Request, error: proctor.InputError) -> JSONResponse:
    return JSONResponse({"code": error.code, "what": str(error), "todo": error.meaning.todo}, 409)


@app.get("/")
async def page() -> FileResponse:
    return FileResponse(PAGE, headers=PAGE_HEADERS)


@app.post("/sessions")
async def open_session(request: Request) -> dict[str, str]:
    rooms: Rooms = request.app.state.rooms
    return {"id": await rooms.tasks.start(rooms.hold)}


@app.delete("/sessions/{room}", status_code=204)
async def close_session(request: Request, room: str) -> None:
    room_of(request, room).closed.set()


@app.post("/sessions/{room}/say", status_code=202)
async def say(request: Request, room: str, prompt: str = Body(embed=True)) -> None:
    room_of(request, room).session.say(prompt)


@app.post("/sessions/{room}/interrupt", status_code=204)
async def interrupt(request: Request, room: str) -> None:
    await room_of(request, room).session.interrupt()


@app.post("/sessions/{room}/answers/{question}", status_code=204)
async def answer(request: Request, room: str, question: str, accept: bool = Body(embed=True)) -> None:
    if (asked := room_of(request, room).waiting.get(question)) is None:
        raise HTTPException(409, "the agent no longer waits for this answer")
    asked.decision = proctor.Decision.ACCEPT if accept else proctor.Decision.DENY
    asked.answered.set()


@app.get("/sessions/{room}/events")
async def events(request: Request, room: str, last_event_id: int = Header(0)) -> StreamingResponse:
    """Stream events. A browser that reconnects sends the last offset it saw and continues after it."""
    following = room_of(request, room).session.events(after=last_event_id)

    async def stream() -> AsyncIterator[bytes]:
        async for offset, event in following:
            yield b"id: %d\ndata: %b\n\n" % (offset, msgspec.json.encode(event))

    return StreamingResponse(stream(), media_type="text/event-stream")


if __name__ == "__main__":
    # Streams never end by themselves, so the server must not wait for them long when it stops.
    uvicorn.run(app, port=int(os.environ.get("PORT", "8000")), timeout_graceful_shutdown=1, log_level="info")
