"""The table of what a campaign does after an attempt, by the attempt's error code. Pure."""

from collections.abc import Mapping
from enum import StrEnum

from proctor.errors import Bucket, bucket_of
from proctor.event.outcome import Outcome

CUT_OFF = "run.cut-off"
"""The code of an attempt whose Proctor process was killed."""

THREAD_LOST = "peer.thread-lost"
"""The code of an attempt that was to continue a thread which the agent does not have any more."""


class Remedy(StrEnum):
    """What a campaign does after an attempt. A retry is always a new attempt of the trial."""

    NONE = "none"
    """Nothing: the attempt is the trial's result."""

    AGAIN = "again"
    """Retry after a pause that doubles each time. It uses up a retry."""

    YIELD = "yield"
    """Retry after a pause, with fewer attempts at once. It uses up no retry."""

    PARK = "park"
    """Wait until the quota resets, together with everything that shares it, then retry. It uses up no retry."""

    REDO = "redo"
    """Retry as if the attempt, which was cut off from outside, had not happened. It uses up no retry."""

    FRESH = "fresh"
    """Retry at once, from a fresh start: the attempt could not continue another one, and asked nothing of the agent. It
    uses up no retry."""

    STOP = "stop"
    """Start no more trials of the flow, because they would fail in the same way. A resume can continue them."""


LATER = (Remedy.AGAIN, Remedy.YIELD, Remedy.PARK, Remedy.FRESH)
"""The remedies that retry in the same run, all but FRESH after a pause."""

REMEDIES: Mapping[str, Remedy] = {
    # ── startup, compatibility, environment: these affect all trials of the flow ──
    "machine.binary-missing": Remedy.STOP,
    "machine.binary-too-old": Remedy.STOP,
    "machine.binary-incompatible": Remedy.STOP,
    "machine.binary-changed": Remedy.STOP,
    "machine.extra-missing": Remedy.STOP,
    "machine.no-containment": Remedy.STOP,
    "machine.unwritable": Remedy.STOP,
    "runtime.broken": Remedy.STOP,
    "runtime.capability": Remedy.STOP,
    "runtime.none": Remedy.STOP,
    "runtime.unproven": Remedy.STOP,
    "policy.blocked-variable": Remedy.STOP,
    "policy.login": Remedy.STOP,
    "policy.no-approver": Remedy.STOP,
    "policy.reserved-variable": Remedy.STOP,
    "policy.shared-full-access": Remedy.STOP,
    "policy.tmpdir-above-home": Remedy.STOP,
    "spec.prompt-argument": Remedy.NONE,
    "policy.variable-unset": Remedy.STOP,
    # Every later trial would start from the changed files.
    "workspace.base-changed": Remedy.STOP,
    "runtime.degraded": Remedy.AGAIN,
    "machine.spawn-failed": Remedy.AGAIN,
    "machine.port": Remedy.AGAIN,
    "machine.disk-full": Remedy.AGAIN,
    "machine.exhausted": Remedy.AGAIN,
    "machine.git": Remedy.NONE,
    "machine.no-fences": Remedy.NONE,
    # ── the flow's context engine ──
    "engine.timeout": Remedy.AGAIN,
    "engine.quarantined": Remedy.AGAIN,
    "engine.failed": Remedy.NONE,
    "engine.bad-result": Remedy.NONE,
    "engine.no-place": Remedy.STOP,
    "engine.unknown": Remedy.STOP,
    "engine.options": Remedy.STOP,
    "engine.damaged": Remedy.NONE,
    "engine.newer": Remedy.NONE,
    # ── the agent's process and channel; a dead process is replaced before the retry ──
    "peer.killed": Remedy.AGAIN,
    "peer.lost": Remedy.AGAIN,
    "peer.not-listening": Remedy.AGAIN,
    "peer.overloaded": Remedy.YIELD,
    "peer.login": Remedy.STOP,
    # The same program would behave in the same way again.
    "peer.wire": Remedy.NONE,
    "peer.refused": Remedy.NONE,
    # ── the model's provider; most agents retry by themselves before they report these ──
    "provider.unreachable": Remedy.AGAIN,
    "provider.error": Remedy.AGAIN,
    "provider.unavailable": Remedy.AGAIN,
    "provider.stream-cut": Remedy.AGAIN,
    "provider.stream-silent": Remedy.AGAIN,
    "provider.stream-garbled": Remedy.AGAIN,
    "provider.reply-failed": Remedy.AGAIN,
    "provider.rate-limited": Remedy.YIELD,
    "provider.overloaded": Remedy.YIELD,
    "provider.usage-limit": Remedy.PARK,
    "provider.key-missing": Remedy.STOP,
    "provider.unauthorized": Remedy.STOP,
    "provider.forbidden": Remedy.STOP,
    "provider.not-found": Remedy.STOP,
    "provider.quota": Remedy.STOP,
    "provider.plan": Remedy.STOP,
    "provider.bad-request": Remedy.NONE,
    "script.unfit": Remedy.NONE,
    # ── the agent's own work: a result, because to retry it would improve its rate ──
    "provider.prompt-refused": Remedy.NONE,
    "provider.policy": Remedy.NONE,
    "provider.context-full": Remedy.NONE,
    "agent.turn-failed": Remedy.NONE,
    "agent.exit-status": Remedy.NONE,
    "agent.result-missing": Remedy.NONE,
    "agent.result-invalid": Remedy.NONE,
    "agent.budget": Remedy.NONE,
    "agent.denials": Remedy.NONE,
    "agent.sandbox": Remedy.NONE,
    "agent.interrupted": Remedy.NONE,
    "agent.workspace": Remedy.NONE,
    "agent.disk": Remedy.NONE,
    "agent.killed": Remedy.NONE,
    "peer.hangup": Remedy.NONE,
    "peer.deadline": Remedy.NONE,
    "limit.turn": Remedy.NONE,
    "limit.attempt": Remedy.NONE,
    "limit.mission": Remedy.NONE,
    "limit.tokens": Remedy.NONE,
    "limit.evidence": Remedy.NONE,
    "limit.stall": Remedy.NONE,
    # ── the run ──
    # The hook may succeed when it is tried again.
    "hook.failed": Remedy.AGAIN,
    # The campaign's limit is not a result of the trial.
    "limit.campaign": Remedy.REDO,
    "run.cancelled": Remedy.REDO,
    "run.operator-cancel": Remedy.REDO,
    CUT_OFF: Remedy.REDO,
    THREAD_LOST: Remedy.FRESH,
    "run.harness": Remedy.NONE,
    # The same listener follows every attempt.
    "listener.failed": Remedy.STOP,
    # Redaction does not work, so nothing more may be recorded.
    "run.redaction": Remedy.STOP,
}
"""The remedy for each error code that an attempt can end with; NONE for any other code."""

_SHARED: Mapping[str, tuple[str, ...]] = {
    "provider.overloaded": ("provider",),
    "peer.overloaded": ("runtime",),
}


def remedy(outcome: Outcome, code: str | None, *, has_begun: bool = True) -> Remedy:
    """Return what the campaign does after an attempt with this outcome and code.

    If the agent had accepted no turn (`has_begun`), no code says anything about its work, and the attempt is retried.

    >>> remedy(Outcome.COMPLETED, None), remedy(Outcome.CRASHED, "peer.killed")
    (<Remedy.NONE: 'none'>, <Remedy.AGAIN: 'again'>)
    >>> remedy(Outcome.CRASHED, "peer.hangup"), remedy(Outcome.REFUSED, "peer.hangup", has_begun=False)
    (<Remedy.NONE: 'none'>, <Remedy.AGAIN: 'again'>)
    """
    if outcome is Outcome.COMPLETED:
        return Remedy.NONE
    if outcome is Outcome.CANCELLED or (outcome is Outcome.UNKNOWN and code is None):
        return Remedy.REDO
    if code is not None and not has_begun and bucket_of(code) is Bucket.AGENT:
        return Remedy.AGAIN
    return REMEDIES.get(code or "", Remedy.NONE)


def shared_by(code: str | None) -> tuple[str, ...]:
    """Return the kinds of key to limit after YIELD or PARK; the first kind that an attempt has is used.

    Rate limits and quotas belong to an account, so the credential is first; without one it is the provider.

    >>> shared_by("provider.rate-limited"), shared_by("peer.overloaded")
    (('credential', 'provider'), ('runtime',))
    """
    return _SHARED.get(code or "", ("credential", "provider"))
