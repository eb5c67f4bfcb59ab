"""A story for a terminal, to be understood at a glance."""

from collections.abc import Iterator

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from proctor.evidence.layout import SEALED
from proctor.report.attempt_columns import expected_word, verified_word
from proctor.report.explanation import AttemptExplanation, ToolCallSummary
from proctor.report.format_values import count, duration, legible, one_line, plain_error, plural
from proctor.report.text import render_findings

_MAX_DEEDS = 12
_MAX_CHANGES = 6
_LINE = 78

_OF_VERDICT = {"pass": "green", "fail": "red"}


def render_story(story: AttemptExplanation) -> RenderableType:
    parts: list[RenderableType] = [*_heading(story)]
    for title, body in _sections(story):
        parts += [Text(), Text(title, style="bold"), Padding(body, (0, 0, 0, 2))]
    return Group(*parts)


def _heading(story: AttemptExplanation) -> Iterator[RenderableType]:
    name = Text(legible(story.attempt_id), style="bold")
    if story.is_running:
        name.append("   still running", style="cyan")
    elif not story.is_sealed:
        name.append("   cut off: it has no seal", style="bold red")
    elif story.evidence == "invalid":
        outcome = "" if story.outcome is None else f"recorded as {story.outcome.value}, but "
        name.append(f"   {outcome}the evidence is DAMAGED", style="bold red")
    elif story.outcome is not None:
        style = "green" if story.outcome == "completed" else "yellow"
        name.append(f"   {story.outcome.value}", style=style).append(f" in {duration(story.duration_ms)}", style="")
    yield name
    if story.runtime_id is not None:
        locked = {True: " (the locked program)", False: " (NOT the program its package names)", None: ""}
        program = f"{story.runtime_id} {story.version or ''}".rstrip() + locked[story.is_locked]
        yield Text(legible(f"{program}, {story.sandbox}, {story.isolation}"), style="dim")
        yield Text(legible(f"campaign {story.campaign_id}, run {story.run_id}"), style="dim")


def _sections(story: AttemptExplanation) -> Iterator[tuple[str, RenderableType]]:
    if story.asked is not None:
        yield "Asked", Text(legible(story.asked))
    yield f"Did   {plural(len(story.deeds), 'tool call')}, {count(story.tokens)} tokens", _did(story)
    if story.hooks:
        yield "Hooks", Text("\n".join(one_line(each, limit=2 * _LINE) for each in story.hooks))
    if story.said_last is not None:
        yield "Said last", Text(legible(story.said_last) or "nothing but its result")
    yield "Claimed", _claimed(story)
    yield "Verified", _verified(story)
    if story.code is not None:
        retry = ", worth another try" if story.retryable else ""
        what = f"{story.code} ({story.bucket}{retry})  {legible(plain_error(story.detail or ''))}"
        yield "Ended by", Text(what, style="yellow")
    yield "Evidence", _integrity(story)
    if story.transcript_tail:
        shown = len(story.transcript_tail)
        part = "" if shown == story.transcript_rows else f"   the last {shown} of {story.transcript_rows:,} rows"
        yield f"Transcript{part}", _transcript(story)
    yield "Next", Text("\n".join(story.next))


def _did(story: AttemptExplanation) -> RenderableType:
    table = Table.grid(padding=(0, 2))
    for number, each in enumerate(story.deeds[:_MAX_DEEDS], start=1):
        took = Text(duration(each.duration_ms), style="dim")
        table.add_row(Text(str(number), style="dim"), Text(legible(each.name)), Text(each.what), _result(each), took)
    parts: list[RenderableType] = [table] if story.deeds else []
    if len(story.deeds) > _MAX_DEEDS:
        parts.append(Text(f"… {len(story.deeds) - _MAX_DEEDS} more in tool.calls.jsonl", style="dim"))
    return Group(*parts, _changed(story))


def _result(each: ToolCallSummary) -> Text:
    if each.ok is None:
        return Text("never ended", style="yellow")
    shown = each.status if each.exit_code is None else f"exit {each.exit_code}"
    return Text(shown, style="green" if each.ok else "red")


def _changed(story: AttemptExplanation) -> Text:
    changes = story.changes
    if changes is None:
        return Text("What it changed is not known.", style="yellow")
    if not changes:
        return Text("It left the workspace as it was.")
    shown = [f"{legible(each.file)} (+{each.added} -{each.removed})" for each in changes[:_MAX_CHANGES]]
    more = f" and {len(changes) - _MAX_CHANGES} more" if len(changes) > _MAX_CHANGES else ""
    return Text(f"It changed {', '.join(shown)}{more}.")


def _claimed(story: AttemptExplanation) -> Text:
    if story.claim_problem is not None:
        return Text(f"unreadable: {legible(story.claim_problem)}", style="yellow")
    if story.claimed is None:
        return Text("nothing: it never said whether it is done")
    answer = "" if story.answer is None else f", with the answer `{one_line(story.answer)}`"
    return Text(f"{'done' if story.claimed else 'not done'}{answer}  (frame {story.claim_frame})")


def _verified(story: AttemptExplanation) -> RenderableType:
    line = verified_word(story.verified)
    for reason in story.reasons:
        line.append(f"  {one_line(reason, limit=_LINE)}", style="")
    parts: list[Text] = [line]
    for probe_summary in story.probes:
        probe = Text(f"probe {probe_summary.index}  `{one_line(' '.join(probe_summary.argv), limit=40)}`  ")
        for when, verdict in (("before", probe_summary.before), ("after", probe_summary.after)):
            probe.append(f"{when} ", style="dim").append(f"{verdict}  ", style=_OF_VERDICT.get(verdict, "yellow"))
        parts.append(probe)
    if story.expectation_met is not None:
        expected = Text("expectation ").append_text(expected_word(story.expectation_met))
        for miss in story.misses:
            expected.append(f"  {one_line(miss, limit=_LINE)}")
        parts.append(expected)
    return Group(*parts)


def _integrity(story: AttemptExplanation) -> RenderableType:
    folder = Text(legible(story.dir), style="dim", overflow="fold")
    if story.evidence == "valid":
        return Group(Text(f"whole: {len(SEALED)} files are as they were sealed", style="green"), folder)
    is_partial = story.evidence == "partial"
    whole = "not sealed yet" if story.is_running else "partial"
    word = Text(whole if is_partial else "DAMAGED", style="yellow" if is_partial else "bold red")
    return Group(word, render_findings(story.findings), folder)


def _transcript(story: AttemptExplanation) -> RenderableType:
    table = Table.grid(padding=(0, 2))
    for line in story.transcript_tail:
        frame = Text(str(line.frame), style="dim", justify="right")
        text = plain_error(line.text) if line.kind in ("error", "turn") else line.text
        table.add_row(frame, Text(line.kind, style="dim"), Text(one_line(text, limit=_LINE)))
    return table
