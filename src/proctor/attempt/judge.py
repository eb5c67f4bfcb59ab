"""Whether an attempt came out as its spec expects. Pure."""

from proctor.event.claim import Claim
from proctor.event.outcome import Outcome
from proctor.evidence.artifacts import Expectation
from proctor.spec.expect import ExpectSpec, Verified


def judge(expect: ExpectSpec, *, outcome: Outcome, verified: Verified, claim: Claim) -> Expectation:
    """Each thing the spec states is compared; where it states nothing there is nothing to meet.

    >>> judge(ExpectSpec(verified=Verified.NO), outcome=Outcome.COMPLETED, verified=Verified.NO, claim=Claim())
    Expectation(met=True, misses=())
    >>> judge(ExpectSpec(answer="4"), outcome=Outcome.COMPLETED, verified=Verified.NO, claim=Claim(answer="5")).misses
    ("answer: expected '4', got '5'",)
    """
    pairs = [
        ("verified", expect.verified, verified),
        ("outcome", expect.outcome, outcome),
        ("answer", expect.answer, claim.answer),
    ]
    stated = [(name, wanted, got) for name, wanted, got in pairs if wanted is not None]
    misses = tuple(
        f"{name}: expected {_word(wanted)}, got {_word(got)}" for name, wanted, got in stated if wanted != got
    )
    return Expectation(met=not misses if stated else None, misses=misses)


def _word(value: str | None) -> str:
    if value is None:
        return "nothing"
    return value.value if isinstance(value, Outcome | Verified) else repr(value)
