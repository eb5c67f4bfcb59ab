"""The gate: decide whether a mission is verified, as a pure function of the required probes and the recorded rows.

For each required probe three sets of rows count: *final*, all rows for the current workspace digest except those on
mutants; *untouched*, the baseline rows for the digest of the untouched workspace; and *mutant*, the rows on the probe's
mutant. Rows with another probe digest or workspace digest are ignored. A set is

- *unstable* if it has a pass and a failure, whichever was recorded last, or a pass and an `unavailable` that is due to
  the workspace: the same content gave two results;
- otherwise *fail*, *broken* (unavailable, because of the workspace), *pass*, *unavailable* or *none*, whichever of its
  rows comes first in this list.

A goal shows that the task is done:

| final     | untouched              | decision for this probe                                  |
|-----------|------------------------|----------------------------------------------------------|
| fail      | any                    | no                                                       |
| broken    | pass, fail or unstable | no: the agent left what keeps the probe from judging     |
| pass      | fail                   | yes                                                      |
| pass      | otherwise              | unknown: the probe may pass on any workspace             |
| otherwise | any                    | unknown                                                  |

A guard shows that nothing else was broken:

| final          | untouched | mutant    | decision for this probe                                  |
|----------------|-----------|-----------|----------------------------------------------------------|
| fail or broken | pass      | any       | no                                                       |
| pass           | pass      | fail      | yes                                                      |
| pass           | pass      | otherwise | unknown: nothing shows that the guard can fail           |
| otherwise      | otherwise | any       | unknown                                                  |

Whatever the table says:

- A workspace that changed while a final row was recorded decides no. If the untouched one or a mutant changed, the
  probe judged another workspace: unknown.
- A program that differs between a final row and an untouched one decides no if the agent could change it, else unknown.
  A script of the workspace is part of what is judged, and only its interpreters are compared.

The decision for a *criterion* is no if the decision for any of its probes is no; otherwise unknown if one is unknown;
otherwise yes. A waived criterion is unknown. The mission is decided from its criteria in the same way; it is unknown
without a probe, and if all probes are guards and the agent changed nothing.

A yes is judged *outside* if Proctor itself judged one of the goals, or one of the guards if there is no goal. It is
judged *inside* if these verdicts come from processes that also run the product. A guard that was judged outside beside
a goal that was not shows only that nothing else was broken.

A probe that could not have verified any work, whatever the agent did, is *unusable*: a goal whose untouched rows are
not a clean failure, or a guard that does not pass there or fails to fail on its mutant. Its reason code says so even if
the decision is no, and a trial with such a probe is not scored (`evidence.artifacts.why_unjudged`).

For the same content, no row that is added turns a no into a yes.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, TypeAlias

import msgspec

from proctor.evidence.artifacts import CriterionDecision, GateReason, Judged, RequiredProbe, why_unjudged
from proctor.ids import Digest
from proctor.probe.model import Fault, Phase, ProbeProgram, ProbeRow, Verdict
from proctor.spec.argv import shell_command
from proctor.spec.criterion import Role, WaiverSpec
from proctor.spec.expect import ExpectedVerdict

_COMMAND_CHARS: Final = 80

_Reason: TypeAlias = tuple[GateReason, str]


class ProbeDecision(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """The decision for one required probe."""

    probe: RequiredProbe
    """The probe."""
    verified: ExpectedVerdict
    """Whether this probe verifies the mission: yes, no or unknown."""
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
    criteria: tuple[CriterionDecision, ...]
    """The decision for each criterion, in the mission's order."""
    reasons: tuple[str, ...]
    """Why `verified` is not yes, one text per probe; empty if it is yes."""
    reason_codes: tuple[GateReason, ...] = ()
    """The kind of each of `reasons`, in the same order."""
    judged: Judged | None = None
    """Where a yes comes from: `outside` if Proctor itself judged a goal, otherwise `inside`. None unless it is yes."""

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
    waivers: Sequence[WaiverSpec] = (),
) -> Decision:
    """Decide whether a mission is verified. `evidence` is in the order of recording.

    Two required probes with the same digest count as one.
    """
    once: dict[Digest, RequiredProbe] = {}
    for probe in required:
        once.setdefault(probe.digest, probe)
    if not once:
        return Decision(
            verified=ExpectedVerdict.UNKNOWN,
            per_probe=(),
            criteria=(),
            reasons=("the mission has no probe",),
            reason_codes=(GateReason.NO_PROBE,),
        )
    rows = {
        probe.digest: _find_rows(probe, evidence, workspace_digest=workspace_digest, base_digest=base_digest)
        for probe in once.values()
    }
    waived = {each.criterion: each for each in waivers}
    per_probe = tuple(_waive(_judge(probe, rows[probe.digest]), waived.get(probe.criterion)) for probe in once.values())
    if workspace_digest == base_digest and all(probe.role is Role.GUARD for probe in once.values()):
        per_probe = tuple(map(_without_a_change, per_probe))
    verified = _together(per_probe)
    is_open = verified is not ExpectedVerdict.YES
    named = [(each, f"{_name(each.probe, rows[each.probe.digest])}: {each.reason}") for each in per_probe]
    return Decision(
        verified=verified,
        per_probe=per_probe,
        criteria=tuple(_criteria(per_probe, waived)),
        reasons=tuple(text for each, text in named if is_open and each.reason),
        reason_codes=tuple(each.reason_code for each in per_probe if is_open and each.reason_code is not None),
        judged=None if is_open else _judged(once.values(), rows),
    )


# ── the rows of one probe ──


class _Result(StrEnum):
    """What a set of rows says."""

    UNSTABLE = "unstable"
    FAIL = "fail"
    BROKEN = "broken"
    PASS = "pass"  # noqa: S105
    UNAVAILABLE = "unavailable"
    NONE = "none"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Rows:
    """The rows that count for one probe, in the order of recording."""

    final: tuple[ProbeRow, ...]
    untouched: tuple[ProbeRow, ...]
    mutant: tuple[ProbeRow, ...]


def _find_rows(
    probe: RequiredProbe, evidence: Sequence[ProbeRow], *, workspace_digest: Digest, base_digest: Digest
) -> _Rows:
    own = [row for row in evidence if row.probe_digest == probe.digest]
    before = [row for row in own if row.workspace_digest == base_digest]
    return _Rows(
        final=tuple(row for row in own if row.workspace_digest == workspace_digest and row.phase is not Phase.MUTANT),
        untouched=tuple(row for row in before if row.phase is Phase.BASELINE),
        mutant=tuple(row for row in before if row.phase is Phase.MUTANT),
    )


def _read(rows: Sequence[ProbeRow]) -> _Result:
    found = {_read_one(row) for row in rows}
    if _Result.PASS in found and found & {_Result.FAIL, _Result.BROKEN}:
        return _Result.UNSTABLE
    return next((each for each in _Result if each in found), _Result.NONE)


def _read_one(row: ProbeRow) -> _Result:
    match row.verdict:
        case Verdict.PASS:
            return _Result.PASS
        case Verdict.FAIL:
            return _Result.FAIL
        case Verdict.UNAVAILABLE:
            return _Result.BROKEN if row.fault is Fault.WORKSPACE else _Result.UNAVAILABLE
        case Verdict.NOT_RUN:
            return _Result.NONE


def _summary(rows: Sequence[ProbeRow], *verdicts: Verdict) -> str:
    """Return the summary of the last row with one of these verdicts."""
    return next((row.summary for row in reversed(rows) if row.verdict in verdicts and row.summary), "the probe fails")


# ── one probe ──


def _judge(probe: RequiredProbe, rows: _Rows) -> ProbeDecision:
    weighed = _weigh(probe, rows)
    if weighed is None:
        return ProbeDecision(probe=probe, verified=ExpectedVerdict.YES)
    verified, (code, reason) = weighed
    return ProbeDecision(probe=probe, verified=verified, reason=reason, reason_code=code)


def _weigh(probe: RequiredProbe, rows: _Rows) -> tuple[ExpectedVerdict, _Reason] | None:
    """Return the decision and its reason; None for yes."""
    unusable = _find_unusable(probe, rows)
    against = _find_against(probe, rows)
    if (changed := _find_changed(rows)) is not None:
        if not changed.is_writable:
            what = f"{changed.path} was changed meanwhile"
            return ExpectedVerdict.UNKNOWN, (GateReason.PROGRAM_CHANGED, what)
        against = GateReason.TAMPERED, f"tampered: {changed.path}, which the probe runs, was changed meanwhile"
    if against is not None and unusable is not None:
        return ExpectedVerdict.NO, (unusable[0], f"{against[1]}; but {unusable[1]}")
    if against is not None:
        return ExpectedVerdict.NO, against
    if (missing := unusable or _find_missing(probe, rows)) is not None:
        return ExpectedVerdict.UNKNOWN, missing
    return None


def _find_against(probe: RequiredProbe, rows: _Rows) -> _Reason | None:
    """Return what the final rows say against the agent; None if nothing."""
    if any(row.mutated for row in rows.final):
        return GateReason.MUTATED, "the workspace changed while the probe ran"
    final, untouched = _read(rows.final), _read(rows.untouched)
    if probe.role is Role.GUARD and untouched is not _Result.PASS:
        return None
    if final is _Result.FAIL:
        return GateReason.FAILS, _summary(rows.final, Verdict.FAIL)
    if final is _Result.BROKEN and untouched in (_Result.PASS, _Result.FAIL, _Result.UNSTABLE):
        summary = _summary(rows.final, Verdict.UNAVAILABLE)
        what = f"the probe could judge the untouched workspace, and not the one that the agent left: {summary}"
        return GateReason.BROKEN, what
    return None


def _find_unusable(probe: RequiredProbe, rows: _Rows) -> _Reason | None:
    """Return why the probe cannot judge any work, as its runs before the agent show; None if it can, or none ran."""
    untouched, is_guard = _read(rows.untouched), probe.role is Role.GUARD
    # Not counted as a failure: then a probe that passes on any workspace could verify a mission.
    if any(row.mutated for row in rows.untouched):
        return GateReason.UNTOUCHED_MUTATED, "the untouched workspace changed while the probe ran"
    if untouched in (_Result.UNAVAILABLE, _Result.BROKEN):
        summary = _summary(rows.untouched, Verdict.UNAVAILABLE)
        return GateReason.UNTOUCHED_UNAVAILABLE, f"the probe could not judge the untouched workspace: {summary}"
    if untouched is _Result.PASS and not is_guard:
        return GateReason.PASSES_UNTOUCHED, "already passes on the untouched workspace"
    if untouched is _Result.FAIL and is_guard:
        return GateReason.FAILS_UNTOUCHED, "the guard fails on the untouched workspace"
    return _find_blind(probe, rows) if is_guard else None


def _find_blind(guard: RequiredProbe, rows: _Rows) -> _Reason | None:
    """Return why nothing shows that a guard can fail; None if its mutant does, or was not run."""
    if not guard.has_mutant:
        return GateReason.NO_MUTANT, "the guard has no mutant, so nothing shows that it can fail"
    mutant = _read(rows.mutant)
    if any(row.mutated for row in rows.mutant) or mutant in (_Result.UNAVAILABLE, _Result.BROKEN):
        summary = _summary(rows.mutant, Verdict.UNAVAILABLE)
        return GateReason.MUTANT_UNAVAILABLE, f"the guard could not judge its mutant: {summary}"
    if mutant is _Result.PASS:
        return GateReason.PASSES_MUTANT, "the guard passes on its mutant"
    return None


def _find_missing(probe: RequiredProbe, rows: _Rows) -> _Reason | None:
    """Return what is missing for a yes if nothing speaks against the agent and the probe is usable; None if nothing."""
    final, untouched = _read(rows.final), _read(rows.untouched)
    if final is _Result.NONE:
        return GateReason.NOT_RUN, "the probe was not run on the current workspace"
    if final in (_Result.UNAVAILABLE, _Result.BROKEN):
        return GateReason.UNAVAILABLE, f"the probe could not judge: {_summary(rows.final, Verdict.UNAVAILABLE)}"
    if untouched is _Result.NONE:
        return GateReason.UNTOUCHED_NOT_RUN, "the probe was not run on the untouched workspace"
    if _Result.UNSTABLE in (final, untouched, _read(rows.mutant)):
        return GateReason.UNSTABLE, "the probe failed and passed on the same content"
    if probe.role is Role.GUARD and _read(rows.mutant) is _Result.NONE:
        return GateReason.MUTANT_NOT_RUN, "the guard was not run on its mutant"
    return None


def _find_changed(rows: _Rows) -> ProbeProgram | None:
    """Return a program that differs between the two runs: one that the agent could change, if there is one."""
    pairs = [(final, untouched) for final in rows.final for untouched in rows.untouched]
    changed = [each for final, untouched in pairs for each in _changed_programs(final, untouched)]
    return next((each for each in changed if each.is_writable), changed[0] if changed else None)


def _changed_programs(final: ProbeRow, untouched: ProbeRow) -> Iterator[ProbeProgram]:
    """Yield the programs that differ. Without programs in both rows nothing was run, and nothing can be compared."""
    if not final.programs or not untouched.programs:
        return
    before, now = ({each.path: each for each in row.programs if not each.is_in_workspace} for row in (untouched, final))
    yield from (each for path, each in before.items() if path in now and now[path].sha256 != each.sha256)
    # Other files have taken the place of these. A script of the workspace may have got another interpreter.
    is_own_script = untouched.programs[0].is_in_workspace or final.programs[0].is_in_workspace
    lost = [] if is_own_script else [each for path, each in before.items() if path not in now]
    if lost:
        yield from (each for path, each in now.items() if path not in before)
        yield from lost


# ── all of them ──


def _waive(decision: ProbeDecision, waiver: WaiverSpec | None) -> ProbeDecision:
    if waiver is None:
        return decision
    return ProbeDecision(
        probe=decision.probe,
        verified=ExpectedVerdict.UNKNOWN,
        reason=f"waived by {waiver.by}: {waiver.why}",
        reason_code=GateReason.WAIVED,
    )


def _without_a_change(decision: ProbeDecision) -> ProbeDecision:
    if decision.verified is not ExpectedVerdict.YES:
        return decision
    what = "the agent changed nothing, and guards alone verify no unchanged workspace"
    return msgspec.structs.replace(
        decision, verified=ExpectedVerdict.UNKNOWN, reason=what, reason_code=GateReason.UNCHANGED
    )


def _together(decisions: Sequence[ProbeDecision]) -> ExpectedVerdict:
    found = {each.verified for each in decisions}
    order = ExpectedVerdict.NO, ExpectedVerdict.UNKNOWN, ExpectedVerdict.YES
    return next(each for each in order if each in found)


def _judged(required: Iterable[RequiredProbe], rows: Mapping[Digest, _Rows]) -> Judged:
    """Return where a yes comes from. A pass whose row does not say it counts as inside."""
    probes = list(required)
    deciding = [probe for probe in probes if probe.role is Role.GOAL] or probes
    passed = [row for probe in deciding for row in rows[probe.digest].final if row.verdict is Verdict.PASS]
    return Judged.OUTSIDE if any(row.judged is Judged.OUTSIDE for row in passed) else Judged.INSIDE


def _criteria(decisions: Sequence[ProbeDecision], waived: Mapping[str, WaiverSpec]) -> Iterator[CriterionDecision]:
    for criterion in dict.fromkeys(each.probe.criterion for each in decisions):
        own = [each for each in decisions if each.probe.criterion == criterion]
        yield CriterionDecision(
            criterion=criterion,
            verified=_together(own).as_bool,
            probes=tuple(each.probe.index for each in own),
            waived_by=waived[criterion].by if criterion in waived else None,
        )


def _name(probe: RequiredProbe, rows: _Rows) -> str:
    """Return the command of a probe in one line, or its position if none was run."""
    argv = next((row.argv for row in reversed((*rows.untouched, *rows.final)) if row.argv), ())
    if not argv:
        return f"probe {probe.index + 1}"
    command = " ".join(shell_command(argv).split())
    return f"`{command if len(command) <= _COMMAND_CHARS else f'{command[: _COMMAND_CHARS - 1]}…'}`"
