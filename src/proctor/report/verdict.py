"""The exit code of a run or a report, as a pure function of its trials, gates and findings.

| the attempt that counts for a trial                                             | exit           |
|---------------------------------------------------------------------------------|----------------|
| its evidence is invalid                                                         | evidence       |
| its evidence could not be kept                                                  | infrastructure |
| is running, was cut off, or has an unknown outcome                              | inconclusive   |
| meets the mission's `expect`                                                    | ok             |
| was cancelled                                                                   | inconclusive   |
| crashed, was refused, stalled or timed out, or failed for infrastructure reasons | infrastructure |
| does not meet the mission's `expect`                                            | not as expected |
| its probes could not judge it                                                   | inconclusive   |
| without `expect` and without probes: completed                                  | ok             |
| without `expect`: verified yes, no, unknown                                     | ok, not as expected, inconclusive |

Invalid evidence of an attempt that does not count is evidence too: which attempt counts depends on all of them. The
worst of them is the exit code: evidence, then infrastructure, not as expected, inconclusive, ok. A trial without a
result adds what its last attempt gives if that is evidence, infrastructure or ok; otherwise it is up to the coverage
gate, and without a plan it adds inconclusive, as does a report without trials. A gate that blocks exits like a result
that is not as expected, the coverage gate like an inconclusive one. A finding about evidence is evidence, or
inconclusive if it only says that something is not complete. An interrupted run is interrupted.
"""

from collections.abc import Collection, Iterable
from typing import Final

from proctor.errors import INCOMPLETE_EVIDENCE, Bucket, Exit, bucket_of
from proctor.event.outcome import Outcome
from proctor.evidence.reader import Finding
from proctor.report.campaign_state import CampaignState, TrialResult
from proctor.report.gates import Gate
from proctor.report.row import AttemptRow

_WORST_FIRST: Final = (Exit.EVIDENCE, Exit.INFRASTRUCTURE, Exit.JUDGED_NO, Exit.UNVERIFIED, Exit.OK)
_INFRASTRUCTURE: Final = {Outcome.CRASHED, Outcome.REFUSED, Outcome.STALLED, Outcome.TIMED_OUT}
_AGENT_BUCKETS: Final = (None, Bucket.AGENT, Bucket.GATE)

WORDS: Final = {
    Exit.OK: "ok",
    Exit.JUDGED_NO: "not as expected",
    Exit.INFRASTRUCTURE: "infrastructure failed",
    Exit.UNVERIFIED: "inconclusive",
    Exit.EVIDENCE: "evidence invalid",
    Exit.INTERRUPTED: "interrupted",
}


def exit_of(state: CampaignState, gates: Collection[Gate], *, is_interrupted: bool = False) -> Exit:
    """Return the exit code of a run or a report."""
    if is_interrupted:
        return Exit.INTERRUPTED
    has_coverage = any(gate.name == "coverage" for gate in gates)
    codes = {judge_trial(each, has_coverage=has_coverage) for each, _ in state.kinds} or {Exit.UNVERIFIED}
    codes |= {gate.exit for gate in gates} | {exit_of_finding(each) for each in state.findings}
    if state.is_checked and any(row.is_invalid for row in state.attempts):
        codes.add(Exit.EVIDENCE)
    return worst(codes)


def verdict_of(code: Exit, state: CampaignState, gates: Collection[Gate]) -> str:
    """Return an exit code of `exit_of` in words. A gate can block although every result is as expected."""
    is_gate = code is Exit.JUDGED_NO and any(gate.exit is code for gate in gates)
    if is_gate and all(judge_trial(each, has_coverage=True) is not code for each, _ in state.kinds):
        return "blocked by a gate"
    return WORDS[code]


def judge_trial(trial: TrialResult, *, has_coverage: bool) -> Exit:
    """Return what one trial contributes. `has_coverage`: a coverage gate judges trials without a result."""
    counted = trial.counted_attempt
    judged = Exit.UNVERIFIED if counted is None else judge_attempt(counted)
    is_open = trial.result is None and judged in (Exit.UNVERIFIED, Exit.JUDGED_NO)
    if not is_open:
        return judged
    return Exit.OK if has_coverage else Exit.UNVERIFIED


def judge_attempt(row: AttemptRow) -> Exit:
    """Return what one attempt contributes if it counts."""
    if row.is_invalid:
        return Exit.EVIDENCE
    if row.state == "abandoned":
        return Exit.INFRASTRUCTURE
    summary = row.summary
    if row.state != "sealed" or summary is None or summary.outcome is Outcome.UNKNOWN:
        return Exit.UNVERIFIED
    if summary.expectation.met:
        return Exit.OK
    if summary.outcome is Outcome.CANCELLED:
        return Exit.UNVERIFIED
    if _is_infrastructure(summary.outcome, row.bucket):
        return Exit.INFRASTRUCTURE
    if summary.expectation.met is False:
        return Exit.JUDGED_NO
    if summary.unjudged is not None:
        return Exit.UNVERIFIED
    if summary.expectation.is_undecided:
        return Exit.UNVERIFIED
    if not summary.has_probes and summary.outcome is Outcome.COMPLETED:
        return Exit.OK
    return {True: Exit.OK, False: Exit.JUDGED_NO, None: Exit.UNVERIFIED}[summary.verified]


def exit_of_turn(outcome: Outcome, code: str | None, *, is_interrupted: bool) -> Exit:
    """Return the exit code of one turn of a session. `is_interrupted`: the user interrupted it.

    >>> exit_of_turn(Outcome.FAILED, "agent.turn-failed", is_interrupted=False).name
    'JUDGED_NO'
    >>> exit_of_turn(Outcome.FAILED, "provider.usage-limit", is_interrupted=False).name
    'INFRASTRUCTURE'
    """
    if outcome is Outcome.COMPLETED:
        return Exit.OK
    if is_interrupted and outcome is Outcome.CANCELLED:
        return Exit.INTERRUPTED
    if outcome in (Outcome.CANCELLED, Outcome.UNKNOWN):
        return Exit.UNVERIFIED
    bucket = None if code is None else bucket_of(code)
    return Exit.INFRASTRUCTURE if _is_infrastructure(outcome, bucket) else Exit.JUDGED_NO


def _is_infrastructure(outcome: Outcome, bucket: Bucket | None) -> bool:
    return outcome in _INFRASTRUCTURE or bucket not in _AGENT_BUCKETS


def exit_of_finding(finding: Finding) -> Exit:
    """Return what a finding contributes that belongs to no single attempt."""
    is_invalid = finding.code.startswith("evidence.") and finding.code not in INCOMPLETE_EVIDENCE
    return Exit.EVIDENCE if is_invalid else Exit.UNVERIFIED


def worst(codes: Iterable[Exit]) -> Exit:
    """Return the worst of some exit codes."""
    found = set(codes)
    return next(code for code in _WORST_FIRST if code in found)
