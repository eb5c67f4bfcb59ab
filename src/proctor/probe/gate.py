"""The gate: decide whether a mission is verified, as a pure function of the required probes and the recorded rows.

For each required probe two rows count: *final*, the latest row for the current workspace digest in any phase, and
*baseline*, the latest row of that phase for the digest of the untouched workspace. Rows with another probe digest or
workspace digest are ignored.

| final                        | baseline                    | decision for this probe                               |
|------------------------------|-----------------------------|-------------------------------------------------------|
| fail, or workspace mutated   | any                         | no                                                    |
| none, not run, unavailable   | any                         | unknown                                               |
| pass                         | none, not run, unavailable  | unknown: the probe may pass on any workspace          |
| pass                         | workspace mutated           | unknown: the workspace it judged was not untouched    |
| pass                         | pass                        | unknown: already passes on the untouched workspace    |
| pass                         | fail, on the same content   | unknown: the two results contradict each other        |
| pass                         | fail, on different content  | yes                                                   |

The mission is `no` if the decision for any probe is no; otherwise `unknown` if one is unknown or no probe is required;
otherwise `yes`.
"""

from collections.abc import Sequence

import msgspec

from proctor.ids import Digest
from proctor.probe.model import Phase, ProbeRow, RequiredProbe, Verdict
from proctor.spec.expect import ExpectedVerdict


class ProbeDecision(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """The decision for one required probe."""

    probe_digest: Digest
    """The digest of the probe's complete spec."""
    kind: str
    """The kind of the probe, such as `headless_run`."""
    index: int
    """The position of the probe in the mission, counted from 0."""
    verified: ExpectedVerdict
    """Whether this probe verifies the mission: yes, no or unknown."""
    baseline: Verdict
    """The verdict on the untouched workspace; `not_run` if there is no row."""
    final: Verdict
    """The verdict on the current workspace; `not_run` if there is no row."""
    reason: str | None = None
    """Why `verified` is not yes; None if it is."""


class Decision(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """The decision for a mission."""

    verified: ExpectedVerdict
    """Whether the mission is verified: yes, no or unknown."""
    per_probe: tuple[ProbeDecision, ...]
    """The decision for each required probe, in the mission's order."""
    reasons: tuple[str, ...]
    """Why `verified` is not yes, one text per probe; empty if it is yes."""


def decide(
    required: Sequence[RequiredProbe],
    evidence: Sequence[ProbeRow],
    *,
    workspace_digest: Digest,
    base_digest: Digest,
) -> Decision:
    """Decide whether a mission is verified. `evidence` is in the order of recording.

    Two required probes with the same digest count as one.
    """
    now = {row.probe_digest: row for row in evidence if row.workspace_digest == workspace_digest}
    untouched = {
        row.probe_digest: row for row in evidence if row.phase is Phase.BASELINE and row.workspace_digest == base_digest
    }
    once: dict[Digest, RequiredProbe] = {}
    for probe in required:
        once.setdefault(probe.digest, probe)
    per_probe = tuple(
        _judge(probe, now.get(probe.digest), untouched.get(probe.digest), is_changed=workspace_digest != base_digest)
        for probe in once.values()
    )
    reasons = tuple(f"probe {each.index} ({each.kind}): {each.reason}" for each in per_probe if each.reason)
    decisions = {each.verified for each in per_probe}
    if not per_probe:
        return Decision(verified=ExpectedVerdict.UNKNOWN, per_probe=(), reasons=("the mission has no probe",))
    for verified in (ExpectedVerdict.NO, ExpectedVerdict.UNKNOWN):
        if verified in decisions:
            return Decision(verified=verified, per_probe=per_probe, reasons=reasons)
    return Decision(verified=ExpectedVerdict.YES, per_probe=per_probe, reasons=())


def _judge(
    probe: RequiredProbe, final: ProbeRow | None, baseline: ProbeRow | None, *, is_changed: bool
) -> ProbeDecision:
    verified, reason = _weigh(final, baseline, is_changed=is_changed)
    return ProbeDecision(
        probe_digest=probe.digest,
        kind=probe.kind,
        index=probe.index,
        verified=verified,
        baseline=baseline.verdict if baseline else Verdict.NOT_RUN,
        final=final.verdict if final else Verdict.NOT_RUN,
        reason=reason,
    )


def _weigh(
    final: ProbeRow | None, baseline: ProbeRow | None, *, is_changed: bool
) -> tuple[ExpectedVerdict, str | None]:
    if final is None or (final.verdict is Verdict.NOT_RUN and not final.mutated):
        return ExpectedVerdict.UNKNOWN, "the probe was not run on the current workspace"
    if final.mutated:
        return ExpectedVerdict.NO, "the workspace changed while the probe ran"
    if final.verdict is Verdict.FAIL:
        return ExpectedVerdict.NO, final.summary or "the probe fails"
    if final.verdict is Verdict.UNAVAILABLE:
        return ExpectedVerdict.UNKNOWN, f"the probe could not judge: {final.summary}"
    if baseline is None or baseline.verdict is Verdict.NOT_RUN:
        return ExpectedVerdict.UNKNOWN, "the probe was not run on the untouched workspace"
    # Not counted as a failed baseline: then a probe that passes on any workspace could verify a mission.
    if baseline.mutated:
        return ExpectedVerdict.UNKNOWN, "the untouched workspace changed while the probe ran"
    if baseline.verdict is Verdict.UNAVAILABLE:
        return ExpectedVerdict.UNKNOWN, f"the probe could not judge the untouched workspace: {baseline.summary}"
    if baseline.verdict is Verdict.PASS:
        return ExpectedVerdict.UNKNOWN, "already passes on the untouched workspace"
    if not is_changed:
        return ExpectedVerdict.UNKNOWN, "the probe failed and passed on the same content"
    return ExpectedVerdict.YES, None
