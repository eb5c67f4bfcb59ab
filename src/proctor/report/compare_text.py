"""A comparison in words: lines for a terminal, and the same as a page of Markdown."""

from collections.abc import Iterator, Sequence

from proctor.report.campaign_sections import rate
from proctor.report.compare import Comparison, MissionDifference
from proctor.report.format_values import duration, legible, markdown_text, money, percent, plural, total

MAX_LISTED = 20
_HEADINGS = ("", "passed", "rate (95 %)", "tokens", "cost", "per pass", "p50", "p95")


def comparison_text(found: Comparison) -> str:
    """In lines of any length."""
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
    if found.apart:
        lines += [
            "",
            "  Missions that differ, as A and B passed them",
            *(f"    {line}" for line in _listed(found.apart)),
        ]
    lines += ["", f"  {_sentence(found)}"]
    return "".join(f"{legible(line).rstrip()}\n" for line in lines)


def comparison_markdown(found: Comparison) -> str:
    """The same bytes for the same comparison."""
    lines = [
        f"# {markdown_text(found.a.name)} by {markdown_text(found.b.name)}",
        "",
        f"**{markdown_text(_sentence(found))}**",
        "",
    ]
    lines += [f"| {' | '.join(_HEADINGS)} |", f"|---|{'--:|' * (len(_HEADINGS) - 1)}"]
    lines += [f"| {' | '.join(map(markdown_text, row))} |" for row in _rows(found)]
    lines += ["", *(f"- {markdown_text(line)}" for line in _facts(found))]
    if found.apart:
        lines += ["", "## Missions that differ, as A and B passed them", ""]
        lines += [f"- {markdown_text(line)}" for line in _listed(found.apart)]
    return "".join(f"{line}\n" for line in lines)


def _rows(found: Comparison) -> Iterator[Sequence[str]]:
    for letter, side in (("A", found.a), ("B", found.b)):
        score = side.score
        yield (
            f"{letter} {side.flow_id or 'all flows'}",
            f"{score.passed:,}/{score.scored:,}",
            rate(score),
            total(score.tokens, unknown=score.tokens_unknown),
            money(score.usd, unknown=score.usd_unknown),
            money(score.usd_per_pass),
            duration(score.duration_p50_ms),
            duration(score.duration_p95_ms),
        )


def _facts(found: Comparison) -> Iterator[str]:
    yield (
        f"{plural(found.pairs, 'pair')} that both scored: both passed {found.both:,}, only A {found.only_a:,}, "
        f"only B {found.only_b:,}, neither {found.neither:,}"
    )
    if found.difference is not None and found.difference_low is not None and found.difference_high is not None:
        yield (
            f"B less A: {_signed(found.difference)}, 95 % from {_signed(found.difference_low)} to "
            f"{_signed(found.difference_high)}; p = {found.p:.3g} (McNemar, exact)"
        )
        yield (
            f"missions: B better on {found.missions_better:,}, worse on {found.missions_worse:,}; "
            f"p = {found.p_missions:.3g} (sign test)"
        )
    if found.not_compared:
        yield f"{plural(found.not_compared, 'trial')} not compared: not on both sides, or not scored on both"
    for letter, side in (("A", found.a), ("B", found.b)):
        if side.missing:
            yield f"{letter} has no result yet of {plural(side.missing, 'trial')}"
    if found.not_same_work:
        yield (
            f"{plural(found.not_same_work, 'pair')} not planned alike: another prompt, workspace, model or setting "
            "may be what makes the difference"
        )


def _sentence(found: Comparison) -> str:
    is_part = found.pairs < max(found.a.score.scored, found.b.score.scored)
    whose = f" of {plural(found.pairs, 'pair')} that both scored" if is_part else ""
    rates = f" ({percent(found.rate_a)} by {percent(found.rate_b)}{whose})" if found.pairs else ""
    return f"{found.verdict[0].upper()}{found.verdict[1:]}{rates}."


def _listed(apart: Sequence[MissionDifference]) -> Iterator[str]:
    for each in apart[:MAX_LISTED]:
        flow = "" if each.flow_id is None else f" {each.flow_id}"
        yield f"{each.mission_id}{flow}: {each.passed_a} by {each.passed_b} of {each.pairs}"
    if len(apart) > MAX_LISTED:
        yield f"… and {len(apart) - MAX_LISTED:,} more; --json gives all"


def _signed(share: float) -> str:
    return f"{share * 100:+.1f} %"
