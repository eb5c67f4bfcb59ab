"""Render the explanation of an attempt for a terminal."""

from collections.abc import Iterator, Sequence

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from proctor.context.model import TurnContext
from proctor.evidence.layout import SEALED
from proctor.report.attempt_columns import verified_word
from proctor.report.explanation import HEADLESS_RUN, AttemptExplanation, ToolCallSummary
from proctor.report.failures import diff_lines, probe_lines
from proctor.report.format_values import count, duration, legible, one_line, plain_error, plural
from proctor.report.text import render_findings, render_lines
from proctor.spec.argv import is_shell, shell_command

_MAX_CALLS = 12
_MAX_CHARS = 78

_VERDICT_STYLES = {"pass": "green", "fail": "red"}


def render_explanation(explanation: AttemptExplanation) -> RenderableType:
    """Return a heading and one section for each aspect."""
    parts: list[RenderableType] = [*_heading(explanation)]
    for title, body in _sections(explanation):
        parts += [Text(), Text(title, style="bold"), Padding(body, (0, 0, 0, 2))]
    return Group(*parts)


def _heading(explanation: AttemptExplanation) -> Iterator[RenderableType]:
    name = Text(legible(explanation.attempt_id), style="bold")
    if explanation.is_running:
        name.append("   still running", style="cyan")
    elif not explanation.is_sealed:
        name.append("   cut off: not sealed", style="bold red")
    elif explanation.evidence == "invalid":
        outcome = "" if explanation.outcome is None else f"recorded as {explanation.outcome.value}, but "
        name.append(f"   {outcome}the evidence is DAMAGED", style="bold red")
    elif explanation.outcome is not None:
        style = "green" if explanation.outcome == "completed" else "yellow"
        name.append(f"   {explanation.outcome.value}", style=style).append(
            f" in {duration(explanation.duration_ms)}", style=""
        )
    yield name
    if explanation.runtime_id is not None:
        pinned = {True: " (pinned program)", False: " (NOT the pinned program)", None: ""}
        program = f"{explanation.runtime_id} {explanation.version or ''}".rstrip() + pinned[explanation.is_locked]
        settings = f"sandbox {explanation.sandbox}; isolation {explanation.isolation}"
        yield Text(legible(f"{program}; {settings}"), style="dim")
        yield Text(legible(f"campaign {explanation.campaign_id}, run {explanation.run_id}"), style="dim")
    if explanation.continues is not None:
        yield Text(legible(f"continues {explanation.continues} after a wait"), style="dim")
    if explanation.fresh_start is not None:
        yield Text(f"does not continue the attempt before it: {explanation.fresh_start}", style="dim")


def _sections(explanation: AttemptExplanation) -> Iterator[tuple[str, RenderableType]]:
    if explanation.prompt is not None:
        yield "Prompt", Text(legible(explanation.prompt))
    calls = explanation.tool_calls
    number = "unknown tool calls" if calls is None else plural(len(calls), "tool call")
    yield f"Actions   {number}, {count(explanation.tokens)} tokens", _actions(calls)
    yield "Changes", _changes(explanation)
    if explanation.hooks:
        yield "Hooks", Text("\n".join(one_line(each, limit=2 * _MAX_CHARS) for each in explanation.hooks))
    if explanation.last_message is not None:
        yield "Last message", Text(legible(explanation.last_message) or "only the claim")
    yield "Claimed", _claim(explanation)
    yield "Verified", _verification(explanation)
    if explanation.context is not None:
        yield "Context", _context(explanation.context)
    if (expected := _expectation(explanation)) is not None:
        yield "Expected", expected
    if explanation.code is not None:
        retry = ", retryable" if explanation.retryable else ""
        what = f"{explanation.code} ({explanation.bucket}{retry})  {legible(plain_error(explanation.detail or ''))}"
        yield "Error", Text(what, style="yellow")
    yield "Evidence", _evidence(explanation)
    if explanation.transcript_tail:
        shown = len(explanation.transcript_tail)
        is_all = shown == explanation.transcript_rows
        part = "" if is_all else f"last {shown} of {explanation.transcript_rows:,} rows "
        yield f"Transcript   {part}(numbers are frames)", _transcript(explanation)
    yield "Next", Text("\n".join(explanation.next))


def _actions(calls: Sequence[ToolCallSummary] | None) -> RenderableType:
    if not calls:
        return Text("none" if calls is not None else "unknown: the runtime cannot see tool calls")
    table = Table.grid(padding=(0, 2))
    for number, each in enumerate(calls[:_MAX_CALLS], start=1):
        took = Text(duration(each.duration_ms), style="dim")
        table.add_row(Text(str(number), style="dim"), Text(legible(each.name)), Text(each.what), _result(each), took)
    parts: list[RenderableType] = [table]
    if len(calls) > _MAX_CALLS:
        parts.append(Text(f"… {len(calls) - _MAX_CALLS} more in tool.calls.jsonl", style="dim"))
    return Group(*parts)


def _result(each: ToolCallSummary) -> Text:
    if each.ok is None:
        return Text("never ended", style="yellow")
    shown = each.status if each.exit_code is None else f"exit {each.exit_code}"
    return Text(shown, style="green" if each.ok else "red")


def _changes(explanation: AttemptExplanation) -> RenderableType:
    if explanation.changes is None:
        return Text("unknown: workspace.diff cannot be read", style="yellow")
    if explanation.diff is None:
        return Text("none")
    return render_lines(diff_lines(explanation.diff))


def _claim(explanation: AttemptExplanation) -> Text:
    if explanation.claim_problem is not None:
        return Text(f"unreadable: {legible(explanation.claim_problem)}", style="yellow")
    if explanation.claimed is None:
        return Text("nothing: the agent did not say whether the task is done")
    answer = "" if explanation.answer is None else f", with the answer `{one_line(explanation.answer)}`"
    return Text(f"{'done' if explanation.claimed else 'not done'}{answer}  (frame {explanation.claim_frame})")


def _verification(explanation: AttemptExplanation) -> RenderableType:
    word = verified_word(explanation.verified, explanation.judged)
    parts: list[RenderableType] = [_with_reason(word.copy(), each) for each in explanation.reasons] or [word]
    for probe_summary in explanation.probes:
        probe = Text(f"`{one_line(shell_command(probe_summary.argv), limit=_MAX_CHARS)}`  ")
        if not probe_summary.criterion.endswith(f"({probe_summary.kind})"):
            parts.append(Text(legible(one_line(probe_summary.criterion, limit=_MAX_CHARS))))
        verdicts = {"before": probe_summary.before, "mutant": probe_summary.mutant, "after": probe_summary.after}
        for when, verdict in ((when, verdict) for when, verdict in verdicts.items() if verdict is not None):
            probe.append(f"{when} ", style="dim").append(f"{verdict}  ", style=_VERDICT_STYLES.get(verdict, "yellow"))
        parts.append(probe)
        if probe_summary.failure is not None:
            _, *output = probe_lines(probe_summary.failure)
            parts.append(render_lines(output))
        if probe_summary.files:
            parts.append(Text(f"kept {legible(', '.join(probe_summary.files))}", style="dim"))
    return Group(*parts)


def _context(context: TurnContext) -> RenderableType:
    given = f"{context.given} given as {context.how}" if context.given else "none given"
    messages = f"{plural(context.assembled, 'message')} assembled, {given}"
    if (addition := context.addition_words) is not None:
        messages = f"{addition} ({context.addition_sha256}); {messages}"
    parts = [Text(legible(f"{context.engine} {context.version} ({context.policy}): {messages}; turn {context.commit}"))]
    if context.degraded is not None:
        parts.append(Text(f"degraded: {one_line(context.degraded, limit=2 * _MAX_CHARS)}", style="bold red"))
    return Group(*parts)


def _expectation(explanation: AttemptExplanation) -> RenderableType | None:
    """Render whether the result is as expected, and why; None if the mission expects nothing."""
    if explanation.expectation_met is not None:
        why = explanation.unmet or ("every key of `expect` is met",)
    elif explanation.probes and explanation.verified is not None:
        why = ("the mission has no `expect`, so its probes should verify the result",)
    else:
        return None
    is_met = explanation.verified if explanation.expectation_met is None else explanation.expectation_met
    word = Text("as expected", style="green") if is_met else Text("NOT as expected", style="bold red")
    return Group(*(_with_reason(word.copy(), each) for each in why))


def render_commands(explanation: AttemptExplanation) -> RenderableType | None:
    """Render the commands that run the probes again, to be copied as they are; None if there are none."""
    failed = [each for each in explanation.probes if each.failure is not None and each.command]
    if not failed:
        return None
    parts = [Text(), Text("Run the probe again", style="bold")]
    for each in failed:
        if each.run_again is not None:
            parts.append(Text(f"  {legible(each.run_again)}"))
        else:
            if each.workspace_problem is not None:
                parts.append(Text(f"  # no complete command: {legible(each.workspace_problem)}", style="dim"))
            parts.append(Text("  # in the workspace as the agent left it (see workspace.diff):", style="dim"))
            parts.append(Text(f"  {legible(each.command)}"))
        if is_shell(each.argv) and each.kind == HEADLESS_RUN:
            parts.append(Text("  # the spec has this command as a string, which bash runs", style="dim"))
    return Group(*parts)


def _with_reason(word: Text, reason: str) -> Text:
    return word.append(f": {one_line(reason, limit=_MAX_CHARS)}", style="default")


def _evidence(explanation: AttemptExplanation) -> RenderableType:
    folder = Text(legible(explanation.dir), style="dim", overflow="fold")
    if explanation.evidence == "valid":
        return Group(Text(f"complete: all {len(SEALED)} sealed files are unchanged", style="green"), folder)
    is_partial = explanation.evidence == "partial"
    partial = "not sealed yet" if explanation.is_running else "partial"
    word = Text(partial if is_partial else "DAMAGED", style="yellow" if is_partial else "bold red")
    return Group(word, render_findings(explanation.findings), folder)


def _transcript(explanation: AttemptExplanation) -> RenderableType:
    table = Table.grid(padding=(0, 2))
    for line in explanation.transcript_tail:
        frame = Text(str(line.frame), style="dim", justify="right")
        text = plain_error(line.text) if line.kind in ("error", "turn") else line.text
        table.add_row(frame, Text(line.kind, style="dim"), Text(one_line(text, limit=_MAX_CHARS)))
    return table
