"""A session with one pi process: turns, approvals, interrupts, and a clean end."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any, Final

import anyio
import anyio.to_thread
import msgspec
from anyio.abc import TaskGroup

from proctor.clock import Clock
from proctor.errors import DeadlineError, HangupError, PeerError, RefusedError
from proctor.event.message import Message
from proctor.event.row import HistoryKept
from proctor.fact import Fact
from proctor.ids import ThreadId
from proctor.runtime.base import ContextUse, Delivery, SessionRequest, Tap
from proctor.runtime.line_process import PLAIN, LineProcess, LineRoute
from proctor_pi import kept
from proctor_pi.approvals import Answer, ApprovalHandler, PiQuestion
from proctor_pi.course import Course, Move
from proctor_pi.lean import Lean
from proctor_pi.leftovers import end_leftovers
from proctor_pi.places import Replies
from proctor_pi.tools import ASKING, DIALOGS, Call
from proctor_pi.wire import Frame, State, read_frame, read_state

START_S: Final = 30.0
TEARDOWN_S: Final = 5.0


@dataclass(slots=True)
class _Request:
    command: str
    answered: anyio.Event = field(default_factory=anyio.Event)
    reply: Frame | None = None


class PiSession:
    """One session. It acts on raw frames; events are derived from the record elsewhere."""

    def __init__(
        self, request: SessionRequest, tap: Tap, *, clock: Clock, fences: Fact, lean: Lean, kept_in: Path | None
    ) -> None:
        self._request = request
        self._kept_in = kept_in
        self._tap = tap
        self._fences = fences
        self._lean = lean
        self._approvals = ApprovalHandler(request, tap, clock=clock, is_fenced=fences.value is not None)
        self._ids = count(1)
        self._requests: dict[str, _Request] = {}
        self._replies = Replies()
        self._course = Course()
        self._calls: dict[str, Call] = {}
        self._state: State | None = None
        self._over: anyio.Event | None = None
        self._accepted = anyio.Event()
        self._hangup: str | None = None
        self._line_process: LineProcess
        self._tasks: TaskGroup

    # ── what the supervisor sees ──

    @property
    def thread(self) -> ThreadId | None:
        return None if self._state is None else ThreadId(self._state.session_id)

    @property
    def facts(self) -> Mapping[str, Fact]:
        return {"fences": self._fences, "frames": self._lean.fact()}

    @property
    def is_alive(self) -> bool:
        return self._hangup is None

    @property
    def last_heard_s(self) -> float:
        return max(self._line_process.last_output_s, self._approvals.open_questions.busy_until_s)

    async def start(self, line_process: LineProcess, tasks: TaskGroup) -> None:
        self._line_process, self._tasks = line_process, tasks
        reply = await self._call("get_state", deadline_s=START_S)
        self._state = read_state(reply)
        if self._state is None:
            raise PeerError("peer.wire", "get_state: the reply cannot be read")

    async def turn(self, prompt: str, *, output_schema: Mapping[str, Any] | None = None) -> None:
        if self._over is not None:
            raise RefusedError("peer.refused", "prompt: a turn is already running")
        over, self._accepted = anyio.Event(), anyio.Event()
        self._over = over
        try:
            await self._call("prompt", deadline_s=START_S, message=prompt)
        except (RefusedError, HangupError):
            self._over = None
            raise
        await over.wait()
        if self._hangup is not None:
            raise HangupError("peer.hangup", self._hangup)

    async def give(self, messages: Sequence[Message], *, instructions: str | None = None) -> Delivery:
        raise RefusedError("runtime.capability", "pi cannot add messages to a thread")

    async def steer(self, text: str) -> None:
        if self._over is None or self._course.is_stopped:
            # pi would keep the message for the next turn.
            raise RefusedError("peer.refused", "steer: no turn runs")
        await self._call("steer", deadline_s=START_S, message=text)

    async def compact(self) -> None:
        raise RefusedError("runtime.capability", "pi compacts its history only by itself, not on request")

    async def interrupt(self) -> None:
        if (over := self._over) is None:
            return
        with anyio.move_on_after(TEARDOWN_S), suppress(PeerError):
            # An abort has no effect before the turn has begun.
            await self._accepted.wait()
            await self._call("abort", deadline_s=TEARDOWN_S)
            await over.wait()

    async def settle(self) -> None:
        """End processes that commands left in the background. Those with `setsid` outlive even an abort."""
        await end_leftovers(self._line_process.process)

    async def read_history(self) -> None:
        if self._kept_in is None or self.thread is None:
            raise RefusedError("peer.refused", "pi does not store an ephemeral session")
        # Not from the path that pi reports: it could be any file.
        items = await anyio.to_thread.run_sync(kept.read, self._kept_in, self.thread)
        self._tap.record(HistoryKept(source=kept.SOURCE, items=items))

    async def read_context(self) -> ContextUse:
        return ContextUse()

    async def close(self) -> None:
        """Interrupt the turn, for a bounded time. Whatever still runs then ends with the process."""
        self._approvals.open_questions.withdraw_all()
        await self.interrupt()

    # ── requests ──

    async def _call(self, command: str, *, deadline_s: float, **params: Any) -> Frame:
        id_ = str(next(self._ids))
        request = self._requests[id_] = _Request(command)
        try:
            await self._send({"id": id_, "type": command, **params})
            with anyio.move_on_after(deadline_s):
                await request.answered.wait()
        finally:
            self._requests.pop(id_, None)
        if request.reply is None:
            if self._hangup is not None:
                raise HangupError("peer.hangup", self._hangup)
            raise DeadlineError("peer.deadline", f"{command}: no reply within {deadline_s:g} s")
        if not request.reply.success:
            raise RefusedError("peer.refused", f"{command}: {request.reply.error}")
        return request.reply

    async def _send(self, message: Mapping[str, Any]) -> None:
        await self._line_process.send(msgspec.json.encode(message))

    # ── receiving ──

    def route(self, line: bytes) -> LineRoute:
        frame = read_frame(line)
        if frame is None:
            return PLAIN
        self._replies.feed(frame)
        return self._replies.route(frame)

    def on_line(self, line: bytes) -> None:
        frame = read_frame(line)
        if frame is None:
            return
        move = self._course.feed(frame)
        match frame.type:
            case "response":
                self._on_response(frame)
            case "tool_execution_start" if frame.tool_call_id:
                self._calls[frame.tool_call_id] = Call(
                    id=frame.tool_call_id, name=frame.tool_name or "", args=frame.args or {}
                )
            case "tool_execution_end" if frame.tool_call_id:
                self._calls.pop(frame.tool_call_id, None)
                self._approvals.withdraw(frame.tool_call_id)
            case "extension_ui_request" if frame.id and frame.method in DIALOGS:
                about = frame.message if frame.title == ASKING and isinstance(frame.message, str) else ""
                self._on_question(PiQuestion(request=frame.id, about=self._calls.get(about)))
        if move is Move.STOPPED:
            self._tasks.start_soon(self._check, self._course.check)
        elif move is Move.OVER:
            self._end_turn()

    def on_hangup(self, cause: str) -> None:
        self._hangup = cause
        self._approvals.open_questions.withdraw_all()
        for request in self._requests.values():
            request.answered.set()
        self._accepted.set()
        self._end_turn()

    def _on_response(self, frame: Frame) -> None:
        # pi's reply to a command that it does not know has no id.
        request = self._requests.get(frame.id) if frame.id else self._oldest(frame.command)
        if request is not None and request.reply is None:
            request.reply = frame
            request.answered.set()
        if frame.command == "prompt":
            # Set here, not by the caller of `prompt`: it may have been cancelled, and then an interrupt follows.
            self._accepted.set()
            if not frame.success:
                self._end_turn()

    def _oldest(self, command: str | None) -> _Request | None:
        return next((request for request in self._requests.values() if request.command == command), None)

    def _on_question(self, question: PiQuestion) -> None:
        if (answer := self._approvals.take(question)) is None:
            self._tasks.start_soon(self._consider, question)
        else:
            self._tasks.start_soon(self._send_answer, question, answer)

    def _end_turn(self) -> None:
        if self._over is not None:
            self._over.set()
            self._over = None

    # ── tasks ──

    async def _check(self, id_: str) -> None:
        with suppress(PeerError):
            await self._send({"id": id_, "type": "get_state"})

    async def _consider(self, question: PiQuestion) -> None:
        if (answer := await self._approvals.consider(question, record_row=self._tap.record)) is not None:
            await self._send_answer(question, answer)

    async def _send_answer(self, question: PiQuestion, answer: Answer) -> None:
        with suppress(PeerError):
            await self._send({"type": "extension_ui_response", "id": question.request, "confirmed": answer.is_allowed})
