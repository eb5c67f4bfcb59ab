"""Flows with a context engine on the real agents: each attempt is a session of one turn that starts empty."""

from pathlib import Path
from typing import Any, Final

import pytest

from proctor import places
from proctor.campaign.run import CampaignResult
from proctor.event.message import Message, SummaryPart
from proctor.event.outcome import Outcome
from proctor.evidence.artifacts import AttemptRecord, ContextRef
from proctor.evidence.reader import read_artifact
from proctor.evidence.summary import AttemptSummary
from proctor.ids import EntryId
from proctor.model.journal import Journal
from proctor.testing.journals import recorded_journals
from tests.acceptance.sittings import CODEX
from tests.lab import Lab, jsonl, mission, say_done
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
    assert engine.calls[1:] == ["assemble", "commit_turn", "maintain turn", "forget delete", "close"]
    [paths] = lab.attempts().values()
    record = read_artifact(paths.attempt, AttemptRecord)
    assert (record.sitting, record.context) == (None, ContextRef(engine=ID, owns_compaction=False))
    sources = [line.get("source") for line in jsonl(paths.transcript) if line["kind"] == "note"]
    assert sources.count("context") == 2
    assert left_over(lab) == []
    lab.assert_all_evidence_is_valid()
