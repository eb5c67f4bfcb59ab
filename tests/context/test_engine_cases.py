"""The reference cases of context engines, by their numbers, on a twin of an agent in memory."""

from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import anyio
import pytest
from msgspec.structs import replace

from proctor.context.compaction import Compaction, native_compaction, with_native
from proctor.context.engine import AssembleResult, CompactResult, CompactStatus
from proctor.context.guard import EngineHealth
from proctor.context.history import History
from proctor.context.hooks import PromptDraft
from proctor.context.project import ContextProjection, ProjectionMode
from proctor.context.store import SessionStore
from proctor.errors import MachineError, PeerError, RefusedError
from proctor.event import model
from proctor.event.message import AgentPart, Message, UserPart
from proctor.event.outcome import Ending, Outcome
from proctor.event.row import CommitMade, ContextChosen, ContextProblem, StepTaken, TurnClosed, TurnWanted
from proctor.ids import EntryId, RuntimeId, TurnId
from proctor.runtime.delivery import instructions_sha256
from proctor.testing.clock import FakeClock
from tests.api.talk import bounded
from tests.context.agent_twin import ALL, Agent, KilledError, Sitting, TwinSession, open_sitting
from tests.scripted_engine import Behaviour

FAILED = model.TurnEnded(turn=TurnId("t"), status="failed", error="no", frame=1, at_ms=1)
FULL = replace(FAILED, error="the context window is full", code="provider.context-full")


@pytest.fixture
def behaviour(monkeypatch: pytest.MonkeyPatch) -> Behaviour:
    made = Behaviour()
    monkeypatch.setattr("tests.scripted_engine.BEHAVIOUR", made)
    return made


@pytest.fixture
def agent() -> Agent:
    return Agent()


def note(text: str) -> Message:
    return Message(id=EntryId(f"note-{text}"), at_ms=0, part=UserPart(text=text))


def _with_note(history: History, *, added: Message) -> list[Message]:
    return [*history, added]


def rows(sitting: Sitting, type_: type[Any]) -> list[Any]:
    return [row for row in sitting.port.rows if isinstance(row, type_)]


def states(sitting: Sitting) -> list[str]:
    return [str(turn.state) for turn in sitting.turns()]


# ── 9: the order ──


@pytest.mark.requirement("context.lifecycle")
def test_case_9_lifecycle_runs_in_its_order(
    tmp_path: Path, behaviour: Behaviour, agent: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    order: list[str] = behaviour.calls

    async def hook(draft: PromptDraft) -> None:
        order.append("before_prompt_build")

    def noted(name: str, function: Any) -> Any:
        def call(*args: Any, **options: Any) -> Any:
            order.append(name)
            return function(*args, **options)

        return call

    async def talk() -> None:
        behaviour.messages = lambda history: [*history, note("a")]
        async with open_sitting(tmp_path, agent, behaviour=behaviour) as sitting:
            await sitting.say("One")
        order.clear()
        async with open_sitting(tmp_path, agent, n=2, behaviour=behaviour, before_prompt_build=(hook,)) as sitting:
            record = sitting.port.record

            def recorded(row: Any) -> None:
                order.append(type(row).__name__)
                record(row)

            monkeypatch.setattr(sitting.port, "record", recorded)
            monkeypatch.setattr(sitting.port, "open_thread", noted("open thread", sitting.port.open_thread))
            monkeypatch.setattr(sitting.keeper, "history", noted("history", sitting.keeper.history))
            for module, name in (("thread_giver", "decide_thread"), ("thread_giver", "project")):
                place = f"proctor.context.{module}.{name}"
                monkeypatch.setattr(place, noted(name, getattr(import_module(f"proctor.context.{module}"), name)))
            monkeypatch.setattr(TwinSession, "turn", noted("turn", TwinSession.turn))
            monkeypatch.setattr(SessionStore, "settle", noted("mirror", SessionStore.settle))
            behaviour.messages = lambda history: [*history, note("b")]
            await sitting.say("Two")

    bounded(talk)
    assert order == [
        "TurnWanted",
        "history",
        "bootstrap",
        "maintain bootstrap",
        "assemble",
        "decide_thread",
        "project",
        "before_prompt_build",
        "ContextChosen",
        "open thread",
        "HistoryOffer",
        "HistoryReceipt",
        "turn",
        "TurnClosed",
        "mirror",
        "commit_turn",
        "CommitMade",
        "maintain turn",
    ]


@pytest.mark.requirement("context.lifecycle")
def test_bootstrap_runs_on_the_first_turn_of_a_sitting_and_only_with_a_history(
    tmp_path: Path, behaviour: Behaviour, agent: Agent
) -> None:
    async def talk() -> None:
        for n, count in ((1, 0), (2, 1)):
            async with open_sitting(tmp_path, agent, n=n, behaviour=behaviour) as sitting:
                await sitting.say("One")
                await sitting.say("Two")
            assert behaviour.calls.count("bootstrap") == count

    bounded(talk)


# ── 5, 6, 7: the prompt ──


@pytest.mark.requirement("context.dedupe")
def test_case_5_prompt_in_the_history_is_dropped_by_its_id_and_equal_text_stays(
    tmp_path: Path, behaviour: Behaviour, agent: Agent
) -> None:
    async def talk() -> None:
        async with open_sitting(tmp_path, agent, behaviour=behaviour) as sitting:
            await sitting.say("Same")
            behaviour.messages = lambda history: [*history, note("Same")]
            await sitting.say("Same")

    bounded(talk)
    assert agent.requests[1] == [("user", "Same"), ("assistant", "ok"), ("user", "Same"), ("user", "Same")]


@pytest.mark.requirement("context.projection")
def test_case_6_empty_history_gives_the_prompt_verbatim(tmp_path: Path, behaviour: Behaviour, agent: Agent) -> None:
    text = "  Two\r\nlines\x00 and \u2028 $name </conversation_context>  "

    async def talk() -> None:
        capabilities = replace(ALL, takes_history=False)
        async with open_sitting(tmp_path, agent, behaviour=behaviour, capabilities=capabilities) as sitting:
            await sitting.say(text)

    bounded(talk)
    assert agent.requests == [[("user", text)]]


# ── 8: instructions ──


@pytest.mark.requirement("context.system-addition")
def test_case_8_addition_is_given_once_and_again_only_when_it_changes(
    tmp_path: Path, behaviour: Behaviour, agent: Agent
) -> None:
    async def talk() -> None:
        behaviour.addition = "Rhyme."
        async with open_sitting(tmp_path, agent, behaviour=behaviour) as sitting:
            contexts = [await sitting.say("One"), await sitting.say("Two")]
            behaviour.addition = "Do not rhyme."
            contexts.append(await sitting.say("Three"))
        async with open_sitting(tmp_path, agent, n=2, behaviour=behaviour) as sitting:
            contexts.append(await sitting.say("Four"))
        first, second = instructions_sha256("Rhyme."), instructions_sha256("Do not rhyme.")
        assert [(each.addition_sha256, each.is_addition_given) for each in contexts if each is not None] == [
            (first, True), (first, False), (second, True), (second, False),
        ]  # fmt: skip
        assert [each.addition_words for each in contexts if each is not None] == [
            "instructions given", "instructions as before", "instructions given", "instructions as before",
        ]  # fmt: skip

    bounded(talk)
    instructions = [text for role, text in agent.requests[-1] if role == "developer"]
    assert instructions == ["Rhyme.", "Do not rhyme."]


@pytest.mark.requirement("context.system-addition")
@pytest.mark.requirement("context.errors")
@pytest.mark.parametrize("policy", ["degrade", "strict"])
def test_addition_without_a_place_degrades_or_refuses(
    policy: str, tmp_path: Path, behaviour: Behaviour, agent: Agent
) -> None:
    capabilities = replace(ALL, takes_instructions=False, takes_turn_instructions=False)

    async def talk() -> None:
        behaviour.addition = "Rhyme."
        async with open_sitting(
            tmp_path, agent, behaviour=behaviour, capabilities=capabilities, policy=policy
        ) as sitting:
            context = await sitting.say("One")
            if policy == "strict":
                assert sitting.error is not None
                assert sitting.error.code == "engine.no-place"
                assert agent.requests == []
            else:
                assert context is not None
                assert context.degraded is not None
                assert "engine.no-place" in context.degraded
                assert not context.is_addition_given
                assert context.addition_words is None
                assert agent.requests == [[("user", "One")]]

    bounded(talk)


# ── 10: turns that did not complete ──


@pytest.mark.requirement("context.commit-once")
@pytest.mark.parametrize("answer", [FAILED, PeerError("peer.wire", "garbage")])
def test_case_10_turn_that_did_not_complete_is_neither_committed_nor_maintained(
    answer: Any, tmp_path: Path, behaviour: Behaviour, agent: Agent
) -> None:
    async def talk() -> None:
        agent.answers = [answer, "Yes."]
        async with open_sitting(tmp_path, agent, behaviour=behaviour) as sitting:
            await sitting.say("One")
            assert behaviour.commits == {}
            assert "maintain turn" not in behaviour.calls
            [skipped] = rows(sitting, CommitMade)
            assert (skipped.status, "ended as" in skipped.detail) == ("none", True)
            await sitting.say("Two")
            assert states(sitting) == ["discarded", "acknowledged"]
        [turn] = behaviour.commits.values()
        assert [message.part for message in turn.messages] == [UserPart(text="Two"), AgentPart(text="Yes.")]

    bounded(talk)


# ── 11 to 14: commits ──


@pytest.mark.requirement("context.commit-once")
@pytest.mark.requirement("context.errors")
def test_case_11_turn_that_the_mirror_cannot_take_is_committed_from_the_record_and_its_repair_is_a_duplicate(
    tmp_path: Path, behaviour: Behaviour, agent: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def talk() -> None:
        async with open_sitting(tmp_path, agent, behaviour=behaviour) as sitting:
            with monkeypatch.context() as broken:
                full = MachineError("machine.disk-full", "the disk is full")

                def refuse(*_: object, **__: object) -> bool:
                    raise full

                broken.setattr("proctor.context.store.SessionStore.settle", refuse)
                context = await sitting.say("One")
            assert context is not None
            assert context.commit == "committed"
            [made] = rows(sitting, CommitMade)
            assert made.source == "fallback"
            [key] = behaviour.commits
            await sitting.say("Two")
            assert [row.source for row in rows(sitting, CommitMade)] == ["fallback", "mirror", "mirror"]
            assert behaviour.calls.count("commit_turn") == 3
            assert len(behaviour.commits) == 2
            assert key in behaviour.commits
            assert states(sitting) == ["acknowledged", "acknowledged"]

    bounded(talk)


def _read_twin(agent: Agent) -> Any:
    """The record of the twin, in place of the frames on disk."""

    def recorded_turns(root: Any, sitting: Any, fold: Any) -> Iterator[Any]:
        for event in agent.record.get(sitting.n, ()):
            if (turn := fold.feed(event)) is not None:
                yield turn
        if (turn := fold.finish()) is not None:
            yield turn

    return recorded_turns


@pytest.mark.requirement("context.commit-once")
@pytest.mark.requirement("context.given")
@pytest.mark.parametrize("dies_after", range(1, 19))
def test_case_12_kill_between_any_two_steps_commits_each_completed_turn_once(
    dies_after: int, tmp_path: Path, behaviour: Behaviour, agent: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("proctor.context.kept_session.recorded_turns", _read_twin(agent))

    async def talk() -> None:
        agent.dies_after = dies_after
        with suppress(KilledError):
            async with open_sitting(tmp_path, agent, behaviour=behaviour) as sitting:
                await sitting.say("One")
                behaviour.messages = lambda history: [*history, note("a")]
                await sitting.say("Two")
        agent.dies_after = None
        completed = [event for event in agent.record[1] if isinstance(event, model.TurnEnded)]
        async with open_sitting(tmp_path, agent, n=2, behaviour=behaviour) as sitting:
            turns = sitting.turns()
            settled = [str(turn.state) for turn in turns]
            assert settled == ["acknowledged"] * len(completed) + ["discarded"] * (len(turns) - len(completed))
            assert list(behaviour.commits) == [turn.id for turn in turns[: len(completed)]], "committed on opening"
            await sitting.say("Three")
        assert len(behaviour.commits) == len(completed) + 1
        said = agent.requests[-1]
        texts = [text for _, text in said if text != "ok"]
        assert texts[-1] == "Three"
        assert len(texts) == len(set(texts)), "nothing is there twice"
        assert texts[:-1] == ["One", "a", "Two"][: len(texts) - 1] or texts[:-1] == ["One", "Two", "a"]

    bounded(talk)


@pytest.mark.requirement("context.commit-once")
@pytest.mark.requirement("context.errors")
@pytest.mark.parametrize("policy", ["degrade", "strict"])
def test_case_13_turn_whose_commit_fails_three_times_is_blocked(
    policy: str, tmp_path: Path, behaviour: Behaviour, agent: Agent
) -> None:
    health = EngineHealth(most_failures=100)

    async def talk() -> None:
        async with open_sitting(tmp_path, agent, behaviour=behaviour, policy=policy, health=health) as sitting:
            behaviour.failures["commit_turn"] = [ValueError("no")] * 3
            context = await sitting.say("One")
            assert context is not None
            assert (context.commit, states(sitting)) == ("queued", ["ready"])
            later = [await sitting.say(text) for text in ("Two", "Three", "Four")]
            refused = [sitting.error is not None, policy == "strict"]
            assert refused[0] is refused[1]
            assert states(sitting)[0] == "blocked"
            assert [row.status for row in rows(sitting, CommitMade) if row.turn == sitting.turns()[0].id] == [
                "queued",
                "queued",
                "blocked",
            ]
            if policy == "degrade":
                assert later[-1] is not None
                assert later[-1].degraded is not None
                assert "lacks the turn" in later[-1].degraded
                assert states(sitting)[1:] == ["acknowledged"] * 3, "no later commit waits for it"
        # The engine is given the whole history, and with it the blocked turn.
        async with open_sitting(tmp_path, agent, n=2, behaviour=behaviour, policy=policy) as sitting:
            context = await sitting.say("Five")
            assert sitting.error is None
            assert context is not None
            assert context.degraded is None
            assert states(sitting)[0] == "blocked", "the audit stays"

    bounded(talk)


@pytest.mark.requirement("context.commit-once")
def test_turn_that_was_queued_is_committed_before_later_ones(
    tmp_path: Path, behaviour: Behaviour, agent: Agent
) -> None:
    async def talk() -> None:
        async with open_sitting(tmp_path, agent, behaviour=behaviour) as sitting:
            behaviour.failures["commit_turn"] = [ValueError("no")]
            await sitting.say("One")
            await sitting.say("Two")
            assert states(sitting) == ["acknowledged", "acknowledged"]
            assert list(behaviour.commits) == [turn.id for turn in sitting.turns()]

    bounded(talk)


# ── 15, 16, 17: failures of the engine ──

_BAD: list[tuple[str, Any, str]] = [
    ("raises", ValueError("no idea"), "raised ValueError: no idea"),
    ("wrong shape", {"messages": []}, "expected an AssembleResult"),
    ("over budget", AssembleResult(messages=(note("x" * 900_000),)), "the budget is"),
    ("twice", AssembleResult(messages=(note("a"), note("a"))), "2 times"),
    ("too large", AssembleResult(messages=(note("x" * 100_000_000),)), "bytes were assembled"),
    (
        "no epoch",
        AssembleResult(messages=(), projection=ContextProjection(mode=ProjectionMode.THREAD_BOOTSTRAP)),
        "projection.epoch",
    ),
]


@pytest.mark.requirement("context.errors")
@pytest.mark.parametrize("policy", ["degrade", "strict"])
@pytest.mark.parametrize(("what", "expected"), [each[1:] for each in _BAD], ids=[each[0] for each in _BAD])
def test_case_15_bad_assembly_runs_the_plain_prompt_or_refuses(
    what: Any, expected: str, policy: str, tmp_path: Path, behaviour: Behaviour, agent: Agent
) -> None:
    if isinstance(what, Exception):
        behaviour.failures["assemble"] = [what]
    else:
        behaviour.results["assemble"] = [what]

    async def talk() -> None:
        async with open_sitting(tmp_path, agent, behaviour=behaviour, policy=policy) as sitting:
            context = await sitting.say("One")
            if policy == "strict":
                assert sitting.error is not None
                assert expected in sitting.error.what
                assert agent.requests == []
                return
            assert agent.requests == [[("user", "One")]]
            assert context is not None
            assert context.degraded is not None
            assert expected in context.degraded
            assert (context.sha256, context.commit) == (None, "committed")

    bounded(talk)


@pytest.mark.requirement("context.errors")
@pytest.mark.parametrize("policy", ["degrade", "strict"])
def test_failed_bootstrap_is_a_warning_or_refuses_and_is_tried_again(
    policy: str, tmp_path: Path, behaviour: Behaviour, agent: Agent
) -> None:
    async def talk() -> None:
        async with open_sitting(tmp_path, agent, behaviour=behaviour, policy=policy) as sitting:
            await sitting.say("One")
        behaviour.failures["bootstrap"] = [ValueError("not today")]
        async with open_sitting(tmp_path, agent, n=2, behaviour=behaviour, policy=policy) as sitting:
            context = await sitting.say("Two")
            assert (sitting.error is not None) is (policy == "strict")
            if policy == "degrade":
                assert context is not None
                assert context.degraded is not None
                assert "not today" in context.degraded
            context = await sitting.say("Three")
            assert context is not None
            assert context.degraded is None
        assert behaviour.calls.count("bootstrap") == 2

    bounded(talk)


@pytest.mark.requirement("context.errors")
def test_case_16_cancelled_call_is_no_failure_of_the_engine(tmp_path: Path, behaviour: Behaviour, agent: Agent) -> None:
    health = EngineHealth()

    async def hang() -> None:
        await anyio.sleep_forever()

    async def talk() -> None:
        async with open_sitting(tmp_path, agent, behaviour=behaviour, health=health) as sitting:
            behaviour.waits["assemble"] = hang
            for _ in range(4):
                with anyio.move_on_after(0.05):
                    await sitting.say("One")
            behaviour.waits.clear()
            assert health.quarantine("scripted") is None

    bounded(talk)


@pytest.mark.requirement("context.errors")
@pytest.mark.requirement("context.selection")
def test_case_17_quarantine_applies_to_assembly_commit_and_compaction_alike(
    tmp_path: Path, behaviour: Behaviour, agent: Agent
) -> None:
    clock = FakeClock()
    behaviour.owns_compaction = True
    behaviour.failures["assemble"] = [ValueError("no")] * 3

    async def talk() -> None:
        async with open_sitting(tmp_path, agent, behaviour=behaviour, clock=clock) as sitting:
            for text in ("One", "Two", "Three"):
                await sitting.say(text)
            behaviour.calls.clear()
            context = await sitting.say("Four")
            compaction = await sitting.compact()
            assert behaviour.calls == [], "the engine is not called while it pauses"
            assert context is not None
            assert context.degraded is not None
            assert context.commit == "queued"
            assert compaction is not None
            assert (compaction.status, "pauses" in (compaction.reason or "")) == (CompactStatus.FAILED, True)
            clock.advance(61)
            context = await sitting.say("Five")
            assert context is not None
            assert (context.degraded, context.commit) == (None, "committed")
            assert states(sitting) == ["acknowledged"] * 5

    bounded(talk)


# ── 18: thread_bootstrap ──


def bootstrap(epoch: str) -> ContextProjection:
    return ContextProjection(mode=ProjectionMode.THREAD_BOOTSTRAP, epoch=epoch)


@pytest.mark.requirement("context.binding")
def test_case_18_new_epoch_starts_a_thread_and_a_growing_tail_does_not(
    tmp_path: Path, behaviour: Behaviour, agent: Agent
) -> None:
    async def talk() -> None:
        behaviour.projection = bootstrap("a")
        async with open_sitting(tmp_path, agent, behaviour=behaviour) as sitting:
            for text in ("One", "Two"):
                await sitting.say(text)
            behaviour.projection = bootstrap("b")
            await sitting.say("Three")
            await sitting.say("Four")
            chosen = rows(sitting, ContextChosen)
            assert [(row.thread, row.reason, row.how) for row in chosen] == [
                ("start", "no thread", "none"),
                ("resume", "same thread", "none"),
                ("start", "another epoch", "items"),
                ("resume", "same thread", "none"),
            ]
        async with open_sitting(tmp_path, agent, n=2, behaviour=behaviour, window=1_000_000) as sitting:
            await sitting.say("Five")
            assert rows(sitting, ContextChosen)[0].reason == "another engine or policy"
        async with open_sitting(tmp_path, agent, n=3, behaviour=behaviour, window=1_000_000, tools="t") as sitting:
            await sitting.say("Six")
            assert rows(sitting, ContextChosen)[0].reason == "other tools"

    bounded(talk)
    said = [text for role, text in agent.requests[-1] if role == "user"]
    assert said == ["One", "Two", "Three", "Four", "Five", "Six"]


@pytest.mark.requirement("context.binding")
def test_per_turn_mode_never_starts_a_thread_because_context_changed(
    tmp_path: Path, behaviour: Behaviour, agent: Agent
) -> None:
    async def talk() -> None:
        async with open_sitting(tmp_path, agent, behaviour=behaviour) as sitting:
            for number in range(4):
                added = note(str(number))
                behaviour.messages = partial(_with_note, added=added)
                behaviour.addition = f"Rule {number}."
                await sitting.say("Go on")
        async with open_sitting(tmp_path, agent, n=2, behaviour=behaviour, window=99_000) as sitting:
            await sitting.say("Go on")

    bounded(talk)
    assert len(agent.threads) == 1


# ── 19: overflow ──


@pytest.mark.requirement("context.binding")
def test_case_19_overflow_is_retried_once_on_a_new_thread_with_less(
    tmp_path: Path, behaviour: Behaviour, agent: Agent
) -> None:
    async def talk() -> None:
        async with open_sitting(tmp_path, agent, behaviour=behaviour) as sitting:
            await sitting.say("One")
            agent.answers = [FULL, "Yes."]
            context = await sitting.say("Two")
            assert context is not None
            assert (context.thread, context.reason, context.given) == ("start", "context overflow", 2)
            budgets = [ctx.budget.history for ctx in behaviour.contexts]
            assert int(budgets[0] * 0.6) in budgets
            assert states(sitting) == ["acknowledged", "acknowledged"]
        assert agent.requests[-1] == [("user", "One"), ("assistant", "ok"), ("user", "Two")]

    bounded(talk)


# ── 20 to 23: compaction ──


def compact_natively(sitting: Sitting, *, ok: bool, keeps: str = "nothing") -> None:
    sitting.port.feed(model.CompactionBegan, trigger="auto")
    sitting.port.feed(model.CompactionEnded, trigger="auto", ok=ok, keeps=keeps)


@pytest.mark.requirement("context.compaction")
@pytest.mark.requirement("context.binding")
@pytest.mark.parametrize(("ok", "given"), [(True, 2), (False, 0)])
def test_case_20_native_compaction_removes_what_the_thread_lost_and_a_failed_one_nothing(
    ok: bool, given: int, tmp_path: Path, behaviour: Behaviour, agent: Agent
) -> None:
    async def talk() -> None:
        async with open_sitting(tmp_path, agent, behaviour=behaviour) as sitting:
            await sitting.say("One")
            compact_natively(sitting, ok=ok)
            context = await sitting.say("Two")
            assert context is not None
            assert (context.thread, context.given) == ("resume", given)

    bounded(talk)


@pytest.mark.requirement("context.compaction")
def test_native_compaction_that_keeps_prompts_leaves_them_in_the_binding(
    tmp_path: Path, behaviour: Behaviour, agent: Agent
) -> None:
    async def talk() -> None:
        async with open_sitting(tmp_path, agent, behaviour=behaviour) as sitting:
            await sitting.say("One")
            compact_natively(sitting, ok=True, keeps="user-messages")
            context = await sitting.say("Two")
            assert context is not None
            assert context.given == 1, "the prompt is still there, the answer is not"

    bounded(talk)


@pytest.mark.requirement("context.compaction")
def test_owning_engine_gets_a_new_thread_after_a_native_compaction(
    tmp_path: Path, behaviour: Behaviour, agent: Agent
) -> None:
    behaviour.owns_compaction = True

    async def talk() -> None:
        async with open_sitting(tmp_path, agent, behaviour=behaviour) as sitting:
            await sitting.say("One")
            compact_natively(sitting, ok=True)
            context = await sitting.say("Two")
            assert context is not None
            assert (context.thread, context.reason) == ("start", "shortened by the agent")

    bounded(talk)


@pytest.mark.requirement("context.compaction")
def test_case_22_successor_in_another_session_is_refused(tmp_path: Path, behaviour: Behaviour, agent: Agent) -> None:
    behaviour.owns_compaction = True
    behaviour.compacted = CompactResult(status=CompactStatus.COMPACTED, successor="another")  # type: ignore[arg-type]

    async def talk() -> None:
        async with open_sitting(tmp_path, agent, behaviour=behaviour) as sitting:
            await sitting.say("One")
            compaction = await sitting.compact()
            assert compaction is not None
            assert compaction.status is CompactStatus.FAILED
            assert "another session" in (compaction.reason or "")

    bounded(talk)


@pytest.mark.requirement("context.hooks")
def test_case_23_failing_hook_after_a_compaction_undoes_nothing(
    tmp_path: Path, behaviour: Behaviour, agent: Agent
) -> None:
    behaviour.owns_compaction = True
    seen: list[str] = []

    async def before(notice: Any) -> None:
        seen.append(f"before {notice.backend}")

    async def after(notice: Any) -> None:
        seen.append(f"after {notice.backend} {notice.ok}")
        raise ValueError("no")

    async def talk() -> None:
        async with open_sitting(
            tmp_path, agent, behaviour=behaviour, before_compaction=(before,), after_compaction=(after,)
        ) as sitting:
            await sitting.say("One")
            compaction = await sitting.compact()
            assert compaction is not None
            assert compaction.status is CompactStatus.COMPACTED
            compact_natively(sitting, ok=True)
            await sitting.run_beside()
            assert [row.code for row in rows(sitting, ContextProblem)] == ["engine.hook"] * 2

    bounded(talk)
    assert seen == ["before scripted", "after scripted True", "before codex_app_server", "after codex_app_server True"]


@pytest.mark.requirement("context.compaction")
@pytest.mark.parametrize("ok", [True, False])
def test_case_21_owning_engines_result_is_primary_and_the_agents_own_a_detail(ok: bool) -> None:
    engine = Compaction(status=CompactStatus.COMPACTED, tokens_before=900, tokens_after=100, details={"passes": 2})
    ended = model.CompactionEnded(trigger="manual", ok=ok, keeps="nothing", problem="busy", frame=1, at_ms=1)
    ending = Ending(outcome=Outcome.COMPLETED, code=None, detail=None)
    whole = with_native(engine, native_compaction(ending, ended), runtime_id=RuntimeId("codex_app_server"))
    native = whole.details["codexNativeCompaction"]
    assert (native["status"], native["reason"]) == (("compacted", None) if ok else ("failed", "busy"))
    assert replace(whole, details=engine.details) == engine, "the agent's failure fails nothing"


@pytest.mark.requirement("context.compaction")
def test_failed_compaction_is_reported_and_is_never_a_prompt(
    tmp_path: Path, behaviour: Behaviour, agent: Agent
) -> None:
    behaviour.owns_compaction = True
    behaviour.failures["compact"] = [ValueError("no")]

    async def talk() -> None:
        async with open_sitting(tmp_path, agent, behaviour=behaviour) as sitting:
            await sitting.say("One")
            compaction = await sitting.compact()
            assert compaction is not None
            assert (compaction.status, compaction.tokens_before) == (CompactStatus.FAILED, None)
            assert behaviour.calls.count("compact") == 1

    bounded(talk)
    assert len(agent.requests) == 1


# ── 24, 25: threads ──


@pytest.mark.requirement("context.binding")
def test_case_25_thread_that_is_gone_is_replaced_with_everything_in_it(
    tmp_path: Path, behaviour: Behaviour, agent: Agent
) -> None:
    async def talk() -> None:
        async with open_sitting(tmp_path, agent, behaviour=behaviour) as sitting:
            await sitting.say("One")
        agent.threads.clear()
        async with open_sitting(tmp_path, agent, n=2, behaviour=behaviour) as sitting:
            context = await sitting.say("Two")
            assert context is not None
            assert (context.thread, context.reason, context.given) == ("start", "thread gone", 2)
        assert agent.requests[-1] == [("user", "One"), ("assistant", "ok"), ("user", "Two")]

    bounded(talk)


@pytest.mark.requirement("context.binding")
def test_thread_that_is_refused_with_the_first_prompt_is_replaced_too(
    tmp_path: Path, behaviour: Behaviour, agent: Agent
) -> None:
    async def talk() -> None:
        async with open_sitting(tmp_path, agent, behaviour=behaviour) as sitting:
            await sitting.say("One")
        async with open_sitting(tmp_path, agent, n=2, behaviour=behaviour) as sitting:
            agent.answers = [RefusedError("peer.refused", "no conversation found")]
            context = await sitting.say("Two")
            assert context is not None
            assert (context.reason, context.given) == ("thread gone", 2)

    bounded(talk)


# ── items that are refused ──


@pytest.mark.requirement("context.projection.native")
def test_items_that_the_agent_refuses_are_in_the_prompt(tmp_path: Path, behaviour: Behaviour, agent: Agent) -> None:
    async def talk() -> None:
        async with open_sitting(tmp_path, agent, behaviour=behaviour) as sitting:
            await sitting.say("One")
        agent.refuses_items = True
        agent.threads.clear()
        async with open_sitting(tmp_path, agent, n=2, behaviour=behaviour) as sitting:
            context = await sitting.say("Two")
            assert context is not None
            assert (context.how, context.given) == ("text", 2)
            assert context.degraded is not None
            assert "refused the messages as items" in context.degraded
            again = await sitting.say("Three")
            assert again is not None
            assert (again.how, again.given, again.degraded) == ("none", 0, None)
        [_, text] = agent.requests[-1][-3], agent.requests[-1][0][1]
        assert text.count("> One") == 1

    bounded(talk)


# ── hooks ──


@pytest.mark.requirement("context.hooks")
def test_prompt_hook_sees_what_the_agent_gets_and_its_output_is_recorded(
    tmp_path: Path, behaviour: Behaviour, agent: Agent
) -> None:
    drafts: list[PromptDraft] = []

    async def hook(draft: PromptDraft) -> PromptDraft:
        drafts.append(draft)
        return PromptDraft(prompt=f"{draft.prompt}!", instructions="Be brief.", messages=())

    async def talk() -> None:
        behaviour.messages = lambda history: [*history, note("a")]
        async with open_sitting(tmp_path, agent, behaviour=behaviour, before_prompt_build=(hook, hook)) as sitting:
            await sitting.say("One")
            [chosen] = rows(sitting, ContextChosen)
            assert chosen.sha256 is not None
            assert chosen.addition_sha256 is not None

    bounded(talk)
    assert [(draft.prompt, len(draft.messages)) for draft in drafts] == [("One", 1), ("One!", 1)]
    assert agent.requests == [[("user", "a"), ("developer", "Be brief."), ("user", "One!!")]]


@pytest.mark.requirement("context.hooks")
@pytest.mark.parametrize("policy", ["degrade", "strict"])
def test_failing_prompt_hook_changes_nothing_or_refuses(
    policy: str, tmp_path: Path, behaviour: Behaviour, agent: Agent
) -> None:
    async def hook(draft: PromptDraft) -> PromptDraft:
        raise ValueError("no")

    async def talk() -> None:
        async with open_sitting(
            tmp_path, agent, behaviour=behaviour, before_prompt_build=(hook,), policy=policy
        ) as sitting:
            context = await sitting.say("One")
            if policy == "strict":
                assert sitting.error is not None
                assert agent.requests == []
            else:
                assert context is not None
                assert context.degraded == "`before_prompt_build` raised ValueError: no (engine.hook)"
                assert agent.requests == [[("user", "One")]]

    bounded(talk)


# ── room in the thread ──


@pytest.mark.requirement("context.binding")
def test_giving_takes_no_thread_over_its_limit_and_counts_what_is_left_out(
    tmp_path: Path, behaviour: Behaviour, agent: Agent
) -> None:
    agent.window, agent.used = 50_000, 29_000

    async def talk() -> None:
        async with open_sitting(tmp_path, agent, behaviour=behaviour) as sitting:
            await sitting.say("One")
            # 1,000 tokens are left below the reserve of 20,000.
            notes = [note(f"{n} " + "x" * 1000) for n in range(5)]
            behaviour.messages = lambda history: [*history, *notes]
            context = await sitting.say("Two")
            assert context is not None
            assert (context.thread, context.given, context.dropped) == ("resume", 2, 3)
            given = [text[:1] for role, text in agent.requests[-1] if role == "user" and "x" in text]
            assert given == ["3", "4"], "the newest"

    bounded(talk)


@pytest.mark.requirement("context.binding")
def test_owning_engine_gets_a_new_thread_if_the_context_does_not_fit(
    tmp_path: Path, behaviour: Behaviour, agent: Agent
) -> None:
    agent.window, agent.used = 50_000, 29_000
    behaviour.owns_compaction = True

    async def talk() -> None:
        async with open_sitting(tmp_path, agent, behaviour=behaviour) as sitting:
            await sitting.say("One")
            behaviour.messages = lambda history: [*history, *(note(f"{n} " + "x" * 1000) for n in range(5))]
            context = await sitting.say("Two")
            assert context is not None
            assert (context.thread, context.reason, context.given) == ("start", "too little room", 7)

    bounded(talk)


# ── 27: maintenance ──


@pytest.mark.requirement("context.lifecycle")
def test_case_27_one_maintenance_runs_at_a_time_and_a_stuck_one_delays_no_close(
    tmp_path: Path, behaviour: Behaviour, agent: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("proctor.context.lifecycle.MAINTENANCE_S", 0.05)

    async def talk() -> None:
        async with open_sitting(tmp_path, agent, behaviour=behaviour) as sitting:
            await sitting.say("One")
            sitting.lifecycle.run_maintenance("turn")
            sitting.lifecycle.run_maintenance("turn")
            assert len(sitting.port.beside) == 1, "the second is skipped while the first runs"

    bounded(talk)


# ── 30: rows of Proctor ──


@pytest.mark.requirement("context.commit-once")
def test_case_30_row_that_proctor_writes_is_never_the_last_entry_of_a_turn(
    tmp_path: Path, behaviour: Behaviour, agent: Agent
) -> None:
    async def talk() -> None:
        async with open_sitting(tmp_path, agent, behaviour=behaviour) as sitting:
            for text in ("One", "Two"):
                behaviour.messages = lambda history: [*history, note("a")]
                sitting.port.record(TurnWanted(text=text))
                await sitting.keeper.admit()
                await sitting.lifecycle.run_turn(text)
                # After the answer: markers of Proctor, and of the agent's own compaction.
                sitting.port.record(ContextProblem(code="engine.hook", detail="no"))
                sitting.port.record(StepTaken(step="cache-ttl", detail={}))
                compact_natively(sitting, ok=False)
                sitting.port.record(TurnClosed())
                await sitting.keeper.settle()
                await sitting.lifecycle.finalize_turn()
                await sitting.run_beside()
            assert states(sitting) == ["acknowledged"] * 2

    bounded(talk)
    for commit in behaviour.commits.values():
        assert [type(each.part) for each in commit.messages] == [UserPart, AgentPart]
