"""Cases in which the agent asks: it is answered, and what was denied does not happen."""

from typing import Any

from proctor.event.model import ApprovalResolved
from proctor.event.outcome import Outcome
from proctor.runtime.base import Decision, Question
from proctor.runtime.samples import STRANGER
from proctor.spec.model import Approvals
from proctor.testing.conformance.case import NotApplicableError, must
from proctor.testing.conformance.subject import DONE, Subject
from proctor.testing.conformance.turns import WORDS, ended
from proctor.transport.fault import Break, Inject


async def approval_accepted(subject: Subject) -> None:
    must(await _is_done(subject, Decision.ACCEPT), "what was accepted did not happen")


async def approval_denied(subject: Subject) -> None:
    must(not await _is_done(subject, Decision.DENY), "what was denied happened all the same")


async def _is_done(subject: Subject, decision: Decision) -> bool:
    """Whether the file is there that the agent asked to make."""
    asked: list[Question] = []

    async def decide(question: Question) -> Decision:
        asked.append(question)
        return decision

    name = f"asks-{decision}"
    asks = {"run": {"command": "touch asked-for", "escalate": True}}
    ask: dict[str, Any] = {"approvals": Approvals.ASK, "decide": decide}
    async with subject.trial() as trial, trial.session(asks, {"say": WORDS}, name=name, **ask) as (session, tap):
        await session.turn("Go on.")
        await session.settle()
        must(len(asked) == 1, f"whoever decides was asked {len(asked)} times, not once")
        resolved = [each.by for each in tap.of(ApprovalResolved)]
        must(resolved == ["callback"], f"on record it was answered by {resolved}")
        must(ended(tap) == ["completed"], f"the turn ended as {ended(tap)}")
        return (trial.workspace(name) / "asked-for").exists()


async def unknown_request(subject: Subject) -> None:
    request = subject.samples.unknown_request
    if request is None:
        raise NotApplicableError("this agent never asks")
    plan = [Break(at=subject.samples.is_of_turn, how=Inject(lines=(request,)))]
    kept = await subject.mission({"say": {"text": DONE, "chunk_chars": 9}}, plan=plan)
    kept.must_end(Outcome.COMPLETED)
    must(kept.has_on_record(STRANGER.encode()), "the request is not on record")
    answers = sum(bytes(wire.sent).count(STRANGER.encode()) for wire in kept.wires)
    must(answers == 1, f"a request that nobody knows was answered {answers} times, not once")
