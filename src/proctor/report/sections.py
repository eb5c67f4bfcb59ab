"""A campaign's report in words, the same for a terminal and for a Markdown page."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from itertools import chain
from pathlib import PurePath
from typing import Final

from proctor.errors import Bucket, Exit
from proctor.event.model import UsageAuthority
from proctor.report.campaign import CampaignReport, FailedResult, MissionSummary, UnjudgedResult
from proctor.report.classify import INVALID
from proctor.report.format_values import (
    UNKNOWN,
    USED_UP,
    count,
    duration,
    legible,
    moment,
    money,
    one_line,
    percent,
    plural,
    total,
)
from proctor.report.row import AttemptRow
from proctor.report.score import PassCount, PassRate, Score
from proctor.report.verdict import judge_attempt
from proctor.spec.campaign_options import SelectSpec
from proctor.spec.choices import SCRIPTED

MAX_LISTED = 10

_UNSCORED: Final[Mapping[str, str]] = {
    INVALID: "invalid evidence",
    Bucket.INFRA: "the machine, the network or the provider failed (infra)",
    Bucket.QUOTA: "a rate limit or quota was reached (quota)",
    Bucket.AUTH: "a login failed (auth)",
    Bucket.HARNESS: "the spec, a hook or Proctor itself failed (harness)",
}
"""Why a trial is not scored, by the kind of its result."""

_TOKEN_SOURCES: Final[Mapping[str, str]] = {
    UsageAuthority.NONE: "not reported",
    UsageAuthority.ESTIMATED: "estimated",
    UsageAuthority.TRANSCRIPT_PARSED: "the agent's transcript",
    UsageAuthority.RESTORED_ON_RESUME: "the agent's total when it resumed a thread",
    UsageAuthority.LIVE_THREAD_USAGE: "the agent's running total",
    UsageAuthority.LIVE_TURN_COMPLETED: "the agent's report at the end of a turn",
    UsageAuthority.ROLLOUT_RECORD: "the agent's record on disk",
    UsageAuthority.PROVIDER_RESPONSE: "the provider's response",
}


class Topic(Enum):
    """What a section is about."""

    PROBLEMS = auto()
    FAILURES = auto()
    SUMS = auto()


@dataclass(frozen=True, slots=True)
class Section:
    """A heading with one line for each thing to look at."""

    title: str
    lines: tuple[str, ...]
    topic: Topic = Topic.PROBLEMS
    is_bad: bool = False


def facts(report: CampaignReport) -> Iterator[tuple[str, str]]:
    """Yield what the campaign is, when it ran, and how complete it is."""
    if report.spec_file is not None:
        # Only its name: where it was says something about the author's machine, and nothing about the results.
        yield "spec", f"{PurePath(report.spec_file).name}  {(report.spec_digest or '')[:19]}"
    if report.scripted_flows:
        names = {each.flow_id for each in report.flows} - set(report.scripted_flows)
        which = f" ({', '.join(report.scripted_flows)})" if names else ""
        yield "model", f"{SCRIPTED}{which}: replies come from a file, so this measures the script, not a model"
    if report.failed_in is not None:
        yield "selected", f"failed in {report.failed_in}"
    if report.selected is not None:
        yield "missions", f"only those {_selection(report.selected)}"
    if report.runs and report.runs[0].began_at_ms is not None:
        yield "runs", _runs(report)
    kind = "canary (a sample, not the campaign itself), " if report.is_canary else ""
    state = "complete" if report.is_complete else "running" if report.is_running else "incomplete"
    yield "trials", f"{kind}{state}: {report.score.results:,} of {report.score.trials:,} have a result"
    effort = report.effort
    other = f", {effort.not_counted:,} of them not counted" if effort.not_counted else ""
    cost = money(effort.usd, unknown=effort.usd_unknown)
    tokens = total(effort.tokens, unknown=effort.tokens_unknown)
    yield "usage", f"{plural(effort.attempts, 'attempt')}{other}; {tokens} tokens, cost {cost}"


def _runs(report: CampaignReport) -> str:
    first, last = report.runs[0], report.runs[-1]
    until = "still running" if report.is_running else f"until {moment(last.ended_at_ms)}"
    endings = [run.how or ("running" if report.is_running and run is last else "cut off") for run in report.runs]
    return f"{len(report.runs)} ({', '.join(endings)}), {moment(first.began_at_ms)}, {until}"


def _selection(select: SelectSpec) -> str:
    """
    >>> _selection(SelectSpec(ids=["fix", "claim"], globs=["f*"], range="2-5"))
    'named fix or claim, named like f*, in places 2-5'
    """
    parts = (
        ("named", select.ids),
        ("named like", select.globs),
        ("tagged", select.tags),
        ("in places", [] if select.range is None else [select.range]),
    )
    return legible(", ".join(f"{how} {' or '.join(words)}" for how, words in parts if words))


def _named_scores(report: CampaignReport) -> list[tuple[str, Score]]:
    named = [(str(each.flow_id), each.score) for each in report.flows]
    return [*named, ("all", report.score)] if len(named) > 1 else named


def flow_note(report: CampaignReport) -> str:
    """Return what to know about the table of flows; nothing if it has no rates."""
    return interval_note(score for _, score in _named_scores(report))


def repeat_note(report: CampaignReport) -> str:
    """Return what the columns about repeats mean; nothing if the table of flows has none."""
    headings, _ = flow_table(report)
    k = next((heading.removeprefix("pass@") for heading in headings if heading.startswith("pass@")), None)
    every = "both" if k == "2" else "all"
    return "" if k is None else f"pass@{k}: at least one of {k} repeats passes; pass^{k}: {every} do"


def flow_table(report: CampaignReport) -> tuple[Sequence[str], list[Sequence[str]]]:
    """Return the headings and one row for each flow, and one for all if there are several."""
    named = _named_scores(report)
    columns: dict[str, Callable[[Score], str]] = {"trials": lambda score: count(score.trials)}
    # Rates with and without probes are never added up.
    has_verified = any(score.verified.scored for _, score in named)
    has_unverified = any(score.unverified.scored for _, score in named)
    if has_verified or not has_unverified:
        columns |= {"verified": lambda score: ratio(score.verified), "rate (95 %)": lambda score: rate(score.verified)}
        columns |= _repeat_columns([score.verified for _, score in named], lambda score: score.verified)
    if has_unverified:
        columns |= {"no probes": lambda score: ratio(score.unverified)}
        if not has_verified:
            columns |= {"rate (95 %)": lambda score: rate(score.unverified)}
            columns |= _repeat_columns([score.unverified for _, score in named], lambda score: score.unverified)
    columns |= {
        **({"continued": lambda score: count(score.continued)} if any(each.continued for _, each in named) else {}),
        "expected": lambda score: f"{score.expected:,}/{score.expected + score.unexpected:,}",
        "tokens": lambda score: total(score.tokens, unknown=score.tokens_unknown),
        "reasoning": lambda score: total(score.reasoning_tokens, unknown=score.reasoning_unknown),
        "cost": lambda score: money(score.usd, unknown=score.usd_unknown),
        "p50": lambda score: duration(score.duration_p50_ms),
        "p95": lambda score: duration(score.duration_p95_ms),
    }
    return ("flow", *columns), [(name, *(value(score) for value in columns.values())) for name, score in named]


def _repeat_columns(
    rates: Sequence[PassRate], rate_of: Callable[[Score], PassRate]
) -> dict[str, Callable[[Score], str]]:
    k = max((max(each.pass_at, default=0) for each in rates), default=0)
    if k <= 1:
        return {}
    return {
        f"pass@{k}": lambda score: percent(rate_of(score).pass_at.get(k)),
        f"pass^{k}": lambda score: percent(rate_of(score).pass_all.get(k)),
    }


def ratio(passes: PassCount) -> str:
    """
    >>> ratio(PassCount(scored=4, passed=3, rate=0.75)), ratio(PassCount(scored=0, passed=0, rate=None))
    ('3/4', '–')
    >>> ratio(PassCount(scored=8, passed=7, rate=0.875, first_passed=1))
    '7/8 (first results: 1/8)'
    """
    if not passes.scored:
        return "–"
    return f"{passes.passed:,}/{passes.scored:,}{_first(passes)}"


def _first(passes: PassCount) -> str:
    """Return what passed before results were replaced on request, which must not be hidden."""
    return "" if passes.first_passed is None else f" (first results: {passes.first_passed:,}/{passes.scored:,})"


def rate(passes: PassRate) -> str:
    """Return the rate with its interval, which shows how little few results say."""
    if passes.rate is None or passes.rate_low is None or passes.rate_high is None:
        return UNKNOWN
    return f"{percent(passes.rate)} ({passes.rate_low * 100:.0f}–{passes.rate_high * 100:.0f})"


def interval_note(scores: Iterable[Score]) -> str:
    """Return how the intervals of the rates in a table were computed; nothing if there are none."""
    shown = list(scores)
    rates = [each.verified for each in shown]
    if not any(each.scored for each in rates):
        rates = [each.unverified for each in shown]
    methods = {each.interval_method for each in rates} - {None}
    where = " where missions have several results" if len(methods) > 1 else ""
    return f"95 % intervals of the rates: {', '.join(sorted(filter(None, methods)))}{where}" if methods else ""


def sections(report: CampaignReport) -> Iterator[Section]:
    """Yield everything to look at, the worst first."""
    yield Section(
        "Findings", _some([f"{each.code}: {each.file} {each.detail}" for each in report.findings]), is_bad=True
    )
    invalid = [
        f"{row.attempt_id}: {', '.join(dict.fromkeys(finding.code for finding in row.findings))}"
        for row in report.invalid_attempts
    ]
    yield Section("Invalid evidence, not scored", _some(invalid), is_bad=True)
    for gate in report.blocked:
        yield Section(f"Blocked by the {gate.name} gate", _some(gate.lines()), is_bad=True)
    unexpected = [each for each in report.failures if each.is_expected is not True]
    yield Section(
        f"Failed or not as expected ({len(unexpected):,})",
        _some(list(_failed(unexpected))),
        Topic.FAILURES,
        is_bad=True,
    )
    expected = [each for each in report.failures if each.is_expected is True]
    yield Section(f"Failed, as expected ({len(expected):,})", _some(list(_failed(expected))), Topic.FAILURES)
    missing = Counter(each.why for each in report.missing)
    for why, number in missing.items():
        trials = [
            f"{each.trial} ({each.code})" if each.code else each.trial for each in report.missing if each.why == why
        ]
        yield Section(f"{plural(number, 'trial')} without a result: {why}", (_names(trials),))
    differing = sorted((each for each in report.missions if each.differs), key=_spread, reverse=True)
    yield Section(f"Missions on which flows differ ({len(differing):,})", _some([_split(each) for each in differing]))
    yield Section(
        f"Replaced on request ({len(report.replacements):,})",
        _some(
            [
                f"{each.trial}: first {each.first_result}, now {each.result}: {each.reason}"
                for each in report.replacements
            ]
        ),
        is_bad=True,
    )
    continued = [
        f"{each.trial}: {', '.join(each.attempts)}; {count(each.tokens)} tokens, {duration(each.duration_ms)} in all"
        for each in report.continued
    ]
    yield Section(
        f"Continued after a wait, not comparable with uninterrupted trials ({len(continued):,})", _some(continued)
    )
    cancels = [f"{row.attempt_id}: {row.detail or UNKNOWN}" for row in report.operator_cancels]
    yield Section(f"Cancelled by the operator ({len(cancels):,})", _some(cancels), is_bad=True)
    degraded = [f"{row.attempt_id}: {one_line(row.degraded or UNKNOWN, limit=160)}" for row in report.degraded_attempts]
    yield Section(f"Degraded: the context engine failed ({len(degraded):,})", _some(degraded), is_bad=True)
    score = report.score
    unscored = [f"{plural(number, 'trial')}: {_UNSCORED.get(name, name)}" for name, number in score.buckets.items()]
    stated = score.unknown - score.unjudged
    unscored += [f"{plural(stated, 'trial')}: no probe, and nothing is stated to judge"] if stated else []
    yield Section("Not scored", tuple(unscored))
    yield Section(
        f"Not scored: the probes could not judge ({len(report.unjudged):,})", _some(list(_unjudged(report.unjudged)))
    )
    yield Section("Tools", tuple(_tools(report)), Topic.SUMS)
    tokens = [
        f"{_TOKEN_SOURCES.get(name, name)}: "
        f"{each.input:,} in{'' if each.cached is None else f' ({each.cached:,} cached)'}, {each.output:,} out, "
        f"of {plural(each.results, 'result')}"
        for name, each in score.tokens_by_authority.items()
    ]
    tokens += [f"unknown: {plural(score.tokens_unknown, 'result')}"] if score.tokens_unknown else []
    yield Section("Tokens by source", tuple(tokens), Topic.SUMS)
    yield Section("Cost", tuple(_cost(report)), Topic.SUMS)


def _failed(failures: Sequence[FailedResult]) -> Iterator[str]:
    """Yield one line for the results of a mission that failed for the same reason."""
    alike: dict[tuple[str, str], list[str]] = {}
    for each in failures:
        alike.setdefault((each.mission_id or UNKNOWN, each.why), []).append(each.attempt_id)
    for (mission, why), attempts in alike.items():
        yield f"{mission}, {why}: {_names(attempts)}"


def _unjudged(results: Sequence[UnjudgedResult]) -> Iterator[str]:
    """Yield one line for the results of a mission that could not be judged for the same reason."""
    alike: dict[tuple[str, str], list[str]] = {}
    for each in results:
        why = "; ".join(each.reasons) or "no probe was run"
        alike.setdefault((each.mission_id or UNKNOWN, why), []).append(each.attempt_id)
    for (mission, why), attempts in alike.items():
        yield f"{mission}, {one_line(why, limit=200)}: {_names(attempts)}"


def conclude(report: CampaignReport) -> str:
    """Return the result of the whole campaign, one short sentence for each number that matters."""
    score = report.score
    verified, stated = score.verified, score.unverified
    parts = []
    if verified.scored:
        parts.append(f"With probes: {verified.passed:,} of {verified.scored:,} verified{_first(verified)}.")
    if stated.scored:
        parts.append(f"Without probes: {stated.passed:,} of {stated.scored:,} passed{_first(stated)}.")
    if score.expected or score.unexpected:
        parts.append(f"As expected: {score.expected:,} of {score.expected + score.unexpected:,}.")
    if report.invalid_attempts:
        parts.append(f"Invalid evidence: {plural(len(report.invalid_attempts), 'attempt')}.")
    if score.infra:
        parts.append(f"Failed for infrastructure reasons: {score.infra:,} of {plural(score.results, 'result')}.")
    if score.unjudged:
        parts.append(f"Could not be judged: {score.unjudged:,} of {plural(score.results, 'result')}.")
    if score.unknown > score.unjudged:
        unprobed = score.unknown - score.unjudged
        parts.append(f"Unverified (no probe): {unprobed:,} of {plural(score.results, 'result')}.")
    if score.degraded:
        parts.append(f"Degraded (context engine): {score.degraded:,} of {plural(score.results, 'result')}.")
    if report.missing:
        parts.append(f"Without a result: {len(report.missing):,} of {plural(score.trials, 'trial')}.")
    if report.blocked:
        parts.append(f"Gates that block: {', '.join(gate.name for gate in report.blocked)}.")
    head = [] if report.exit == Exit.OK else [f"{report.verdict.capitalize()}."]
    return " ".join([*head, *(parts or ["No results."])])


def mismatch_lines(report: CampaignReport) -> list[str]:
    """Return one line for each result where claim and probes disagree."""
    lines = [
        f"{each.attempt_id}: claimed {'yes' if each.claimed else 'no'}, verified {'yes' if each.verified else 'NO'}"
        for each in report.mismatches
    ]
    return list(_some(lines))


def next_steps(report: CampaignReport) -> Iterator[str]:
    """Yield the commands that make sense next, or what to change first."""
    campaign = report.campaign_id or ""
    if report.is_running:
        yield f"proctor campaign status {campaign}"
    elif report.missing and not report.is_canary:
        used_up = USED_UP.get(report.runs[-1].how or "") if report.runs else None
        if used_up is not None:
            yield used_up
        elif report.spec_file is not None and report.plan_digest is not None:
            yield f"proctor campaign resume {campaign}"
    if report.score.infra and not report.is_running and not report.is_canary:
        yield f"proctor retry --only infra {campaign}"
    if (row := _attempt_to_explain(report)) is not None:
        yield f"proctor attempt explain {row.ref}"
    if report.is_complete and not report.is_checked:
        score = report.score
        can_publish = score.verified.scored and not (score.infra or score.unjudged or report.is_canary)
        yield f"proctor {'campaign publish-check' if can_publish else 'validate --strict'} {campaign}"


def _attempt_to_explain(report: CampaignReport) -> AttemptRow | None:
    """Return the attempt that most needs an explanation, if one does."""
    counted = report.counted_attempts
    judged = [(judge_attempt(row), row) for row in counted]
    wrong = (row for code, row in judged if code not in (Exit.OK, Exit.UNVERIFIED))
    unverified = (row for code, row in judged if code is Exit.UNVERIFIED)
    return next(chain(wrong, unverified, (row for row in counted if row.verified is False)), None)


def _tools(report: CampaignReport) -> Iterator[str]:
    for each in report.flows:
        score = each.score
        if score.tool_calls_unknown:
            unknown = plural(score.tool_calls_unknown, "result")
            yield f"{each.flow_id}: unknown for {unknown}, because the runtime cannot see tool calls"
        if score.tool_calls:
            time = f"{duration(score.tool_ms)} in total, " if score.tool_ms is not None else ""
            stuck = f", {plural(score.stuck, 'attempt')} without progress" if score.stuck else ""
            yield (
                f"{each.flow_id}: {plural(score.tool_calls, 'call')}, {score.tool_failures:,} failed, "
                f"{score.tool_retries:,} repeated after a failure, {time}"
                f"{score.output_bytes:,} bytes of output{stuck}"
            )


def _cost(report: CampaignReport) -> Iterator[str]:
    for each in report.flows:
        score = each.score
        if score.usd is not None:
            unknown = f", and {plural(score.usd_unknown, 'result')} of unknown cost" if score.usd_unknown else ""
            per_pass = score.verified.usd_per_pass
            passes = f", {money(per_pass)} per verified pass" if per_pass is not None else ""
            yield f"{each.flow_id}: {money(score.usd, unknown=score.usd_unknown)}{passes}{unknown}"


def _spread(mission: MissionSummary) -> float:
    rates = [score.passes.rate for score in mission.flows.values() if score.passes.rate is not None]
    return max(rates) - min(rates)


def _split(mission: MissionSummary) -> str:
    flows = [f"{flow} {ratio(score.passes)}" for flow, score in mission.flows.items()]
    return f"{mission.mission_id}: {', '.join(flows)}"


def _some(lines: Sequence[str]) -> tuple[str, ...]:
    left = len(lines) - MAX_LISTED
    return (*lines[:MAX_LISTED], f"… and {left:,} more; --json lists all") if left > 0 else tuple(lines)


def _names(names: Sequence[str]) -> str:
    return ", ".join(_some(names))
