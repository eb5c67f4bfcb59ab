"""Cases in which the agent asks for approval or sends an unknown request."""

from typing import Any

from proctor.event.model import ApprovalResolved
from proctor.event.outcome import Outcome
from proctor.runtime.base import Decision, Question
from proctor.runtime.samples import STRANGER
from proctor.spec.choices import Approvals
from proctor.testing.conformance.case import NotApplicableError, must
from proctor.testing.conformance.subject import DONE, Subject
from proctor.testing.conformance.turns import WORDS, ended
from proctor.transport.fault import Inject, LineFault


async def approval_accepted(subject: Subject) -> None:
    must(await _is_done(subject, Decision.ACCEPT), "the accepted action did not happen")


async def approval_denied(subject: Subject) -> None:
    must(not await _is_done(subject, Decision.DENY), "the denied action happened all the same")


async def _is_done(subject: Subject, decision: Decision) -> bool:
    """Return whether the agent's command ran, by the file that it creates."""
    asked: list[Question] = []

    async def decide(question: Question) -> Decision:
        asked.append(question)
        return decision

    name = f"asks-{decision}"
    asks = {"run": {"command": "touch asked-for", "escalate": True}}
    ask: dict[str, Any] = {"approvals": Approvals.ASK, "decide": decide}
    async with subject.agent() as agent, agent.session(asks, {"say": WORDS}, name=name, **ask) as (session, tap):
        await session.turn("Go on.")
        await session.settle()
        must(len(asked) == 1, f"the `decide` callback was asked {len(asked)} times, not once")
        resolved = [each.by for each in tap.of(ApprovalResolved)]
        must(resolved == ["callback"], f"the record says that it was answered by {resolved}")
        must(ended(tap) == ["completed"], f"the turn ended as {ended(tap)}")
        return (agent.workspace(name) / "asked-for").exists()


async def unknown_request(subject: Subject) -> None:
    request = subject.samples.unknown_request
    if request is None:
        raise NotApplicableError("this agent sends no requests")
    plan = [LineFault(at=subject.samples.is_of_turn, how=Inject(lines=(request,)))]
    evidence = await subject.mission({"say": {"text": DONE, "chunk_chars": 9}}, plan=plan)
    evidence.must_end(Outcome.COMPLETED)
    must(evidence.has_on_record(STRANGER.encode()), "the request is not recorded")
    answers = sum(bytes(wire.sent).count(STRANGER.encode()) for wire in evidence.wires)
    must(answers == 1, f"an unknown request was answered {answers} times, not once")
