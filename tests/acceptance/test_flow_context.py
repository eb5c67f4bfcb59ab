"""Flows with a context engine on the real agents: each attempt is a session of one turn that starts empty."""

import json
import os
import re
from pathlib import Path
from typing import Any, Final

import anyio
import pytest

from proctor import places
from proctor.campaign.run import CampaignResult
from proctor.campaign.stops import StopSignals
from proctor.context.engine import EngineInfo, EngineSetup
from proctor.context.guard import Deadlines
from proctor.event.message import Message, SummaryPart
from proctor.event.outcome import Outcome
from proctor.evidence.artifacts import AttemptRecord, ContextRef
from proctor.evidence.reader import read_artifact
from proctor.evidence.summary import AttemptSummary
from proctor.ids import EntryId
from proctor.model.journal import Journal
from proctor.runtime.delivery import instructions_sha256
from proctor.testing.journals import recorded_journals
from tests import scripted_engine
from tests.acceptance.sittings import CODEX, last_request, tool
from tests.acceptance.telling import kill_in_the_middle, sealed
from tests.lab import Lab, jsonl, mission, processes_with, runner_ref_of, say_done
from tests.scripted_engine import ID, Behaviour, offer_engine

pytestmark = [pytest.mark.real_agent]

HELLO: Final = mission("hello", {"run": "echo hi > out.txt"}, say_done("done"))
ADDITION: Final = "Answer in verse."
MEMORY: Final = "The lamp is in the cellar."


@pytest.fixture
def engine(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> Behaviour:
    lab.is_other_agent_allowed = True
    return offer_engine(lab.folder, monkeypatch)


def remember(engine: Behaviour) -> None:
    """Let the engine add instructions, and a message although the history is empty."""
    engine.addition = ADDITION
    part = SummaryPart(text=MEMORY, sources=())
    engine.messages = lambda _: (Message(id=EntryId("memory"), at_ms=0, part=part),)


def flow(runtime: str = CODEX, *, id_: str = "codex", **more: Any) -> dict[str, Any]:
    return {"id": id_, "runtime": [runtime], "context": {"engine": ID}, **more}


def roles_of(journal: Journal, text: str) -> list[str]:
    """Return the roles in which the first request shows a text, once for each time."""
    items = journal.rows[0].items
    return [item.role or "" for item in items for _ in range((item.text or "").count(text))]


def summaries(result: CampaignResult) -> list[AttemptSummary]:
    return [each.summary for each in result.attempts if each.summary is not None]


def errors_in(printed: str) -> list[dict[str, Any]]:
    """Return the errors that a command printed as JSON."""
    said = json.loads(printed)
    return said["findings"] if "findings" in said else [said["error"]]


def calls_of(engine: Behaviour) -> list[str]:
    """Return what the engine was called for by the attempt: it was closed once by the checks before the run."""
    return [call for call in engine.calls[1:] if call != "tools"]


def left_over(lab: Lab) -> list[Path]:
    """Return what is left of sessions, in the evidence and in the scratch of runs."""
    return [each for top in (lab.folder, places.cache_dir(), places.state_dir()) for each in top.rglob("session.*")]


@pytest.mark.requirement("context.selection")
@pytest.mark.requirement("context.given")
@pytest.mark.parametrize("isolation", ["shared", "process"])
@pytest.mark.parametrize(
    ("runtime", "role"),
    [
        (CODEX, "developer"),
        ("codex_exec", "developer"),
        pytest.param("claude_code", "system", marks=pytest.mark.agent("claude_code")),
    ],
)
def test_attempt_of_a_flow_with_an_engine_is_given_what_the_engine_assembled(
    runtime: str, role: str, isolation: str, lab: Lab, engine: Behaviour
) -> None:
    remember(engine)
    with recorded_journals() as journals:
        result = lab.run(lab.write_spec([HELLO], flows=[flow(runtime, isolation=isolation)]))
    [summary] = summaries(result)
    assert (summary.outcome, summary.claimed, summary.tool_calls) == (Outcome.COMPLETED, True, 1)
    [journal] = journals
    assert roles_of(journal, ADDITION) == [role]
    assert len(roles_of(journal, MEMORY)) == len(roles_of(journal, "Do it.")) == 1
    # The session is empty, so that there is nothing to learn before the first turn.
    assert calls_of(engine) == ["assemble", "commit_turn", "maintain turn", "forget delete", "close"]
    [paths] = lab.attempts().values()
    record = read_artifact(paths.attempt, AttemptRecord)
    assert (record.sitting, record.context) == (None, ContextRef(engine=ID, owns_compaction=False))
    sources = [line.get("source") for line in jsonl(paths.transcript) if line["kind"] == "note"]
    assert sources.count("context") == 2
    assert left_over(lab) == []
    lab.assert_all_evidence_is_valid()


@pytest.mark.requirement("context.engines")
@pytest.mark.parametrize("isolation", ["shared", "process"])
def test_flows_that_differ_in_their_engine_are_compared_in_one_campaign(
    isolation: str, lab: Lab, engine: Behaviour
) -> None:
    remember(engine)
    flows = [
        {"id": "plain", "runtime": [CODEX], "isolation": isolation},
        {"id": "none", "runtime": [CODEX], "isolation": isolation, "context": {"engine": "none"}},
        {"id": "lossless", "runtime": [CODEX], "isolation": isolation, "context": {"engine": "lossless"}},
        flow(id_="scripted", isolation=isolation),
    ]
    with recorded_journals() as journals:
        result = lab.run(lab.write_spec([HELLO], flows=flows, schedule={"parallel": 4}))
    assert [each.outcome for each in summaries(result)] == [Outcome.COMPLETED] * 4
    shown = {str(journal.key).split(".")[1]: roles_of(journal, MEMORY) for journal in journals}
    assert shown == {"plain": [], "none": [], "lossless": [], "scripted": ["user"]}
    contexts = {name.split(".")[1]: runner_ref_of(paths).facts.get("context") for name, paths in lab.attempts().items()}
    assert {id_: fact and (fact.value["engine"], fact.value["commit"]) for id_, fact in contexts.items()} == {
        "plain": None,
        "none": ("none", "committed"),
        "lossless": ("lossless", "committed"),
        "scripted": (ID, "committed"),
    }
    assert left_over(lab) == []
    lab.assert_all_evidence_is_valid()


@pytest.mark.requirement("context.engines")
def test_engine_of_a_flow_offers_the_agent_its_tools(lab: Lab, engine: Behaviour) -> None:
    engine.tools = (tool("recall", answer=MEMORY),)
    steps = ({"call": {"tool": "recall", "arguments": {"a": 1, "b": 2}}}, say_done())
    with recorded_journals() as journals:
        result = lab.run(lab.write_spec([mission("ask", *steps)], flows=[flow()]))
    assert ("result", MEMORY) in last_request(journals[0])
    assert engine.contexts[0].tools == {"recall"}
    assert [each.tool_calls for each in summaries(result)] == [1]


@pytest.mark.requirement("context.selection")
def test_context_of_the_config_has_no_effect_on_flows(lab: Lab, engine: Behaviour) -> None:
    remember(engine)
    (lab.folder / "proctor.toml").write_text(f'plugins = ["{ID}"]\n[context]\nengine = "{ID}"\n')
    with recorded_journals() as journals:
        lab.run(lab.write_spec([HELLO]))
    assert roles_of(journals[0], MEMORY) == roles_of(journals[0], ADDITION) == []
    assert engine.calls == []
    [paths] = lab.attempts().values()
    assert read_artifact(paths.attempt, AttemptRecord).context is None


@pytest.mark.requirement("context.given")
def test_command_is_given_what_the_engine_assembled_as_text(lab: Lab, engine: Behaviour) -> None:
    remember(engine)
    engine.addition = None
    command: dict[str, Any] = {"options": {"process": {"command": "cat >prompt.txt"}}, "isolation": "process"}
    [summary] = summaries(lab.run(lab.write_spec([HELLO], flows=[flow("process", **command)])))
    assert summary.outcome is Outcome.COMPLETED
    [paths] = lab.attempts().values()
    diff = paths.workspace_diff.read_text()
    assert (diff.count(f"> {MEMORY}"), diff.count("Do it.")) == (1, 1)
    assert runner_ref_of(paths).facts["context"].value["how"] == "text"
    lab.assert_all_evidence_is_valid()


# ── engines that fail ──


@pytest.mark.requirement("context.errors")
@pytest.mark.requirement("context.observable")
def test_attempt_without_its_engine_is_marked_wherever_it_is_shown(lab: Lab, engine: Behaviour) -> None:
    remember(engine)
    engine.failures["assemble"] = [ValueError("not today")]
    spec = lab.write_spec([HELLO], flows=[flow()], repeats=2, schedule={"parallel": 1})
    with recorded_journals() as journals:
        done = lab.proctor("run", str(spec))
    assert [roles_of(journal, MEMORY) for journal in journals] == [[], ["user"]]
    first, second = "hello.codex.r1.1", "hello.codex.r2.1"
    assert "completed, degraded" in done.stdout
    assert "Degraded (context engine): 1 of 2 results." in " ".join(done.stdout.split())
    listed = lab.proctor("attempt", "list")
    assert [line.count("degraded") for line in listed.stdout.splitlines() if "hello." in line] == [1, 0]
    attempts = json.loads(lab.proctor("attempt", "list", "--json").stdout)["attempts"]
    reasons = {each["attemptId"]: each["summary"]["degraded"] for each in attempts}
    assert "not today" in reasons[first]
    assert reasons[second] is None
    explained = lab.proctor("attempt", "explain", first).stdout
    assert re.search(r"degraded: .*not today", explained)
    explained = " ".join(lab.proctor("attempt", "explain", second).stdout.split())
    assert f"instructions given ({instructions_sha256(ADDITION)}); 1 message assembled" in explained
    report = json.loads(lab.proctor("campaign", "report", "--json").stdout)
    assert [each["score"]["degraded"] for each in report["flows"]] == [1]
    # It counts like any other result.
    assert (report["score"]["results"], report["score"]["buckets"]) == (2, {})
    lab.assert_all_evidence_is_valid()


@pytest.mark.requirement("context.errors")
def test_strict_engine_that_fails_refuses_the_attempt_and_counts_for_nobody(lab: Lab, engine: Behaviour) -> None:
    engine.failures["assemble"] = [ValueError("not today")]
    context = {"engine": ID, "policy": "strict"}
    expect = {"outcome": "completed"}
    spec = lab.write_spec([{**HELLO, "expect": expect}], flows=[flow(context=context)])
    with recorded_journals() as journals:
        result = lab.run(spec)
    [summary] = summaries(result)
    assert (summary.outcome, summary.code, summary.result) == (Outcome.REFUSED, "engine.failed", "infra")
    assert "not today" in str(summary.detail)
    assert [row for journal in journals for row in journal.rows] == []
    assert engine.commits == {}
    assert left_over(lab) == []
    lab.assert_all_evidence_is_valid()


@pytest.mark.requirement("context.errors")
@pytest.mark.parametrize("policy", ["degrade", "strict"])
def test_engine_that_cannot_be_created_any_more_refuses_the_attempt(
    policy: str, lab: Lab, engine: Behaviour, monkeypatch: pytest.MonkeyPatch
) -> None:
    created: list[EngineSetup] = []

    def create(setup: EngineSetup) -> scripted_engine.ScriptedEngine:
        created.append(setup)
        if len(created) > 1:  # the first one is created by the checks before the run
            raise ValueError("not today")
        return scripted_engine.ScriptedEngine(setup)

    monkeypatch.setattr(scripted_engine, "create", create)
    [summary] = summaries(lab.run(lab.write_spec([HELLO], flows=[flow(context={"engine": ID, "policy": policy})])))
    assert (summary.outcome, summary.code, summary.result) == (Outcome.REFUSED, "engine.failed", "infra")
    assert left_over(lab) == []
    lab.assert_all_evidence_is_valid()


@pytest.mark.requirement("context.errors")
def test_engine_that_hangs_while_it_commits_leaves_the_outcome_of_the_attempt(
    lab: Lab, engine: Behaviour, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Deadlines, "of", lambda _, method: 0.1 if method == "commit_turn" else 30.0)
    engine.waits["commit_turn"] = anyio.sleep_forever
    [summary] = summaries(lab.run(lab.write_spec([HELLO], flows=[flow()])))
    assert (summary.outcome, summary.claimed, summary.degraded) == (Outcome.COMPLETED, True, None)
    [paths] = lab.attempts().values()
    assert runner_ref_of(paths).facts["context"].value["commit"] == "queued"
    lab.assert_all_evidence_is_valid()


@pytest.mark.requirement("context.errors")
def test_engine_that_fails_when_it_is_closed_leaves_the_campaign(lab: Lab, engine: Behaviour) -> None:
    async def fail() -> None:
        # Not when it is closed by the checks before the run.
        if "assemble" in engine.calls:
            raise ValueError("not today")

    engine.waits["close"] = engine.waits["forget delete"] = fail
    result = lab.run(lab.write_spec([HELLO], flows=[flow()], repeats=2))
    assert [each.outcome for each in summaries(result)] == [Outcome.COMPLETED] * 2
    assert result.how == "done"
    assert left_over(lab) == []
    lab.assert_all_evidence_is_valid()


@pytest.mark.requirement("context.selection")
@pytest.mark.requirement("surface.cli")
@pytest.mark.parametrize(
    ("context", "code", "key"),
    [
        ({"engine": "no-such-engine"}, "engine.unknown", "context.engine"),
        ({"engine": ID, "unnamed": True}, "runtime.not-allowed", "context.engine"),
        ({"engine": ID, "broken": True}, "runtime.broken", "context.engine"),
        ({"engine": "window", "options": {"turns": 3}}, "engine.options", "context.options.turns"),
        ({"engine": "window", "complete": "agent"}, "spec.unsupported", "context.complete"),
        ({"engine": "window", "policy": "lenient"}, "spec.type", "context.policy"),
        ({"engine": ID, "policy": "strict", "requires": "takes_history"}, "runtime.capability", "context.policy"),
        ({"engine": ID, "policy": "strict", "requires": "telepathy"}, "runtime.capability", "context.policy"),
    ],
)
def test_wrong_context_is_an_error_of_the_spec_before_anything_runs(
    context: dict[str, Any], code: str, key: str, lab: Lab, engine: Behaviour, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = {name: value for name, value in context.items() if name not in ("unnamed", "broken", "requires")}
    if "unnamed" in context:
        (lab.folder / "proctor.toml").unlink()
    if "broken" in context:
        monkeypatch.setattr(scripted_engine, "create", lambda setup: object())
    if "requires" in context:
        info = EngineInfo(id=ID, name="Scripted", version="1", requires=(context["requires"],))
        monkeypatch.setattr(
            scripted_engine.ScriptedEngine, "info", property(lambda _: info, lambda *_: None), raising=False
        )
    spec = lab.write_spec([HELLO], flows=[flow("codex_exec", context=settings)])
    for words in (("run", str(spec), "--json"), ("campaign", "lint", str(spec), "--json")):
        done = lab.proctor(*words)
        assert done.returncode == 2, done.stdout + done.stderr
        [error] = errors_in(done.stdout or done.stderr)
        assert (error["code"], error["key"]) == (code, f"flows[0].{key}")
        assert error["line"] > 1
    assert lab.attempts() == {}


# ── attempts that are ended ──


@pytest.mark.requirement("attempt.clocks")
@pytest.mark.requirement("context.commit-once")
def test_turn_that_outlives_its_limit_is_not_committed(lab: Lab, engine: Behaviour) -> None:
    nap = f"312.{os.getpid()}"
    spec = lab.write_spec([mission("nap", {"run": f"sleep {nap}"}, say_done())], flows=[flow()], limits={"turn": "2s"})
    [summary] = summaries(lab.run(spec))
    assert (summary.outcome, summary.code) == (Outcome.TIMED_OUT, "limit.turn")
    assert processes_with(nap) == []
    assert calls_of(engine) == ["assemble", "forget delete", "close"]
    [paths] = lab.attempts().values()
    assert runner_ref_of(paths).facts["context"].value["commit"] == "none"
    lab.assert_all_evidence_is_valid()


def test_stop_ends_an_engine_that_hangs(lab: Lab, engine: Behaviour) -> None:
    stops = StopSignals()

    async def hang() -> None:
        stops.stop_all()
        await anyio.sleep_forever()

    engine.waits["assemble"] = hang
    with recorded_journals() as journals:
        [summary] = summaries(lab.run(lab.write_spec([HELLO], flows=[flow()]), stops=stops))
    assert (summary.outcome, summary.code) == (Outcome.CANCELLED, "run.cancelled")
    assert [row for journal in journals for row in journal.rows] == []
    assert left_over(lab) == []
    lab.assert_all_evidence_is_valid()


@pytest.mark.requirement("context.compaction")
@pytest.mark.parametrize("is_owner", [True, False])
def test_compaction_by_the_agent_says_whether_the_engine_owns_it(is_owner: bool, lab: Lab, engine: Behaviour) -> None:
    engine.owns_compaction = is_owner
    full = {"usage": {"input": 190_000, "output": 5}}
    lab.run(lab.write_spec([mission("long", {"run": "echo hi", **full}, say_done())], flows=[flow()]))
    [paths] = lab.attempts().values()
    rows = [line["facts"] for line in jsonl(paths.transcript) if line["kind"] == "compaction"]
    assert [(row["phase"], row["ownsCompaction"]) for row in rows] == [("began", is_owner), ("ended", is_owner)]
    lab.assert_all_evidence_is_valid()


# ── kill -9 ──


@pytest.mark.requirement("campaign.resume")
def test_killed_attempt_of_a_flow_with_an_engine_is_resumed_afresh(lab: Lab, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    slow = mission("slow", {"run": f"until [ -e {gate} ]; do sleep 0.05; done"}, say_done())
    context = {"engine": "lossless", "policy": "strict"}
    spec = lab.write_spec([slow], flows=[flow(context=context)])
    kill_in_the_middle(lab, "run", str(spec), when=lambda: processes_with(str(gate)) != [])
    assert sealed(lab) == set()
    assert left_over(lab) != []
    gate.touch()
    resumed = lab.proctor("campaign", "resume", "--json")
    assert resumed.returncode == 0, resumed.stdout + resumed.stderr
    assert sealed(lab) == {"slow.codex.r1.2"}
    context_of_it = runner_ref_of(lab.attempts()["slow.codex.r1.2"]).facts["context"].value
    assert (context_of_it["thread"], context_of_it["commit"]) == ("start", "committed")
    assert left_over(lab) == []
    assert lab.proctor("attempt", "rederive", "slow.codex.r1.2").returncode == 0
