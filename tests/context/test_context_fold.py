"""What the events of a sitting say of its context: for one turn, for the fact, and for the seal."""

from typing import Any

import pytest

from proctor.context.context_fold import LOST, ContextFactFold, ContextFold
from proctor.event import model
from proctor.fact import Authority
from proctor.ids import Digest, EntryId, TurnId
from tests.context.made import ATTEMPT, RUN, Events


def chosen(**change: Any) -> dict[str, Any]:
    return {
        "engine": "e",
        "version": "1",
        "policy": "degrade",
        "policy_sha256": Digest("sha256:0"),
        "mode": "per_turn",
        "thread": "resume",
        "reason": "same thread",
        "how": "items",
        "sha256": Digest("sha256:1"),
        "assembled": 2,
        "estimated_tokens": 9,
        "bytes_per_token": 3.0,
        "ratio_source": "assumed",
        **change,
    }


class Folding:
    """A sitting of the engine `e`, whose turns give one message."""

    def __init__(self) -> None:
        self.events = Events()
        self.fold = ContextFactFold(run_id=RUN, attempt_id=ATTEMPT)

    def feed(self, type_: type[Any], **fields: Any) -> Any:
        event = self.events(type_, **fields)
        self.fold.feed(event)
        return event

    def turn(self, commit: str | None, *, problem: str | None = None) -> None:
        asked = self.feed(model.TurnAsked, text="Hello.")
        self.feed(model.ContextAssembled, **chosen())
        if problem is not None:
            self.feed(model.ContextDegraded, code="engine.failed", detail=problem)
        self.feed(model.HistoryGiven, entries=(EntryId("r/a#1"),), how="items")
        self.feed(model.TurnBegan, turn=TurnId("t"))
        self.feed(model.TurnSettled)
        if commit is not None:
            self.feed(model.TurnCommitted, turn=EntryId(f"{RUN}/{ATTEMPT}#{asked.frame}"), status=commit)


@pytest.mark.requirement("context.observable")
def test_fact_has_the_last_turn_and_counts_of_all() -> None:
    folding = Folding()
    folding.turn("committed", problem="no")
    folding.turn("queued")
    # Of the sitting before, with the same number of the frame.
    folding.feed(model.TurnCommitted, turn=EntryId(f"earlier/{ATTEMPT}#1"), status="blocked")
    # After its turn, a problem of the next one.
    folding.feed(model.ContextDegraded, code="engine.hook", detail="later")
    fact = folding.fold.fact()
    assert fact is not None
    assert fact.authority is Authority.OBSERVED
    assert fact.refs == ("frames.jsonl:8",)
    assert fact.value == {
        "engine": "e",
        "version": "1",
        "commits": "exactly-once",
        "policy": "degrade",
        "mode": "per_turn",
        "thread": "resume",
        "reason": "same thread",
        "how": "items",
        "whyText": None,
        "sha256": "sha256:1",
        "additionSha256": None,
        "isAdditionGiven": False,
        "assembled": 2,
        "given": 1,
        "dropped": 0,
        "placeholders": 0,
        "estimatedTokens": 9,
        "bytesPerToken": 3.0,
        "ratioSource": "assumed",
        "commit": "queued",
        "commitDetail": None,
        "degraded": None,
        "turns": 2,
        "degradedTurns": 1,
        "turnCommits": {"queued": 1, "committed": 1},
    }


@pytest.mark.requirement("context.commit-once")
@pytest.mark.requirement("context.observable")
@pytest.mark.parametrize(
    ("commits", "sealed"),
    [
        ([], None),
        (["committed"], "committed"),
        (["committed", "none"], "committed"),
        (["queued", "committed"], "queued"),
        (["blocked", "queued"], "blocked"),
        (["none"], "none"),
        ([None], "none"),
    ],
)
def test_seal_says_of_commits_what_was_known(commits: list[str | None], sealed: str | None) -> None:
    folding = Folding()
    for commit in commits:
        folding.turn(commit)
    assert folding.fold.commit == sealed
    assert (folding.fold.fact() is None) is (sealed is None)


@pytest.mark.requirement("context.compaction")
@pytest.mark.parametrize(
    ("given", "said", "ok", "is_lost"),
    [
        ({"entries": (EntryId("r/a#1"),)}, False, True, True),
        ({"instructions_sha256": Digest("sha256:2")}, False, True, True),
        ({"instructions_sha256": Digest("sha256:2")}, False, None, True),
        ({}, False, True, False),
        ({"entries": (EntryId("r/a#1"),)}, True, True, False),
        ({"entries": (EntryId("r/a#1"),)}, False, False, False),
    ],
    ids=["items", "instructions", "an unknown end", "nothing", "the model has answered", "it failed"],
)
def test_context_is_lost_if_the_thread_is_shortened_before_the_model_sees_it(
    given: dict[str, Any], said: bool, ok: bool | None, is_lost: bool
) -> None:
    events, fold = Events(), ContextFold()
    fold.feed(events(model.TurnAsked, text="Hello."))
    fold.feed(events(model.ContextAssembled, **chosen()))
    fold.feed(events(model.HistoryGiven, how="items", **given))
    fold.feed(events(model.TurnBegan, turn=TurnId("t")))
    if said:
        fold.feed(events.said("Yes."))
    fold.feed(events(model.CompactionEnded, trigger="auto", ok=ok, keeps="nothing"))
    assert fold.context is not None
    assert fold.context.degraded == (LOST if is_lost else None)
