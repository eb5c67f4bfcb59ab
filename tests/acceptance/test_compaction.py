"""Compactions of sessions with a context engine on the real agents: what is reported, and what is given again."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import pytest

import proctor
from proctor.context.engine import CompactResult
from proctor.context.kept_session import attempt_paths
from proctor.event.message import AgentPart, Message
from proctor.evidence.layout import RootPaths
from proctor.ids import EntryId
from proctor.testing.journals import recorded_journals
from tests.acceptance.sittings import CLAUDE, CODEX, Said, SessionLab, last_request, say_all
from tests.api.talk import bounded
from tests.scripted_engine import Behaviour, offer_engine, scripted

pytestmark = [pytest.mark.real_agent, pytest.mark.long, pytest.mark.requirement("context.compaction")]

AGENTS: Final = (CODEX, CLAUDE)
FULL: Final = {"usage": {"input": 190_000, "output": 5}}
NATIVE: Final = {CODEX: "codexNativeCompaction", "claude_code": "claudeCodeNativeCompaction"}
NOTE: Final = Message(id=EntryId("note"), at_ms=0, part=AgentPart(text="A note of the engine."))
SMALL_WINDOW: Final = {"env": {"CLAUDE_CODE_AUTO_COMPACT_WINDOW": "200000"}}


@pytest.fixture
def lab(tmp_path: Path) -> SessionLab:
    return SessionLab(tmp_path)


@pytest.fixture
def engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Behaviour:
    return offer_engine(tmp_path, monkeypatch)


def usage(tokens: int) -> Mapping[str, Any]:
    return {"usage": {"input": tokens, "output": 1}}


def contexts(lab: SessionLab) -> list[proctor.TurnContext]:
    turns = [shown.turn for shown in lab.report("x").turns if shown.turn.kind == "prompt"]
    return [turn.context for turn in turns if turn.context is not None]


def stripped(said: list[Said]) -> list[Said]:
    return [(who, text.strip()) for who, text in said]


@pytest.mark.requirement("context.binding")
@pytest.mark.parametrize("runtime", AGENTS)
def test_requested_compaction_is_reported_and_the_next_turn_gives_what_was_lost(
    runtime: str, lab: SessionLab, engine: Behaviour
) -> None:
    compactions: list[proctor.Compaction] = []
    notices: list[proctor.CompactionNotice] = []

    async def observe(notice: proctor.CompactionNotice) -> None:
        notices.append(notice)

    async def talk() -> None:
        steps = [{"say": "Said 1.", **usage(40_000)}, {"say": "Said 2.", **usage(41_000)}, {"say": "Said 3."}]
        async with lab.open(
            runtime, "x", *steps, context=scripted(), before_compaction=[observe], after_compaction=[observe]
        ) as session:
            await say_all(session, ["Prompt 1.", "Prompt 2."])
            compactions.append(await session.compact())
            await say_all(session, ["Prompt 3."])

    with recorded_journals() as journals:
        bounded(talk)
    [compaction] = compactions
    assert compaction.status in (proctor.CompactStatus.COMPACTED, proctor.CompactStatus.NO_PROGRESS)
    assert compaction.tokens_before is not None
    assert compaction.tokens_before > 40_000
    last = contexts(lab)[-1]
    assert (last.thread, last.how, last.degraded) == ("resume", "items", None)
    # Codex keeps the prompts, Claude Code the last answer.
    lost: list[Said] = [("agent", "Said 1."), ("agent", "Said 2.")]
    if runtime != CODEX:
        lost = [("user", "Prompt 1."), ("agent", "Said 1."), ("user", "Prompt 2.")]
    assert last.given == len(lost)
    shown = stripped(last_request(journals[0]))
    assert shown[-len(lost) - 1 :] == [*lost, ("user", "Prompt 3.")]
    for said in (*lost, ("agent", "Said 2.")):
        assert shown.count(said) == 1, "nothing is there twice"
    assert [(each.backend, each.trigger, each.ok) for each in notices] == [
        (runtime, "manual", None),
        (runtime, "manual", True),
    ]
    lab.assert_verified("x")


@pytest.mark.requirement("context.binding")
@pytest.mark.parametrize("runtime", AGENTS)
def test_compaction_in_a_turn_is_reported_and_what_it_removed_is_given_again(
    runtime: str, lab: SessionLab, engine: Behaviour
) -> None:
    async def talk() -> None:
        steps: list[dict[str, Any]] = [
            {"say": "Said 1."},
            {"run": "echo hi", **FULL},
            {"say": "Said 2."},
            {"say": "Said 3."},
        ]
        async with lab.open(runtime, "x", *steps, context=scripted(), **SMALL_WINDOW) as session:
            await say_all(session, ["Prompt 1.", "Prompt 2.", "Prompt 3."])

    with recorded_journals() as journals:
        bounded(talk)
    shown = stripped(last_request(journals[0]))
    whole: list[Said] = [
        ("user", "Prompt 1."),
        ("agent", "Said 1."),
        ("user", "Prompt 2."),
        ("call", "echo hi"),
        ("result", "hi"),
        ("agent", "Said 2."),
        ("user", "Prompt 3."),
    ]
    for said in whole:
        assert shown.count(said) == 1, said
    assert contexts(lab)[-1].given > 0
    lab.assert_verified("x")


@pytest.mark.parametrize("runtime", AGENTS)
def test_compaction_before_the_first_request_says_that_the_context_was_lost(
    runtime: str, lab: SessionLab, engine: Behaviour
) -> None:
    steps: list[list[dict[str, Any]]] = [[{"say": "Said 1.", **FULL}], [{"say": "Said 2."}], [{"say": "Said 3."}]]
    lost: list[str | None] = []

    async def talk() -> None:
        for number, its in enumerate(steps, 1):
            async with lab.open(runtime, "x", *its, context=scripted(), **SMALL_WINDOW) as session:
                turn = session.say(f"Prompt {number}.")
                assert (await turn).outcome is proctor.Outcome.COMPLETED
                assert turn.context is not None
                lost.append(turn.context.degraded)
            engine.messages = lambda history: [*history, NOTE]

    with recorded_journals() as journals:
        bounded(talk)
    assert lost == [None, "context lost to native compaction", None]
    texts = [text for _, text in stripped(last_request(journals[-1]))]
    assert texts.count("A note of the engine.") == 1, "it is given again"
    # Claude Code keeps some of what it was given and does not name it, so another thread is given all of it.
    reason = "same thread" if runtime == CODEX else "unknown content"
    assert contexts(lab)[-1].reason == reason
    lab.assert_verified("x")


@pytest.mark.parametrize("runtime", AGENTS)
def test_owning_engine_compacts_first_and_the_agents_own_is_a_detail(
    runtime: str, lab: SessionLab, engine: Behaviour
) -> None:
    engine.owns_compaction = True
    engine.compacted = CompactResult(status=proctor.CompactStatus.COMPACTED, tokens_before=900, tokens_after=100)
    compactions: list[proctor.Compaction] = []

    async def talk() -> None:
        steps = [{"say": "Said 1.", **usage(40_000)}, {"say": "Said 2."}]
        async with lab.open(runtime, "x", *steps, context=scripted()) as session:
            await say_all(session, ["Prompt 1."])
            compactions.append(await session.compact(focus="ships"))
            engine.compacted = CompactResult(status=proctor.CompactStatus.NO_PROGRESS, reason="nothing is shorter")
            compactions.append(await session.compact())
            await say_all(session, ["Prompt 2."])

    with recorded_journals():
        bounded(talk)
    first, second = compactions
    assert (first.status, first.tokens_before, first.tokens_after) == ("compacted", 900, 100)
    assert first.details[NATIVE[runtime]]["status"] in ("compacted", "no_progress")
    assert (second.status, second.reason) == ("no_progress", "nothing is shorter")
    # Claude Code refuses a second one in a row.
    assert second.details[NATIVE[runtime]]["status"] in ("compacted", "no_progress", "failed")
    assert contexts(lab)[-1].reason == "shortened by the agent"
    lab.assert_verified("x")


@pytest.mark.agent("claude_code")
def test_native_failure_is_only_a_detail_of_the_engines_compaction(lab: SessionLab, engine: Behaviour) -> None:
    engine.owns_compaction = True

    async def talk() -> None:
        async with lab.open("claude_code", "x", {"say": "Said 1."}, {"say": "Said 2."}, context=scripted()) as session:
            await say_all(session, ["Prompt 1."])
            await session.compact()
            compaction = await session.compact()
            assert compaction.status is proctor.CompactStatus.COMPACTED
            assert compaction.details["claudeCodeNativeCompaction"]["status"] == "failed"
            await say_all(session, ["Prompt 2."])

    bounded(talk)
    lab.assert_verified("x")


@pytest.mark.parametrize("runtime", AGENTS)
def test_native_refusal_is_only_a_detail_of_the_engines_compaction(
    runtime: str, lab: SessionLab, engine: Behaviour
) -> None:
    engine.owns_compaction = True
    engine.compacted = CompactResult(status=proctor.CompactStatus.COMPACTED, tokens_before=900, tokens_after=100)

    async def talk() -> None:
        thread = await lab.sit(runtime, "x", ["Prompt 1."], {"say": "Said 1."}, context=scripted())
        for file in lab.thread_files("x", thread):
            file.unlink()
        async with lab.open(runtime, "x", {"say": "Said 2."}, context=scripted()) as session:
            compaction = await session.compact()
            assert (compaction.status, compaction.tokens_after) == (proctor.CompactStatus.COMPACTED, 100)
            assert compaction.details[NATIVE[runtime]]["status"] == "failed"
            await say_all(session, ["Prompt 2."])

    with recorded_journals() as journals:
        bounded(talk)
    assert stripped(last_request(journals[-1])) == [("user", "Prompt 1."), ("agent", "Said 1."), ("user", "Prompt 2.")]
    lab.assert_verified("x")


@pytest.mark.requirement("context.hooks")
def test_compaction_that_a_hook_aborts_is_not_followed_by_the_agents_own(lab: SessionLab, engine: Behaviour) -> None:
    engine.owns_compaction = True

    async def refuse(notice: proctor.CompactionNotice) -> None:
        raise ValueError("not now")

    async def talk() -> None:
        context = scripted(policy="strict")
        async with lab.open(CODEX, "x", {"say": "Said 1."}, context=context, before_compaction=[refuse]) as session:
            await say_all(session, ["Prompt 1."])
            compaction = await session.compact()
            assert (compaction.status, compaction.code) == (proctor.CompactStatus.ABORTED, "engine.hook")
            assert compaction.details == {}

    with recorded_journals() as journals:
        bounded(talk)
    assert len([row for row in journals[0].rows if row.items]) == 1, "no request for a summary"
    assert [shown.turn.kind for shown in lab.report("x").turns] == ["prompt"]


@pytest.mark.requirement("context.system-addition")
@pytest.mark.parametrize("runtime", AGENTS)
def test_addition_that_a_compaction_removed_is_given_again_and_the_first_is_not(
    runtime: str, lab: SessionLab, engine: Behaviour
) -> None:
    async def talk() -> None:
        engine.addition = "Answer in rhymes."
        steps = [{"say": f"Said {n}.", **usage(40_000 + n)} for n in range(5)]
        async with lab.open(runtime, "x", *steps, context=scripted()) as session:
            await say_all(session, ["Prompt 1."])
            await session.compact()
            await say_all(session, ["Prompt 2."])
            engine.addition = "Answer in prose."
            await say_all(session, ["Prompt 3."])
            await session.compact()
            await say_all(session, ["Prompt 4.", "Prompt 5."])

    with recorded_journals() as journals:
        bounded(talk)
    asked = [row for row in journals[0].rows if any(item.role == "user" for item in row.items)]
    for row, addition in ((asked[-1], "Answer in prose."), (asked[-2], "Answer in prose.")):
        roles = [item.role for item in row.items if addition in item.whole_text]
        assert roles in (["developer"], ["system"]), "given again, once"
    assert all(each.degraded is None for each in contexts(lab))
    lab.assert_verified("x")


@pytest.mark.parametrize("runtime", AGENTS)
@pytest.mark.parametrize("owns", [False, True])
def test_transcript_names_the_backend_of_each_compaction_and_who_owns_it(
    owns: bool, runtime: str, lab: SessionLab, engine: Behaviour
) -> None:
    engine.owns_compaction = owns

    async def talk() -> None:
        steps: list[dict[str, Any]] = [{"say": "Said 1."}, {"run": "echo hi", **FULL}, {"say": "Said 2."}]
        async with lab.open(runtime, "x", *steps, context=scripted(), **SMALL_WINDOW) as session:
            await say_all(session, ["Prompt 1.", "Prompt 2."])

    bounded(talk)
    [sitting] = lab.report("x").sittings
    lines = attempt_paths(RootPaths(lab.root), sitting).transcript.read_text().splitlines()
    rows = [row for line in lines if (row := json.loads(line))["kind"] == "compaction"]
    assert [row["status"] for row in rows] == ["began", "ended"]
    for row in rows:
        facts = {name: row["facts"][name] for name in ("backend", "ownsCompaction", "trigger")}
        assert facts == {"backend": runtime.replace("_", "-"), "ownsCompaction": owns, "trigger": "auto"}
