"""Reports and listings for a terminal: pure, legible without colour, at home in 100 columns."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from proctor.errors import CODES, Exit
from proctor.evidence.reader import Finding
from proctor.report.columns import LEAST_NAME, NamedTable
from proctor.report.format_values import count, duration, legible, one_line, plain_error, plural, yes_no
from proctor.report.notes import Notes
from proctor.report.row import AttemptRow, Report
from proctor.report.trials import speakers
from proctor.report.verdict import judge

MAX_ROWS = 40
MAX_LISTED = 200
MAX_GATED = 10
_GIVES_WAY = ("tokens", "time", "tools", "claimed", "runtime", "expected", "verified", "outcome")
_NUMBERS = ("tools", "tokens", "time")
_INDENT = (0, 0, 0, 2)

STYLE_OF = {
    Exit.OK: "green",
    Exit.JUDGED_NO: "bold red",
    Exit.INFRASTRUCTURE: "bold red",
    Exit.UNVERIFIED: "yellow",
    Exit.EVIDENCE: "bold red",
    Exit.INTERRUPTED: "yellow",
}


def render_report(report: Report, *, title: str) -> RenderableType:
    """The table of a report, why things are as they are, and what it comes to."""
    rows = speakers(report.attempts)
    shown = rows if len(rows) <= MAX_ROWS else [row for row in rows if judge(row) is not Exit.OK][:MAX_ROWS]
    label = labels(rows)
    table = NamedTable(name="mission/flow", gives_way=_GIVES_WAY, numbers=_NUMBERS, least_name=LEAST_NAME)
    for row in shown:
        table.add(Text(legible(label(row))), _facts(row))
    parts: list[RenderableType] = [Text(title, style="bold"), Text(), Padding(table, _INDENT)]
    if len(shown) < len(rows):
        left_out = plural(len(rows) - len(shown), "more attempt")
        parts.append(Text(f"  … and {left_out}; --json gives all", style="dim"))
    if earlier := len(report.attempts) - len(rows):
        parts.append(Text(f"  {plural(earlier, 'other attempt')} of these trials not counted", style="dim"))
    notes = list(_notes(shown, label))
    if notes:
        parts += [Text(), Padding(Notes(notes), _INDENT)]
    for gate in report.gates:
        if gate.blocked:
            told = [
                (Text(f"{gate.name} gate", style="bold"), Text(legible(line), style="red")) for line in gate.lines()
            ]
            parts += [Text(), Padding(Notes(told[:MAX_GATED]), _INDENT)]
    if report.findings:
        parts += [Text(), Padding(render_findings(report.findings), _INDENT)]
    return Group(*parts, Text(), Padding(Text(conclude(report), style=STYLE_OF[Exit(report.exit)]), _INDENT))


def render_attempts(rows: Sequence[AttemptRow], findings: Sequence[Finding]) -> RenderableType:
    """The latest attempts, campaign after campaign."""
    parts: list[RenderableType] = []
    if len(rows) > MAX_LISTED:
        parts += [Text(f"The latest {MAX_LISTED} of {len(rows):,}; --json gives all.", style="dim"), Text()]
        rows = rows[-MAX_LISTED:]
    for campaign in dict.fromkeys(row.campaign_id for row in rows):
        of_it = [row for row in rows if row.campaign_id == campaign]
        table = NamedTable(name="attempt", gives_way=_GIVES_WAY, numbers=_NUMBERS)
        for row in of_it:
            told = _facts(row)
            if row.is_superseded:
                told["outcome"] = Text(f"({told['outcome'].plain})", style="dim")
            table.add(Text(legible(row.attempt_id)), told)
        runs = ", ".join(dict.fromkeys(row.run_id for row in of_it))
        heading = Text.assemble((legible(campaign or "no campaign"), "bold"), (f"   run {legible(runs)}", "dim"))
        parts += [heading, Padding(table, _INDENT)]
        if any(row.is_superseded for row in of_it):
            parts.append(Text("  (…) another attempt of its trial counts instead", style="dim"))
        parts.append(Text())
    if findings:
        parts += [Padding(render_findings(findings), _INDENT), Text()]
    return Group(*parts[:-1])


def render_findings(findings: Iterable[Finding]) -> RenderableType:
    """A line each: the code, where, what."""
    table = Table.grid(padding=(0, 2))
    for finding in findings:
        place = finding.file if finding.line is None else f"{finding.file}:{finding.line}"
        table.add_row(Text(finding.code, style="red"), Text(legible(place)), Text(one_line(finding.detail, limit=200)))
    return table


def labels(rows: Sequence[AttemptRow]) -> Callable[[AttemptRow], str]:
    """What tells these rows apart: mission and flow where that is enough, else the attempt's id."""
    pairs = Counter((row.mission_id, row.flow_id) for row in rows)
    is_enough = all(number == 1 for number in pairs.values()) and (None, None) not in pairs
    return lambda row: f"{row.mission_id}/{row.flow_id}" if is_enough else row.attempt_id


def ending(row: AttemptRow) -> Text:
    """How it ended, or the state that it was left in."""
    if row.evidence == "invalid":
        return Text("DAMAGED", style="bold red")
    if row.state == "sealed" and row.outcome is not None:
        return Text(row.outcome.value, style="" if row.outcome == "completed" else "yellow")
    return Text(row.state, style="cyan" if row.state == "running" else "bold red")


def verified_word(value: bool | None) -> Text:
    word = yes_no(value, none="unknown")
    style = {True: "green", False: "bold red", None: "yellow"}[value]
    # In capitals, because without colour it must still catch the eye.
    return Text("NO" if value is False else word, style=style)


def expected_word(value: bool | None) -> Text:
    if value is None:
        return Text("–", style="dim")
    return Text("met", style="green") if value else Text("MISSED", style="bold red")


def conclude(report: Report) -> str:
    """What the whole comes to, in a sentence."""
    rows = speakers(report.attempts)
    total = len(rows)
    said = Counter(map(judge, rows))
    untried = f"{plural(len(report.missing_trials), 'trial')} never tried" if report.missing_trials else ""
    match Exit(report.exit):
        case Exit.OK:
            has_expectations = any(row.is_expected is not None for row in rows)
            how = "came out as expected" if has_expectations else "is verified" if total == 1 else "are verified"
            sentence = f"All is well: {plural(total, 'attempt')} {how}."
        case Exit.JUDGED_NO:
            judged = [row for row in rows if judge(row) is Exit.JUDGED_NO]
            is_missed = any(row.is_expected is False for row in judged)
            how = "did not come out as expected" if is_missed else "not verified"
            sentence = f"{len(judged)} of {plural(total, 'attempt')} {how}." if judged else "A gate blocks."
        case Exit.INFRASTRUCTURE:
            sentence = f"{said[Exit.INFRASTRUCTURE]} of {plural(total, 'attempt')} could not be carried out."
        case Exit.EVIDENCE:
            bad = f": {said[Exit.EVIDENCE]} of {plural(total, 'attempt')} damaged" if said[Exit.EVIDENCE] else ""
            sentence = f"The evidence cannot be trusted{bad}."
        case Exit.INTERRUPTED:
            sentence = f"Interrupted: {plural(total, 'attempt')} kept."
        case _:
            sentence = f"{said[Exit.UNVERIFIED]} of {plural(total, 'attempt')} not verified."
    return f"{sentence[:-1]}, {untried}." if untried else sentence


def _facts(row: AttemptRow) -> dict[str, Text]:
    return {
        "runtime": Text(legible(row.runtime_id or "?")),
        "outcome": ending(row),
        "claimed": Text(yes_no(row.claimed, none="–")),
        "verified": verified_word(row.verified),
        "tools": Text(count(row.tool_calls)),
        "tokens": Text(count(row.tokens)),
        "time": Text(duration(row.duration_ms)),
        "expected": expected_word(row.is_expected),
    }


def _notes(rows: Sequence[AttemptRow], label: Callable[[AttemptRow], str]) -> Iterator[tuple[Text, Text]]:
    """What explains a row, each explanation once with all the rows that it explains."""
    told: dict[tuple[str, str], list[str]] = {}
    for row in rows:
        for styled in _explanations(row):
            told.setdefault(styled, []).append(label(row))
    for (style, note), whose in told.items():
        names = ", ".join(whose[:3]) + (f" and {len(whose) - 3} more" if len(whose) > 3 else "")
        yield Text(legible(names), style="bold"), Text(note, style=style)


def _explanations(row: AttemptRow) -> Iterator[tuple[str, str]]:
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
    for miss in row.misses:
        yield "red", f"expectation missed: {one_line(miss, limit=160)}"
    for reason in row.reasons:
        word = "not verified" if row.verified is False else "cannot be verified"
        yield ("red" if row.verified is False else "dim"), f"{word}: {one_line(reason, limit=160)}"
