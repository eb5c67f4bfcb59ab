"""Reports and listings for a terminal. Pure; readable without colour and in 100 columns."""

from collections import Counter
from collections.abc import Callable, Container, Iterable, Iterator, Sequence

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from proctor.errors import CODES, Exit
from proctor.evidence.reader import Finding
from proctor.report.attempt_columns import COLUMNS, DROP_ORDER, verified_word
from proctor.report.campaign import CampaignReport
from proctor.report.columns import MIN_NAME_WIDTH, NamedTable
from proctor.report.failures import INDENT, failed_rows, failure_lines
from proctor.report.format_values import explain_unmet, legible, one_line, plain_error, plural
from proctor.report.notes import Notes
from proctor.report.row import AttemptRow
from proctor.report.sections import Topic, conclude, facts, flow_note, flow_table, mismatch_lines, repeat_note, sections
from proctor.report.verdict import judge_attempt

MAX_ROWS = 40
MAX_LISTED = 200
_MAX_EXPLAINED = 3
"""How many failed attempts a report explains in full."""
_MAX_NAMED = 3
_FLOW_DROP_ORDER = tuple("reasoning p95 pass^ pass@ continued tokens cost p50 trials expected rate".split())
"""Beginnings of headings, the first to go first."""
_INDENT = (0, 0, 0, 2)

STYLE_OF = {
    Exit.OK: "green",
    Exit.JUDGED_NO: "bold red",
    Exit.INFRASTRUCTURE: "bold red",
    Exit.UNVERIFIED: "yellow",
    Exit.EVIDENCE: "bold red",
    Exit.INTERRUPTED: "yellow",
}


def render_report(report: CampaignReport, *, title: str) -> RenderableType:
    """Render a report up to its conclusion: facts, attempts, why they ended as they did, flows, what to look at."""
    rows = report.counted_attempts
    is_small = len(rows) <= MAX_ROWS
    notable = rows if is_small else [row for row in rows if judge_attempt(row) is not Exit.OK]
    parts: list[RenderableType] = [Text(legible(title), style="bold"), Padding(_fact_grid(report), _INDENT)]
    if notable:
        parts += [Text(), *_attempts(report, notable, of=len(rows))]
    has_rates = not is_small or len(report.flows) > 1 or len(report.missions) < len(rows)
    if has_rates:
        parts += [Text(), Padding(_flow_table(report), _INDENT)]
        notes = filter(None, (flow_note(report), repeat_note(report)))
        parts += [Padding(Text(note, style="dim"), _INDENT) for note in notes]
    # The table of all attempts shows failures already, and a few attempts need no sums.
    hidden = {Topic.FAILURES} if is_small else set()
    hidden |= set() if has_rates else {Topic.SUMS}
    found = [each for each in sections(report) if each.lines and each.topic not in hidden]
    for section in found:
        heading = Text(legible(section.title), style="bold red" if section.is_bad else "bold")
        parts += [] if section is not found[0] else [Text()]
        parts.append(Padding(heading, _INDENT))
        parts += [Padding(Text(legible(line)), (0, 0, 0, 4)) for line in section.lines]
    return Group(*parts)


def render_conclusion(report: CampaignReport) -> RenderableType:
    """Render what the whole amounts to, and every claim that the probes contradict."""
    lines = [Text(conclude(report), style=STYLE_OF[Exit(report.exit)])]
    lines += [Text(legible(line), style="bold red") for line in mismatch_lines(report)]
    return Padding(Group(*lines), _INDENT)


def _fact_grid(report: CampaignReport) -> Table:
    grid = Table.grid(padding=(0, 2))
    for name, value in facts(report):
        grid.add_row(Text(name, style="dim"), Text(legible(value)))
    return grid


def _flow_table(report: CampaignReport) -> NamedTable:
    headings, rows = flow_table(report)
    drop_order = [each for beginning in _FLOW_DROP_ORDER for each in headings if each.startswith(beginning)]
    table = NamedTable(name=headings[0], drop_order=drop_order, numbers=headings[1:], min_name_width=MIN_NAME_WIDTH)
    for row in rows:
        flow, *values = (Text(legible(each)) for each in row)
        table.add(flow, dict(zip(headings[1:], values, strict=True)))
    return table


def _attempts(report: CampaignReport, notable: Sequence[AttemptRow], *, of: int) -> Iterator[RenderableType]:
    """Yield a table of the first notable attempts, and what explains all of them."""
    shown, label = notable[:MAX_ROWS], labels(notable)
    table = _attempt_table(label_heading(notable), min_name_width=MIN_NAME_WIDTH)
    for row in shown:
        table.add(Text(legible(label(row))), _values(row))
    yield Padding(table, _INDENT)
    if len(shown) < len(notable):
        yield Text(f"  … and {plural(len(notable) - len(shown), 'more attempt')} like these", style="dim")
    if len(notable) < of:
        yield Text(f"  {plural(of - len(notable), 'other attempt')} as expected; --json lists all", style="dim")
    if len(report.attempts) > of:
        yield Text(f"  {_not_counted(report)}", style="dim")
    explained = {row.ref for row in failed_rows(report)[:_MAX_EXPLAINED]}
    notes = list(_notes(notable, label, explained))
    if notes:
        yield from (Text(), Padding(Notes(notes), _INDENT))
    yield from _failures(report, label)


def _not_counted(report: CampaignReport) -> str:
    counted = {row.ref for row in report.counted_attempts}
    others = [legible(row.attempt_id) for row in report.attempts if row.ref not in counted]
    more = f" and {len(others) - _MAX_NAMED} more" if len(others) > _MAX_NAMED else ""
    return f"not counted, because another attempt of the trial counts: {', '.join(others[:_MAX_NAMED])}{more}"


def _failures(report: CampaignReport, label: Callable[[AttemptRow], str]) -> Iterator[RenderableType]:
    """Yield why the first failed attempts failed, and how to see the others."""
    failed = failed_rows(report)
    for row in failed[:_MAX_EXPLAINED]:
        yield from (Text(), Padding(Text(legible(label(row)), style="bold red"), _INDENT))
        yield Padding(render_lines(failure_lines(row)), (0, 0, 0, 4))
    if (others := len(failed) - _MAX_EXPLAINED) > 0:
        ref = failed[_MAX_EXPLAINED].ref
        yield from (Text(), Text(f"  … {plural(others, 'more failed attempt')}, such as:", style="dim"))
        yield Padding(Text(f"proctor attempt explain {legible(ref)}", style="dim"), (0, 0, 0, 4))


def render_lines(lines: Iterable[str]) -> RenderableType:
    """Render lines of `failures`. Lines of output or of a diff are not wrapped: they are cut at the width."""
    return Group(
        *(Text(line, no_wrap=line.startswith(INDENT), overflow="ellipsis", style=_line_style(line)) for line in lines)
    )


def _line_style(line: str) -> str:
    if not line.startswith(INDENT):
        return ""
    mark = line.removeprefix(INDENT)[:1]
    return "green" if mark == "+" else "red" if mark == "-" else "dim"


def render_attempts(rows: Sequence[AttemptRow], findings: Sequence[Finding]) -> RenderableType:
    """Render the latest attempts, grouped by campaign."""
    parts: list[RenderableType] = []
    if len(rows) > MAX_LISTED:
        parts += [Text(f"The latest {MAX_LISTED} of {len(rows):,}; --json lists all.", style="dim"), Text()]
        rows = rows[-MAX_LISTED:]
    for campaign in dict.fromkeys(row.campaign_id for row in rows):
        of_it = [row for row in rows if row.campaign_id == campaign]
        table = _attempt_table("attempt")
        for row in of_it:
            values = _values(row)
            if row.is_superseded:
                values["outcome"] = Text(f"({values['outcome'].plain})", style="dim")
            table.add(Text(legible(row.attempt_id)), values)
        runs = ", ".join(dict.fromkeys(row.run_id for row in of_it))
        scripted = "   scripted" if any(row.is_scripted for row in of_it) else ""
        details = f"   run {legible(runs)}{scripted}"
        heading = Text.assemble((legible(campaign or "no campaign"), "bold"), (details, "dim"))
        parts += [heading, Padding(table, _INDENT)]
        if any(row.is_superseded for row in of_it):
            parts.append(Text("  (…) another attempt of its trial counts instead", style="dim"))
        parts.append(Text())
    if findings:
        parts += [Padding(render_findings(findings), _INDENT), Text()]
    return Group(*parts[:-1])


def render_findings(findings: Iterable[Finding]) -> RenderableType:
    """Render one line for each finding: code, place, detail."""
    table = Table.grid(padding=(0, 2))
    for finding in findings:
        place = finding.file if finding.line is None else f"{finding.file}:{finding.line}"
        table.add_row(Text(finding.code, style="red"), Text(legible(place)), Text(one_line(finding.detail, limit=200)))
    return table


def labels(rows: Sequence[AttemptRow]) -> Callable[[AttemptRow], str]:
    """Return a function that names each row: mission and flow if that is unique, else the attempt's id."""
    is_short = _has_short_labels(rows)
    return lambda row: f"{row.mission_id}/{row.flow_id}" if is_short else row.attempt_id


def label_heading(rows: Sequence[AttemptRow]) -> str:
    """Return the heading of a column of `labels`."""
    return "mission/flow" if _has_short_labels(rows) else "attempt"


def _has_short_labels(rows: Sequence[AttemptRow]) -> bool:
    pairs = Counter((row.mission_id, row.flow_id) for row in rows)
    return all(number == 1 for number in pairs.values()) and (None, None) not in pairs


def _attempt_table(heading: str, *, min_name_width: int | None = None) -> NamedTable:
    numbers = [column.name for column in COLUMNS if column.is_number]
    return NamedTable(name=heading, drop_order=DROP_ORDER, numbers=numbers, min_name_width=min_name_width)


def _values(row: AttemptRow) -> dict[str, Text]:
    return {column.name: column.value(row) for column in COLUMNS}


def _notes(
    rows: Sequence[AttemptRow], label: Callable[[AttemptRow], str], explained: Container[str]
) -> Iterator[tuple[Text, Text]]:
    """Yield what explains the rows: each explanation once, with all the rows that it explains.

    What the probes of the `explained` attempts found is shown in full elsewhere.
    """
    notes: dict[tuple[str, str], list[str]] = {}
    for row in rows:
        for styled in _explanations(row, with_reasons=row.ref not in explained):
            notes.setdefault(styled, []).append(label(row))
    for (style, note), labels_ in notes.items():
        names = ", ".join(labels_[:3]) + (f" and {len(labels_) - 3} more" if len(labels_) > 3 else "")
        yield Text(legible(names), style="bold"), Text(note, style=style)


def _explanations(row: AttemptRow, *, with_reasons: bool) -> Iterator[tuple[str, str]]:
    for finding in row.findings:
        yield "red", f"{finding.code}: {legible(finding.file)} {one_line(finding.detail, limit=120)}".rstrip()
    if row.state == "running":
        yield "yellow", "still running"
    elif row.state == "partial" and not row.findings:
        yield "yellow", CODES["evidence.partial"].means
    if row.code is not None:
        means = CODES[row.code].means if row.code in CODES else ""
        yield "yellow", f"{row.code} ({row.bucket}): {one_line(plain_error(row.detail or means), limit=160)}"
        if row.todo is not None:
            yield "dim", f"to do: {row.todo}"
    if row.degraded is not None:
        yield "yellow", f"degraded: {one_line(row.degraded, limit=160)}"
    for sentence in row.unmet:
        yield "red", one_line(explain_unmet(sentence), limit=160)
    for reason in row.reasons if with_reasons else ():
        text = f"verified {verified_word(row.verified)}: {one_line(reason, limit=160)}"
        yield ("red" if row.verified is False else "dim"), text
