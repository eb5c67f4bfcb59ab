"""Call a context engine so that it can neither block, break nor change what calls it."""

import asyncio
import inspect
import threading
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from contextvars import copy_context
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Final, Literal, TypeVar, cast, overload

import anyio
import msgspec

from proctor import decoding
from proctor.clock import Clock
from proctor.context.check_assembled import check_assembled, is_json, type_problem
from proctor.context.engine import (
    AssembleResult,
    CommitResult,
    CompactResult,
    ContextEngine,
    CreateEngine,
    EngineContext,
    EngineInfo,
    EngineSetup,
    ForgetReason,
    MaintainReason,
    TurnCommit,
)
from proctor.context.history import History
from proctor.context.project import ProjectionMode
from proctor.errors import EngineError, MachineError
from proctor.event.message import CallPart, Message
from proctor.ids import EntryId
from proctor.runtime import callbacks
from proctor.runtime.base import Tool

T = TypeVar("T")
S = TypeVar("S", bound=msgspec.Struct)

MOST_FAILURES: Final = 3
"""So many failures in a row, of all methods or of one of them, quarantine an engine."""

PAUSE_S: Final = 60.0
"""How long a quarantined engine is not called."""

MOST_REASON_CHARS: Final = 300

_CODES_OF_FILES: Final = frozenset({"engine.damaged", "engine.newer"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Deadlines:
    """How long an engine may take, in seconds. `unfinished_s` is how long a call waits for an abandoned one to end."""

    call_s: float = 30.0
    maintain_s: float = 120.0
    compact_s: float = 180.0
    close_s: float = 10.0
    unfinished_s: float = 2.0

    def of(self, method: str) -> float:
        return {"maintain": self.maintain_s, "compact": self.compact_s, "close": self.close_s}.get(method, self.call_s)


DEADLINES: Final = Deadlines()


# ── quarantine ──


@dataclass(slots=True)
class _EngineRecord:
    """The failures of one engine since its last success."""

    in_a_row: int = 0
    by_method: dict[str, int] = field(default_factory=dict)
    quarantined_at_s: float | None = None
    reason: str = ""
    is_testing: bool = False


class EngineHealth:
    """Which engines of this process fail, by engine id. Safe on every thread.

    An engine that fails three times in a row, in all methods together or in one of them, is not called for a minute.
    One call then tests it: if it succeeds, the engine is used again, and if not, it pauses again.
    """

    def __init__(self, *, most_failures: int = MOST_FAILURES, pause_s: float = PAUSE_S) -> None:
        self._most_failures = most_failures
        self._pause_s = pause_s
        self._records: dict[str, _EngineRecord] = {}
        self._lock = threading.Lock()

    def quarantine(self, engine: str) -> str | None:
        """Return the failure for which an engine is in quarantine; None if it is not."""
        with self._lock:
            record = self._records.get(engine)
            return None if record is None or record.quarantined_at_s is None else record.reason

    def admit(self, engine: str, *, now_s: float) -> str | None:
        """Return why the engine may not be called now; None if it may. A call that was admitted must be reported."""
        with self._lock:
            record = self._records.get(engine)
            if record is None or record.quarantined_at_s is None:
                return None
            if record.is_testing or now_s - record.quarantined_at_s < self._pause_s:
                return record.reason
            record.is_testing = True
            return None

    def succeed(self, engine: str, method: str) -> None:
        """Report a call that succeeded."""
        with self._lock:
            record = self._records.get(engine)
            if record is None:
                return
            if record.is_testing or record.quarantined_at_s is None:
                record.is_testing, record.quarantined_at_s, record.in_a_row = False, None, 0
                # The other methods' failures are kept: an `assemble` that always fails is found although commits work.
                record.by_method.pop(method, None)

    def fail(self, engine: str, method: str, *, reason: str, now_s: float) -> None:
        """Report a call that failed."""
        with self._lock:
            record = self._records.setdefault(engine, _EngineRecord())
            record.in_a_row += 1
            record.by_method[method] = record.by_method.get(method, 0) + 1
            if record.is_testing or max(record.in_a_row, record.by_method[method]) >= self._most_failures:
                record.quarantined_at_s, record.reason, record.is_testing = now_s, reason, False

    def cancel(self, engine: str) -> None:
        """Report a call that the caller cancelled, which shows nothing about the engine."""
        with self._lock:
            if (record := self._records.get(engine)) is not None:
                record.is_testing = False


ENGINE_HEALTH: Final = EngineHealth()
"""The health of the engines in this process."""


# ── what the engine is given ──


class CancelSignal:
    """A `Cancel` that can be set, from any thread."""

    def __init__(self) -> None:
        self._event = threading.Event()

    @property
    def is_set(self) -> bool:
        return self._event.is_set()

    def set(self) -> None:
        self._event.set()


class _CopiedHistory:
    """A history whose messages are the engine's own, so that it cannot change those of the session."""

    def __init__(self, history: History) -> None:
        self._history = history

    def __len__(self) -> int:
        return len(self._history)

    @overload
    def __getitem__(self, at: int) -> Message: ...

    @overload
    def __getitem__(self, at: slice) -> Sequence[Message]: ...

    def __getitem__(self, at: int | slice) -> Message | Sequence[Message]:
        if isinstance(at, slice):
            return tuple(map(_copy, self._history[at]))
        return _copy(self._history[at])

    def __iter__(self) -> Iterator[Message]:
        return map(_copy, self._history)

    def __reversed__(self) -> Iterator[Message]:
        return map(_copy, reversed(self._history))

    def position(self, id_: EntryId) -> int | None:
        return self._history.position(id_)

    def result_of(self, call: EntryId) -> EntryId | None:
        return self._history.result_of(call)


def _copy(message: Message) -> Message:
    """Return the message with its own copy of the only thing in it that can be changed: a tool's input."""
    if not isinstance(message.part, CallPart) or not isinstance(message.part.input, dict | list):
        return message
    return msgspec.structs.replace(
        message, part=msgspec.structs.replace(message.part, input=_copy_json(message.part.input))
    )


def _copy_json(value: Any) -> Any:
    match value:
        case dict():
            return {key: _copy_json(each) for key, each in value.items()}
        case list():
            return [_copy_json(each) for each in value]
        case _:
            return value


# ── calling it ──


class BadResultError(Exception):
    """An engine returned what it may not. The message says what, and what the author of the engine should do."""


async def create_in_time(
    engine_id: str, create: CreateEngine, setup: EngineSetup, *, deadline_s: float = DEADLINES.call_s
) -> ContextEngine:
    """Create an engine, in a thread: it may have to read its state. Raises what `create` raises, and EngineError."""
    with anyio.move_on_after(deadline_s):
        engine: Any = await _run_in_thread(partial(create, setup), finish=lambda: None)
        return cast("ContextEngine", engine)
    raise EngineError("engine.timeout", f"engine {engine_id}: its creation did not end within {deadline_s:g} s")


class GuardedEngine:
    """An engine that can be called without a risk for the session.

    Each call has a deadline, and every failure is an EngineError. Coroutine functions run on the event loop; plain
    functions run in a thread, and their `ctx.rewrite` and `ctx.complete` are None, because they cannot await them. A
    thread that does not return is abandoned, and keeps neither the session nor the process from ending. A coroutine
    function that blocks cannot be interrupted.

    While the engine pauses, every method but `close` raises EngineError `engine.quarantined` without calling it.
    """

    def __init__(
        self,
        engine: ContextEngine,
        *,
        clock: Clock,
        health: EngineHealth = ENGINE_HEALTH,
        deadlines: Deadlines = DEADLINES,
    ) -> None:
        self._engine = engine
        self._info = engine.info
        self._clock = clock
        self._health = health
        self._deadlines = deadlines
        self._unfinished: dict[anyio.Event, str] = {}

    @property
    def info(self) -> EngineInfo:
        return self._info

    async def bootstrap(self, ctx: EngineContext, history: History) -> None:
        await self._call("bootstrap", ctx, _CopiedHistory(history), read=_ignore)

    async def assemble(self, ctx: EngineContext, history: History, prompt: Message) -> AssembleResult:
        """Return what the engine assembled, checked by `check_assembled`, with messages that it cannot change later."""
        read = partial(_read_assembled, ctx=ctx, history=history, prompt=prompt)
        return await self._call("assemble", ctx, _CopiedHistory(history), prompt, read=read)

    async def commit_turn(self, ctx: EngineContext, turn: TurnCommit) -> CommitResult:
        own = msgspec.structs.replace(turn, messages=tuple(map(_copy, turn.messages)))
        if ctx.history is not None:
            ctx = replace(ctx, history=_CopiedHistory(ctx.history))
        return await self._call("commit_turn", ctx, own, read=_read_commit)

    async def maintain(self, ctx: EngineContext, reason: MaintainReason) -> None:
        await self._call("maintain", ctx, reason, read=_ignore)

    async def compact(
        self, ctx: EngineContext, *, force: bool, target: Literal["budget", "threshold"], focus: str | None
    ) -> CompactResult:
        read = partial(_read_compacted, ctx=ctx)
        return await self._call("compact", ctx, read=read, force=force, target=target, focus=focus)

    async def forget(self, ctx: EngineContext, reason: ForgetReason) -> None:
        await self._call("forget", ctx, reason, read=_ignore)

    async def tools(self) -> tuple[Tool, ...]:
        """Return the engine's tools; none if it offers none."""
        if not hasattr(self._engine, "tools"):
            return ()
        return await self._call("tools", None, read=_read_tools)

    async def find_damage(self) -> str | None:
        """Return what is damaged of what the engine keeps; None if nothing is, or it cannot check that."""
        if not hasattr(self._engine, "find_damage"):
            return None
        return await self._call("find_damage", None, read=_read_damage)

    async def close(self) -> None:
        """Close the engine, also while it pauses, and beside a call that was abandoned."""
        await self._run("close", (), {}, read=_ignore)

    async def _call(
        self, method: str, ctx: EngineContext | None, *args: Any, read: Callable[[object], T], **options: Any
    ) -> T:
        paused_for = self._health.admit(self.info.id, now_s=self._clock.steady_s())
        if paused_for is not None:
            what = f"{method} was not called: the engine pauses after failures ({paused_for})"
            raise self._error("engine.quarantined", what)
        try:
            await self._wait_for_unfinished(method)
            result = await self._run(method, args if ctx is None else (ctx, *args), options, read=read)
        except EngineError as error:
            if error.code in _CODES_OF_FILES:
                # They are those of one session; the engine may serve others.
                self._health.cancel(self.info.id)
            else:
                self._health.fail(self.info.id, method, reason=error.what, now_s=self._clock.steady_s())
            raise
        except BaseException:
            self._health.cancel(self.info.id)
            raise
        self._health.succeed(self.info.id, method)
        return result

    async def _wait_for_unfinished(self, method: str) -> None:
        """Wait for calls that were abandoned: an engine gets one call at a time."""
        is_background = self.info.maintenance == "background"
        if is_background and method == "maintain":
            return
        for ended, running in list(self._unfinished.items()):
            if is_background and running == "maintain":
                continue
            with anyio.move_on_after(self._deadlines.unfinished_s):
                await ended.wait()
            if not ended.is_set():
                raise self._error("engine.timeout", f"{method} was not called: {running} was abandoned and still runs")

    async def _run(
        self, method: str, args: tuple[Any, ...], options: Mapping[str, Any], *, read: Callable[[object], T]
    ) -> T:
        deadline_s = self._deadlines.of(method)
        try:
            outcome = await callbacks.call(
                lambda: self._invoke(method, args, options),
                read=lambda value: (value,),
                deadline_s=deadline_s,
                on_given_up=lambda: None,
            )
        except callbacks.CallbackError as error:
            raise self._error(_code_of(error), f"{method} raised {_cut(str(error))}") from error.__cause__
        if outcome is None:
            raise self._error("engine.timeout", f"{method} did not answer within {deadline_s:g} s")
        try:
            return read(outcome[0])
        except Exception as error:  # an object of the engine may do anything
            what = str(error) if isinstance(error, BadResultError) else f"it cannot be read: {type(error).__name__}"
            raise self._error("engine.bad-result", f"{method} returned something invalid: {_cut(what)}") from error

    async def _invoke(self, method: str, args: tuple[Any, ...], options: Mapping[str, Any]) -> object:
        function = getattr(self._engine, method)
        is_async = inspect.iscoroutinefunction(function)
        signal, ended = CancelSignal(), anyio.Event()
        args = tuple(_with_cancel(arg, signal, is_async=is_async) for arg in args)
        self._unfinished[ended] = method

        def finish() -> None:
            self._unfinished.pop(ended, None)
            ended.set()

        try:
            if is_async:
                return await _await(function(*args, **options), finish=finish)
            value = await _run_in_thread(partial(function, *args, **options), finish=finish)
            return await value if inspect.isawaitable(value) else value
        except SystemExit as error:  # must end neither the event loop nor the process
            raise RuntimeError(f"SystemExit: {error}") from error
        finally:
            signal.set()

    def _error(self, code: str, what: str) -> EngineError:
        error = EngineError(code, f"engine {self.info.id}: {what}")
        error.suggestion = error.meaning.todo.replace("engines check ID", f"engines check {self.info.id}")
        return error


def _code_of(error: callbacks.CallbackError) -> str:
    """Return the code of what an engine raised: that of its files, if they cannot be used."""
    cause = error.__cause__
    return cause.code if isinstance(cause, MachineError) and cause.code in _CODES_OF_FILES else "engine.failed"


def _with_cancel(arg: Any, signal: CancelSignal, *, is_async: bool) -> Any:
    """Return the argument; of a context, a copy with this signal and only the capabilities that can be used."""
    if not isinstance(arg, EngineContext):
        return arg
    return replace(arg, cancel=signal) if is_async else replace(arg, cancel=signal, rewrite=None, complete=None)


async def _await(awaitable: Awaitable[object], *, finish: Callable[[], None]) -> object:
    try:
        return await awaitable
    finally:
        finish()


async def _run_in_thread(function: Callable[[], object], *, finish: Callable[[], None]) -> object:
    """Call a function in a separate thread, and `finish` on the event loop when it has returned.

    anyio's threads would keep the process from ending while one of them does not return.
    """
    loop = asyncio.get_running_loop()
    returned = anyio.Event()
    outcome: list[tuple[object, Exception | None]] = []

    def report(value: object, error: Exception | None) -> None:
        outcome.append((value, error))
        returned.set()
        finish()

    def run() -> None:
        value, error = None, None
        try:
            value = context.run(function)
        except Exception as raised:
            error = raised
        except BaseException as raised:
            error = RuntimeError(f"{type(raised).__name__}: {raised}")
        with suppress(RuntimeError):  # the event loop has ended
            loop.call_soon_threadsafe(report, value, error)

    context = copy_context()
    try:
        threading.Thread(target=run, name="context engine", daemon=True).start()
    except RuntimeError:
        finish()
        raise
    await returned.wait()
    [(value, error)] = outcome
    if error is not None:
        raise error
    return value


# ── what it returns ──


def _ignore(_result: object) -> None:
    """Accept any result of a method that has none."""


def _read_damage(result: object) -> str | None:
    if result is not None and not isinstance(result, str):
        raise BadResultError(f"expected a text or None, not {_name(result)}")
    return result


def _read_commit(result: object) -> CommitResult:
    match result:
        case "committed" | "duplicate":
            return result
        case _:
            raise BadResultError(f'expected "committed" or "duplicate", not {_name(result)}')


def _read_assembled(result: object, *, ctx: EngineContext, history: History, prompt: Message) -> AssembleResult:
    if type(result) is not AssembleResult:
        raise BadResultError(f"expected an AssembleResult, not {_name(result)}")
    settings = _convert(msgspec.structs.replace(result, messages=(), references=(), system_addition=None))
    if settings.estimated_tokens is not None and settings.estimated_tokens < 0:
        raise BadResultError("`estimated_tokens` is negative: return None if the number is unknown")
    findings = check_assembled(
        result.messages,
        system_addition=result.system_addition,
        references=result.references,
        needs_epoch=settings.projection.mode is ProjectionMode.THREAD_BOOTSTRAP,
        epoch=settings.projection.epoch,
        may_overflow=settings.may_overflow,
        history=history,
        prompt_id=prompt.id,
        budget=ctx.budget,
        ratio=ctx.ratio,
    )
    if findings:
        more = f" (and {len(findings) - 1} more)" if len(findings) > 1 else ""
        raise BadResultError(findings[0].what + more)
    return msgspec.structs.replace(
        settings,
        messages=tuple(map(_copy, result.messages)),
        references=tuple(result.references),
        system_addition=result.system_addition,
    )


def _read_compacted(result: object, *, ctx: EngineContext) -> CompactResult:
    if type(result) is not CompactResult:
        raise BadResultError(f"expected a CompactResult, not {_name(result)}")
    if not is_json(result.details):
        raise BadResultError("`details` is not a JSON object")
    compacted = _convert(result)
    if any(tokens is not None and tokens < 0 for tokens in (compacted.tokens_before, compacted.tokens_after)):
        raise BadResultError("a number of tokens is negative: return None if it is unknown")
    if compacted.successor not in (None, ctx.session):
        raise BadResultError(f"the successor is another session, {compacted.successor!r}: return None or this session")
    return compacted


def _read_tools(result: object) -> tuple[Tool, ...]:
    if isinstance(result, str | bytes) or not isinstance(result, Sequence):
        raise BadResultError(f"expected a list of Tool, not {_name(result)}")
    for tool in result:
        if not isinstance(tool, Tool):
            raise BadResultError(f"expected a list of Tool, and it has a {_name(tool)}")
        texts: tuple[object, ...] = (tool.name, tool.description)
        if not all(isinstance(text, str) and text for text in texts):
            raise BadResultError(f"the tool {tool.name!r} has no name or no description")
        if not isinstance(tool.schema, dict) or not is_json(tool.schema):
            raise BadResultError(f"the schema of the tool {tool.name} is not a JSON object")
        if not inspect.iscoroutinefunction(tool.call):
            raise BadResultError(f"`call` of the tool {tool.name} is not a coroutine function")
    names = [tool.name for tool in result]
    if repeated := sorted({name for name in names if names.count(name) > 1}):
        raise BadResultError(f"several tools have the name {repeated[0]}")
    return tuple(result)


def _convert(value: S) -> S:
    """Return the struct with fields of their types. Constructing one checks no types."""
    type_ = type(value)
    if (problem := type_problem(value, type_)) is not None:
        raise BadResultError(f"{problem}: give every field a value of its type")
    converted: S = decoding.convert(msgspec.to_builtins(value), type_)
    return converted


def _name(value: object) -> str:
    return repr(value)[:40] if isinstance(value, str) else type(value).__name__


def _cut(text: str) -> str:
    return text if len(text) <= MOST_REASON_CHARS else f"{text[:MOST_REASON_CHARS]}…"
