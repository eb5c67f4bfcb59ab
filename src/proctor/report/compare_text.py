"""A comparison in words: lines for a terminal, and the same as a Markdown page."""

from collections.abc import Iterator, Sequence

from proctor.report.compare import Comparison, MissionDifference, MissionResults
from proctor.report.format_values import duration, legible, markdown_text, money, percent, plural, total
from proctor.report.sections import interval_note, rate, ratio
from proctor.report.stats import FEWEST_MISSIONS

MAX_LISTED = 20
_HEADINGS = ("", "verified", "rate (95 %)", "no probes", "tokens", "cost", "per pass", "p50", "p95")
_DIFFERING = "Missions that differ, passed by A and by B"


def comparison_text(found: Comparison) -> str:
    """Render a comparison as lines of any length."""
    table = [_HEADINGS, *_rows(found)]
    widths = [max(len(row[at]) for row in table) for at in range(len(_HEADINGS))]
    lines = [f"A  {found.a.name}", f"B  {found.b.name}", ""]
    for row in table:
        padded = (
            each.ljust(wide) if at == 0 else each.rjust(wide)
            for at, (each, wide) in enumerate(zip(row, widths, strict=True))
        )
        lines.append(f"  {'  '.join(padded)}")
    lines += ["", *(f"  {line}" for line in _facts(found))]
    if listed := list(_listed(found)):
        lines += ["", f"  {_DIFFERING}", *(f"    {line}" for line in listed)]
    lines += ["", f"  {_sentence(found)}"]
    return "".join(f"{legible(line).rstrip()}\n" for line in lines)


def comparison_markdown(found: Comparison) -> str:
    """Render a comparison as Markdown. The same comparison gives the same bytes."""
    lines = [
        f"# {markdown_text(found.a.name)} and {markdown_text(found.b.name)}",
        "",
        f"**{markdown_text(_sentence(found))}**",
        "",
    ]
    lines += [f"| {' | '.join(_HEADINGS)} |", f"|---|{'--:|' * (len(_HEADINGS) - 1)}"]
    lines += [f"| {' | '.join(map(markdown_text, row))} |" for row in _rows(found)]
    lines += ["", *(f"- {markdown_text(line)}" for line in _facts(found))]
    if listed := list(_listed(found)):
        lines += ["", f"## {_DIFFERING}", "", *(f"- {markdown_text(line)}" for line in listed)]
    return "".join(f"{line}\n" for line in lines)


def _rows(found: Comparison) -> Iterator[Sequence[str]]:
    for letter, side in (("A", found.a), ("B", found.b)):
        score = side.score
        yield (
            f"{letter} {side.flow_id or 'all flows'}",
            ratio(score.verified),
            rate(score.verified),
            ratio(score.unverified),
            total(score.tokens, unknown=score.tokens_unknown),
            money(score.usd, unknown=score.usd_unknown),
            money(score.verified.usd_per_pass),
            duration(score.duration_p50_ms),
            duration(score.duration_p95_ms),
        )


def _facts(found: Comparison) -> Iterator[str]:
    if found.verified.missions or not found.unverified.missions:
        yield from _mission_facts(found.verified, "")
    if found.unverified.missions:
        yield from _mission_facts(found.unverified, "without probes, ")
    if found.not_compared:
        why = "not scored, or the other side did not score the mission (with probes, or without)"
        yield f"{plural(found.not_compared, 'trial')} not compared: {why}"
    for letter, side in (("A", found.a), ("B", found.b)):
        if side.failed_in is not None:
            yield f"{letter} selected: failed in {side.failed_in}"
        if side.score.continued:
            trials = plural(side.score.continued, "trial")
            yield f"{letter} has {trials} continued after a wait, not comparable with uninterrupted ones"
        if side.missing:
            yield f"{letter} has {plural(side.missing, 'trial')} without a result"
    for letter, side in (("A", found.a), ("B", found.b)):
        if side.score.degraded:
            yield f"{letter} has {plural(side.score.degraded, 'degraded result')}: the flow's context engine failed"
    if found.not_same_work:
        yield (
            f"{plural(found.not_same_work, 'trial')} differ in prompt, workspace, model or settings, which may explain "
            "the difference"
        )
    if note := interval_note(side.score for side in (found.a, found.b) if side.score.verified.scored):
        yield note


def _mission_facts(results: MissionResults, prefix: str) -> Iterator[str]:
    equal = results.missions - results.missions_better - results.missions_worse
    yield (
        f"{prefix}{plural(results.missions, 'mission')} scored on both sides "
        f"({results.results_a:,} and {plural(results.results_b, 'result')}): "
        f"B better on {results.missions_better:,}, worse on {results.missions_worse:,}, equal on {equal:,}"
    )
    if results.difference is None:
        return
    difference = f"{prefix}B minus A: {results.difference * 100:+.1f} percentage points"
    if (test := results.test) is None:
        yield difference
        return
    yield (
        f"{difference}, 95 % from {test.difference_low * 100:+.1f} to {test.difference_high * 100:+.1f} "
        f"({test.interval_method}); p = {test.p:.3g} ({test.p_method})"
    )
    if results.missions < FEWEST_MISSIONS:
        why = "no difference can be significant, whatever the number of repeats"
        yield f"{prefix}fewer than {FEWEST_MISSIONS} missions: {why}"


def _sentence(found: Comparison) -> str:
    verified, unverified = found.verified, found.unverified
    shown, *sides = (
        (verified, found.a.score.verified, found.b.score.verified)
        if verified.missions
        else (unverified, found.a.score.unverified, found.b.score.unverified)
    )
    # The rates of the table are those of all results, and count each result the same.
    differs = [percent(side.rate) for side in sides] != [percent(shown.rate_a), percent(shown.rate_b)]
    mean = f", the mean over {plural(shown.missions, 'mission')} scored on both sides" if differs else ""
    rates = f" ({percent(shown.rate_a)} and {percent(shown.rate_b)}{mean})" if shown.missions else ""
    return f"{found.verdict[0].upper()}{found.verdict[1:]}{rates}."


def _listed(found: Comparison) -> Iterator[str]:
    differing: Sequence[MissionDifference] = (*found.verified.differing, *found.unverified.differing)
    for each in differing[:MAX_LISTED]:
        flow = "" if each.flow_id is None else f" {each.flow_id}"
        yield f"{each.mission_id}{flow}: {each.passed_a}/{each.scored_a} and {each.passed_b}/{each.scored_b}"
    if len(differing) > MAX_LISTED:
        yield f"… and {len(differing) - MAX_LISTED:,} more; --json lists all"
