"""Sessions with a context engine on the real agents: lost threads and agents, pools, tools, and engines that fail."""

import os
import signal
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import anyio
import pytest

import proctor
from proctor.testing.journals import recorded_journals
from tests.acceptance.sittings import (
    CLAUDE,
    CODEX,
    RUNTIMES,
    Said,
    SessionLab,
    first_requests,
    last_request,
    say_all,
    tool,
)
from tests.api.talk import bounded, script
from tests.lab import processes_with
from tests.scripted_engine import Behaviour, offer_engine, scripted

pytestmark = [pytest.mark.real_agent, pytest.mark.long]

WINDOW: Final = proctor.Context(engine="window")
FIRST_SAID: Final[list[Said]] = [("user", "Prompt 1."), ("agent", "Said 1.")]


@pytest.fixture
def lab(tmp_path: Path) -> SessionLab:
    return SessionLab(tmp_path)


@pytest.fixture
def engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Behaviour:
    return offer_engine(tmp_path, monkeypatch)


def contexts(lab: SessionLab, key: str = "x") -> list[proctor.TurnContext]:
    return [shown.turn.context for shown in lab.report(key).turns if shown.turn.context is not None]


def said_once(journal: Any, whole: Sequence[Said]) -> None:
    shown = [(who, text.strip()) for who, text in last_request(journal)]
    for each in whole:
        assert shown.count(each) == 1, (each, shown)


# ── threads and agents that go away ──


@pytest.mark.requirement("context.binding")
@pytest.mark.parametrize("runtime", RUNTIMES)
def test_thread_deleted_behind_our_back_is_replaced_with_all_that_was_said(runtime: str, lab: SessionLab) -> None:
    async def talk() -> None:
        thread = await lab.sit(runtime, "x", ["Prompt 1."], {"say": "Said 1."}, context=WINDOW)
        files = lab.thread_files("x", thread)
        assert files
        for file in files:
            file.unlink()
        await lab.sit(runtime, "x", ["Prompt 2."], {"say": "Said 2."}, context=WINDOW)

    with recorded_journals() as journals:
        bounded(talk)
    assert contexts(lab)[-1].reason == "thread gone"
    if runtime == "codex_exec":
        [(_, text)] = last_request(journals[-1])
        assert [text.count(each) for each in ("> Prompt 1.", "> Said 1.")] == [1, 1]
    else:
        assert last_request(journals[-1]) == [*FIRST_SAID, ("user", "Prompt 2.")]
    lab.assert_verified("x")


@pytest.mark.requirement("session.one")
@pytest.mark.parametrize("runtime", [CODEX, CLAUDE])
def test_session_goes_on_after_its_agent_was_killed(runtime: str, lab: SessionLab) -> None:
    async def talk() -> None:
        steps = [{"say": f"Said {n}."} for n in (1, 2)]
        async with lab.open(runtime, "x", *steps, context=WINDOW) as session:
            await say_all(session, ["Prompt 1."])
            for pid in processes_with(str(lab.report("x").home)):
                os.kill(pid, signal.SIGKILL)
            # The turn that finds the agent gone may fail. The next one has another.
            ending = await session.say("Prompt 2.")
            if ending.outcome is not proctor.Outcome.COMPLETED:
                await say_all(session, ["Prompt 2."])

    with recorded_journals() as journals:
        bounded(talk)
    said_once(journals[-1], [*FIRST_SAID, ("user", "Prompt 2.")])
    lab.assert_verified("x")


@pytest.mark.requirement("session.one")
@pytest.mark.parametrize("runtime", [CODEX, CLAUDE])
def test_ephemeral_session_keeps_no_thread_and_knows_what_was_said(runtime: str, lab: SessionLab) -> None:
    async def talk() -> None:
        for n in (1, 2):
            await lab.sit(runtime, "x", [f"Prompt {n}."], {"say": f"Said {n}."}, context=WINDOW, ephemeral=True)

    with recorded_journals() as journals:
        bounded(talk)
    assert last_request(journals[-1]) == [*FIRST_SAID, ("user", "Prompt 2.")]
    report = lab.report("x")
    assert report.binding is None
    assert not [each for each in Path(report.home).rglob("*.jsonl") if each.is_file()]
    lab.assert_verified("x")


@pytest.mark.requirement("session.one")
def test_session_leaves_a_pool_and_enters_another_one(lab: SessionLab) -> None:
    async def talk() -> None:
        for n in (1, 2):
            async with proctor.pool(CODEX, evidence="disk", root=lab.root) as pool:
                steps = script(lab.folder, {"say": f"Said {n}."})
                async with pool.session(id="x", script=steps, context=WINDOW) as session:
                    await say_all(session, [f"Prompt {n}."])
        await lab.sit(CODEX, "x", ["Prompt 3."], {"say": "Said 3."}, context=WINDOW)

    with recorded_journals() as journals:
        bounded(talk)
    assert last_request(journals[1]) == [*FIRST_SAID, ("user", "Prompt 2.")]
    assert last_request(journals[2]) == [
        *FIRST_SAID,
        ("user", "Prompt 2."),
        ("agent", "Said 2."),
        ("user", "Prompt 3."),
    ]
    assert [each.reason for each in contexts(lab)] == ["no thread", "process gone", "process gone"]
    lab.assert_verified("x")


# ── reset and fork ──


@pytest.mark.requirement("session.mirror")
def test_reset_session_is_forgotten_by_its_engine_and_a_fork_is_not(lab: SessionLab, engine: Behaviour) -> None:
    async def talk() -> None:
        async with lab.open(CODEX, "x", {"say": "Said 1."}, context=scripted()) as session:
            await say_all(session, ["Prompt 1."])
            await session.fork("copy")
            await session.reset()
        await lab.sit(CODEX, "x", ["Prompt 2."], {"say": "Said 2."}, context=scripted())
        await lab.sit(CODEX, "copy", ["Prompt 3."], {"say": "Said 3."}, context=scripted())

    with recorded_journals() as journals:
        bounded(talk)
    assert last_request(journals[1]) == [("user", "Prompt 2.")]
    assert last_request(journals[2]) == [*FIRST_SAID, ("user", "Prompt 3.")]
    assert "forget reset" in engine.calls
    lab.assert_verified("x")
    lab.assert_verified("copy")


# ── tools, a model, and a yield ──


@pytest.mark.requirement("context.engines")
@pytest.mark.parametrize("runtime", [CODEX, CLAUDE])
def test_tools_of_the_engine_are_offered_beside_those_of_the_caller(
    runtime: str, lab: SessionLab, engine: Behaviour
) -> None:
    engine.tools = (tool("recall", answer="It was seven."),)

    async def talk() -> None:
        steps: list[dict[str, Any]] = [{"call": {"tool": "recall", "arguments": {"a": 1, "b": 2}}}, {"say": "Seven."}]
        await lab.sit(runtime, "x", ["What was it?"], *steps, context=scripted(), tools=[tool("add")])

    with recorded_journals() as journals:
        bounded(talk)
    assert ("result", "It was seven.") in last_request(journals[0])
    assert engine.contexts[-1].tools == {"recall", "add"}


@pytest.mark.requirement("context.engines")
def test_engine_calls_the_agent_as_a_model_in_a_separate_attempt(lab: SessionLab, engine: Behaviour) -> None:
    answers: list[str] = []

    async def ask() -> None:
        complete = engine.contexts[-1].complete
        assert complete is not None
        answers.append(await complete("Summarize it."))

    engine.waits["maintain turn"] = ask

    async def talk() -> None:
        async with lab.open(CODEX, "x", {"say": "Said 1."}, context=scripted(complete="agent")) as session:
            await say_all(session, ["Prompt 1."])

    with recorded_journals() as journals:
        bounded(talk)
    assert answers == ["Said 1."]
    assert last_request(journals[1]) == [("user", "Summarize it.")]
    assert len(list((lab.root / "runs").glob("*/attempts/*"))) == 2
    lab.assert_verified("x")


@pytest.mark.requirement("context.commit-once")
@pytest.mark.parametrize("runtime", [CODEX, CLAUDE])
def test_turn_that_a_tool_yields_ends_and_is_not_committed(runtime: str, lab: SessionLab, engine: Behaviour) -> None:
    async def call(_: Any) -> str:
        raise proctor.Yield("the user must decide")

    schema = {"type": "object", "properties": {}}
    yielding = proctor.Tool(name="ask_user", description="Ask the user.", schema=schema, call=call)

    async def talk() -> None:
        steps: list[dict[str, Any]] = [{"call": {"tool": "ask_user", "arguments": {}}}, {"say": "Said 1."}]
        async with lab.open(runtime, "x", *steps, context=scripted(), tools=[yielding]) as session:
            ending = await session.say("Prompt 1.")
            assert ending.outcome is proctor.Outcome.CANCELLED
            assert ending.detail == "yielded by the tool ask_user: the user must decide"

    bounded(talk)
    assert engine.commits == {}
    assert "maintain turn" not in engine.calls
    lab.assert_verified("x")


# ── engines that fail ──


@pytest.mark.requirement("context.errors")
@pytest.mark.requirement("context.observable")
def test_degraded_turn_says_so_and_the_next_one_is_given_all(lab: SessionLab, engine: Behaviour) -> None:
    async def talk() -> None:
        await lab.sit(CODEX, "x", ["Prompt 1."], {"say": "Said 1."}, context=scripted())
        engine.failures["assemble"] = [ValueError("not today")]
        async with lab.open("codex_exec", "x", {"say": "Said 2."}, {"say": "Said 3."}, context=scripted()) as session:
            for number in (2, 3):
                turn = session.say(f"Prompt {number}.")
                await turn
                assert turn.context is not None
                assert (turn.context.degraded is not None) is (number == 2)

    with recorded_journals() as journals:
        bounded(talk)
    assert first_requests(journals)[1] == [("user", "Prompt 2.")]
    assert "not today" in str(contexts(lab)[1].degraded)
    assert not lab.report("x").summary.is_sound
    lab.assert_verified("x")


@pytest.mark.requirement("context.errors")
def test_strict_policy_refuses_a_turn_that_the_engine_cannot_serve(lab: SessionLab, engine: Behaviour) -> None:
    engine.failures["assemble"] = [ValueError("not today")]

    async def talk() -> None:
        async with lab.open(CODEX, "x", {"say": "Said 1."}, context=scripted(policy="strict")) as session:
            ending = await session.say("Prompt 1.")
            assert (ending.outcome, ending.code) == (proctor.Outcome.REFUSED, "engine.failed")
            await say_all(session, ["Prompt 2."])

    with recorded_journals() as journals:
        bounded(talk)
    assert [len(journal.rows) > 0 for journal in journals] == [True]
    assert first_requests(journals) == [[("user", "Prompt 2.")]]
    lab.assert_verified("x")


@pytest.mark.requirement("context.selection")
@pytest.mark.parametrize(
    ("name", "code"),
    [("no-such-engine", "engine.unknown"), ("scripted", "runtime.not-allowed")],
)
def test_engine_that_is_unknown_or_not_in_the_config_is_refused_at_once(
    name: str, code: str, lab: SessionLab, engine: Behaviour, tmp_path: Path
) -> None:
    (tmp_path / "proctor.toml").unlink()

    async def talk() -> None:
        with pytest.raises(proctor.InputError) as refused:
            await lab.sit(CODEX, "x", ["Prompt 1."], {"say": "Said 1."}, context=proctor.Context(engine=name))
        assert refused.value.code == code

    bounded(talk)


@pytest.mark.requirement("context.errors")
def test_engine_that_hangs_at_the_end_delays_closing_only_a_bounded_time(
    lab: SessionLab, engine: Behaviour, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("proctor.context.lifecycle.MAINTENANCE_S", 0.2)
    engine.waits["maintain turn"] = anyio.sleep_forever

    async def talk() -> None:
        await lab.sit(CODEX, "x", ["Prompt 1."], {"say": "Said 1."}, context=scripted())

    bounded(talk)
    lab.assert_verified("x")
