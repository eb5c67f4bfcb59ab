"""How campaigns stand, for a terminal."""

import shlex
from collections.abc import Iterator, Sequence

from rich.console import Group, RenderableType
from rich.text import Text

from proctor.evidence.reader import Finding
from proctor.report.columns import NamedTable
from proctor.report.format_values import UNKNOWN, USED_UP, legible, money, plural
from proctor.surface.campaign_status import CampaignStatus, progress_line
from proctor.surface.cli.blocks import pairs
from proctor.surface.cli.command_formatter import CommandFormatter
from proctor.surface.cli.live_lines import RunningLines, age, waits


def render_standing(standing: CampaignStatus, *, now_ms: int, calling: CommandFormatter) -> RenderableType:
    """The whole: what it is, how far it is, what it is at, what is left and how to go on."""
    head = Text(legible(standing.campaign_id), style="bold")
    head.append(f"   {_how(standing)}", style="green" if standing.is_live else "dim")
    parts: list[RenderableType] = [head, pairs(_facts(standing, now_ms=now_ms))]
    if (live := standing.live) is not None:
        parts += [Text(), RunningLines(live.running, now_ms), *waits(live, now_ms=now_ms)]
        if live.stopping is not None:
            parts.append(Text(f"  {legible(live.stopping)}", style="yellow"))
    if not standing.is_live and standing.left.total and (todo := USED_UP.get(standing.ended or "")):
        parts += [Text(), Text(f"  {plural(standing.left.total, 'trial')} left; {todo}")]
    if steps := list(_steps(standing)):
        parts += [Text(), *(Text(f"  {what}: {calling.spell(command)}") for what, command in steps)]
    return Group(*parts)


def _steps(standing: CampaignStatus) -> Iterator[tuple[str, str]]:
    """What can be done about it."""
    campaign = shlex.quote(standing.campaign_id)
    if standing.can_resume:
        yield f"{plural(standing.left.total, 'trial')} left", f"proctor campaign resume {campaign}"
    if standing.infra and not standing.is_live and standing.kind != "canary":
        yield "retry infrastructure failures", f"proctor retry --only infra {campaign}"


def _how(standing: CampaignStatus) -> str:
    what = "" if standing.kind == "campaign" else f"{standing.kind}, "
    if standing.is_live:
        return f"{what}running"
    # One that was killed had no time to say so.
    return f"{what}{standing.ended or 'ended'}" if standing.ended_at_ms is not None else f"{what}cut off"


def _facts(standing: CampaignStatus, *, now_ms: int) -> Iterator[tuple[str, RenderableType]]:
    yield "trials", Text(progress_line(standing))
    if standing.outcomes:
        yield "outcomes", Text(_counts(standing.outcomes))
    if standing.codes:
        yield "codes", Text(_counts(standing.codes))
    if standing.expected or standing.unexpected:
        verified = f"{standing.verified:,} of {standing.judged_by_probes:,} verified, "
        expected = f"{standing.expected:,} of {standing.expected + standing.unexpected:,} as expected"
        yield "results", Text(f"{verified if standing.judged_by_probes else ''}{expected}")
    yield "verdict", Text(standing.verdict)
    retried = sum(standing.attempts.values())
    pace = "" if standing.per_minute is None else f", {standing.per_minute:,.1f} per minute"
    yield "attempts", Text(f"{retried:,} in {plural(standing.runs, 'run')}{pace}")
    if standing.usd is not None:
        yield "cost", Text(money(standing.usd, unknown=standing.usd_unknown))
    if standing.began_at_ms is not None:
        yield "began", Text(f"{age(now_ms - standing.began_at_ms)} ago")
    if standing.is_pinned:
        yield "pinned", Text("yes")
    yield "folder", Text(legible(standing.dir))


def _counts(counts: dict[str, int]) -> str:
    return ", ".join(f"{number:,} {legible(name)}" for name, number in counts.items())


def render_standings(found: Sequence[CampaignStatus], findings: Sequence[Finding], *, now_ms: int) -> RenderableType:
    drop_order = ("kind", "age", "results", "state", "verdict")
    table = NamedTable(name="campaign", drop_order=drop_order, numbers=("results", "age"))
    for each in found:
        how = "running" if each.is_live else _how(each).rpartition(", ")[2]
        facts = {
            "kind": Text(each.kind + (", pinned" if each.is_pinned else "")),
            "state": Text(how, style="green" if each.is_live else ""),
            "results": Text(f"{each.settled:,} of {each.trials:,}"),
            "verdict": Text(each.verdict),
            "age": Text(UNKNOWN if each.began_at_ms is None else age(now_ms - each.began_at_ms)),
        }
        table.add(Text(legible(each.campaign_id)), facts)
    problems = [Text(legible(f"{each.file}: {each.detail} ({each.code})"), style="red") for each in findings]
    return Group(*([table] if found else []), *problems)
