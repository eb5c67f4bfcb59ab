"""A campaign's report in words, the same for a terminal and for a page."""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from proctor.errors import Exit
from proctor.ids import MissionId
from proctor.report.campaign import CampaignReport, MissionSummary
from proctor.report.format_values import UNKNOWN, count, duration, legible, moment, money, percent, plural, total
from proctor.report.score import Score
from proctor.spec.campaign_options import SelectSpec

MAX_LISTED = 10


@dataclass(frozen=True, slots=True)
class Section:
    """A matter, and a line for each thing that is to be said of it."""

    title: str
    lines: tuple[str, ...]
    is_bad: bool = False


def facts(report: CampaignReport) -> Iterator[tuple[str, str]]:
    """What it is, when it was, and how whole it is."""
    if report.spec_file is not None:
        yield "spec", f"{report.spec_file}  {(report.spec_digest or '')[:19]}"
    if report.selected is not None:
        yield "missions", f"of the spec only those {_chosen(report.selected)}"
    began = report.runs[0].began_at_ms if report.runs else None
    ended = report.runs[-1].ended_at_ms if report.runs else None
    yield "when", f"{moment(began)}, {'still running' if report.is_running else f'until {moment(ended)}'}"
    last = "running" if report.is_running else "cut off"
    how = [run.how or (last if run is report.runs[-1] else "cut off") for run in report.runs]
    yield "runs", f"{len(report.runs)} ({', '.join(how)})"
    kind = "a canary, never the campaign itself; " if report.is_canary else ""
    state = "whole" if report.is_whole else "running" if report.is_running else "not whole"
    yield "state", f"{kind}{state}: {report.score.results:,} of {plural(report.score.trials, 'trial')} with a result"
    if unproven := report.score.unproven:
        yield "passed", f"{unproven:,} of {report.score.passed:,} as the spec expects, and no probe judged them"
    effort = report.effort
    other = f", {effort.not_counted:,} of them not counted" if effort.not_counted else ""
    cost = money(effort.usd, unknown=effort.usd_unknown)
    tokens = total(effort.tokens, unknown=effort.tokens_unknown)
    yield "effort", f"{plural(effort.attempts, 'attempt')}{other}; {tokens} tokens, cost {cost}"


def _chosen(select: SelectSpec) -> str:
    """
    >>> _chosen(SelectSpec(ids=["fix", "claim"], globs=["f*"], range="2-5"))
    'named fix or claim, named like f*, in places 2-5'
    """
    told = (
        ("named", select.ids),
        ("named like", select.globs),
        ("tagged", select.tags),
        ("in places", [] if select.range is None else [select.range]),
    )
    return legible(", ".join(f"{how} {' or '.join(words)}" for how, words in told if words))


def flow_table(report: CampaignReport) -> tuple[Sequence[str], list[Sequence[str]]]:
    """Headings, and a row a flow; where there are several, also one for all."""
    k = max((max(each.score.pass_at, default=0) for each in report.flows), default=0)
    named = [(str(each.flow_id), each.score) for each in report.flows]
    if len(named) > 1:
        named.append(("all", report.score))
    columns: dict[str, Callable[[Score], str]] = {
        "trials": lambda score: count(score.trials),
        "passed": lambda score: f"{score.passed:,}/{score.scored:,}",
        "rate (95 %)": rate,
        f"pass@{k}": lambda score: percent(score.pass_at.get(k)),
        f"pass^{k}": lambda score: percent(score.pass_all.get(k)),
        "tokens": lambda score: total(score.tokens, unknown=score.tokens_unknown),
        "cost": lambda score: money(score.usd, unknown=score.usd_unknown),
        "p50": lambda score: duration(score.duration_p50_ms),
        "p95": lambda score: duration(score.duration_p95_ms),
    }
    if k <= 1:
        del columns[f"pass@{k}"], columns[f"pass^{k}"]
    return ("flow", *columns), [(name, *(tell(score) for tell in columns.values())) for name, score in named]


def rate(score: Score) -> str:
    """With its interval: how little few results say."""
    if score.rate is None or score.rate_low is None or score.rate_high is None:
        return UNKNOWN
    return f"{percent(score.rate)} ({score.rate_low * 100:.0f}–{score.rate_high * 100:.0f})"


def sections(report: CampaignReport) -> Iterator[Section]:
    """Everything that somebody should look at, the worst first."""
    damaged = [
        f"{each.attempt_id}: {', '.join(dict.fromkeys(finding.code for finding in each.findings))}"
        for each in report.damaged
    ]
    yield Section("Damaged evidence, not scored", _some(damaged), is_bad=True)
    for gate in report.blocked:
        yield Section(f"Blocked by the {gate.name} gate", _some(gate.lines()), is_bad=True)
    yield Section(f"Failed ({len(report.failures):,})", _some(list(_failed(report))), is_bad=True)
    missing = Counter(each.why for each in report.missing)
    for why, number in missing.items():
        trials = [
            f"{each.trial} ({each.code})" if each.code else each.trial for each in report.missing if each.why == why
        ]
        yield Section(f"{plural(number, 'trial')} without a result: {why}", (_names(trials),))
    differing = sorted((each for each in report.missions if each.differs), key=_spread, reverse=True)
    yield Section(f"Missions on which flows differ ({len(differing):,})", _some([_split(each) for each in differing]))
    for title, claimed in (("Claimed, and the probes say no", True), ("Verified, and the agent says no", False)):
        whose = [each.attempt_id for each in report.mismatches if each.claimed is claimed]
        yield Section(f"{title} ({len(whose):,})", (_names(whose),) if whose else (), is_bad=claimed)
    score = report.score
    unscored = [f"{number:,} {name}" for name, number in score.buckets.items()]
    unscored += [f"{score.unverified:,} that nothing could verify"] if score.unverified else []
    yield Section("Not scored", (", ".join(unscored),) if unscored else ())
    yield Section("Tools", tuple(_tools(report)))
    tokens = [
        f"{name}: {each.input:,} in{'' if each.cached is None else f' ({each.cached:,} cached)'}, {each.output:,} out, "
        f"of {plural(each.results, 'result')}"
        for name, each in score.tokens_by_authority.items()
    ]
    tokens += [f"unknown: {plural(score.tokens_unknown, 'result')}"] if score.tokens_unknown else []
    yield Section("Tokens, by whose word", tuple(tokens))
    yield Section("Cost", tuple(_cost(report)))


def _failed(report: CampaignReport) -> Iterator[str]:
    """A line for the results of a mission that failed alike."""
    alike: dict[tuple[MissionId, str], list[str]] = {}
    for each in report.failures:
        alike.setdefault((each.mission_id, each.why), []).append(each.attempt_id)
    for (mission, why), attempts in alike.items():
        yield f"{mission}, {why}: {_names(attempts)}"


def conclude_campaign(report: CampaignReport) -> str:
    """What it comes to, in a sentence."""
    score, gates = report.score, [gate.name for gate in report.blocked]
    judged = f"{score.passed:,} of {plural(score.scored, 'scored result')} passed"
    more = [f"{plural(len(report.missing), 'trial')} without a result"] if report.missing else []
    more += [f"blocked by {' and '.join(gates)}"] if gates else []
    head = "All is well" if report.exit == Exit.OK else report.verdict.capitalize()
    return f"{head}: {', '.join([judged, *more])}."


def _tools(report: CampaignReport) -> Iterator[str]:
    for each in report.flows:
        score = each.score
        if score.tool_calls:
            time = f"{duration(score.tool_ms)} in them, " if score.tool_ms is not None else ""
            stuck = f", {plural(score.stuck, 'attempt')} without progress" if score.stuck else ""
            yield (
                f"{each.flow_id}: {plural(score.tool_calls, 'call')}, {score.tool_failures:,} failed, "
                f"{score.tool_retries:,} tried again, {time}"
                f"{score.output_bytes:,} bytes out{stuck}"
            )


def _cost(report: CampaignReport) -> Iterator[str]:
    for each in report.flows:
        score = each.score
        if score.usd is not None:
            unknown = f", and {plural(score.usd_unknown, 'result')} of unknown cost" if score.usd_unknown else ""
            a_pass = f", {money(score.usd_per_pass)} a pass" if score.usd_per_pass is not None else ""
            yield f"{each.flow_id}: {money(score.usd, unknown=score.usd_unknown)}{a_pass}{unknown}"


def _spread(mission: MissionSummary) -> float:
    rates = [score.rate for score in mission.flows.values() if score.rate is not None]
    return max(rates) - min(rates)


def _split(mission: MissionSummary) -> str:
    flows = [f"{flow} {score.passed}/{score.scored}" for flow, score in mission.flows.items()]
    return f"{mission.mission_id}: {', '.join(flows)}"


def _some(lines: Sequence[str]) -> tuple[str, ...]:
    left = len(lines) - MAX_LISTED
    return (*lines[:MAX_LISTED], f"… and {left:,} more; --json gives all") if left > 0 else tuple(lines)


def _names(names: Sequence[str]) -> str:
    return ", ".join(_some(names))
