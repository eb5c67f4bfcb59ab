"""Calls of an engine: deadlines, threads, quarantine, and results of any shape."""

import threading
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import anyio
import anyio.to_thread
import pytest

from proctor.context.engine import AssembleResult, CompactResult, CompactStatus, EngineContext, EngineInfo, TurnCommit
from proctor.context.guard import DEADLINES, CancelSignal, Deadlines, EngineHealth, GuardedEngine, create_in_time
from proctor.context.history import History, ListedHistory
from proctor.errors import EngineError
from proctor.event.message import CallPart, Message
from proctor.ids import SessionKey
from proctor.testing.clock import FakeClock
from tests.api.talk import bounded
from tests.context.histories import agent, call, result, user
from tests.context.test_window_engine import BUDGET

pytestmark = pytest.mark.requirement("context.errors")

SHORT = Deadlines(call_s=0.05, maintain_s=0.05, compact_s=0.05, close_s=0.05, unfinished_s=0.05)
HISTORY = (user(1, "one"), call(2, {"command": "ls"}), result(3, 2, "out"), agent(4, "two"))
TURN = TurnCommit(key=HISTORY[0].id, messages=HISTORY, model=None, budget=BUDGET, usage=None)
CONTEXT = EngineContext(session=SessionKey("s"), model=None, tools=frozenset(), budget=BUDGET, cancel=CancelSignal())
CALLS: dict[str, Callable[[GuardedEngine], Any]] = {
    "bootstrap": lambda guard: guard.bootstrap(CONTEXT, ListedHistory(HISTORY)),
    "assemble": lambda guard: guard.assemble(CONTEXT, ListedHistory(HISTORY), user(9, "now")),
    "commit_turn": lambda guard: guard.commit_turn(CONTEXT, TURN),
    "maintain": lambda guard: guard.maintain(CONTEXT, "turn"),
    "compact": lambda guard: guard.compact(CONTEXT, force=True, target="threshold", focus=None),
    "forget": lambda guard: guard.forget(CONTEXT, "reset"),
    "tools": lambda guard: guard.tools(),
}


def engine(**methods: Any) -> Any:
    return SimpleNamespace(info=EngineInfo(id="e", name="E", version="1"), **methods)


def guarded(made: Any, *, deadlines: Deadlines = SHORT, health: EngineHealth | None = None, clock: Any = None) -> Any:
    return GuardedEngine(made, clock=clock or FakeClock(), health=health or EngineHealth(), deadlines=deadlines)


def refusal(guard: GuardedEngine, method: str) -> EngineError:
    async def talk() -> EngineError:
        with pytest.raises(EngineError) as refused:
            await CALLS[method](guard)
        return refused.value

    return bounded(talk)


# ── deadlines ──


def test_every_method_has_its_deadline() -> None:
    assert {method: DEADLINES.of(method) for method in (*CALLS, "close")} == {
        "bootstrap": 30,
        "assemble": 30,
        "commit_turn": 30,
        "forget": 30,
        "tools": 30,
        "maintain": 120,
        "compact": 180,
        "close": 10,
    }


@pytest.mark.parametrize("method", CALLS)
def test_case_15_method_that_hangs_is_given_up(method: str) -> None:
    async def hang(*_: Any, **__: Any) -> None:
        await anyio.sleep_forever()

    error = refusal(guarded(engine(**{method: hang})), method)
    assert (error.code, error.what) == ("engine.timeout", f"engine e: {method} did not answer within 0.05 s")


@pytest.mark.parametrize("method", CALLS)
def test_case_15_plain_method_that_hangs_is_given_up_and_blocks_nothing(method: str) -> None:
    leave, signals = threading.Event(), list[Any]()

    def hang(*arguments: Any, **_: Any) -> None:
        signals.extend(each.cancel for each in arguments if isinstance(each, EngineContext))
        leave.wait(30)

    guard = guarded(engine(**{method: hang}))
    try:
        assert refusal(guard, method).code == "engine.timeout"
        assert all(signal.is_set for signal in signals), "it can see that nobody waits"
    finally:
        leave.set()


def test_call_is_refused_while_an_abandoned_one_still_runs() -> None:
    leave = threading.Event()

    async def talk() -> None:
        guard = guarded(engine(assemble=lambda *_: leave.wait(30), maintain=lambda *_: None))
        with pytest.raises(EngineError, match="did not answer"):
            await CALLS["assemble"](guard)
        with pytest.raises(EngineError, match="assemble was abandoned and still runs"):
            await CALLS["maintain"](guard)
        leave.set()
        with anyio.fail_after(10):
            while True:
                try:
                    await CALLS["maintain"](guard)
                except EngineError:
                    continue
                break

    try:
        bounded(talk)
    finally:
        leave.set()


def test_plain_method_runs_in_a_thread_and_a_coroutine_function_on_the_loop() -> None:
    threads: list[tuple[str, int]] = []
    offered: list[tuple[bool, bool]] = []

    def bootstrap(ctx: EngineContext, history: History) -> None:
        threads.append(("plain", threading.get_ident()))
        offered.append((ctx.rewrite is not None, ctx.complete is not None))

    async def maintain(ctx: EngineContext, reason: str) -> None:
        threads.append(("coroutine", threading.get_ident()))
        offered.append((ctx.rewrite is not None, ctx.complete is not None))

    async def unused(_: Any) -> Any:
        raise AssertionError

    async def talk() -> None:
        guard = guarded(engine(bootstrap=bootstrap, maintain=maintain))
        ctx = replace(CONTEXT, rewrite=unused, complete=unused)
        await guard.bootstrap(ctx, ListedHistory(HISTORY))
        await guard.maintain(ctx, "turn")

    bounded(talk)
    here = threading.get_ident()
    assert [(kind, thread == here) for kind, thread in threads] == [("plain", False), ("coroutine", True)]
    # A plain function could not await them.
    assert offered == [(False, False), (True, True)]


# ── quarantine ──


def failing(calls: list[str], *, until: int) -> Any:
    def maintain(*_: Any) -> None:
        calls.append("maintain")
        if len(calls) <= until:
            raise ValueError("no")

    return engine(maintain=maintain, compact=lambda *_, **__: CompactResult(status=CompactStatus.NOT_NEEDED))


async def outcome(guard: GuardedEngine, method: str = "maintain") -> str:
    try:
        await CALLS[method](guard)
    except EngineError as error:
        return error.code
    return "ok"


def test_three_failures_in_a_row_quarantine_the_engine_in_every_session_of_the_process() -> None:
    calls: list[str] = []
    health, clock = EngineHealth(), FakeClock()

    async def talk() -> None:
        one, other = (guarded(failing(calls, until=99), health=health, clock=clock) for _ in range(2))
        assert [await outcome(one) for _ in range(3)] == ["engine.failed"] * 3
        assert [await outcome(one), await outcome(other, "compact")] == ["engine.quarantined"] * 2
        assert len(calls) == 3

    bounded(talk)


def test_quarantine_ends_with_one_test_call_after_a_minute() -> None:
    calls: list[str] = []
    clock = FakeClock()

    async def talk() -> None:
        guard = guarded(failing(calls, until=4), clock=clock)
        for _ in range(3):
            await outcome(guard)
        clock.advance(59)
        assert await outcome(guard) == "engine.quarantined"
        clock.advance(1)
        assert await outcome(guard) == "engine.failed", "the test call"
        assert await outcome(guard) == "engine.quarantined", "it failed, so the engine pauses again"
        clock.advance(60)
        assert await outcome(guard) == "ok"
        assert await outcome(guard) == "ok"

    bounded(talk)


def test_only_one_call_tests_an_engine_in_quarantine() -> None:
    health = EngineHealth()
    for _ in range(3):
        health.fail("e", "assemble", reason="no", now_s=0)
    assert [health.admit("e", now_s=60), health.admit("e", now_s=60)] == [None, "no"]
    health.cancel("e")
    assert health.admit("e", now_s=60) is None, "a test call that was cancelled shows nothing"
    health.succeed("e", "assemble")
    assert health.quarantine("e") is None


def test_success_between_failures_keeps_an_engine_out_of_quarantine() -> None:
    health = EngineHealth()
    for _ in range(3):
        health.fail("e", "assemble", reason="no", now_s=0)
        health.succeed("e", "assemble")
    assert health.admit("e", now_s=0) is None


def test_method_that_always_fails_is_found_although_others_work() -> None:
    health = EngineHealth()
    for _ in range(3):
        health.fail("e", "assemble", reason="no", now_s=0)
        health.succeed("e", "commit_turn")
    assert health.admit("e", now_s=0) == "no"


@pytest.mark.parametrize("is_async", [True, False])
def test_case_16_call_that_is_cancelled_is_no_failure(is_async: bool) -> None:
    health = EngineHealth()
    leave = threading.Event()

    async def talk() -> None:
        for _ in range(4):
            began = anyio.Event()

            async def hang(*_: Any, began: anyio.Event = began) -> None:
                began.set()
                await anyio.sleep_forever()

            def block(*_: Any, began: anyio.Event = began, token: Any = anyio.lowlevel.current_token()) -> None:  # noqa: B008
                anyio.from_thread.run_sync(began.set, token=token)
                leave.wait(30)

            guard = guarded(engine(maintain=hang if is_async else block), deadlines=DEADLINES, health=health)
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(guard.maintain, CONTEXT, "turn")
                await began.wait()
                tasks.cancel_scope.cancel()
        assert health.quarantine("e") is None

    try:
        bounded(talk)
    finally:
        leave.set()


# ── what it is given, and what it returns ──


def test_engine_that_changes_its_input_changes_only_its_copy() -> None:
    seen: list[Any] = []

    def assemble(ctx: EngineContext, history: History, prompt: Message) -> AssembleResult:
        part = history[1].part
        assert isinstance(part, CallPart)
        part.input["command"] = "rm -r /"
        seen.append(history[1].part)
        return AssembleResult(messages=(history[0],))

    async def talk() -> None:
        await CALLS["assemble"](guarded(engine(assemble=assemble)))

    bounded(talk)
    assert [each.input for each in (HISTORY[1].part, *seen)] == [{"command": "ls"}] * 2


def test_entry_that_an_engine_altered_is_refused() -> None:
    def assemble(ctx: EngineContext, history: History, prompt: Message) -> AssembleResult:
        messages = list(history)
        messages[1].part.input["command"] = "rm -r /"  # type: ignore[union-attr]
        return AssembleResult(messages=tuple(messages))

    error = refusal(guarded(engine(assemble=assemble)), "assemble")
    assert (error.code, "differs from the entry" in error.what) == ("engine.bad-result", True)


class Surprise:
    """An object whose every attribute raises."""

    def __getattribute__(self, name: str) -> Any:
        raise RuntimeError("surprise")


WRONG: dict[str, Callable[[], Any]] = {
    "nothing": lambda: None,
    "a dict": dict,
    "a text": lambda: "x",
    "a number": lambda: 3,
    "an object that raises": Surprise,
    "messages that raise": lambda: AssembleResult(messages=Surprise()),  # type: ignore[arg-type]
    "another result": lambda: CompactResult(status="shorter"),  # type: ignore[arg-type]
}


@pytest.mark.parametrize("wrong", WRONG)
@pytest.mark.parametrize("method", ["assemble", "commit_turn", "compact", "tools"])
def test_wrong_result_is_refused(method: str, wrong: str) -> None:
    error = refusal(guarded(engine(**{method: lambda *_, **__: WRONG[wrong]()})), method)
    # Such an object cannot even be asked whether it is awaitable.
    assert error.code == ("engine.failed" if wrong == "an object that raises" else "engine.bad-result")


@pytest.mark.parametrize("error", [ValueError("x" * 10_000), SystemExit(3), KeyboardInterrupt(), GeneratorExit()])
def test_plain_method_that_raises_anything_is_a_failure(error: BaseException) -> None:
    def maintain(*_: Any) -> None:
        raise error

    refused = refusal(guarded(engine(maintain=maintain)), "maintain")
    assert refused.code == "engine.failed"
    assert len(refused.what) < 400


def test_engine_is_closed_also_while_it_pauses() -> None:
    closed: list[bool] = []
    health = EngineHealth()
    for _ in range(3):
        health.fail("e", "assemble", reason="no", now_s=0)
    guard = guarded(engine(close=lambda: closed.append(True)), health=health)
    bounded(guard.close)
    assert closed == [True]


def test_creation_that_hangs_is_given_up() -> None:
    leave = threading.Event()

    async def talk() -> None:
        with pytest.raises(EngineError, match=r"engine e: its creation did not end within 0\.05 s") as refused:
            await create_in_time("e", lambda _: leave.wait(30), None, deadline_s=0.05)  # type: ignore[arg-type,return-value]
        assert refused.value.code == "engine.timeout"

    try:
        bounded(talk)
    finally:
        leave.set()
