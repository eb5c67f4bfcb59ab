"""The gate: decide whether a mission is verified, as a pure function of the required probes and the recorded rows.

For each required probe two rows count: *final*, the latest row for the current workspace digest in any phase, and
*baseline*, the latest row of that phase for the digest of the untouched workspace. Rows with another probe digest or
workspace digest are ignored.

| final                                 | baseline                   | decision for this probe                         |
|---------------------------------------|----------------------------|-------------------------------------------------|
| any, with a changed program           | any                        | no if the agent could change it, else unknown   |
| fail, or workspace mutated            | any                        | no                                              |
| unavailable, because of the workspace | pass or fail               | no: the agent left what keeps it from judging   |
| none, not run, otherwise unavailable  | any                        | unknown                                         |
| pass                                  | none, not run, unavailable | unknown: the probe may pass on any workspace    |
| pass                                  | workspace mutated          | unknown: it judged another workspace            |
| pass                                  | pass                       | unknown: it already passes on the untouched one |
| pass                                  | fail, on the same content  | unknown: the two results contradict each other  |
| pass                                  | fail, on different content | yes                                             |

A program is changed if the two rows record other files or digests for it; a script of the workspace is part of what is
judged, and only its interpreters are compared.

The mission is `no` if the decision for any probe is no; otherwise `unknown` if one is unknown or no probe is required;
otherwise `yes`.

A probe whose baseline is not a clean `fail` is *unusable*: it could not have verified any work. Its reason code says so
even if the decision is no, and a trial with such a probe is not scored (`evidence.artifacts.why_unjudged`).
"""

from collections.abc import Sequence
from typing import Final

import msgspec

from proctor.evidence.artifacts import GateReason, why_unjudged
from proctor.ids import Digest
from proctor.probe.model import Fault, Phase, ProbeProgram, ProbeRow, RequiredProbe, Verdict
from proctor.spec.argv import shell_command
from proctor.spec.expect import ExpectedVerdict

_COMMAND_CHARS: Final = 80


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
    reason_code: GateReason | None = None
    """The kind of `reason`; None if `verified` is yes."""


class Decision(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """The decision for a mission."""

    verified: ExpectedVerdict
    """Whether the mission is verified: yes, no or unknown."""
    per_probe: tuple[ProbeDecision, ...]
    """The decision for each required probe, in the mission's order."""
    reasons: tuple[str, ...]
    """Why `verified` is not yes, one text per probe; empty if it is yes."""
    reason_codes: tuple[GateReason, ...] = ()
    """The kind of each of `reasons`, in the same order."""

    @property
    def unjudged(self) -> GateReason | None:
        """Why the probes cannot judge the attempt, for reasons that do not lie with the agent; None if they can."""
        return why_unjudged(self.verified.as_bool, self.reason_codes)


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
    rows = {**untouched, **now}
    reasons = tuple(f"{_name(each, rows.get(each.probe_digest))}: {each.reason}" for each in per_probe if each.reason)
    codes = tuple(each.reason_code for each in per_probe if each.reason_code is not None)
    decisions = {each.verified for each in per_probe}
    if not per_probe:
        return Decision(
            verified=ExpectedVerdict.UNKNOWN,
            per_probe=(),
            reasons=("the mission has no probe",),
            reason_codes=(GateReason.NO_PROBE,),
        )
    for verified in (ExpectedVerdict.NO, ExpectedVerdict.UNKNOWN):
        if verified in decisions:
            return Decision(verified=verified, per_probe=per_probe, reasons=reasons, reason_codes=codes)
    return Decision(verified=ExpectedVerdict.YES, per_probe=per_probe, reasons=())


def _name(probe: ProbeDecision, row: ProbeRow | None) -> str:
    """Return the command of a probe in one line, or its position if none was run."""
    if row is None or not row.argv:
        return f"probe {probe.index + 1}"
    command = " ".join(shell_command(row.argv).split())
    return f"`{command if len(command) <= _COMMAND_CHARS else f'{command[: _COMMAND_CHARS - 1]}…'}`"


def _judge(
    probe: RequiredProbe, final: ProbeRow | None, baseline: ProbeRow | None, *, is_changed: bool
) -> ProbeDecision:
    weighed = _weigh(final, baseline, is_changed=is_changed)
    return ProbeDecision(
        probe_digest=probe.digest,
        kind=probe.kind,
        index=probe.index,
        verified=ExpectedVerdict.YES if weighed is None else weighed[0],
        baseline=baseline.verdict if baseline else Verdict.NOT_RUN,
        final=final.verdict if final else Verdict.NOT_RUN,
        reason=None if weighed is None else weighed[2],
        reason_code=None if weighed is None else weighed[1],
    )


def _weigh(
    final: ProbeRow | None, baseline: ProbeRow | None, *, is_changed: bool
) -> tuple[ExpectedVerdict, GateReason, str] | None:
    """Return the decision, its kind and its text; None for yes."""
    unusable, against = _find_unusable(baseline), _find_against(final, baseline)
    if (changed := _find_changed(final, baseline)) is not None:
        if not changed.is_writable:
            return ExpectedVerdict.UNKNOWN, GateReason.PROGRAM_CHANGED, f"{changed.path} was changed meanwhile"
        against = GateReason.TAMPERED, f"tampered: {changed.path}, which the probe runs, was changed meanwhile"
    if against is not None and unusable is not None:
        return ExpectedVerdict.NO, unusable[0], f"{against[1]}; but {unusable[1]}"
    if against is not None:
        return ExpectedVerdict.NO, *against
    if unusable is not None:
        return ExpectedVerdict.UNKNOWN, *unusable
    if final is None or final.verdict is Verdict.NOT_RUN:
        return ExpectedVerdict.UNKNOWN, GateReason.NOT_RUN, "the probe was not run on the current workspace"
    if final.verdict is Verdict.UNAVAILABLE:
        return ExpectedVerdict.UNKNOWN, GateReason.UNAVAILABLE, f"the probe could not judge: {final.summary}"
    if baseline is None or baseline.verdict is Verdict.NOT_RUN:
        what = "the probe was not run on the untouched workspace"
        return ExpectedVerdict.UNKNOWN, GateReason.UNTOUCHED_NOT_RUN, what
    if not is_changed:
        return ExpectedVerdict.UNKNOWN, GateReason.UNSTABLE, "the probe failed and passed on the same content"
    return None


def _find_against(final: ProbeRow | None, baseline: ProbeRow | None) -> tuple[GateReason, str] | None:
    """Return what the final row says against the agent; None if nothing."""
    if final is None:
        return None
    if final.mutated:
        return GateReason.MUTATED, "the workspace changed while the probe ran"
    if final.verdict is Verdict.FAIL:
        return GateReason.FAILS, final.summary or "the probe fails"
    has_judged = baseline is not None and baseline.verdict in (Verdict.PASS, Verdict.FAIL)
    if final.verdict is Verdict.UNAVAILABLE and final.fault is Fault.WORKSPACE and has_judged:
        what = f"the probe could judge the untouched workspace, and not the one that the agent left: {final.summary}"
        return GateReason.BROKEN, what
    return None


def _find_unusable(baseline: ProbeRow | None) -> tuple[GateReason, str] | None:
    """Return why the probe cannot judge any work, as its run on the untouched workspace shows; None if it can."""
    if baseline is None:
        return None
    # Not counted as a failed baseline: then a probe that passes on any workspace could verify a mission.
    if baseline.mutated:
        return GateReason.UNTOUCHED_MUTATED, "the untouched workspace changed while the probe ran"
    if baseline.verdict is Verdict.UNAVAILABLE:
        what = f"the probe could not judge the untouched workspace: {baseline.summary}"
        return GateReason.UNTOUCHED_UNAVAILABLE, what
    if baseline.verdict is Verdict.PASS:
        return GateReason.PASSES_UNTOUCHED, "already passes on the untouched workspace"
    return None


def _find_changed(final: ProbeRow | None, baseline: ProbeRow | None) -> ProbeProgram | None:
    """Return a program that differs between the two runs: one that the agent could change, if there is one.

    Without programs in both rows nothing was run, and nothing can be compared.
    """
    if final is None or baseline is None or not final.programs or not baseline.programs:
        return None
    before, now = ({each.path: each for each in row.programs if not each.is_in_workspace} for row in (baseline, final))
    changed = [each for path, each in before.items() if path in now and now[path].sha256 != each.sha256]
    # Other files have taken the place of these. A script of the workspace may have got another interpreter.
    is_own_script = baseline.programs[0].is_in_workspace or final.programs[0].is_in_workspace
    lost = [] if is_own_script else [each for path, each in before.items() if path not in now]
    if lost:
        changed += [*(each for path, each in now.items() if path not in before), *lost]
    return next((each for each in changed if each.is_writable), changed[0] if changed else None)
