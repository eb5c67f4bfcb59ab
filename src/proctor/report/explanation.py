"""One attempt as a story: what was asked, done, claimed and verified, whether that can be trusted, what to do next."""

import os
import shlex
from dataclasses import replace

import msgspec

from proctor.errors import CODES, Bucket, advice
from proctor.event.claim import FOOTER, MARKER
from proctor.event.outcome import Outcome
from proctor.event.supervisor_events import HOOK
from proctor.event.transcript import Line
from proctor.evidence.layout import TOOL_CALLS, TRANSCRIPT
from proctor.evidence.reader import Finding
from proctor.probe.model import Phase, ProbeRow
from proctor.report.format_values import deed, one_line
from proctor.report.live import while_running
from proctor.report.row import Evidence
from proctor.report.view import AttemptView

_TAIL = 8
_DERIVED = (TOOL_CALLS, TRANSCRIPT)


class ExplanationPart(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A part of a story."""


class ToolCallSummary(ExplanationPart, frozen=True, kw_only=True):
    """One tool call; `ok` is None where it never ended."""

    name: str
    what: str
    ok: bool | None
    status: str
    exit_code: int | None
    duration_ms: int | None


class FileChange(ExplanationPart, frozen=True, kw_only=True):
    """One file of the workspace, with how many lines came and went."""

    file: str
    added: int
    removed: int


class ProbeSummary(ExplanationPart, frozen=True, kw_only=True):
    """One probe: what it said of the untouched workspace, and of what the agent left."""

    index: int
    argv: tuple[str, ...]
    before: str
    after: str


class AttemptExplanation(ExplanationPart, frozen=True, kw_only=True):
    """None is not known. What damaged evidence says is told as recorded, never as verified. `next` is never empty."""

    attempt_id: str
    dir: str
    campaign_id: str | None
    run_id: str | None
    runtime_id: str | None
    version: str | None
    is_locked: bool | None
    sandbox: str | None
    isolation: str | None
    is_sealed: bool
    is_running: bool
    outcome: Outcome | None
    code: str | None
    detail: str | None
    bucket: Bucket | None
    retryable: bool | None
    todo: str | None
    duration_ms: int | None
    tokens: int | None
    asked: str | None
    deeds: tuple[ToolCallSummary, ...]
    changes: tuple[FileChange, ...] | None
    hooks: tuple[str, ...]
    said_last: str | None
    claimed: bool | None
    answer: str | None
    claim_frame: int | None
    claim_problem: str | None
    verified: bool | None
    reasons: tuple[str, ...]
    probes: tuple[ProbeSummary, ...]
    expectation_met: bool | None
    misses: tuple[str, ...]
    evidence: Evidence
    findings: tuple[Finding, ...]
    transcript_rows: int
    transcript_tail: tuple[Line, ...]
    next: tuple[str, ...]


def tell(view: AttemptView, *, is_running: bool = False) -> AttemptExplanation:
    """Whatever of the attempt can be read."""
    if is_running:
        view = replace(view, findings=while_running(view.findings))
    evidence = _evidence(view)
    judged = None if evidence == "invalid" else view.report
    reasons = () if judged is None else judged.reasons
    record, report, feedback = view.record, view.report, view.feedback
    version, identity = _fact(view, "version"), _fact(view, "identity")
    return AttemptExplanation(
        attempt_id=view.paths.folder.name,
        dir=str(view.paths.folder),
        campaign_id=None if record is None else record.campaign_id,
        run_id=None if record is None else record.run_id,
        runtime_id=None if record is None else record.runtime_id,
        version=version if isinstance(version, str) else None,
        is_locked=_is_locked(identity),
        sandbox=None if record is None else record.sandbox,
        isolation=None if record is None else record.isolation,
        is_sealed=view.is_sealed,
        is_running=is_running,
        outcome=None if report is None else report.outcome,
        code=None if report is None else report.code,
        detail=None if report is None else report.detail,
        **advice(None if report is None else report.code),
        duration_ms=None if report is None else report.duration_ms,
        tokens=None if report is None else report.metrics.total_tokens,
        asked=None if view.prompt is None else view.prompt.strip().removesuffix(FOOTER).strip(),
        deeds=tuple(
            ToolCallSummary(
                name=call.name,
                what=deed(call.name, call.input),
                ok=call.ok,
                status=call.status,
                exit_code=call.exit_code,
                duration_ms=call.duration_ms,
            )
            for call in view.tool_calls
        ),
        changes=None if view.diff is None else changes_in(view.diff),
        hooks=tuple(line.text for line in view.transcript if line.source == HOOK),
        said_last=_said_last(view),
        claimed=None if feedback is None else feedback.claimed,
        answer=None if feedback is None else feedback.answer,
        claim_frame=None if feedback is None else feedback.frame,
        claim_problem=None if feedback is None else feedback.problem,
        verified=None if judged is None else judged.verified,
        reasons=("the evidence is damaged",) if evidence == "invalid" else reasons,
        probes=tuple(
            _probe([row for row in view.probes if row.index == index])
            for index in sorted({row.index for row in view.probes})
        ),
        expectation_met=None if judged is None else judged.expectation.met,
        misses=() if judged is None else judged.expectation.misses,
        evidence=evidence,
        findings=view.findings,
        transcript_rows=len(view.transcript),
        transcript_tail=view.transcript[-_TAIL:],
        next=_next(view),
    )


def changes_in(diff: str) -> tuple[FileChange, ...]:
    """
    >>> changes_in("diff --git a/x b/x\\n--- a/x\\n+++ b/x\\n@@ -1 +1,2 @@\\n-a\\n+b\\n+c\\n")
    (FileChange(file='x', added=2, removed=1),)
    """
    files: dict[str, dict[str, int]] = {}
    lines: dict[str, int] = {}
    is_inside = False  # a hunk: before it stand lines that begin with + and - and are no content
    for line in diff.splitlines():
        if line.startswith("diff --git "):
            lines = files.setdefault(line.rsplit(" b/", 1)[-1], {"+": 0, "-": 0})
            is_inside = False
        elif line.startswith("@@ "):
            is_inside = True
        elif is_inside and line[:1] in lines:
            lines[line[0]] += 1
    return tuple(FileChange(file=file, added=lines["+"], removed=lines["-"]) for file, lines in files.items())


def _said_last(view: AttemptView) -> str | None:
    said = [line for line in view.transcript if line.kind == "message"]
    if not said:
        return None
    return "\n".join(line for line in said[-1].text.splitlines() if MARKER not in line).strip()


def _probe(rows: list[ProbeRow]) -> ProbeSummary:
    verdicts = {row.phase: row.verdict.value for row in rows}
    return ProbeSummary(
        index=rows[0].index,
        argv=rows[0].argv,
        before=verdicts.get(Phase.BASELINE, "not_run"),
        after=verdicts.get(Phase.FINAL, "not_run"),
    )


def _evidence(view: AttemptView) -> Evidence:
    if not view.findings:
        return "valid"
    # A cut-off attempt is no damage, and must not look like it.
    harmless = {"evidence.partial", "evidence.torn", "evidence.running"}
    return "partial" if {finding.code for finding in view.findings} <= harmless else "invalid"


def _next(view: AttemptView) -> tuple[str, ...]:
    """What a person can do about it, the most urgent first."""
    if view.findings:
        steps = [_restoration(view)] if {finding.file for finding in view.findings} <= set(_DERIVED) else []
        steps = steps or [CODES[finding.code].todo for finding in view.findings if finding.code in CODES]
        return tuple(dict.fromkeys(steps)) or ("Treat the attempt as damaged.",)
    steps, report = [], view.report
    if report is not None:
        steps += [f"The expectation was missed: {one_line(miss, limit=160)}" for miss in report.expectation.misses]
        if report.policy_violations:
            steps.append(f"It broke the flow's tool policy: {one_line(report.policy_violations[0], limit=160)}")
        if report.metrics.is_stuck:
            streak = report.metrics.longest_streak
            steps.append(f"It made no progress: the same call {streak} times in a row. Read tool.calls.jsonl.")
        if "the script is exhausted" in (report.detail or ""):
            mission = "the mission" if view.record is None else f"mission `{view.record.mission_id}`"
            steps.append(f"The script has no further step: add one to the script of {mission}.")
        elif report.code in CODES:
            steps.append(CODES[report.code].todo)
        if report.claimed and report.verified is False:
            steps.append("The agent claims what the probe denies: compare workspace.diff with probes.jsonl.")
        elif report.verified is False:
            steps.append("Read the probe's output in probes.jsonl, and the change in workspace.diff.")
        elif report.verified is None and not view.probes:
            steps.append("Nothing was checked: give the mission a probe, so that `done` can be verified.")
        elif report.verified is None and report.code is None:
            steps.append("Mend the probe: it must fail on the untouched workspace and be able to judge what is left.")
    return tuple(dict.fromkeys(steps)) or ("Nothing: it is verified, and its evidence is whole.",)


def _restoration(view: AttemptView) -> str:
    """Of files that the frames give again. One that is there is never overwritten."""
    there = [name for name in _DERIVED if any(finding.file == name for finding in view.findings)]
    moved = [name for name in there if os.path.lexists(view.paths.folder / name)]
    command = f"`proctor attempt rederive {shlex.quote(str(view.paths.folder))}`"
    return f"Move {' and '.join(moved)} away, then run {command}." if moved else f"Run {command}."


def _is_locked(identity: object) -> bool | None:
    match identity:
        case {"lockedSha256": str(locked), "sha256": str(found)}:
            return locked == found
        case _:
            return None


def _fact(view: AttemptView, name: str) -> object:
    fact = None if view.runner is None else view.runner.facts.get(name)
    return None if fact is None else fact.value
