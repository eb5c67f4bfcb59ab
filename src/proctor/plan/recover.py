"""The failure table's other half: what a campaign does after an attempt that ended so. Pure."""

from collections.abc import Mapping
from enum import StrEnum

from proctor.event.outcome import Outcome

CUT_OFF = "run.cut-off"
"""The code of an attempt that was abandoned because its Proctor was killed."""


class Remedy(StrEnum):
    """What comes after an attempt. A retry is a new attempt of the cell: nothing is sent again in the old one."""

    NONE = "none"  # the result stands
    AGAIN = "again"  # after a pause that doubles; it counts as a retry
    YIELD = "yield"  # asked too often: fewer at a time, after a pause; no retry is used up
    PARK = "park"  # a quota: everything that shares it waits for its window; no retry is used up
    REDO = "redo"  # it was cut off from outside: as if it had not been; no retry is used up
    STOP = "stop"  # nothing of this flow can do better: its cells are left for a resume


LATER = (Remedy.AGAIN, Remedy.YIELD, Remedy.PARK)
"""What is followed by another try after a pause."""

REMEDIES: Mapping[str, Remedy] = {
    # ── startup, compatibility, environment: what this machine or the flow lacks is lacking for all its cells ──
    "machine.binary-missing": Remedy.STOP,
    "machine.binary-too-old": Remedy.STOP,
    "machine.binary-incompatible": Remedy.STOP,
    "machine.extra-missing": Remedy.STOP,
    "machine.no-containment": Remedy.STOP,
    "machine.unwritable": Remedy.STOP,
    "runtime.broken": Remedy.STOP,
    "runtime.capability": Remedy.STOP,
    "runtime.none": Remedy.STOP,
    "policy.blocked-variable": Remedy.STOP,
    "policy.login": Remedy.STOP,
    "policy.nobody-to-ask": Remedy.STOP,
    "policy.reserved-variable": Remedy.STOP,
    "policy.shared-full-access": Remedy.STOP,
    "policy.tmpdir-above-home": Remedy.STOP,
    "policy.variable-unset": Remedy.STOP,
    # Every cell after it would start from what somebody changed.
    "workspace.base-changed": Remedy.STOP,
    "runtime.degraded": Remedy.AGAIN,
    "machine.spawn-failed": Remedy.AGAIN,
    "machine.port": Remedy.AGAIN,
    "machine.disk-full": Remedy.AGAIN,
    "machine.git": Remedy.NONE,
    "machine.no-fences": Remedy.NONE,
    # ── the agent's process and channel. A dead one is replaced before the retry ──
    "peer.hangup": Remedy.AGAIN,
    "peer.killed": Remedy.AGAIN,
    "peer.deadline": Remedy.AGAIN,
    "peer.overloaded": Remedy.YIELD,
    "peer.login": Remedy.STOP,
    # The same program would speak and refuse the same way again.
    "peer.wire": Remedy.NONE,
    "peer.refused": Remedy.NONE,
    # ── the model's provider. Most agents have tried again by themselves before they say so ──
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
    "provider.prompt-refused": Remedy.NONE,
    "provider.policy": Remedy.NONE,
    "provider.context-full": Remedy.NONE,
    "script.unfit": Remedy.NONE,
    # ── the agent's own doing: a result ──
    "agent.turn-failed": Remedy.NONE,
    "agent.exit-status": Remedy.NONE,
    "agent.result-missing": Remedy.NONE,
    "agent.result-invalid": Remedy.NONE,
    "agent.budget": Remedy.NONE,
    "agent.denials": Remedy.NONE,
    "agent.sandbox": Remedy.NONE,
    "agent.interrupted": Remedy.AGAIN,
    # The operator's own command would fail for the next one too, but may well succeed when tried again.
    "hook.failed": Remedy.AGAIN,
    # ── our clocks ──
    "limit.turn": Remedy.NONE,
    "limit.attempt": Remedy.NONE,
    "limit.mission": Remedy.NONE,
    "limit.tokens": Remedy.NONE,
    # It says nothing of the cell.
    "limit.campaign": Remedy.REDO,
    "limit.stall": Remedy.AGAIN,
    # ── the run ──
    "run.cancelled": Remedy.REDO,
    CUT_OFF: Remedy.REDO,
    "run.harness": Remedy.NONE,
    # No more may be written by what does not mask secrets.
    "run.redaction": Remedy.STOP,
}
"""Of every code that an attempt can end with. One that is not here leaves the result as it is."""

_SHARED: Mapping[str, tuple[str, ...]] = {
    "provider.overloaded": ("provider",),
    "peer.overloaded": ("strategy",),
}


def remedy(outcome: Outcome, code: str | None) -> Remedy:
    """What the campaign does after it.

    >>> remedy(Outcome.COMPLETED, None), remedy(Outcome.CRASHED, "peer.hangup")
    (<Remedy.NONE: 'none'>, <Remedy.AGAIN: 'again'>)
    """
    if outcome is Outcome.COMPLETED:
        return Remedy.NONE
    if outcome is Outcome.CANCELLED or (outcome is Outcome.UNKNOWN and code is None):
        return Remedy.REDO
    return REMEDIES.get(code or "", Remedy.NONE)


def shared_by(code: str | None) -> tuple[str, ...]:
    """What is rationed after YIELD or PARK: the first of these kinds of key that an attempt has.

    Rates and quotas are those of an account; who has none in common with others shares the provider with them.

    >>> shared_by("provider.rate-limited"), shared_by("peer.overloaded")
    (('credential', 'provider'), ('strategy',))
    """
    return _SHARED.get(code or "", ("credential", "provider"))
