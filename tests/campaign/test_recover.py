"""What follows an attempt: every code has been thought about, and the table agrees with what is told of each."""

import pytest

from proctor.errors import CODES, Bucket, bucket_of
from proctor.event.outcome import Outcome
from proctor.plan.recover import REMEDIES, Remedy, remedy, shared_by

# What is found before an attempt, after it, or by a command that runs none.
ELSEWHERE = {
    "attempt",
    "campaign",
    "config",
    "evidence",
    "probe",
    "publish",
    "session",
    "sign",
    "spec",
    "task",
    "usage",
    "workspace",
}
ELSEWHERE_TOO = {
    "engine.complete",
    "engine.hook",
    "engine.key-reused",
    "listener.stuck",
    "machine.health",
    "machine.ledger",
    "machine.locked",
    "machine.proofs",
    "machine.ssh-keygen",
    "policy.hidden-files",
    "policy.judge-visible",
    "policy.login-refused",
    "policy.not-operator",
    "policy.spending",
    "run.interrupted",
    "run.no-attempt",
    "runtime.ambiguous",
    "runtime.disabled",
    "runtime.locked",
    "runtime.no-default",
    "runtime.not-served",
    "runtime.not-allowed",
}


@pytest.mark.requirement("schedule.recovery")
def test_every_code_that_an_attempt_can_end_with_has_a_remedy() -> None:
    without = {code for code in CODES if code not in REMEDIES and code.partition(".")[0] not in ELSEWHERE}
    assert without == ELSEWHERE_TOO
    assert set(REMEDIES) <= set(CODES)


@pytest.mark.requirement("schedule.recovery")
def test_what_is_called_worth_another_try_gets_one_and_nothing_else_does() -> None:
    tried_again = {Remedy.AGAIN, Remedy.YIELD, Remedy.PARK, Remedy.REDO, Remedy.FRESH}
    assert {code for code, each in REMEDIES.items() if each in tried_again} == {
        code for code in REMEDIES if CODES[code].retryable
    }


@pytest.mark.requirement("schedule.recovery")
def test_credentials_stop_their_flow_and_quotas_either_stop_it_or_are_waited_for() -> None:
    def remedies(bucket: Bucket) -> set[Remedy]:
        return {each for code, each in REMEDIES.items() if bucket_of(code) is bucket}

    assert remedies(Bucket.AUTH) == {Remedy.STOP}
    assert remedies(Bucket.QUOTA) == {Remedy.YIELD, Remedy.PARK, Remedy.STOP}


@pytest.mark.parametrize(
    ("outcome", "code", "expected"),
    [
        (Outcome.COMPLETED, None, Remedy.NONE),
        (Outcome.FAILED, "agent.turn-failed", Remedy.NONE),
        (Outcome.TIMED_OUT, "limit.turn", Remedy.NONE),
        (Outcome.TIMED_OUT, "provider.unreachable", Remedy.AGAIN),
        (Outcome.STALLED, "limit.stall", Remedy.NONE),
        (Outcome.CRASHED, "peer.hangup", Remedy.NONE),
        (Outcome.CRASHED, "peer.lost", Remedy.AGAIN),
        (Outcome.CRASHED, "peer.killed", Remedy.AGAIN),
        (Outcome.REFUSED, "peer.overloaded", Remedy.YIELD),
        (Outcome.REFUSED, "peer.thread-lost", Remedy.FRESH),
        (Outcome.FAILED, "provider.usage-limit", Remedy.PARK),
        (Outcome.FAILED, "provider.unauthorized", Remedy.STOP),
        (Outcome.CANCELLED, "run.cancelled", Remedy.REDO),
        (Outcome.UNKNOWN, "run.cut-off", Remedy.REDO),
        (Outcome.UNKNOWN, None, Remedy.REDO),
        (Outcome.FAILED, "somebody.else", Remedy.NONE),
    ],
)
@pytest.mark.requirement("schedule.recovery")
def test_an_attempt_is_followed_by_what_its_end_calls_for(outcome: Outcome, code: str | None, expected: Remedy) -> None:
    assert remedy(outcome, code) is expected


@pytest.mark.trust
@pytest.mark.requirement("schedule.recovery")
@pytest.mark.parametrize("code", sorted(code for code in CODES if bucket_of(code) is Bucket.AGENT))
def test_failure_of_the_agent_is_a_result_unless_it_had_accepted_no_turn(code: str) -> None:
    assert remedy(Outcome.FAILED, code) is Remedy.NONE
    assert remedy(Outcome.REFUSED, code, has_begun=False) is Remedy.AGAIN
    assert bucket_of(code, has_begun=False) is Bucket.INFRA


def test_whatever_is_waited_for_is_known_by_whom_it_is_shared() -> None:
    waited = {code for code, each in REMEDIES.items() if each in (Remedy.YIELD, Remedy.PARK)}
    assert {code: shared_by(code) for code in waited} == {
        "provider.rate-limited": ("credential", "provider"),
        "provider.usage-limit": ("credential", "provider"),
        "provider.overloaded": ("provider",),
        "peer.overloaded": ("runtime",),
    }
