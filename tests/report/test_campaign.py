"""The report of a campaign: what is scored, what is not and why, and what it all comes to."""

import fcntl
import json
import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from proctor.errors import Bucket, EvidenceError, Exit, bucket_of
from proctor.event.model import Tokens
from proctor.event.outcome import Outcome
from proctor.evidence.artifacts import ExpectKey
from proctor.evidence.layout import RootPaths
from proctor.evidence.reader import Finding
from proctor.evidence.summary import FAILED, PASSED, UNKNOWN
from proctor.ids import AttemptId, FlowId, MissionId, TrialId
from proctor.report.campaign import Effort, Mismatch, MissingResult, build_report, load_campaign
from proctor.report.campaign_state import CampaignState, load_state
from proctor.report.classify import classify
from proctor.report.evidence_index import EvidenceIndex
from proctor.report.markdown import render_markdown
from proctor.report.score import PassRate, Score, TokenSum
from proctor.report.sections import facts, flow_table
from proctor.report.stats import clustered_interval, wilson
from proctor.report.verdict import judge_attempt
from proctor.spec.campaign_options import GatesSpec
from proctor.surface.campaign_status import status_of
from tests.report.made import (
    CANCELLED,
    CUT,
    FULL,
    INFRA,
    NO,
    NOT_STATED,
    RUN,
    STATED,
    STILL,
    UNSURE,
    YES,
    Tries,
    expectation,
    record,
    repeats,
    report,
    reported,
    row,
    tried,
)


def state_of(root: Path, tries: Tries, **more: Any) -> CampaignState:
    return load_state(tried(root, tries, **more), root=RootPaths(root))


@pytest.mark.requirement("campaign.report")
def test_only_what_is_the_agents_own_is_scored_and_the_rest_is_shown_in_its_bucket(tmp_path: Path) -> None:
    quota = {**UNSURE, "outcome": Outcome.FAILED, "code": "provider.usage-limit"}
    late = {**UNSURE, "outcome": Outcome.TIMED_OUT, "code": "limit.turn"}
    found = reported(tmp_path, repeats("fix", "codex", YES, NO, INFRA, quota, late, UNSURE))
    [flow] = found.flows
    assert flow.score == found.score
    assert (flow.score.trials, flow.score.results, flow.score.verified.scored, flow.score.verified.passed) == (
        6,
        5,
        3,
        1,
    )
    assert (flow.score.unknown, flow.score.buckets) == (1, {"infra": 1, "quota": 1})
    assert flow.score.verified.rate == pytest.approx(1 / 3)
    assert (found.exit, found.is_complete) == (Exit.INFRASTRUCTURE, False)
    [kept] = found.missing
    assert (kept.trial, kept.why, kept.code) == ("fix.codex.r4", "to be retried", "provider.usage-limit")


@pytest.mark.requirement("campaign.report")
def test_the_last_sealed_attempt_of_a_trial_is_its_result_and_the_others_do_not_count(tmp_path: Path) -> None:
    found = reported(
        tmp_path,
        {
            "retried.codex.r1": [INFRA, CUT, YES],
            "resumed.codex.r1": [CUT, YES],
            "stopped.codex.r1": [NO, CANCELLED],
            "again.codex.r1": [INFRA, STILL],
        },
    )
    assert (found.score.results, found.score.verified.passed, found.score.verified.scored) == (4, 2, 3)
    assert found.score.buckets == {"infra": 1}
    assert (found.effort.attempts, found.effort.not_counted) == (9, 5)
    assert found.missing == ()


@pytest.mark.requirement("campaign.report")
def test_trials_without_a_result_are_told_with_what_became_of_them(tmp_path: Path) -> None:
    tries: Tries = {
        "one.codex.r1": [YES],
        "two.codex.r1": [CANCELLED],
        "three.codex.r1": [CUT],
        "four.codex.r1": [STILL],
        "five.codex.r2": [],
    }
    found = reported(tmp_path, tries)

    def gone(trial: str, why: str, code: str | None = None) -> MissingResult:
        mission, flow, repeat = trial.split(".")
        return MissingResult(
            trial=TrialId(trial),
            mission_id=MissionId(mission),
            flow_id=FlowId(flow),
            repeat=int(repeat[1:]),
            why=why,
            code=code,
        )

    assert found.missing == (
        gone("two.codex.r1", "cancelled", "run.cancelled"),
        gone("three.codex.r1", "cut off", "run.cut-off"),
        gone("four.codex.r1", "cut off"),
        gone("five.codex.r2", "never tried"),
    )
    assert (found.exit, found.is_complete, found.is_running) == (Exit.UNVERIFIED, False, False)
    # The trials that were cut off are the only ones without a result that a coverage of a fifth lets through.
    enough = reported(tmp_path / "enough", tries, gates=GatesSpec(coverage=0.2))
    assert (enough.exit, enough.is_complete) == (Exit.OK, False)


def test_a_campaign_that_runs_is_reported_as_it_stands(tmp_path: Path) -> None:
    paths = tried(tmp_path, {"one.codex.r1": [YES], "two.codex.r1": [STILL], "three.codex.r1": []})
    with (paths.folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        found = load_campaign(paths, root=RootPaths(tmp_path))
        late = state_of(tmp_path / "late", {"one.codex.r1": [YES]})
    assert build_report(replace(late, is_running=True)).is_complete is False
    assert [each.why for each in found.missing] == ["running", "not tried yet"]
    assert (found.is_running, found.is_complete, found.exit) == (True, False, Exit.UNVERIFIED)


@pytest.mark.requirement("campaign.report")
@pytest.mark.requirement("evidence.claimed-vs-verified")
def test_what_was_claimed_is_held_against_what_was_verified(tmp_path: Path) -> None:
    boast, modest, silent = {**NO, "claimed": True}, {**YES, "claimed": False}, {**NO, "claimed": None}
    found = reported(tmp_path, repeats("fix", "codex", boast, modest, silent, {**YES, "claimed": True}))
    assert found.mismatches == (
        Mismatch(attempt_id=AttemptId("fix.codex.r1.1"), claimed=True, verified=False),
        Mismatch(attempt_id=AttemptId("fix.codex.r2.1"), claimed=False, verified=True),
    )


@pytest.mark.trust
@pytest.mark.requirement("surface.stats")
def test_interval_of_a_rate_is_clustered_by_mission_over_repeats_and_flows(tmp_path: Path) -> None:
    """Forty results of four missions that pass always or never are worth four results."""
    found = reported(
        tmp_path,
        {
            f"{mission}.{flow}.r{repeat}": [result]
            for mission, result in (("a", YES), ("b", YES), ("c", YES), ("d", NO))
            for flow, repeats in (("codex", 10), ("claude", 1))
            for repeat in range(1, repeats + 1)
        },
    )
    once = wilson(3, 4)
    methods = {"codex": "clustered by mission", "claude": "Wilson", "all": "clustered by mission"}
    scores = {**{str(each.flow_id): each.score for each in found.flows}, "all": found.score}
    for flow, method in methods.items():
        rate = scores[flow].verified
        assert (rate.rate_low, rate.rate_high) == pytest.approx(once), flow
        assert rate.interval_method == method
    note = "95 % intervals of the rates: Wilson, clustered by mission where missions have several results"
    assert f"\n{note}.\n" in render_markdown(found)


@pytest.mark.requirement("surface.stats")
def test_numbers_are_added_up_and_what_is_unknown_stays_unknown(tmp_path: Path) -> None:
    tries = {
        "a.codex.r1": [{**YES, "duration_ms": 100, "usd": 0.5}],
        "a.codex.r2": [{**NO, "duration_ms": 300}],
        "b.codex.r1": [{**YES, "duration_ms": 200, "usd": 0.25}],
        "b.codex.r2": [INFRA, {**YES, "duration_ms": 900, "usd": 0.25}],
    }
    score = reported(tmp_path, tries).score
    low, high = clustered_interval([(2, 1), (2, 2)]) or (None, None)
    assert score == Score(
        trials=4,
        results=4,
        verified=PassRate(
            scored=4,
            passed=3,
            rate=0.75,
            rate_low=low,
            rate_high=high,
            interval_method="clustered by mission",
            pass_at={1: 0.75, 2: 1.0},
            pass_all={1: 0.75, 2: 0.5},
            usd_per_pass=None,
        ),
        unverified=PassRate(
            scored=0,
            passed=0,
            rate=None,
            rate_low=None,
            rate_high=None,
            interval_method=None,
            pass_at={},
            pass_all={},
            usd_per_pass=None,
        ),
        expected=3,
        unexpected=1,
        degraded=0,
        unknown=0,
        unjudged=0,
        continued=0,
        buckets={},
        tool_calls=8,
        tool_calls_unknown=0,
        tool_failures=0,
        tool_retries=0,
        stuck=0,
        tool_ms=None,
        output_bytes=0,
        unmeasured=0,
        duration_p50_ms=200,
        duration_p95_ms=900,
        tokens=28,
        tokens_unknown=0,
        reasoning_tokens=0,
        reasoning_unknown=4,
        tokens_by_authority={"live-thread-usage": TokenSum(results=4, input=20, cached=None, output=8)},
        usd=1.0,
        usd_unknown=1,
    )


@pytest.mark.requirement("surface.stats")
@pytest.mark.requirement("evidence.claimed-vs-verified")
def test_rates_of_missions_with_and_without_probes_are_never_added_up(tmp_path: Path) -> None:
    tries = {**repeats("fix", "codex", YES, NO), **repeats("ask", "codex", STATED, NOT_STATED, STATED)}
    score = reported(tmp_path, tries).score
    assert (score.verified.passed, score.verified.scored) == (1, 2)
    assert (score.unverified.passed, score.unverified.scored) == (2, 3)
    assert (score.expected, score.unexpected) == (3, 2)


@pytest.mark.requirement("evidence.claimed-vs-verified")
def test_result_that_the_mission_expects_to_fail_is_expected_and_not_passed(tmp_path: Path) -> None:
    lie = {**NO, "claimed": True, "expectation": expectation(met=True, keys={"verified": True})}
    found = reported(tmp_path, {"claim.codex.r1": [lie]})
    assert (found.score.verified.passed, found.score.verified.scored, found.score.expected) == (0, 1, 1)
    assert found.exit == Exit.OK


@pytest.mark.requirement("surface.stats")
def test_reasoning_tokens_are_added_up_and_the_unknown_is_counted(tmp_path: Path) -> None:
    metrics = report(AttemptId("a")).metrics
    assert metrics.usage is not None
    tokens = Tokens(input=5, output=9, total=14, reasoning_output=4)
    usage = msgspec.structs.replace(metrics.usage, tokens=tokens)
    thought = {**YES, "metrics": msgspec.structs.replace(metrics, usage=usage)}
    found = reported(tmp_path, repeats("fix", "codex", thought, YES))
    assert (found.score.reasoning_tokens, found.score.reasoning_unknown) == (4, 1)
    headings, [flow] = flow_table(found)
    assert dict(zip(headings, flow, strict=True))["reasoning"] == "≥ 4"
    assert "| 14 | 4 | 1.5 s |" in render_markdown(found)


def test_missions_on_which_flows_differ_are_marked(tmp_path: Path) -> None:
    found = reported(
        tmp_path,
        {
            **repeats("same", "a", YES, NO),
            **repeats("same", "b", NO, YES),
            **repeats("apart", "a", YES, YES),
            **repeats("apart", "b", NO, YES),
            **repeats("alone", "a", YES, YES),
            **repeats("alone", "b", INFRA, INFRA),
        },
    )
    assert {each.mission_id: each.differs for each in found.missions} == {"same": False, "apart": True, "alone": False}


@pytest.mark.requirement("evidence.integrity")
def test_damaged_evidence_is_told_by_its_codes_and_scores_nothing(tmp_path: Path) -> None:
    torn = (Finding(code="evidence.torn", file="frames.jsonl", detail="the last row"),)
    found = reported(
        tmp_path, repeats("fix", "codex", YES, YES), damage={AttemptId("fix.codex.r1.1"): torn}, gates=GatesSpec()
    )
    assert (found.score.verified.passed, found.score.verified.scored) == (1, 1)
    assert found.score.buckets == {"evidence": 1}
    assert (found.exit, found.is_checked) == (Exit.EVIDENCE, True)
    assert [(row.attempt_id, row.findings) for row in found.invalid_attempts] == [("fix.codex.r1.1", torn)]
    assert "fix.codex.r1.1: evidence.torn" in render_markdown(found)


@pytest.mark.requirement("surface.stats")
def test_cost_per_pass_is_unknown_if_the_cost_of_an_invalid_result_is(tmp_path: Path) -> None:
    tries = repeats("fix", "codex", {**YES, "usd": 1.0}, {**YES, "usd": 1.0})
    torn = (Finding(code="evidence.torn", file="frames.jsonl", detail="the last row"),)
    assert reported(tmp_path / "1", tries).score.verified.usd_per_pass == 1.0
    found = reported(tmp_path / "2", tries, damage={"fix.codex.r1.1": torn})
    assert found.score.verified.usd_per_pass is None


def test_infrastructure_failures_are_never_fewer_than_none(tmp_path: Path) -> None:
    torn = (Finding(code="evidence.torn", file="frames.jsonl", detail="the last row"),)
    found = reported(tmp_path, {"fix.codex.r1": [INFRA]}, retries=1, damage={"fix.codex.r1.1": torn})
    assert (found.score.results, found.score.infra) == (0, 0)


def test_result_of_a_mission_that_states_nothing_is_not_scored(tmp_path: Path) -> None:
    """Otherwise it could fail and never pass."""
    free = {"verified": None, "has_probes": False, "expectation": expectation(met=True)}
    failed = {**free, "outcome": Outcome.FAILED, "code": "agent.turn-failed", "expectation": expectation(met=False)}
    found = reported(tmp_path, repeats("ask", "codex", free, failed))
    assert (found.score.unverified.scored, found.score.unknown) == (0, 2)
    assert (found.score.expected, found.score.unexpected, found.exit) == (1, 1, Exit.JUDGED_NO)


def test_checked_report_takes_the_tokens_of_invalid_evidence_from_the_ledger(tmp_path: Path) -> None:
    paths = tried(tmp_path, {"fix.codex.r1": [YES]})
    folder = RootPaths(tmp_path).run(RUN).attempt(TrialId("fix.codex.r1"), n=1)
    folder.create()
    metrics = report(AttemptId("a")).metrics
    assert metrics.usage is not None
    many = msgspec.structs.replace(metrics.usage, tokens=Tokens(input=1, output=1, total=999_999_999))
    forged = report(AttemptId("fix.codex.r1.1"), metrics=msgspec.structs.replace(metrics, usage=many))
    folder.attempt.write_bytes(msgspec.json.encode(record(AttemptId("fix.codex.r1.1"))))
    folder.report.write_bytes(msgspec.json.encode(forged))
    folder.seal.touch()
    index = EvidenceIndex(lambda _: ("invalid", ()))
    assert load_campaign(paths, root=RootPaths(tmp_path), index=index).effort.tokens == 7


@pytest.mark.parametrize(("ending", "exit_"), [(FULL, Exit.INFRASTRUCTURE), (STILL, Exit.UNVERIFIED)])
def test_strict_report_does_not_call_an_attempt_without_a_folder_invalid(
    tmp_path: Path, ending: dict[str, Any], exit_: Exit
) -> None:
    """The ledger names an attempt before its folder exists."""
    paths = tried(tmp_path, {"fix.codex.r1": [ending]})
    index = EvidenceIndex(lambda _: ("invalid", ()))
    assert load_campaign(paths, root=RootPaths(tmp_path), index=index).exit == exit_
    assert load_campaign(paths, root=RootPaths(tmp_path)).exit == exit_


OUTCOMES = [each for each in Outcome if each is not Outcome.CANCELLED]


@given(
    st.sampled_from(OUTCOMES),
    st.sampled_from([None, "limit.turn", "provider.error", "peer.hangup", "provider.quota", "run.harness"]),
    st.sampled_from([True, False, None]),
    st.sampled_from([True, False, None]),
)
def test_result_passes_only_if_its_probes_verified_it(
    outcome: Outcome, code: str | None, verified: bool | None, met: bool | None
) -> None:
    bucket = None if code is None else bucket_of(code)
    attempt = row(outcome=outcome, code=code, bucket=bucket, verified=verified, met=met)
    result, said = classify(attempt), judge_attempt(attempt)
    assert (result == PASSED) is (verified is True and bucket in (None, Bucket.AGENT))
    if result == FAILED and met is None:
        assert said in (Exit.JUDGED_NO, Exit.INFRASTRUCTURE, Exit.UNVERIFIED)
    if result == UNKNOWN and met is None:
        assert said is Exit.UNVERIFIED


@given(st.sampled_from([None, True, False]), st.sampled_from([None, True, False]), st.sampled_from([None, True, False]))
def test_result_without_probes_passes_if_what_the_mission_states_holds(
    outcome: bool | None, answer: bool | None, trace: bool | None
) -> None:
    named: dict[ExpectKey, bool | None] = {"outcome": outcome, "answer": answer, "trace": trace}
    keys: dict[ExpectKey, bool | None] = {key: is_met for key, is_met in named.items() if is_met is not None}
    met = all(keys.values()) if keys else None
    attempt = row(has_probes=False, verified=None, expectation=expectation(met=met, keys=keys))
    stated = [is_met for is_met in (answer, trace) if is_met is not None]
    assert classify(attempt) == (UNKNOWN if not stated else PASSED if all(stated) else FAILED)


def test_report_refuses_a_ledger_of_a_newer_version(tmp_path: Path) -> None:
    paths = tried(tmp_path, {"fix.codex.r1": [YES]})
    with closing(sqlite3.connect(paths.ledger)) as book:
        book.execute("pragma user_version = 2")
    with pytest.raises(EvidenceError, match="schema version is 2; this Proctor reads only 1") as refused:
        load_state(paths, root=RootPaths(tmp_path))
    assert refused.value.code == "evidence.version"


@pytest.mark.parametrize("key", ["schedule", "gates", "digest", "isCanary"])
def test_report_refuses_a_plan_that_lacks_a_part(tmp_path: Path, key: str) -> None:
    paths = tried(tmp_path, {"fix.codex.r1": [YES]})
    spelled = json.loads(paths.plan.read_bytes())
    del spelled["plan"][key]
    paths.plan.write_text(json.dumps(spelled))
    with pytest.raises(EvidenceError) as refused:
        load_state(paths, root=RootPaths(tmp_path))
    assert refused.value.code == "evidence.schema"


@pytest.mark.requirement("campaign.report")
def test_what_all_attempts_took_is_told_alike_by_report_and_status_and_the_unknown_is_never_nought(
    tmp_path: Path,
) -> None:
    unused = {**YES, "metrics": msgspec.structs.replace(report(AttemptId("a")).metrics, usage=None)}
    tries: Tries = {"a.codex.r1": [{**FULL, "usd": 3.0}, {**YES, "usd": 1.0}], "b.codex.r1": [unused, STILL]}
    paths = tried(tmp_path, tries)
    told = load_campaign(paths, root=RootPaths(tmp_path)).effort
    assert told == Effort(attempts=4, not_counted=2, tokens=7, tokens_unknown=3, usd=4.0, usd_unknown=2)
    assert (status_of(paths).usd, status_of(paths).usd_unknown) == (4.0, 2)
    # One that was sealed and that the ledger still calls running tells its tokens, and not what they cost.
    sealed = RootPaths(tmp_path).run(RUN).attempt(TrialId("b.codex.r1"), n=2)
    sealed.create()
    sealed.attempt.write_bytes(msgspec.json.encode(record(AttemptId("b.codex.r1.2"))))
    sealed.report.write_bytes(msgspec.json.encode(report(AttemptId("b.codex.r1.2"))))
    sealed.seal.touch()
    told = load_campaign(paths, root=RootPaths(tmp_path)).effort
    assert (told.tokens, told.tokens_unknown, told.usd, told.usd_unknown) == (14, 2, 4.0, 2)
    nothing = reported(tmp_path / "nothing", {"b.codex.r1": [unused]})
    assert dict(facts(nothing))["usage"] == "1 attempt; ? tokens, cost ?"


def test_a_campaign_with_no_trials_is_not_well(tmp_path: Path) -> None:
    found = reported(tmp_path, {})
    assert (found.exit, found.is_complete, [gate.name for gate in found.blocked]) == (
        Exit.UNVERIFIED,
        False,
        ["coverage"],
    )


@pytest.mark.requirement("campaign.publish-check")
def test_a_trial_that_resume_would_try_again_has_no_result(tmp_path: Path) -> None:
    def failed(code: str, outcome: Outcome = Outcome.FAILED) -> dict[str, Any]:
        return {**UNSURE, "outcome": outcome, "code": code}

    tries = repeats(
        *("fix", "codex", YES, failed("provider.rate-limited"), failed("provider.unauthorized")),
        failed("limit.campaign", Outcome.TIMED_OUT),
        failed("peer.lost", Outcome.CRASHED),
    )
    found = reported(tmp_path, tries, retries=1)
    assert (found.score.results, found.is_complete) == (1, False)
    assert [each.why for each in found.missing] == ["to be retried"] * 4
    [gate] = found.blocked
    assert gate.name == "coverage"
    assert len(reported(tmp_path / "no-more", tries, retries=0).missing) == 3, "a crash stands when no retry is left"
