"""A session of Claude Code in its own process."""

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any
from uuid import uuid4

import anyio
import anyio.to_thread
import msgspec
from anyio.abc import TaskGroup

from proctor.clock import Clock
from proctor.errors import DeadlineError, HangupError, PeerError, RefusedError
from proctor.event.history_item import without_calls
from proctor.event.message import Message
from proctor.event.row import HistoryKept, QuestionAnswered
from proctor.fact import Authority, Fact
from proctor.ids import ThreadId
from proctor.runtime.base import ContextUse, Delivery, SessionRequest, Tap
from proctor.runtime.claude_code import wire
from proctor.runtime.claude_code.approvals import ApprovalHandler
from proctor.runtime.claude_code.context_use import context_use
from proctor.runtime.claude_code.frame_giver import BASE_S, FrameGiver
from proctor.runtime.claude_code.history import read_session, session_file
from proctor.runtime.claude_code.home import is_ephemeral
from proctor.runtime.claude_code.native_items import native_items
from proctor.runtime.claude_code.questions import ToolQuestion, hook_answer, prompt_hook_answer, read_question
from proctor.runtime.claude_code.route import open_envelope, route_of
from proctor.runtime.claude_code.stored_history import StoredHistory
from proctor.runtime.claude_code.turns import Turns
from proctor.runtime.conversion import Conversion, clean
from proctor.runtime.delivery import NOTHING, delivery_of, offer_of, receipt_of
from proctor.runtime.line_process import LineProcess, LineRoute
from proctor.spec.choices import Persistence

_encode = msgspec.json.Encoder().encode

HOOK = "proctor-pre-tool-use"
PROMPT_HOOK = "proctor-user-prompt-submit"
SOURCE = "session file"
# A message sent during an interrupt starts another turn, which must be interrupted too.
INTERRUPTS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Deadlines:
    """How long the program may take to answer."""

    start_s: float = 60.0
    """For the first reply."""
    teardown_s: float = 5.0
    """For all requests after a turn together."""
    farewell_s: float = 0.1
    """For each further request when `teardown_s` is used up: it is still sent, but hardly waited for."""
    context_s: float = 10.0
    """For the use of the context window, for which the program may ask its provider."""
    give_s: float = BASE_S
    """For messages that are given together, apart from the time for each frame."""


DEADLINES = Deadlines()


@dataclass(slots=True)
class _Pending:
    done: anyio.Event = field(default_factory=anyio.Event)
    reply: wire.Response | None = None
    line: bytes = b""


class ClaudeSession:
    """One session. It acts on raw frames through the line process; events are derived from the record elsewhere."""

    def __init__(
        self,
        request: SessionRequest,
        tap: Tap,
        *,
        clock: Clock,
        tasks: TaskGroup,
        config: Path,
        fences_fact: Fact,
        deadlines: Deadlines = DEADLINES,
        stored: StoredHistory | None = None,
    ) -> None:
        """`stored` is the session file that the program reads the history from."""
        self.line_process: LineProcess | None = None
        self.thread: ThreadId | None = None
        self._request = request
        self._tap = tap
        self._tasks = tasks
        self._config = config
        self._fences_fact = fences_fact
        self._deadlines = deadlines
        self._teardown_left_s = deadlines.teardown_s
        self._approvals = ApprovalHandler(request, tap, clock=clock, is_fenced=fences_fact.value is not None)
        self._ids = count(1)
        self._pending: dict[str, _Pending] = {}
        self._opened: deque[wire.Envelope] = deque()
        self._turns = Turns()
        self._over = anyio.Event()
        self._news = anyio.Event()
        self._hangup: str | None = None
        self._last_errors: tuple[str, ...] = ()
        self._schema: Mapping[str, Any] | None = None
        self._is_greeted = self._is_cut_off = self._is_halted = self._is_at_tools = False
        self._background: set[str] = set()
        self._stored = stored
        # Given with the first turn, because the program accepts an output schema only before.
        self._history = native_items(request.history) if stored is None else stored.rest
        self._instructions: list[str] = []  # for the next prompt
        self._has_prompt_hook = False
        self._giver = FrameGiver(self._send, self._turns, tap, base_s=deadlines.give_s)

    # ── what the supervisor sees ──

    @property
    def is_alive(self) -> bool:
        return self._hangup is None

    @property
    def last_heard_s(self) -> float:
        assert self.line_process is not None
        return max(self.line_process.last_output_s, self._approvals.open_questions.busy_until_s)

    @property
    def facts(self) -> Mapping[str, Fact]:
        facts = {"fences": self._fences_fact}
        if self.thread is not None:
            is_kept = session_file(self._config, self.thread) is not None
            facts["persistence"] = Fact(
                value=(Persistence.PERSISTENT if is_kept else Persistence.EPHEMERAL).value,
                authority=Authority.OBSERVED,
                source=f"the program has {'a' if is_kept else 'no'} file of the session",
            )
        return facts

    async def turn(self, prompt: str, *, output_schema: Mapping[str, Any] | None = None) -> None:
        await self._take_turn(prompt, schema=output_schema)

    async def compact(self) -> None:
        await self._take_turn(wire.COMPACT, schema=self._schema)

    async def _take_turn(self, prompt: str, *, schema: Mapping[str, Any] | None) -> None:
        if self._hangup is not None:
            raise self._gone()
        if self._turns.current is not None:
            raise RefusedError("peer.refused", "a turn is already running")
        if self._giver.is_busy:
            raise RefusedError("peer.refused", "messages are being given")
        await self._greet(schema)
        await self._give_history()
        self._teardown_left_s = self._deadlines.teardown_s
        self._over, self._is_halted = anyio.Event(), False
        await self._send_user_message(prompt)
        await self._over.wait()
        if self._is_cut_off:
            raise self._gone()

    async def give(self, messages: Sequence[Message], *, instructions: str | None = None) -> Delivery:
        """Add messages to the thread, and instructions to the next prompt.

        Initializes the program, which then accepts no output schema.
        """
        if self._hangup is not None:
            raise self._gone()
        if self._turns.current is not None or self._giver.is_busy:
            what = "messages are being given" if self._giver.is_busy else "a turn is running"
            raise RefusedError("peer.refused", what)
        if instructions is not None and self._is_greeted and not self._has_prompt_hook:
            what = "the session was opened without `expects_instructions`, which Claude Code must know from the start"
            raise RefusedError("runtime.capability", what)
        self._has_prompt_hook = self._has_prompt_hook or instructions is not None
        await self._greet(self._schema)
        await self._give_history()
        return await self._give(native_items(messages), instructions=instructions)

    async def _give_history(self) -> None:
        history, self._history = self._history, NOTHING
        await self._give(history, instructions=None)

    async def _give(self, conversion: Conversion, *, instructions: str | None) -> Delivery:
        if conversion.items or instructions is not None:
            self._tap.record(offer_of(conversion, instructions=instructions))
        if conversion.items:
            await self._giver.give(conversion)
        if instructions is not None:
            self._instructions.append(clean(instructions))
        return delivery_of(conversion)

    async def steer(self, text: str) -> None:
        """Add text to the running turn. It reaches the model with the next request.

        A reply that is being generated is interrupted for it; a running tool is not.
        """
        if self._turns.current is None:
            raise RefusedError("peer.refused", "no turn runs")
        await self._send_user_message(text, **({} if self._is_at_tools else {"priority": "now"}))

    async def interrupt(self) -> None:
        for _ in range(INTERRUPTS):
            if self._turns.current is None or self._hangup is not None:
                return
            self._is_halted = True
            self._news = anyio.Event()
            await self._try("interrupt")
            with self._teardown_budget() as left_s, anyio.move_on_after(left_s):
                await self._news.wait()

    async def settle(self) -> None:
        """Stop background commands, which would otherwise outlive the turn."""
        for task in sorted(self._background):
            await self._try("stop_task", task_id=task)
        while self._background and self._hangup is None and self._teardown_left_s > 0:
            self._news = anyio.Event()
            with self._teardown_budget() as left_s, anyio.move_on_after(left_s):
                await self._news.wait()

    async def read_history(self) -> None:
        # The program states its id with the first turn.
        thread = self.thread or self._request.resume
        if thread is None:
            raise RefusedError("peer.refused", "the session has no id yet")
        items = await anyio.to_thread.run_sync(read_session, self._config, thread)
        # Before the first turn it is read to be imported. Afterwards the record has the calls already.
        own = items if self.thread is None else without_calls(items)
        self._tap.record(HistoryKept(source=SOURCE, items=own))

    async def read_context(self) -> ContextUse:
        """Ask the program, which may ask its provider for counts. Nothing is known before it is initialized."""
        if self._hangup is not None:
            raise self._gone()
        if self._turns.current is not None or self._giver.is_busy:
            raise RefusedError("peer.refused", f"{wire.READ_CONTEXT}: a turn or giving runs")
        if not self._is_greeted:
            return ContextUse()
        reply = await self._call(wire.READ_CONTEXT, deadline_s=self._deadlines.context_s)
        return context_use(reply)

    async def close(self) -> None:
        if self._turns.current is not None and not self._is_halted:
            # Otherwise the turn would continue without a session.
            await self.interrupt()
            await self.settle()

    # ── sending ──

    async def _greet(self, schema: Mapping[str, Any] | None) -> None:
        """Initialize the program on the first turn, because it accepts an output schema only with that request."""
        if self._is_greeted:
            if schema != self._schema:
                raise RefusedError("peer.refused", "Claude Code takes one schema per session, with its first turn")
            return
        fields: dict[str, Any] = {"hooks": {"PreToolUse": [{"matcher": None, "hookCallbackIds": [HOOK]}]}}
        self._has_prompt_hook = self._has_prompt_hook or self._request.expects_instructions
        if self._has_prompt_hook:
            fields["hooks"][wire.PROMPT_SUBMIT] = [{"matcher": None, "hookCallbackIds": [PROMPT_HOOK]}]
        if schema is not None:
            fields["jsonSchema"] = schema
        if (instructions := self._request.instructions) is not None:
            fields["appendSystemPrompt"] = clean(instructions)
            if self._is_new_thread:
                self._tap.record(offer_of(instructions=instructions))
        try:
            await self._call("initialize", deadline_s=self._deadlines.start_s, **fields)
        except HangupError as error:
            if self._last_errors:
                problem = "; ".join(self._last_errors)
                if self._stored is not None:
                    self._tap.record(receipt_of(problem=problem))
                raise RefusedError("peer.refused", problem) from error
            raise
        self._is_greeted, self._schema = True, schema
        if instructions is not None and self._is_new_thread:
            self._tap.record(receipt_of(instructions=instructions))

    @property
    def _is_new_thread(self) -> bool:
        return self._request.resume is None and self._request.fork is None

    async def _send_user_message(self, text: str, **more: Any) -> None:
        message = str(uuid4())
        frame = {
            "type": "user",
            "message": {"role": "user", "content": [{"type": "text", "text": text}]},
            "parent_tool_use_id": None,
            "session_id": self.thread or "",
            "uuid": message,
            **more,
        }
        # Counted before it is sent: its end may be received before `_send` returns.
        self._turns.said(message)
        await self._send(frame)

    async def _send(self, frame: Mapping[str, Any]) -> None:
        assert self.line_process is not None
        await self.line_process.send(_encode(frame))

    async def _call(self, subtype: str, *, deadline_s: float, **fields: Any) -> bytes:
        """Send a control request and return the line of its reply. Raises RefusedError if the reply is an error."""
        if self._hangup is not None:
            raise self._gone()
        request = f"proctor-{next(self._ids)}"
        pending = self._pending[request] = _Pending()
        frame = {"type": "control_request", "request_id": request, "request": {"subtype": subtype, **fields}}
        with anyio.move_on_after(deadline_s):
            await self._send(frame)
            await pending.done.wait()
        self._pending.pop(request, None)
        if pending.reply is None:
            if self._hangup is not None:
                raise self._gone()
            raise DeadlineError("peer.deadline", f"{subtype}: no reply within {deadline_s:g} s")
        if pending.reply.subtype == "error":
            raise RefusedError("peer.refused", f"{subtype}: {pending.reply.error}")
        return pending.line

    async def _try(self, subtype: str, **fields: Any) -> None:
        """Send a request whose failure does not matter. The reply, or its absence, is on record."""
        with self._teardown_budget() as left_s, suppress(PeerError):
            await self._call(subtype, deadline_s=left_s, **fields)

    @contextmanager
    def _teardown_budget(self) -> Iterator[float]:
        """Yield the time left for a wait after a turn. All such waits share one budget."""
        began_s = anyio.current_time()
        try:
            yield max(self._teardown_left_s, self._deadlines.farewell_s)
        finally:
            self._teardown_left_s -= anyio.current_time() - began_s

    def _gone(self) -> HangupError:
        return HangupError("peer.hangup", self._hangup or "the channel closed")

    # ── receiving ──

    def route(self, line: bytes) -> LineRoute:
        envelope = open_envelope(line)
        self._opened.append(envelope)
        return route_of(envelope)

    def on_line(self, line: bytes) -> None:
        envelope = self._opened.popleft()
        match envelope.type:
            case "stream_event" if envelope.event is not None and envelope.parent_tool_use_id is None:
                delta = envelope.event.delta
                if envelope.event.type == "message_start":
                    self._is_at_tools = False
                elif delta is not None and delta.stop_reason is not None:
                    self._is_at_tools = delta.stop_reason == "tool_use"
            case "result" if self._turns.is_giving:
                pass
            case "result":
                self._is_at_tools = False
                self._last_errors = envelope.errors or ()
                self._news.set()
                self._ended(is_over=self._turns.heard_result())
            case "command_lifecycle":
                self._giver.heard_state(envelope.command_uuid or "", envelope.state or "")
                self._ended(is_over=self._turns.heard_state(envelope.command_uuid or "", envelope.state or ""))
            case "control_response" if envelope.response is not None:
                if (pending := self._pending.get(envelope.response.request_id)) is not None:
                    pending.reply, pending.line = envelope.response, line
                    pending.done.set()
            case "control_request":
                self._on_control_request(envelope)
            case "control_cancel_request":
                self._approvals.open_questions.withdraw([envelope.request_id or ""])
            case "system" if envelope.subtype == "init" and envelope.session_id:
                self._note_stored(envelope.session_id)
                self.thread = self.thread or ThreadId(envelope.session_id)
            case "system" if envelope.subtype == "status":
                self._is_at_tools = False
            case "system" if envelope.tasks is not None:
                self._background = {task.task_id for task in envelope.tasks}
                self._news.set()

    def _note_stored(self, thread: str) -> None:
        """Record that the program has read the session file, and remove it if the thread is not to be stored."""
        stored, self._stored = self._stored, None
        if stored is not None and thread == stored.thread:
            self._tap.record(receipt_of(stored.conversion))
            if is_ephemeral(self._request):
                stored.path.unlink(missing_ok=True)

    def _ended(self, *, is_over: bool) -> None:
        if is_over:
            self._approvals.open_questions.withdraw_all()
            self._over.set()
            self._news.set()

    def on_hangup(self, cause: str) -> None:
        self._hangup = cause
        self._approvals.open_questions.withdraw_all()
        self._is_cut_off = self._turns.current is not None
        self._background.clear()
        for pending in self._pending.values():
            pending.done.set()
        self._giver.hang_up(cause)
        self._over.set()
        self._news.set()

    # ── answering ──

    def _on_control_request(self, envelope: wire.Envelope) -> None:
        request, subtype = envelope.request_id or "", (envelope.request or wire.Request()).subtype
        if subtype == "hook_callback":
            assert envelope.request is not None
            self._reply(request, self._hook_answer(envelope.request.input))
        elif subtype == "can_use_tool":
            question = read_question(envelope)
            if (answer := self._approvals.take(question)) is not None:
                self._reply(request, answer.body)
            else:
                self._tasks.start_soon(self._consider, question)
        elif subtype == "mcp_message" and isinstance(message := (envelope.request or wire.Request()).message, dict):
            taken = self._approvals.take_call(request, message)
            if isinstance(taken, ToolQuestion):
                self._tasks.start_soon(self._consider, taken)
            else:
                self._reply(request, taken)
        else:
            self._tap.record(QuestionAnswered(request=request, method=subtype, decision="unknown request", by="policy"))
            error = {"subtype": "error", "request_id": request, "error": f"Proctor does not know {subtype}"}
            self._tasks.start_soon(self._answer, {"type": "control_response", "response": error})

    def _hook_answer(self, input_: Any) -> Mapping[str, Any]:
        if not isinstance(input_, dict) or input_.get("hook_event_name") != wire.PROMPT_SUBMIT:
            return hook_answer(input_)
        instructions, self._instructions = self._instructions, []
        for text in instructions:
            self._tap.record(receipt_of(instructions=text))
        return prompt_hook_answer("\n\n".join(instructions)) if instructions else {}

    async def _consider(self, question: ToolQuestion) -> None:
        if (answer := await self._approvals.consider(question, record_row=self._tap.record)) is not None:
            self._reply(question.request, answer.body)

    def _reply(self, request: str, body: Mapping[str, Any]) -> None:
        response = {"subtype": "success", "request_id": request, "response": body}
        self._tasks.start_soon(self._answer, {"type": "control_response", "response": response})

    async def _answer(self, frame: Mapping[str, Any]) -> None:
        # The waiting turn gets the error if the program has ended or does not read its input.
        with suppress(PeerError):
            await self._send(frame)
