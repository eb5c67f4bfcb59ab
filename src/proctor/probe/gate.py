"""Whether a mission is done, as a pure function of what was required, what was seen and what the workspace now holds.

For each required probe two rows count, each the latest of its sort: *final*, about the current workspace digest in
whatever phase, and *baseline*, of that phase and about the untouched one. Rows of another probe digest or of another
workspace digest say nothing.

| final                        | baseline                       | this probe says                                    |
|------------------------------|--------------------------------|----------------------------------------------------|
| fail, or mutated its subject | anything                       | no                                                 |
| none, not run, unavailable   | anything                       | unknown                                            |
| pass                         | none, not run, unavailable     | unknown: it may pass on anything                   |
| pass                         | mutated its subject            | unknown: what it judged was not the untouched tree |
| pass                         | pass                           | unknown: already passes on the untouched workspace |
| pass                         | fail, on the very same content | unknown: it contradicts itself                     |
| pass                         | fail, on other content         | yes                                                |

The mission: `no` if any probe says no; else `unknown` if any says unknown or none is required; else `yes`.
"""

from collections.abc import Sequence

import msgspec

from proctor.ids import Digest
from proctor.probe.model import Phase, ProbeRow, RequiredProbe, Verdict
from proctor.spec.expect import Verified


class ProbeDecision(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """What one required probe says, and the two verdicts that it rests on."""

    probe_digest: Digest
    kind: str
    index: int
    verified: Verified
    baseline: Verdict
    final: Verdict
    reason: str | None = None


class Decision(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """What is verified of a mission. Whatever is not `yes` has its reasons."""

    verified: Verified
    per_probe: tuple[ProbeDecision, ...]
    reasons: tuple[str, ...]


def decide(
    required: Sequence[RequiredProbe],
    evidence: Sequence[ProbeRow],
    *,
    workspace_digest: Digest,
    base_digest: Digest,
) -> Decision:
    """`evidence` in the order it was recorded. A probe that is required twice is one requirement."""
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
    said = {each.verified for each in per_probe}
    if not per_probe:
        return Decision(verified=Verified.UNKNOWN, per_probe=(), reasons=("the mission has no probe",))
    for verified in (Verified.NO, Verified.UNKNOWN):
        if verified in said:
            return Decision(verified=verified, per_probe=per_probe, reasons=reasons)
    return Decision(verified=Verified.YES, per_probe=per_probe, reasons=())


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


def _weigh(final: ProbeRow | None, baseline: ProbeRow | None, *, is_changed: bool) -> tuple[Verified, str | None]:
    if final is None or (final.verdict is Verdict.NOT_RUN and not final.mutated):
        return Verified.UNKNOWN, "it was not run on the workspace as it is now"
    if final.mutated:
        return Verified.NO, "the workspace changed while it ran"
    if final.verdict is Verdict.FAIL:
        return Verified.NO, final.summary or "it fails"
    if final.verdict is Verdict.UNAVAILABLE:
        return Verified.UNKNOWN, f"it could not judge: {final.summary}"
    if baseline is None or baseline.verdict is Verdict.NOT_RUN:
        return Verified.UNKNOWN, "it was not run on the untouched workspace"
    # Not a failure here: that would make a probe that passes anywhere look as if it could tell trees apart.
    if baseline.mutated:
        return Verified.UNKNOWN, "the untouched workspace changed while it ran"
    if baseline.verdict is Verdict.UNAVAILABLE:
        return Verified.UNKNOWN, f"it could not judge the untouched workspace: {baseline.summary}"
    if baseline.verdict is Verdict.PASS:
        return Verified.UNKNOWN, "already passes on the untouched workspace"
    if not is_changed:
        return Verified.UNKNOWN, "it failed and passed on the same content"
    return Verified.YES, None
