"""Every case of the conformance suite can fail: a runtime that does that one thing wrong does not get past it."""

import os
import signal
import subprocess
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
import msgspec
import pytest

from proctor.event.message import Message, UserPart
from proctor.event.model import Event, FrameNoted, HistoryGiven, TextSaid, TextStreamed, ToolEnded
from proctor.event.row import ChannelClosed, ChildExited, SupervisorRow
from proctor.ids import EntryId, ItemId, TurnId
from proctor.runtime.base import (
    ContextUse,
    Decide,
    Decision,
    Delivery,
    HostRequest,
    Question,
    Session,
    SessionRequest,
    Tap,
)
from proctor.runtime.capability import Capabilities
from proctor.runtime.codex_app_server import RUNTIME as CODEX
from proctor.runtime.samples import STRANGER
from proctor.testing.conformance import CaseVerdict, Result, case_by_id, cases, open_subject, run_case
from proctor.testing.conformance import processes as look_module
from proctor.testing.conformance import subject as subject_module
from proctor.testing.conformance import suite as suite_module
from proctor.testing.conformance.endings import NOT_FOUND
from tests.testing.mutants import ID, Changed, Mutant, losing, mute, overrun, register

pytestmark = pytest.mark.real_agent


# What never comes is not waited for as long as it would be on a busy machine.
IMPATIENT: dict[str, tuple[Any, str, Any]] = {
    "one at a time": (suite_module, "CASE_S", 8.0),
    "tells nothing": (look_module, "WAIT_S", 6.0),
    "leaves a child": (look_module, "WAIT_S", 6.0),
    "always heard": (subject_module, "_LIMITS", {"stall": "20s", "turn": "4s", "attempt": "28s"}),
}


def tried(monkeypatch: pytest.MonkeyPatch, runtime: Any, *names: str) -> list[CaseVerdict]:
    register(monkeypatch, runtime)

    async def run() -> list[CaseVerdict]:
        async with open_subject(ID) as subject:
            return [await run_case(case_by_id(name), subject) for name in names]

    return anyio.run(run)


# ── what can be wrong ──


def without(*kinds: type) -> Callable[[Iterable[Event]], Iterable[Event]]:
    return lambda events: [event for event in events if not isinstance(event, kinds)]


class DropsOne:
    """The so-manieth piece of every text is lost."""

    def __init__(self, at: int) -> None:
        self._at = at
        self._count = 0

    def __call__(self, events: Iterable[Event]) -> Iterator[Event]:
        for event in events:
            self._count += isinstance(event, TextStreamed)
            if not (isinstance(event, TextStreamed) and self._count % self._at == 0):
                yield event


def repeats(events: Iterable[Event]) -> Iterator[Event]:
    """Takes what it is told again for news."""
    for event in events:
        yield event
        if isinstance(event, FrameNoted) and event.native.startswith("repeated item/completed"):
            item = ItemId(f"again-{event.frame}")
            yield TextSaid(turn=TurnId(""), item=item, text="again", frame=event.frame, at_ms=event.at_ms)


class Remembers:
    """What it says depends on what it was told in other attempts."""

    def __init__(self) -> None:
        self._said = 0

    def __call__(self, events: Iterable[Event]) -> Iterator[Event]:
        for event in events:
            self._said += isinstance(event, TextSaid)
            yield msgspec.structs.replace(event, text=f"{self._said}") if isinstance(event, TextSaid) else event


def decides(decision: Decision) -> Callable[[SessionRequest], SessionRequest]:
    """Asks, and does as it likes."""

    def change(ask: SessionRequest) -> SessionRequest:
        given: Decide | None = ask.decide

        async def decide(question: Question) -> Decision:
            assert given is not None
            await given(question)
            return decision

        return replace(ask, decide=decide)

    return change


async def nothing(*_: Any, **__: Any) -> None:
    """Does not do it."""


def without_schema(session: Session) -> Any:
    async def turn(prompt: str, **_: Any) -> None:
        await session.turn(prompt)

    return Changed(session, turn=turn)


def gives_twice(session: Session) -> Any:
    async def give(messages: Sequence[Message], **more: Any) -> Delivery:
        await session.give(messages, **more)
        return await session.give(messages, **more)

    return Changed(session, give=give)


def gives_by_turns(session: Session) -> Any:
    """Sends a prompt for what it is to give."""

    async def give(messages: Sequence[Message], **more: Any) -> Delivery:
        await session.turn("Note this.")
        return await session.give(messages, **more)

    return Changed(session, give=give)


def counts_only_once(session: Session) -> Any:
    """Repeats its first count."""
    first: list[ContextUse] = []

    async def read_context() -> ContextUse:
        first.append(await session.read_context())
        return first[0]

    return Changed(session, read_context=read_context)


def instructs_as_the_user(session: Session) -> Any:
    async def give(messages: Sequence[Message], *, instructions: str) -> Delivery:
        spoken = Message(id=EntryId("spoken"), at_ms=0, part=UserPart(text=instructions))
        return await session.give([*messages, spoken])

    return Changed(session, give=give)


class OneAtATime:
    def __init__(self) -> None:
        self._lock = anyio.Lock()

    def __call__(self, session: Session) -> Any:
        async def turn(prompt: str) -> None:
            async with self._lock:
                await session.turn(prompt)

        return Changed(session, turn=turn)


class InterruptsAll:
    def __init__(self) -> None:
        self._sessions: list[Session] = []

    def __call__(self, session: Session) -> Any:
        self._sessions.append(session)

        async def interrupt() -> None:
            for each in self._sessions:
                await each.interrupt()

        return Changed(session, interrupt=interrupt)


def silent_about_ends(tap: Tap) -> Any:
    def record(seen: SupervisorRow) -> None:
        if not isinstance(seen, ChannelClosed | ChildExited):
            tap.record(seen)

    return Changed(tap, record=record)


def short_of_breath(tap: Tap) -> Any:
    """Keeps no long line."""

    def stage(dir_: Any, data: bytes, **more: Any) -> None:
        if len(data) < 10**6:
            tap.stage(dir_, data, **more)

    return Changed(tap, stage=stage)


def blind_to_streams(tap: Tap) -> Any:
    def stage(dir_: Any, data: bytes, **_: Any) -> None:
        tap.stage(dir_, data)

    return Changed(tap, stage=stage)


MUTANTS: dict[str, tuple[str, Callable[[], Mutant], str]] = {
    "says nothing": ("one-turn", lambda: Mutant(events=without(TextSaid)), "did not arrive as an event"),
    "tells nothing": ("event-stream", lambda: Mutant(events=without(TextSaid, TextStreamed)), "does not arrive while"),
    "never ends a tool": ("tool-call", lambda: Mutant(events=without(ToolEnded)), "the trace says None"),
    "denies by itself": ("approval-accepted", lambda: Mutant(ask=decides(Decision.DENY)), "did not happen"),
    "accepts by itself": ("approval-denied", lambda: Mutant(ask=decides(Decision.ACCEPT)), "happened all the same"),
    "never asks": ("approval-denied", lambda: Mutant(ask=lambda ask: replace(ask, decide=None)), "asked 0 times"),
    "answers nothing": ("unknown-request", lambda: Mutant(channel=mute(STRANGER.encode())), "answered 0 times"),
    "will not be steered": (
        "steer",
        lambda: Mutant(session=lambda it: Changed(it, steer=nothing)),
        "did not reach the model",
    ),
    "leaves a child": ("interrupt", lambda: Mutant(session=lambda it: Changed(it, settle=nothing)), "still runs"),
    "interrupts all": ("interrupt", lambda: Mutant(session=InterruptsAll()), "a turn in another session ended"),
    "forgets": ("resume", lambda: Mutant(ask=lambda ask: replace(ask, resume=None)), "did not receive the earlier"),
    "one at a time": ("parallel-sessions", lambda: Mutant(session=OneAtATime()), "no end within"),
    "offers no tool": ("dynamic-tools", lambda: Mutant(ask=lambda ask: replace(ask, tools=())), "did not reach"),
    "keeps all": ("compaction", lambda: Mutant(session=lambda it: Changed(it, compact=nothing)), "was not shortened"),
    "has no schema": ("structured-output", lambda: Mutant(session=without_schema), "did not reach the model"),
    "gives twice": ("history", lambda: Mutant(session=gives_twice), "the model received"),
    "gives by turns": ("history", lambda: Mutant(session=gives_by_turns), "prompts, turns and texts are"),
    "tells of no gift": ("history", lambda: Mutant(events=without(HistoryGiven)), "the record says that []"),
    "forgets its gift": (
        "history-resumed",
        lambda: Mutant(ask=lambda ask: replace(ask, resume=None)),
        "the model received",
    ),
    "starts untold": (
        "start-instructions",
        lambda: Mutant(ask=lambda ask: replace(ask, instructions=None)),
        "reached the model 0 times",
    ),
    "instructs as the user": (
        "turn-instructions",
        lambda: Mutant(session=instructs_as_the_user),
        "in the roles user",
    ),
    "counts only once": ("context-use", lambda: Mutant(session=counts_only_once), "the model counted"),
    "drops a piece": (
        "flood",
        lambda: Mutant(events=DropsOne(1000)),
        "the pieces of 15000 characters have 14985 in total",
    ),
    "loses a frame": ("flood", lambda: Mutant(channel=losing_once(b"agentMessage/delta")), "lines were delivered"),
    "overruns": ("slow-consumer", lambda: Mutant(channel=overrun), "lines were delivered"),
    "counts twice": ("duplicate-frames", lambda: Mutant(events=repeats), "'again'"),
    "wants its order": ("reordered-frames", lambda: Mutant(events=DropsOne(2)), "in another order were lost"),
    "wants JSON": (
        "malformed-frames",
        lambda: Mutant(channel=losing(lambda it: it[:1] != b"{")),
        "lines were delivered",
    ),
    "knows all": (
        "unknown-frames",
        lambda: Mutant(channel=losing(lambda it: b"no/such" in it)),
        "lines were delivered",
    ),
    "short of breath": ("long-line", lambda: Mutant(tap=short_of_breath), "the attempt ended as unknown"),
    "silent about its end": ("disconnect", lambda: Mutant(tap=silent_about_ends), "the attempt ended as unknown"),
    "silent about ends": ("crash", lambda: Mutant(tap=silent_about_ends), "the attempt ended as unknown"),
    "always heard": (
        "hang",
        lambda: Mutant(session=lambda it: Changed(it, last_heard_s=1e12)),
        "the attempt ended as timed_out",
    ),
    "blind to streams": ("tripwire", lambda: Mutant(tap=blind_to_streams), "put together"),
    "remembers": ("rederive", lambda: Mutant(events=Remembers()), "differs from what"),
}


def losing_once(words: bytes) -> Callable[[Any], Any]:
    left = [1]

    def is_lost(line: bytes) -> bool:
        left[0] -= words in line
        return left[0] == 0 and words in line

    return losing(is_lost)


@pytest.mark.requirement("runtime.conformance")
@pytest.mark.parametrize("name", MUTANTS)
def test_a_runtime_that_does_it_wrong_fails(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    case, make, words = MUTANTS[name]
    if name in IMPATIENT:
        monkeypatch.setattr(*IMPATIENT[name])
    [verdict] = tried(monkeypatch, make(), case)
    assert (verdict.result, words in (verdict.what or "")) == (Result.FAILED, True), verdict


@pytest.mark.requirement("runtime.conformance")
def test_a_runtime_that_leaves_its_agent_running_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    left: list[subprocess.Popen[bytes]] = []

    def leave(ask: HostRequest) -> None:
        argv, home = [ask.program.real_path, "app-server"], {**os.environ, "CODEX_HOME": str(ask.home.parent)}
        left.append(subprocess.Popen(argv, env=home, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL))

    try:
        [verdict] = tried(monkeypatch, Mutant(host=leave), "teardown")
        assert (verdict.result, verdict.what) == (Result.FAILED, "the agent still runs")
    finally:
        for child in left:
            child.send_signal(signal.SIGKILL)
            child.communicate()


@pytest.mark.requirement("runtime.conformance")
@pytest.mark.parametrize("case", ["disconnect", "crash", "teardown"])
def test_where_no_process_is_found_nothing_is_taken_for_gone(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, case: str
) -> None:
    def spawn_off_the_books(ask: HostRequest) -> None:
        ask.intents.folder = tmp_path

    [verdict] = tried(monkeypatch, Mutant(host=spawn_off_the_books), case)
    assert (verdict.result, verdict.what) == (Result.FAILED, NOT_FOUND)


def test_every_case_has_somebody_who_fails_it() -> None:
    assert {case for case, _, _ in MUTANTS.values()} | {"teardown"} == {case.id for case in cases()}


# ── what is not declared ──

THREADS_ONLY = Capabilities(thread_start=True)


@pytest.mark.requirement("runtime.conformance")
@pytest.mark.requirement("runtime.capability.contract")
def test_what_is_not_declared_is_refused_before_anything_is_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    undeclared = [case.id for case in cases() if case.proves not in (None, "thread_start")]
    verdicts = tried(monkeypatch, Mutant(capabilities=THREADS_ONLY), *undeclared)
    assert {verdict.result for verdict in verdicts} == {Result.REFUSED}
    cannot_be_asked = {verdict.case for verdict in verdicts if "there is no request" in (verdict.what or "")}
    # A session offers no way to give yet, so that nobody can ask for what the last four prove.
    giving = {"history", "history-resumed", "start-instructions", "turn-instructions"}
    assert cannot_be_asked == {"event-stream", "interrupt", "parallel-sessions", *giving}


@pytest.mark.requirement("runtime.capability.contract")
@pytest.mark.parametrize("case", ["steer", "compaction", "resume"])
def test_a_refusal_that_does_not_come_fails(monkeypatch: pytest.MonkeyPatch, case: str) -> None:
    for module in ("proctor.attempt.converse", "proctor.attempt.turn"):
        monkeypatch.setattr(f"{module}.require_capability", lambda *_, **__: None)
    [verdict] = tried(monkeypatch, Mutant(capabilities=THREADS_ONLY), case)
    assert verdict.result is Result.FAILED, verdict


# ── what cannot be tried ──


def test_a_runtime_without_samples_or_a_channel_to_break_is_told_as_not_applicable(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def open_alone(ask: HostRequest, tap: Tap) -> Any:
        return CODEX.open_host(replace(ask, wrap_channel=None), tap)

    [unsampled] = tried(monkeypatch, Changed(Mutant(), samples=None), "reordered-frames")
    [closed] = tried(monkeypatch, Changed(Mutant(), open_host=open_alone), "duplicate-frames")
    assert {(each.result, each.what) for each in (unsampled, closed)} == {
        (Result.NOT_APPLICABLE, "the runtime provides no samples of its lines"),
        (Result.NOT_APPLICABLE, "faults cannot be injected between this agent and Proctor"),
    }
