"""Explain one attempt: prompt, tool calls, claim, verification, the state of its evidence, and what to do next."""

import os
import shlex
from dataclasses import replace

import msgspec

from proctor import decoding
from proctor.context.model import TurnContext
from proctor.errors import CODES, Bucket, advice
from proctor.event.claim import FOOTER, MARKER
from proctor.event.outcome import Outcome
from proctor.event.supervisor_events import HOOK
from proctor.event.transcript import Line
from proctor.evidence.artifacts import DiffExcerpt, FailedProbe, Judged
from proctor.evidence.layout import TOOL_CALLS, TRANSCRIPT
from proctor.evidence.reader import Finding
from proctor.ids import AttemptId
from proctor.plan.continuation import FreshStart
from proctor.probe.failure import describe_row, is_failed
from proctor.probe.model import Phase, ProbeRow
from proctor.report.format_values import NOT_EXPECTED, describe_call, explain_unmet, one_line
from proctor.report.live import while_running
from proctor.report.row import Evidence
from proctor.report.view import AttemptView
from proctor.spec.criterion import Role
from proctor.workspace.changed import changed_in
from proctor.workspace.excerpt import excerpt, file_diffs
from proctor.workspace.name import quoted

_TAIL_ROWS = 8
_DIFF_LINES = 60
_DIFF_FILES = 12
_OUTPUT_LINES = 20
_MAX_EXCLUDED = 8
_DERIVED = (TOOL_CALLS, TRANSCRIPT)


HEADLESS_RUN = "headless_run"
"""The kind of probe that is nothing but a command."""


class ExplanationPart(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Root of the structs of an explanation."""


class ToolCallSummary(ExplanationPart, frozen=True, kw_only=True):
    """One tool call."""

    name: str
    """Name of the tool."""
    what: str
    """The command, the changed files or the input, shortened to one line."""
    ok: bool | None
    """Whether the call succeeded; null if it never ended."""
    status: str
    """State of the call that the agent last reported."""
    exit_code: int | None
    """Exit code of a command; null for other tools."""
    duration_ms: int | None
    """Duration of the call; null if unknown."""


class FileChange(ExplanationPart, frozen=True, kw_only=True):
    """One changed file of the workspace."""

    file: str
    """Path in the workspace."""
    added: int
    """Number of lines added."""
    removed: int
    """Number of lines removed."""
    is_generated: bool
    """Whether it is a cache, an installed package, a lock file or minified."""


class ProbeSummary(ExplanationPart, frozen=True, kw_only=True):
    """The two verdicts of one probe."""

    index: int
    """Position of the probe in the mission, counted from 0."""
    kind: str
    """Kind of the probe."""
    role: Role
    """What the probe says about the mission: goal or guard."""
    criterion: str
    """What the probe shows, in words."""
    argv: tuple[str, ...]
    """Command of the probe."""
    before: str
    """Verdict on the untouched workspace; `not_run` if it did not run."""
    mutant: str | None
    """Verdict on the guard's mutant; null if it has none."""
    after: str
    """Verdict on the workspace after the agent ended; `not_run` if it did not run."""
    judged: Judged | None
    """Where the verdict after the agent ended comes from: `inside` or `outside` the product's process; null if it is
    not pass or fail."""
    files: tuple[str, ...]
    """Names of the files in the attempt's folder that the probe kept, such as a screenshot."""
    failure: FailedProbe | None
    """How it ended on the workspace after the agent ended, with the last lines of its output; null if it passed or did
    not run."""
    command: str
    """Its command line for a shell, quoted; a command that is a string in the spec is run by `bash -c`."""
    run_again: str | None
    """A shell command that makes the workspace as the agent left it in a new folder and runs the probe there, without
    containment; a `proctor regrade` for other kinds than headless_run, and if there are hidden files. Null if the files
    for it are not there or have changed, or if workspace.diff does not have all changes."""
    workspace_problem: str | None = None
    """Why the untouched workspace cannot be made again; null if it can or that is unknown."""


class AttemptExplanation(ExplanationPart, frozen=True, kw_only=True):
    """What `attempt explain --json` prints. Null means unknown.

    Damaged evidence is shown as it was recorded, but `verified` and the expectation are then null.
    """

    attempt_id: str
    """Id of the attempt: the name of its folder."""
    dir: str
    """Folder of the attempt."""
    campaign_id: str | None
    """Campaign of the attempt."""
    run_id: str | None
    """Run of the attempt."""
    continues: AttemptId | None
    """The attempt of the trial that it continues after a wait; null if none or unknown."""
    fresh_start: FreshStart | None
    """Why it does not continue the attempt of the trial before it; null if it does, or if that was not asked for."""
    runtime_id: str | None
    """Runtime that drove the agent."""
    version: str | None
    """Version that the program reported."""
    is_locked: bool | None
    """Whether the program has the sha256 that its lock names."""
    sandbox: str | None
    """Sandbox of the flow."""
    isolation: str | None
    """Isolation of the agent's process."""
    is_sealed: bool
    """Whether the attempt has a seal."""
    is_running: bool
    """Whether the attempt is still running."""
    outcome: Outcome | None
    """How the attempt ended."""
    code: str | None
    """Error code that ended the attempt; null if no error did."""
    detail: str | None
    """Message of the error."""
    bucket: Bucket | None
    """Cause of the error, such as `agent` or `infra`."""
    retryable: bool | None
    """Whether another attempt may end differently."""
    todo: str | None
    """What to do about the error code."""
    duration_ms: int | None
    """Duration of the attempt."""
    tokens: int | None
    """All tokens that the attempt used."""
    prompt: str | None
    """The mission's prompt, without the text that Proctor appends."""
    tool_calls: tuple[ToolCallSummary, ...] | None
    """The agent's tool calls, in order; null if the runtime cannot see them."""
    changes: tuple[FileChange, ...] | None
    """Files of the workspace that the attempt changed, generated ones last."""
    diff: DiffExcerpt | None
    """The first lines of these changes, source files first; null if nothing changed or if that is unknown."""
    hooks: tuple[str, ...]
    """Warnings about hooks of the mission that failed."""
    last_message: str | None
    """The agent's last message, without the marker line of its claim."""
    claimed: bool | None
    """Whether the agent claims that the task is done."""
    answer: str | None
    """The answer that the agent claims."""
    claim_frame: int | None
    """Frame that contains the claim."""
    claim_problem: str | None
    """Why the claim could not be read."""
    verified: bool | None
    """Whether probes established that the task is done."""
    judged: Judged | None
    """Where that was established: `outside` the product's processes, or only `inside`; null unless it was."""
    reasons: tuple[str, ...]
    """Why `verified` has its value."""
    probes: tuple[ProbeSummary, ...]
    """The probes, in the order of the mission."""
    context: TurnContext | None
    """What the context engine did; null without one, or if it was not asked."""
    expectation_met: bool | None
    """Whether every expectation was met; null also if the mission states none."""
    unmet: tuple[str, ...]
    """One sentence for each expectation that was not met."""
    evidence: Evidence
    """State of the evidence. `partial` means that only the end is missing."""
    findings: tuple[Finding, ...]
    """Problems of the evidence."""
    transcript_rows: int
    """Number of rows in the transcript."""
    transcript_tail: tuple[Line, ...]
    """The last rows of the transcript."""
    next: tuple[str, ...]
    """What to do next, the most urgent first. Never empty."""


def explain(
    view: AttemptView,
    *,
    is_running: bool = False,
    make_workspace: str | None = None,
    workspace_problem: str | None = None,
) -> AttemptExplanation:
    """Explain an attempt as far as its files can be read.

    `make_workspace` is a shell command that makes the untouched workspace in the current folder; empty if that is
    empty, None if it cannot be made. `workspace_problem` says why it cannot, in a few words.
    """
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
        continues=None if record is None else record.continues,
        fresh_start=None if record is None else record.fresh_start,
        sandbox=None if record is None else record.sandbox,
        isolation=None if record is None else record.isolation,
        is_sealed=view.is_sealed,
        is_running=is_running,
        outcome=None if report is None else report.outcome,
        code=None if report is None else report.code,
        detail=None if report is None else report.detail,
        **(advice(None) if report is None else advice(report.code, has_begun=report.metrics.turns > 0)),
        duration_ms=None if report is None else report.duration_ms,
        tokens=None if report is None else report.metrics.total_tokens,
        prompt=None if view.prompt is None else view.prompt.strip().removesuffix(FOOTER).strip(),
        tool_calls=None
        if report is not None and report.metrics.tool_calls is None
        else tuple(
            ToolCallSummary(
                name=call.name,
                what=describe_call(call.name, call.input),
                ok=call.ok,
                status=call.status,
                exit_code=call.exit_code,
                duration_ms=call.duration_ms,
            )
            for call in view.tool_calls
        ),
        changes=None if view.diff is None else changes_in(view.diff),
        diff=None if view.diff is None else excerpt(view.diff, max_lines=_DIFF_LINES, max_files=_DIFF_FILES),
        hooks=tuple(line.text for line in view.transcript if line.source == HOOK),
        last_message=_last_message(view),
        claimed=None if feedback is None else feedback.claimed,
        answer=None if feedback is None else feedback.answer,
        claim_frame=None if feedback is None else feedback.frame,
        claim_problem=None if feedback is None else feedback.problem,
        verified=None if judged is None else judged.verified,
        judged=None if judged is None else judged.judged,
        reasons=("the evidence is damaged",) if evidence == "invalid" else reasons,
        probes=tuple(
            _probe(
                [row for row in view.probes if row.index == index],
                _reproduction(view, make_workspace),
                workspace_problem=workspace_problem,
            )
            for index in sorted({row.index for row in view.probes})
        ),
        context=_context(view),
        expectation_met=None if judged is None else judged.expectation.met,
        unmet=() if judged is None else judged.expectation.unmet,
        evidence=evidence,
        findings=view.findings,
        transcript_rows=len(view.transcript),
        transcript_tail=view.transcript[-_TAIL_ROWS:],
        next=_next(view),
    )


def _context(view: AttemptView) -> TurnContext | None:
    value = _fact(view, "context")
    try:
        return None if value is None else decoding.convert(value, TurnContext)
    except msgspec.ValidationError:
        return None  # the evidence is damaged, which its findings say


def changes_in(diff: str) -> tuple[FileChange, ...]:
    """Count the added and removed lines of each file in a workspace.diff. Generated files come last.

    >>> changes_in("diff --git a/x b/x\\n--- a/x\\n+++ b/x\\n@@ -1 +1,2 @@\\n-a\\n+b\\n+c\\n")
    (FileChange(file='x', added=2, removed=1, is_generated=False),)
    """
    changes = (
        FileChange(file=quoted(each.file), added=each.added, removed=each.removed, is_generated=each.is_generated)
        for each in file_diffs(diff)
    )
    return tuple(sorted(changes, key=lambda each: each.is_generated))


def _last_message(view: AttemptView) -> str | None:
    messages = [line for line in view.transcript if line.kind == "message"]
    if not messages:
        return None
    return "\n".join(line for line in messages[-1].text.splitlines() if MARKER not in line).strip()


def _probe(rows: list[ProbeRow], reproduction: str | None, *, workspace_problem: str | None) -> ProbeSummary:
    verdicts = {row.phase: row.verdict.value for row in rows}
    last = next((row for row in reversed(rows) if row.phase is Phase.FINAL), None)
    # A probe that was not run on what the agent left has its command only in the other rows.
    argv = next((row.argv for row in reversed(rows) if row.argv), ())
    command = shlex.join(argv)
    can_be_pasted = reproduction is not None and argv and rows[0].kind == HEADLESS_RUN
    run_again = f"({reproduction}{command})" if can_be_pasted else None
    return ProbeSummary(
        index=rows[0].index,
        kind=rows[0].kind,
        role=rows[0].role,
        criterion=rows[0].criterion,
        argv=argv,
        before=verdicts.get(Phase.BASELINE, "not_run"),
        mutant=verdicts.get(Phase.MUTANT),
        after=verdicts.get(Phase.FINAL, "not_run"),
        judged=None if last is None else last.judged,
        files=() if last is None else tuple(each.file for each in last.artifacts),
        failure=None if last is None or not is_failed(last) else describe_row(last, max_lines=_OUTPUT_LINES),
        command=command,
        # What a terminal would not show as it is cannot be pasted from there.
        run_again=run_again if run_again is not None and run_again.replace("\n", "").isprintable() else None,
        workspace_problem=workspace_problem,
    )


def _reproduction(view: AttemptView, make_workspace: str | None) -> str | None:
    """Return the beginning of a command that runs a probe again; None if the workspace cannot be made again."""
    if make_workspace is None or view.diff is None or changed_in(view.diff).is_cut:
        return None
    steps = ['cd "$(mktemp -d)"', *filter(None, [make_workspace])]
    files = file_diffs(view.diff)
    binary = [each.file for each in files if each.is_binary]
    if len(binary) > _MAX_EXCLUDED:
        return None
    if len(files) > len(binary):
        words = ["git", "apply", *(f"--exclude={file}" for file in binary), str(view.paths.workspace_diff.absolute())]
        steps.append(shlex.join(words))
    return "".join(f"{step} && " for step in steps)


def _evidence(view: AttemptView) -> Evidence:
    if not view.findings:
        return "valid"
    # An attempt that was cut off is not damaged, and must not be shown as such.
    unfinished = {"evidence.partial", "evidence.torn", "evidence.running"}
    return "partial" if {finding.code for finding in view.findings} <= unfinished else "invalid"


def _next(view: AttemptView) -> tuple[str, ...]:
    """Return what the user can do about it, the most urgent first."""
    if view.findings:
        steps = [_restore_step(view)] if {finding.file for finding in view.findings} <= set(_DERIVED) else []
        steps = steps or [CODES[finding.code].todo for finding in view.findings if finding.code in CODES]
        return tuple(dict.fromkeys(steps)) or ("Treat the attempt as damaged.",)
    steps, report = [], view.report
    if report is not None:
        steps += [
            f"An expectation was not met: {one_line(explain_unmet(sentence).removeprefix(NOT_EXPECTED), limit=160)}"
            for sentence in report.expectation.unmet
        ]
        if report.policy_violations:
            steps.append(
                f"The agent violated the flow's tool policy: {one_line(report.policy_violations[0], limit=160)}"
            )
        if report.metrics.is_stuck:
            streak = report.metrics.longest_streak
            steps.append(
                f"The agent made no progress: it repeated one call {streak} times in a row. Read tool.calls.jsonl."
            )
        if "the script is exhausted" in (report.detail or ""):
            mission = "the mission" if view.record is None else f"mission `{view.record.mission_id}`"
            steps.append(f"The script ran out of steps: add one to the script of {mission}.")
        elif report.code in CODES:
            steps.append(CODES[report.code].todo)
        if report.verified is False:
            is_unchanged = view.diff is not None and not changes_in(view.diff)
            what = "The agent claims success, but a probe failed" if report.claimed else "A probe failed"
            todo = ", and the agent changed nothing." if is_unchanged else ": compare its output with the diff."
            steps.append(what + todo)
        elif report.verified is None and not view.probes:
            # A mission that expects `verified: unknown` has no probe on purpose.
            is_intended = report.expectation.keys.get("verified", False)
            steps += [] if is_intended else ["Nothing was verified: add a probe to the mission."]
        elif report.verified is None and report.code is None:
            steps.append(
                "Fix the probe: it must fail on the untouched workspace and be able to run after the agent ended."
            )
    if not steps:
        what = "verified" if report is not None and report.verified else "as expected"
        steps.append(f"Nothing to do: the result is {what} and the evidence is complete.")
    return tuple(dict.fromkeys(steps))


def _restore_step(view: AttemptView) -> str:
    """Return how to restore derived files. Existing files are never overwritten, so they must be moved first."""
    affected = [name for name in _DERIVED if any(finding.file == name for finding in view.findings)]
    existing = [name for name in affected if os.path.lexists(view.paths.folder / name)]
    command = f"`proctor attempt rederive {shlex.quote(str(view.paths.folder))}`"
    return f"Move {' and '.join(existing)} away, then run {command}." if existing else f"Run {command}."


def _is_locked(identity: object) -> bool | None:
    match identity:
        case {"lockedSha256": str(locked), "sha256": str(found)}:
            return locked == found
        case _:
            return None


def _fact(view: AttemptView, name: str) -> object:
    fact = None if view.runner is None else view.runner.facts.get(name)
    return None if fact is None else fact.value
