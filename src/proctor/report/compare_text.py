"""A comparison in words: lines for a terminal, and the same as a Markdown page."""

from collections.abc import Iterator, Sequence

from proctor.report.compare import Comparison, MissionDifference, PairedResults
from proctor.report.format_values import duration, legible, markdown_text, money, percent, plural, total
from proctor.report.sections import rate, ratio

MAX_LISTED = 20
_HEADINGS = ("", "verified", "rate (95 %)", "unverified", "tokens", "cost", "per pass", "p50", "p95")
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
    if found.verified.pairs or not found.unverified.pairs:
        yield from _paired_facts(found.verified, "")
    if found.unverified.pairs:
        yield from _paired_facts(found.unverified, "without probes, ")
    if found.not_compared:
        why = "not on both sides, not scored on both, or with probes on one side only"
        yield f"{plural(found.not_compared, 'trial')} not compared: {why}"
    for letter, side in (("A", found.a), ("B", found.b)):
        if side.missing:
            yield f"{letter} has {plural(side.missing, 'trial')} without a result"
    if found.not_same_work:
        yield (
            f"{plural(found.not_same_work, 'pair')} differ in prompt, workspace, model or settings, which may explain "
            "the difference"
        )


def _paired_facts(results: PairedResults, prefix: str) -> Iterator[str]:
    yield (
        f"{prefix}{plural(results.pairs, 'pair')} scored on both sides: both passed {results.both:,}, "
        f"only A {results.only_a:,}, only B {results.only_b:,}, neither {results.neither:,}"
    )
    if results.difference is not None and results.difference_low is not None and results.difference_high is not None:
        yield (
            f"{prefix}B minus A: {_signed(results.difference)}, 95 % from {_signed(results.difference_low)} to "
            f"{_signed(results.difference_high)}; p = {results.p:.3g} (McNemar, exact)"
        )
        yield (
            f"{prefix}missions: B better on {results.missions_better:,}, worse on {results.missions_worse:,}; "
            f"p = {results.p_missions:.3g} (sign test)"
        )


def _sentence(found: Comparison) -> str:
    verified, unverified = found.verified, found.unverified
    shown, scored = (
        (verified, max(found.a.score.verified.scored, found.b.score.verified.scored))
        if verified.pairs
        else (unverified, max(found.a.score.unverified.scored, found.b.score.unverified.scored))
    )
    pairs = f" of {plural(shown.pairs, 'pair')} scored on both sides" if shown.pairs < scored else ""
    rates = f" ({percent(shown.rate_a)} and {percent(shown.rate_b)}{pairs})" if shown.pairs else ""
    return f"{found.verdict[0].upper()}{found.verdict[1:]}{rates}."


def _listed(found: Comparison) -> Iterator[str]:
    differing: Sequence[MissionDifference] = (*found.verified.differing, *found.unverified.differing)
    for each in differing[:MAX_LISTED]:
        flow = "" if each.flow_id is None else f" {each.flow_id}"
        yield f"{each.mission_id}{flow}: {each.passed_a} and {each.passed_b} of {each.pairs}"
    if len(differing) > MAX_LISTED:
        yield f"… and {len(differing) - MAX_LISTED:,} more; --json lists all"


def _signed(share: float) -> str:
    return f"{share * 100:+.1f} %"
