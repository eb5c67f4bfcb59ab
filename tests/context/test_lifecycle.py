"""The lifecycle of turns with an engine: its order, its log, and what the engine may do and know in each call."""

import io
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import anyio
import pytest
from msgspec.structs import replace
from rich.console import Console

from proctor.campaign.health import is_program_fault
from proctor.campaign.session_engine import COMPLETIONS_S, MOST_COMPLETIONS, LimitedModel
from proctor.context.budget import WindowSource
from proctor.context.engine import EngineContext, PromptCache
from proctor.context.guard import Deadlines, EngineHealth
from proctor.context.report import report_session
from proctor.context.store import read_store
from proctor.errors import EngineError, InputError, ProctorError
from proctor.errors.codes import CODES
from proctor.event import model
from proctor.event.message import AgentPart, Message, UserPart
from proctor.event.row import CommitMade, ContextChosen
from proctor.event.usage import Usage
from proctor.evidence.layout import RootPaths
from proctor.ids import EntryId, TurnId
from proctor.surface.cli.app import answer
from proctor.surface.cli.session_text import render_report
from proctor.testing.clock import FakeClock
from tests.api.talk import bounded
from tests.context.agent_twin import Agent, Sitting, open_sitting
from tests.scripted_engine import Behaviour, ScriptedEngine

FIELDS: Final = (
    "sessionId",
    "sessionKey",
    "engineId",
    "threadId",
    "turnId",
    "assembledMessageCount",
    "estimatedTokens",
    "hasSystemPromptAddition",
)
SECRET_WORD: Final = "walrus"


@pytest.fixture
def behaviour(monkeypatch: pytest.MonkeyPatch) -> Behaviour:
    made = Behaviour()
    monkeypatch.setattr("tests.scripted_engine.BEHAVIOUR", made)
    return made


@pytest.fixture
def agent() -> Agent:
    return Agent()


def rows(sitting: Sitting, type_: type[Any]) -> list[Any]:
    return [row for row in sitting.port.rows if isinstance(row, type_)]


def states(sitting: Sitting) -> list[str]:
    return [str(turn.state) for turn in sitting.turns()]


# ── the log ──


def logged(caplog: pytest.LogCaptureFixture) -> list[tuple[str, Mapping[str, Any]]]:
    records = [record for record in caplog.records if record.name == "proctor.context"]
    usual = {*logging.makeLogRecord({}).__dict__, "message", "asctime", "taskName"}
    return [
        (record.getMessage(), {name: value for name, value in record.__dict__.items() if name not in usual})
        for record in records
    ]


@pytest.mark.requirement("context.observable")
def test_log_has_five_events_with_their_fields_and_no_prompt(
    tmp_path: Path, behaviour: Behaviour, agent: Agent, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger="proctor.context")
    behaviour.owns_compaction = True
    failure = ValueError(f"cannot handle {SECRET_WORD}")

    async def talk() -> None:
        behaviour.addition = f"Mind the {SECRET_WORD}."
        async with open_sitting(tmp_path, agent, behaviour=behaviour) as sitting:
            await sitting.say(f"One {SECRET_WORD}")
        behaviour.failures = {"bootstrap": [failure], "commit_turn": [failure]}
        async with open_sitting(tmp_path, agent, n=2, behaviour=behaviour) as sitting:
            await sitting.say(f"Two {SECRET_WORD}")
            behaviour.failures = {"maintain turn": [failure]}
            agent.answers = ["Yes.", model.TurnEnded(turn=TurnId("t"), status="failed", frame=1, at_ms=1)]
            await sitting.say("Three")
            await sitting.say("Four")
            sitting.port.feed(model.CompactionEnded, trigger="auto", ok=True, keeps="nothing")

    bounded(talk)
    said = logged(caplog)
    assert [(event, fields.get("reason"), fields.get("source")) for event, fields in said] == [
        ("assemble applied", None, None),
        ("finalize completed", None, "mirror"),
        ("bootstrap started", None, None),
        ("bootstrap failed", "engine.failed", None),
        ("assemble applied", None, None),
        ("finalize failed", "engine.failed", None),
        ("maintenance skipped", "engine.failed", None),
        ("bootstrap started", None, None),
        ("bootstrap completed", None, None),
        ("assemble applied", None, None),
        ("finalize completed", None, "mirror"),
        ("maintenance skipped", "engine.failed", None),
        ("assemble applied", None, None),
        ("maintenance skipped", "the turn ended as failed", None),
        ("native compaction completed alongside context-engine compaction", None, None),
    ]
    for event, fields in said:
        assert {*fields} - {"reason", "source"} == {*FIELDS}, event
        assert fields["sessionId"] in ("run/session-1.1", "run/session-2.1")
        assert fields["sessionKey"].startswith("sha256:")
        assert fields["engineId"] == "scripted"
    assert SECRET_WORD not in str(said)
    applied = [fields for event, fields in said if event == "assemble applied"]
    assert [each["assembledMessageCount"] for each in applied] == [0, 2, 4, 6]
    assert all(each["hasSystemPromptAddition"] for each in applied)
    assert applied[1]["estimatedTokens"] > 0
    assert applied[1]["turnId"] == "run/session-2.1#1"
    assert applied[1]["threadId"] == "th1"


@pytest.mark.requirement("context.observable")
def test_log_says_that_a_commit_is_from_the_record(
    tmp_path: Path,
    behaviour: Behaviour,
    agent: Agent,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    caplog.set_level(logging.INFO, logger="proctor.context")

    def refuse(*_: object, **__: object) -> bool:
        raise InputError("usage", "no")

    async def talk() -> None:
        async with open_sitting(tmp_path, agent, behaviour=behaviour) as sitting:
            with monkeypatch.context() as broken:
                broken.setattr("proctor.context.store.SessionStore.settle", refuse)
                await sitting.say("One")

    bounded(talk)
    assert [(event, fields.get("source")) for event, fields in logged(caplog)][-1] == ("finalize completed", "fallback")


# ── maintenance ──


@pytest.mark.requirement("context.errors")
@pytest.mark.parametrize("policy", ["degrade", "strict"])
def test_failed_maintenance_is_named_by_the_next_turn(
    policy: str, tmp_path: Path, behaviour: Behaviour, agent: Agent
) -> None:
    behaviour.failures["maintain turn"] = [ValueError("no space")]

    async def talk() -> None:
        async with open_sitting(tmp_path, agent, behaviour=behaviour, policy=policy) as sitting:
            first = await sitting.say("One")
            assert first is not None
            assert (first.degraded, first.commit) == (None, "committed")
            second = await sitting.say("Two")
            if policy == "degrade":
                assert second is not None
                assert "maintain raised ValueError: no space" in str(second.degraded)
                assert second.commit == "committed"
            else:
                assert "no space" in str(sitting.error)
            third = await sitting.say("Three")
            assert third is not None
            assert third.degraded is None

    bounded(talk)


@pytest.mark.requirement("context.lifecycle")
@pytest.mark.requirement("context.commit-once")
@pytest.mark.parametrize(
    ("ends", "outcome"),
    [
        (lambda feed: feed(model.TurnEnded, turn=TurnId("t0"), status="failed"), "failed"),
        (lambda feed: feed(model.ClockFired, clock="turn", limit_ms=5), "timed_out"),
        (lambda feed: feed(model.Cancelled, why="interrupted by the caller"), "cancelled"),
        (lambda feed: feed(model.Cancelled, why="yielded by the tool ask_user"), "cancelled"),
        (lambda feed: feed(model.StreamEnded, cause="gone"), "crashed"),
    ],
    ids=["failed", "timed out", "aborted", "yielded", "crashed"],
)
def test_turn_that_did_not_complete_records_why_nothing_follows(
    ends: Any, outcome: str, tmp_path: Path, behaviour: Behaviour, agent: Agent
) -> None:
    async def talk() -> None:
        async with open_sitting(tmp_path, agent, behaviour=behaviour) as sitting:
            agent.ends = lambda: ends(sitting.port.feed)
            await sitting.say("One")
            [made] = rows(sitting, CommitMade)
            assert (made.status, made.detail) == ("none", f"the turn ended as {outcome}")
            assert states(sitting) == ["discarded"]

    bounded(talk)
    assert behaviour.commits == {}
    assert behaviour.calls == ["assemble"]


# ── commits ──


@pytest.mark.requirement("context.commit-once")
def test_all_queued_turns_are_committed_and_only_the_last_has_the_usage_that_is_known(
    tmp_path: Path, behaviour: Behaviour, agent: Agent
) -> None:
    health, clock = EngineHealth(), FakeClock()
    usage = Usage(tokens=None, scope="turn", basis="absolute", authority=model.UsageAuthority.NONE, turns=())

    async def talk() -> None:
        async with open_sitting(tmp_path, agent, behaviour=behaviour, health=health, clock=clock) as sitting:
            sitting.port.usage = usage
            for _ in range(3):
                health.fail("scripted", "assemble", reason="no", now_s=clock.steady_s())
            for number in range(20):
                await sitting.say(f"Prompt {number}")
            assert behaviour.commits == {}
            clock.advance(61)
            await sitting.say("Last")
            assert states(sitting) == ["acknowledged"] * 21
            assert list(behaviour.commits) == [turn.id for turn in sitting.turns()]

    bounded(talk)
    assert [commit.usage for commit in behaviour.commits.values()] == [None] * 19 + [usage] * 2


@pytest.mark.requirement("context.selection")
@pytest.mark.requirement("context.commit-once")
def test_turn_that_another_engine_lacks_is_blocked_and_known_by_bootstrap(
    tmp_path: Path, behaviour: Behaviour, agent: Agent
) -> None:
    behaviour.failures["commit_turn"] = [ValueError("no")]

    async def talk() -> None:
        async with open_sitting(tmp_path, agent, behaviour=behaviour) as sitting:
            await sitting.say("One")
        other: Any = ScriptedEngine(None)  # type: ignore[arg-type]
        other.info = replace(other.info, id="other")
        async with open_sitting(tmp_path, agent, n=2, behaviour=behaviour, engine=other) as sitting:
            assert states(sitting) == ["blocked"]
            await sitting.say("Two")
            assert behaviour.calls[-3:] == ["assemble", "commit_turn", "maintain turn"]
            assert behaviour.calls.count("bootstrap") == 1

    bounded(talk)


@pytest.mark.requirement("context.selection")
@pytest.mark.parametrize("code", [code for code in CODES if code.startswith("engine.")])
def test_failure_of_an_engine_is_no_fault_of_the_agents_program(code: str) -> None:
    assert not is_program_fault(code), "it would count against the runtime"


# ── what the engine may use ──


class Rewriter:
    """Tries to replace an entry in every call of an engine."""

    def __init__(self, behaviour: Behaviour) -> None:
        self.offered: dict[str, bool] = {}
        self.shown: list[list[str]] = []
        for method in ("bootstrap", "assemble", "commit_turn", "maintain bootstrap", "maintain turn", "compact"):
            behaviour.waits[method] = self._note(behaviour, method)

        def show(history: Any) -> Any:
            self.shown.append([each.part.text for each in history])
            return list(history)

        behaviour.messages = show

    def _note(self, behaviour: Behaviour, method: str) -> Any:
        async def note() -> None:
            self.offered[method] = behaviour.contexts[-1].rewrite is not None

        return note


@pytest.mark.requirement("context.engines")
def test_rewrite_replaces_an_entry_in_the_history_and_never_the_entry(
    tmp_path: Path, behaviour: Behaviour, agent: Agent
) -> None:
    rewriter = Rewriter(behaviour)
    behaviour.owns_compaction = True

    async def talk() -> None:
        async with open_sitting(tmp_path, agent, behaviour=behaviour) as sitting:
            await sitting.say("One")
            await sitting.compact()
            rewrite = behaviour.contexts[-1].rewrite
            assert rewrite is not None
            prompt = next(iter(behaviour.commits.values())).messages[0]
            assert await rewrite({prompt.id: replace(prompt, part=UserPart(text="1"), at_ms=7)}) == 1
            assert await rewrite({EntryId("x#1"): Message(id=EntryId("x#1"), at_ms=0, part=UserPart(text=""))}) == 0
        async with open_sitting(tmp_path, agent, n=2, behaviour=behaviour) as sitting:
            await sitting.say("Two")
            assert sitting.error is None
        assert rewriter.shown == [[], ["1", "ok"]]
        with_entries = [each async for each in _entries(tmp_path)]
        assert with_entries[0].part == UserPart(text="One")

    bounded(talk)
    assert rewriter.offered == {
        "bootstrap": False,
        "maintain bootstrap": False,
        "assemble": False,
        "commit_turn": True,
        "maintain turn": True,
        "compact": True,
    }


async def _entries(folder: Path) -> Any:
    with read_store(folder / "root" / "sessions" / "x" / "session.db") as store:
        for message in store.messages():
            yield message


def _wrong_replacements(entry: Message) -> Mapping[str, Any]:
    return {
        "no mapping": [entry],
        "a text": {entry.id: "shorter"},
        "another id": {entry.id: replace(entry, id=EntryId("other"))},
        "another kind": {entry.id: replace(entry, part=AgentPart(text="x"))},
        "a wrong type": {entry.id: replace(entry, part=UserPart(text=3))},  # type: ignore[arg-type]
        "100 MB": {entry.id: replace(entry, part=UserPart(text="x" * 100_000_000))},
    }


@pytest.mark.requirement("context.errors")
@pytest.mark.parametrize(
    "wrong", ["no mapping", "a text", "another id", "another kind", "a wrong type", "100 MB", "in a turn"]
)
def test_wrong_replacement_is_refused_and_stores_nothing(
    wrong: str, tmp_path: Path, behaviour: Behaviour, agent: Agent
) -> None:
    refusals: list[str] = []

    async def talk() -> None:
        async with open_sitting(tmp_path, agent, behaviour=behaviour) as sitting:
            await sitting.say("One")
            rewrite = behaviour.contexts[-1].rewrite
            assert rewrite is not None
            entry = next(iter(behaviour.commits.values())).messages[0]
            if wrong == "in a turn":

                async def late() -> None:
                    await _refused(rewrite, {entry.id: entry}, refusals)

                behaviour.waits["assemble"] = late
                await sitting.say("Two")
                behaviour.waits.clear()
            else:
                await _refused(rewrite, _wrong_replacements(entry)[wrong], refusals)
            await sitting.say("Three")
            assert sitting.error is None

    bounded(talk)
    assert refusals == ["session.busy" if wrong == "in a turn" else "engine.bad-result"]
    assert agent.requests[-1][0] == ("user", "One")


async def _refused(rewrite: Any, replacements: Any, refusals: list[str]) -> None:
    try:
        await rewrite(replacements)
    except ProctorError as error:
        refusals.append(error.code)


@pytest.mark.requirement("context.engines")
def test_engine_may_call_a_model_24_times_in_ten_minutes() -> None:
    clock = FakeClock()
    assert (MOST_COMPLETIONS, COMPLETIONS_S) == (24, 600)

    async def answer(prompt: str) -> str:
        return prompt.upper()

    async def talk() -> None:
        complete = LimitedModel(answer, engine="e", clock=clock)
        assert [await complete("x") for _ in range(24)] == ["X"] * 24
        clock.advance(599)
        with pytest.raises(EngineError, match="24 calls of a model in 10 minutes") as refused:
            await complete("x")
        assert refused.value.code == "engine.complete"
        clock.advance(1)
        assert await complete("x") == "X"

    bounded(talk)


@pytest.mark.requirement("context.engines")
@pytest.mark.parametrize("answer", [None, 3])
def test_model_that_fails_or_answers_no_text_is_an_error_of_the_call(answer: Any) -> None:
    async def call(prompt: str) -> Any:
        if answer is None:
            raise OSError("no network")
        return answer

    async def talk() -> None:
        with pytest.raises(EngineError) as refused:
            await LimitedModel(call, engine="e", clock=FakeClock())("x")
        assert refused.value.code == "engine.complete"

    bounded(talk)


# ── what the engine knows ──


@pytest.mark.requirement("context.usage")
def test_budget_and_ratio_of_a_turn_say_where_they_come_from(
    tmp_path: Path, behaviour: Behaviour, agent: Agent
) -> None:
    seen: list[EngineContext] = behaviour.contexts

    async def talk() -> None:
        async with open_sitting(tmp_path, agent, behaviour=behaviour) as sitting:
            await sitting.say("One")
            assert seen[-1].budget.source is WindowSource.DEFAULT
        async with open_sitting(tmp_path, agent, n=2, behaviour=behaviour, window=70_000) as sitting:
            await sitting.say("Two")
            assert (seen[-1].budget.window, seen[-1].budget.source) == (70_000, WindowSource.CONFIG)
            agent.window, agent.used, agent.fixed = 200_000, 30_000, 9_000
            await sitting.say("x" * 3000)
            agent.used = 40_000
            behaviour.messages = list
            await sitting.say("x" * 60_000)
            budget = seen[-1].budget
            assert (budget.window, budget.reserve, budget.source) == (200_000, 29_000, WindowSource.AGENT)
            agent.used = 41_000
            await sitting.say("Last")
            sources = [row.ratio_source for row in rows(sitting, ContextChosen)]
            assert sources == ["assumed", "assumed", "assumed", "measured"]
            # 60 kB were 10,000 tokens, which weigh as much as the assumption of 3.
            assert round(seen[-1].ratio.bytes_per_token, 1) == 4.5

    bounded(talk)


@pytest.mark.requirement("context.usage")
@pytest.mark.parametrize(
    ("read", "written", "expected"),
    [
        (None, None, None),
        (0, None, PromptCache(read_tokens=0)),
        (None, 7, PromptCache(write_tokens=7)),
        (5, 0, PromptCache(read_tokens=5, write_tokens=0)),
    ],
)
def test_cache_reads_and_writes_are_absent_unless_they_are_reported(
    read: int | None,
    written: int | None,
    expected: PromptCache | None,
    tmp_path: Path,
    behaviour: Behaviour,
    agent: Agent,
) -> None:
    tokens = model.Tokens(input=9, output=1, total=10, cached_input=read, cache_write=written)
    authority = model.UsageAuthority.LIVE_TURN_COMPLETED
    usage = Usage(tokens=tokens, scope="turn", basis="absolute", authority=authority, turns=())

    async def talk() -> None:
        async with open_sitting(tmp_path, agent, behaviour=behaviour) as sitting:
            sitting.port.usage = usage
            await sitting.say("One")

    bounded(talk)
    assert [(each.usage, each.prompt_cache) for each in behaviour.contexts] == [(usage, expected)] * 3


@pytest.mark.requirement("context.usage")
def test_case_26_tokens_of_the_agents_own_prompt_take_no_room_twice_and_compact_nothing(
    tmp_path: Path, behaviour: Behaviour, agent: Agent
) -> None:
    # The agent's own prompt fills most of the thread, and the conversation almost nothing.
    agent.window, agent.used, agent.fixed = 100_000, 41_000, 40_000
    behaviour.owns_compaction = True

    async def talk() -> None:
        async with open_sitting(tmp_path, agent, behaviour=behaviour) as sitting:
            await sitting.say("One")
            added = Message(id=EntryId("note"), at_ms=0, part=UserPart(text="x" * 90_000))
            behaviour.messages = lambda history: [*history, added]
            context = await sitting.say("Two")
            assert context is not None
            # 100,000 less 41,000 in use and 20,000 in reserve are 39,000, and the note has 30,000.
            assert (context.thread, context.given) == ("resume", 1)

    bounded(talk)
    assert {each.budget.history for each in behaviour.contexts[-2:]} == {40_000}


@pytest.mark.requirement("context.usage")
def test_thread_is_not_given_more_than_fits_before_the_agent_compacts_it(
    tmp_path: Path, behaviour: Behaviour, agent: Agent
) -> None:
    agent.window, agent.used, agent.fixed, agent.compacts_at = 100_000, 41_000, 40_000, 70_000

    async def talk() -> None:
        async with open_sitting(tmp_path, agent, behaviour=behaviour) as sitting:
            await sitting.say("One")
            added = Message(id=EntryId("note"), at_ms=0, part=UserPart(text="x" * 88_000))
            behaviour.messages = lambda history: [*history, added]
            context = await sitting.say("Two")
            assert context is not None
            # 39,000 would fit into the window, but only 29,000 before the compaction.
            assert (context.thread, context.given, context.dropped) == ("resume", 0, 1)

    bounded(talk)
    # A new thread has the room that is left by the agent's own prompt.
    assert behaviour.contexts[-1].budget.history == 30_000


# ── maintenance that takes its time ──


@pytest.mark.requirement("context.lifecycle")
@pytest.mark.parametrize("kind", ["foreground", "background"])
def test_stuck_maintenance_keeps_no_turn_and_no_close_for_long(
    kind: str, tmp_path: Path, behaviour: Behaviour, agent: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("proctor.context.lifecycle.MAINTENANCE_S", 0.05)
    short = Deadlines(unfinished_s=0.05)
    contexts: list[Any] = []

    async def talk() -> None:
        async with open_sitting(tmp_path, agent, behaviour=behaviour) as sitting:
            await sitting.say("One")
        behaviour.waits["maintain bootstrap"] = anyio.sleep_forever
        slow: Any = ScriptedEngine(None)  # type: ignore[arg-type]
        slow.info = replace(slow.info, maintenance=kind)
        async with open_sitting(
            tmp_path, agent, n=2, behaviour=behaviour, engine=slow, deadlines=short, waits=False
        ) as sitting:
            contexts.append(await sitting.say("Two"))

    bounded(talk)
    [context] = contexts
    assert behaviour.calls.count("maintain bootstrap") == 1
    if kind == "background":
        assert (context.degraded, context.commit) == (None, "committed")
    else:
        # One call at a time: the engine cannot be asked while it is stuck.
        assert "maintain was abandoned and still runs" in context.degraded


@pytest.mark.requirement("context.lifecycle")
def test_close_waits_for_maintenance_in_the_background(tmp_path: Path, behaviour: Behaviour, agent: Agent) -> None:
    ended: list[str] = []

    async def maintain() -> None:
        await anyio.lowlevel.checkpoint()
        ended.append("maintained")

    behaviour.waits["maintain turn"] = maintain
    slow: Any = ScriptedEngine(None)  # type: ignore[arg-type]
    slow.info = replace(slow.info, maintenance="background")

    async def talk() -> None:
        async with open_sitting(tmp_path, agent, behaviour=behaviour, engine=slow, waits=False) as sitting:
            await sitting.say("One")
            assert ended == []

    bounded(talk)
    assert ended == ["maintained"]


# ── what `session show` makes of it ──


@pytest.mark.requirement("context.observable")
@pytest.mark.parametrize(
    ("failing", "code", "says"),
    [
        (None, 0, None),
        ("assemble", 4, "1 turn without context"),
        ("commit_turn", 4, "1 turn not committed"),
    ],
)
def test_session_show_is_red_after_one_degraded_or_uncommitted_turn(
    failing: str | None,
    code: int,
    says: str | None,
    tmp_path: Path,
    behaviour: Behaviour,
    agent: Agent,
    capsys: pytest.CaptureFixture[str],
) -> None:
    async def talk() -> None:
        async with open_sitting(tmp_path, agent, behaviour=behaviour) as sitting:
            await sitting.say("One")
            if failing is not None:
                behaviour.failures[failing] = [ValueError("no")]
            await sitting.say("Two")

    bounded(talk)
    root = tmp_path / "root"
    assert answer(["session", "show", "x", "--root", str(root)]) == code
    shown = capsys.readouterr().out
    assert says is None or says in shown
    red = Console(file=io.StringIO(), force_terminal=True, color_system="standard", width=200)
    red.print(render_report(report_session(RootPaths(root), "x"), root=RootPaths(root), most_turns=9))
    colored = red.file.getvalue()  # type: ignore[attr-defined]
    assert (says is not None) is (f"\x1b[1;31m{says}" in colored)
