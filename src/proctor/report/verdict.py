"""The exit code of a run or a report, as a pure function of its attempts.

| an attempt                                                                    | says           |
|-------------------------------------------------------------------------------|----------------|
| whose evidence is invalid                                                     | evidence       |
| that could not keep its evidence                                              | infrastructure |
| still running, cut off, or with nothing to tell                               | unverified     |
| that meets what its spec expects, whatever that is                            | ok             |
| that was cancelled: it says nothing of the agent                              | unverified     |
| that crashed, was refused, stalled or timed out, or failed by no fault of its | infrastructure |
| that misses what its spec expects                                             | judged no      |
| of which nothing is expected: verified yes, no, unknown                       | ok, judged no, unverified |

Of the attempts of a trial one speaks: its result, by the fold that resume goes by, else the last. The worst of these is
the whole's: evidence, then infrastructure, judged no, unverified, ok. A trial that was never tried makes it unverified,
and so does a report of nothing; a gate that blocks is a judgement. An interrupted run is interrupted, whatever else it
is.
"""

from collections.abc import Collection, Iterable

from proctor.errors import Bucket, Exit
from proctor.event.outcome import Outcome
from proctor.report.gates import Gate
from proctor.report.row import AttemptRow
from proctor.report.trials import speakers

_WORST_FIRST = (Exit.EVIDENCE, Exit.INFRASTRUCTURE, Exit.JUDGED_NO, Exit.UNVERIFIED, Exit.OK)
_INFRASTRUCTURE = {Outcome.CRASHED, Outcome.REFUSED, Outcome.STALLED, Outcome.TIMED_OUT}
_OF_THE_AGENT = (None, Bucket.AGENT, Bucket.GATE)

WORDS = {
    Exit.OK: "ok",
    Exit.JUDGED_NO: "judged no",
    Exit.INFRASTRUCTURE: "infrastructure failed",
    Exit.UNVERIFIED: "unverified",
    Exit.EVIDENCE: "evidence invalid",
    Exit.INTERRUPTED: "interrupted",
}


def judge(row: AttemptRow) -> Exit:
    """What one attempt says."""
    if row.evidence == "invalid" or row.state == "unreadable":
        return Exit.EVIDENCE
    if row.state == "abandoned":
        return Exit.INFRASTRUCTURE
    if row.state != "sealed" or row.outcome is None:
        return Exit.UNVERIFIED
    return judge_result(row.outcome, bucket=row.bucket, verified=row.verified, met=row.is_expected)


def judge_result(outcome: Outcome, *, bucket: Bucket | None, verified: bool | None, met: bool | None) -> Exit:
    """What one sealed attempt says."""
    if outcome is Outcome.UNKNOWN:
        return Exit.UNVERIFIED
    if met:
        return Exit.OK
    if outcome is Outcome.CANCELLED:
        return Exit.UNVERIFIED
    if outcome in _INFRASTRUCTURE or bucket not in _OF_THE_AGENT:
        return Exit.INFRASTRUCTURE
    if met is False:
        return Exit.JUDGED_NO
    return {True: Exit.OK, False: Exit.JUDGED_NO, None: Exit.UNVERIFIED}[verified]


def worst(said: Collection[Exit]) -> Exit:
    """Of what each says, what all come to."""
    return next(code for code in _WORST_FIRST if code in said)


def judge_all(
    rows: Iterable[AttemptRow],
    *,
    missing: int = 0,
    gates: Iterable[Gate] = (),
    is_interrupted: bool = False,
    is_damaged: bool = False,
) -> Exit:
    """What they come to. `missing` trials were never tried; `is_damaged` is about what belongs to no single attempt."""
    if is_interrupted:
        return Exit.INTERRUPTED
    said = {judge(row) for row in speakers(rows)}
    if is_damaged:
        said.add(Exit.EVIDENCE)
    if missing or not said:
        said.add(Exit.UNVERIFIED)
    return worst(said | {gate.exit for gate in gates})
