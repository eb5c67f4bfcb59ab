"""The decision about the native thread, row by row, and what the fold of a sitting notes of its thread."""

from typing import Any

import pytest
from msgspec.structs import replace

from proctor.context.binding import ContextNeeds, ThreadDecision, ThreadReason, decide_thread
from proctor.context.model import Binding
from proctor.context.project import ContextProjection, ProjectionMode
from proctor.context.thread_fold import SittingFold
from proctor.event import model
from proctor.event.outcome import Outcome
from proctor.ids import Digest, EntryId, ProcessId, RuntimeId, ThreadId, TurnId
from tests.context.made import Events, sitting

pytestmark = pytest.mark.requirement("context.binding")

CODEX = RuntimeId("codex_app_server")
POLICY, OTHER = Digest("sha256:1"), Digest("sha256:2")
BOUND = Binding(
    runtime_id=CODEX,
    thread=ThreadId("t"),
    tools="none",
    engine="e",
    policy_sha256=POLICY,
    mode="thread_bootstrap",
    epoch="a",
    last_turn=TurnId("n1"),
)
PER_TURN = ContextProjection()
IN_EPOCH = ContextProjection(mode=ProjectionMode.THREAD_BOOTSTRAP, epoch="a")


def needs(**change: Any) -> ContextNeeds:
    return ContextNeeds(
        **{"engine": "e", "policy_sha256": POLICY, "projection": PER_TURN, "owns_compaction": False, **change}
    )


EVERYTHING_CHANGED = replace(BOUND, engine="f", policy_sha256=OTHER, epoch="b")
OWNS = {"owns_compaction": True}

# What is bound, what else differs, what the engine wishes, how, and why.
ROWS: list[tuple[Binding | None, dict[str, Any], ContextNeeds | None, str, ThreadReason]] = [
    (None, {}, None, "start", ThreadReason.NONE),
    (None, {"is_gone": True}, needs(), "start", ThreadReason.NONE),
    # Without an engine, only what makes the thread unusable starts another one.
    (BOUND, {}, None, "resume", ThreadReason.SAME),
    (BOUND, {"runtime_id": RuntimeId("claude_code")}, None, "start", ThreadReason.RUNTIME),
    (BOUND, {"tools": "others"}, None, "start", ThreadReason.TOOLS),
    (BOUND, {"process": ProcessId("p")}, None, "start", ThreadReason.PROCESS),
    (replace(BOUND, process=ProcessId("p")), {}, None, "start", ThreadReason.PROCESS),
    (BOUND, {"is_gone": True}, None, "start", ThreadReason.MISSING),
    (replace(BOUND, is_unknown=True, is_compacted=True, is_compacting=True), {}, None, "resume", ThreadReason.SAME),
    (replace(BOUND, is_fork=True), {}, None, "fork", ThreadReason.FORK),
    # With one, in both modes.
    *(
        row
        for projection in (PER_TURN, IN_EPOCH)
        for row in (
            (BOUND, {}, needs(projection=projection), "resume", ThreadReason.SAME),
            (BOUND, {"tools": "others"}, needs(projection=projection), "start", ThreadReason.TOOLS),
            (BOUND, {"is_gone": True}, needs(projection=projection), "start", ThreadReason.MISSING),
            (replace(BOUND, is_fork=True), {}, needs(projection=projection), "fork", ThreadReason.FORK),
            (replace(BOUND, is_unknown=True), {}, needs(projection=projection), "start", ThreadReason.UNKNOWN),
            (replace(BOUND, is_compacting=True), {}, needs(projection=projection), "start", ThreadReason.UNKNOWN),
            (replace(BOUND, is_compacted=True), {}, needs(projection=projection), "resume", ThreadReason.SAME),
            (
                replace(BOUND, is_compacted=True),
                {},
                needs(projection=projection, **OWNS),
                "start",
                ThreadReason.COMPACTED,
            ),
            (BOUND, {}, needs(projection=projection, has_room=False), "resume", ThreadReason.SAME),
            (BOUND, {}, needs(projection=projection, has_room=False, **OWNS), "start", ThreadReason.FULL),
        )
    ),
    # `per_turn` never starts a thread because context changed.
    (EVERYTHING_CHANGED, {}, needs(), "resume", ThreadReason.SAME),
    # `thread_bootstrap` does.
    (replace(BOUND, epoch="b"), {}, needs(projection=IN_EPOCH), "start", ThreadReason.EPOCH),
    (replace(BOUND, epoch=None), {}, needs(projection=IN_EPOCH), "start", ThreadReason.EPOCH),
    (replace(BOUND, policy_sha256=OTHER), {}, needs(projection=IN_EPOCH), "start", ThreadReason.POLICY),
    (replace(BOUND, engine="f"), {}, needs(projection=IN_EPOCH), "start", ThreadReason.POLICY),
    (EVERYTHING_CHANGED, {}, needs(projection=IN_EPOCH), "start", ThreadReason.POLICY),
    # What is lost comes before what is replaced.
    (replace(EVERYTHING_CHANGED, is_unknown=True), {"tools": "x"}, needs(**OWNS), "start", ThreadReason.TOOLS),
]


@pytest.mark.parametrize("row", ROWS, ids=[f"{at} {row[4]}" for at, row in enumerate(ROWS)])
def test_decision_table(row: tuple[Binding | None, dict[str, Any], ContextNeeds | None, str, ThreadReason]) -> None:
    binding, change, wanted, how, reason = row
    asked = {"runtime_id": CODEX, "tools": "none", "process": None, **change}
    thread = None if how == "start" else ThreadId("t")
    assert decide_thread(binding, needs=wanted, **asked) == ThreadDecision(how=how, reason=reason, thread=thread)  # type: ignore[arg-type]


def test_decision_table_has_every_reason_but_that_of_a_retry() -> None:
    assert {row[4] for row in ROWS} == {*ThreadReason} - {ThreadReason.OVERFLOW}


# ── a compaction that was requested ──


class Asked:
    """A sitting whose thread holds one entry, and in which a shorter history was requested."""

    def __init__(self) -> None:
        self.events = Events()
        self.fold = SittingFold(sitting(1), before=BOUND)
        self.feed(model.TurnAsked, text=None)

    def feed(self, type_: type[Any], **fields: Any) -> None:
        self.fold.feed(self.events(type_, **fields))

    def end(self, outcome: Outcome) -> tuple[bool, bool]:
        """End the turn, and return whether nothing in the thread counts as held, and whether something was removed."""
        match outcome:
            case Outcome.REFUSED:
                self.feed(model.SessionRefused, code="peer.refused", detail="no")
            case Outcome.CANCELLED:
                self.feed(model.Cancelled, why="asked to stop")
            case _:
                self.feed(model.TurnEnded, turn=TurnId("c"), status="completed")
        self.feed(model.TurnSettled)
        binding = self.fold.binding
        assert binding is not None
        assert not binding.is_compacting
        return binding.is_unknown, bool(self.fold.changes)


@pytest.mark.requirement("context.compaction")
def test_case_20_nothing_is_held_from_before_the_request_until_its_end_is_known() -> None:
    asked = Asked()
    assert asked.fold.binding is not None
    assert asked.fold.binding.is_compacting
    asked.feed(model.CompactionBegan, trigger="manual")
    asked.feed(model.CompactionEnded, trigger="manual", ok=True, keeps="nothing")
    assert asked.end(Outcome.COMPLETED) == (False, True)
    assert asked.fold.binding.is_compacted


@pytest.mark.requirement("context.compaction")
@pytest.mark.parametrize("how", ["refused", "failed", "nothing to shorten"])
def test_case_20_refused_request_is_undone(how: str) -> None:
    asked = Asked()
    if how == "failed":
        asked.feed(model.CompactionBegan, trigger="manual")
        asked.feed(model.CompactionEnded, trigger="manual", ok=False, keeps="nothing")
    assert asked.end(Outcome.REFUSED if how == "refused" else Outcome.COMPLETED) == (False, False)
    assert asked.fold.binding == BOUND


@pytest.mark.requirement("context.compaction")
@pytest.mark.parametrize("has_begun", [False, True])
def test_case_20_request_that_was_cut_off_leaves_the_thread_unknown(has_begun: bool) -> None:
    asked = Asked()
    if has_begun:
        asked.feed(model.CompactionBegan, trigger="manual")
    assert asked.end(Outcome.CANCELLED) == (True, False)


@pytest.mark.requirement("context.compaction")
def test_case_20_request_before_which_proctor_was_killed_leaves_the_thread_unknown() -> None:
    asked = Asked()
    asked.fold.finish()
    assert asked.fold.binding is not None
    assert asked.fold.binding.is_unknown


# ── giving ──


def test_thread_is_unknown_if_the_agent_did_not_answer_what_it_was_given() -> None:
    events, fold = Events(), SittingFold(sitting(1), before=BOUND)
    fold.feed(events(model.TurnAsked, text="Hello."))
    fold.feed(events(model.HistoryOffered, entries=(EntryId("r/a#1"),), how="items", items=1))
    fold.finish()
    assert fold.binding is not None
    assert fold.binding.is_unknown
    assert fold.changes == ()


def test_quoted_messages_that_the_agent_refused_are_not_held() -> None:
    events, fold = Events(), SittingFold(sitting(1), before=BOUND)
    fold.feed(events(model.TurnAsked, text="Hello."))
    fold.feed(events(model.HistoryOffered, entries=(EntryId("r/a#1"),), how="text"))
    fold.feed(events(model.HistoryGiven, entries=(), how="text", problem="too long"))
    fold.feed(events(model.TurnBegan, turn=TurnId("n2")))
    assert fold.changes == ()
