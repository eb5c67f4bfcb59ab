"""What a ledger says that attempts cost, and when they are due again, is held against what was sealed and frozen."""

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.campaign import KEY, spec_of
from bench.runtimes import write_fake
from proctor.campaign.run import run_campaign
from proctor.campaign.schedule import ALL, AttemptEnd, Job, Scheduler
from proctor.campaign.watch import CampaignWatcher
from proctor.errors import Exit
from proctor.event.model import Tokens
from proctor.event.outcome import Outcome
from proctor.evidence.layout import CampaignPaths
from proctor.evidence.redact import Redactor
from proctor.ids import AttemptId, FlowId, RunId, RuntimeId, TrialId
from proctor.ledger.schema import LedgerAttempt
from proctor.plan.recover import REMEDIES, Remedy, remedy
from proctor.report.check_ledger import can_be_due
from proctor.report.cost import Costs, read_costs
from proctor.report.planned import PlannedModel, read_frozen, read_plan
from proctor.report.write_report import write_report
from proctor.spec.load import load_spec
from proctor.spec.prices import decode_prices
from proctor.surface.examine import examine_place
from proctor.surface.publish import check_publication
from tests.report.made import summary
from tests.runtime.twin import run

EACH_USD = 0.000094
"""Of an attempt on the agent that is none: 12 tokens in at 2, and 7 out at 10 for a million."""

PRICES = {"version": 1, "since": "2026-11-01", "models": {"bench/gpt-5": {"input": 2, "output": 10}}}


@pytest.fixture
def campaign(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., CampaignPaths]:
    """Two attempts on an agent that is none, with their report kept."""
    monkeypatch.setenv(KEY, "none-needed-here")
    monkeypatch.setenv("PROCTOR_CODEX", str(write_fake(tmp_path)))

    def made(**changes: Any) -> CampaignPaths:
        (tmp_path / "prices.yaml").write_bytes(msgspec.json.encode(PRICES))
        file, root = tmp_path / "spec.yaml", tmp_path / "evidence"
        file.write_bytes(msgspec.json.encode({**spec_of(2, isolation="shared"), **changes}))
        paths = run(lambda: run_campaign(load_spec(file), root=root, watcher=CampaignWatcher())).paths
        write_report(paths, root=root, redactor=Redactor(()), reasons={})
        return paths

    return made


def change(campaign: CampaignPaths, sql: str) -> None:
    with closing(sqlite3.connect(campaign.ledger)) as connection, connection:
        connection.execute(sql)


def told(campaign: CampaignPaths) -> list[tuple[str, str, str]]:
    """What is wrong with the ledger."""
    [whole] = [each for each in examine_place(campaign, is_strict=True).examined if each.kind == "campaign"]
    found = [(each.code, each.file, each.detail) for each in whole.findings]
    return [each for each in found if each[0] == "evidence.ledger"]


def spent(campaign: CampaignPaths) -> list[float | None]:
    with closing(sqlite3.connect(campaign.ledger)) as reader:
        return [usd for (usd,) in reader.execute("select usd from attempt order by id")]


@pytest.mark.parametrize(
    ("changes", "usd"),
    [
        ({}, None),
        ({"prices": "prices.yaml"}, EACH_USD),
        ({"prices": "prices.yaml", "limits": {"usd": 1}}, EACH_USD),
        ({"prices": "prices.yaml", "model": {"provider": "bench", "name": "gpt-6", "base_url": "http://b"}}, None),
    ],
)
def test_a_ledger_as_it_was_written_agrees_with_the_frozen_prices(
    campaign: Callable[..., CampaignPaths], changes: dict[str, Any], usd: float | None
) -> None:
    paths = campaign(**changes)
    assert (spent(paths), told(paths)) == ([usd, usd], [])
    assert examine_place(paths, is_strict=True).exit == Exit.OK


@pytest.mark.requirement("campaign.publish-check")
@pytest.mark.parametrize(
    ("changes", "column"),
    [
        ("usd = 0.5", "usd"),
        ("usd = null", "usd"),
        ("usd = 0", "usd"),
        ("retry_at_ms = ended_at_ms + 1000", "retry_at_ms"),
    ],
)
def test_a_ledger_that_was_told_another_cost_or_time_is_told_of(
    campaign: Callable[..., CampaignPaths], changes: str, column: str
) -> None:
    paths = campaign(prices="prices.yaml")
    change(paths, f"update attempt set {changes} where id = 'm0.f.r2.1'")
    detail = f"not what the sealed attempt says: {column}"
    assert told(paths) == [("evidence.ledger", "m0.f.r2.1/ledger.db", detail)]
    what = f"{paths.folder.name}: m0.f.r2.1/ledger.db {detail}"
    assert what in [each.what for each in check_publication(paths).reasons]


@pytest.mark.requirement("campaign.publish-check")
def test_a_result_that_the_ledger_has_as_cut_off_though_it_was_sealed_is_told_of(
    campaign: Callable[..., CampaignPaths],
) -> None:
    paths = campaign()
    change(paths, "update attempt set state = 'abandoned', outcome = 'unknown', code = 'run.cut-off' where n = 1")
    detail = "it has no seal there, but it was sealed"
    assert told(paths) == [
        ("evidence.ledger", f"{attempt}/ledger.db", detail) for attempt in ("m0.f.r1.1", "m0.f.r2.1")
    ]
    change(paths, "update attempt set retry_at_ms = 5, code = 'machine.disk-full'")
    assert {each[2] for each in told(paths)} == {"without a seal nothing can be due: retry_at_ms"}
    change(paths, "update attempt set retry_at_ms = null, code = 'run.cut-off'")
    # As it is where a disk fails while it is sealed, and where the seal is damaged.
    change(paths, "update attempt set code = 'machine.disk-full' where id = 'm0.f.r1.1'")
    [seal] = paths.folder.parent.parent.glob("runs/*/attempts/m0.f.r2.1/seal.json")
    seal.write_bytes(seal.read_bytes()[:-9])
    assert told(paths) == []


def test_a_cost_where_there_are_no_prices_is_told_of_and_one_that_was_metered_is_not() -> None:
    costs = Costs(models={FlowId("f"): PlannedModel(provider="bench", name="b")}, prices=None, has_meter=False)
    assert costs.agree(None, flow=FlowId("f"), tokens=None)
    assert not costs.agree(0.5, flow=FlowId("f"), tokens=None)
    assert costs.agree(0.5, flow=FlowId("g"), tokens=None), "of a flow that is not known nothing is"
    prices = decode_prices(msgspec.json.encode(PRICES), file="prices.yaml")
    models = {FlowId("f"): PlannedModel(provider="bench", name="gpt-5")}
    told_as_it_ran = Costs(models=models, prices=prices, has_meter=True)
    assert told_as_it_ran.agree(0.5, flow=FlowId("f"), tokens=None)
    assert not told_as_it_ran.agree(0.5, flow=FlowId("f"), tokens=Tokens(input=12, output=7, total=19))
    assert told_as_it_ran.agree(EACH_USD, flow=FlowId("f"), tokens=Tokens(input=12, output=7, total=19))


def test_what_the_scripted_model_said_costs_nothing() -> None:
    tokens = Tokens(input=12, output=7, total=19)
    models = {FlowId("f"): PlannedModel(provider="scripted", name=None)}
    costs = Costs(models=models, prices=None, has_meter=False)
    assert [costs.agree(usd, flow=FlowId("f"), tokens=tokens) for usd in (0.0, None, 0.1)] == [True, False, False]


def frozen_costs(paths: CampaignPaths) -> Costs | None:
    return read_costs(paths, plan=read_plan(paths), frozen=read_frozen(paths))


@pytest.mark.parametrize("damage", ["spec.yaml", "index.json", "file-0.yaml"])
def test_frozen_files_that_were_masked_or_are_gone_say_nothing_of_costs(
    campaign: Callable[..., CampaignPaths], damage: str
) -> None:
    paths = campaign(prices="prices.yaml")
    assert frozen_costs(paths) is not None
    file = paths.spec_snapshot / damage
    file.write_bytes(file.read_bytes().replace(b"prices", b"[redacted:A]").replace(b"since", b"[redacted:B]"))
    assert frozen_costs(paths) is None
    file.unlink()
    assert frozen_costs(paths) is None


codes = st.sampled_from([None, *REMEDIES])
pauses_ms = st.none() | st.integers(min_value=0, max_value=100_000_000)


@given(endings=st.lists(st.tuples(codes, pauses_ms, st.floats(0, 100_000)), min_size=1, max_size=12), wall_ms=pauses_ms)
def test_whatever_the_scheduler_says_of_when_a_trial_is_due_can_be(
    endings: list[tuple[str | None, int | None, float]], wall_ms: int | None
) -> None:
    scheduler = Scheduler({ALL: 4}, seed=3)
    now_s, ended_at_ms = 1000.0, wall_ms or 1_767_268_800_000
    for at, (code, pause_ms, later_s) in enumerate(endings):
        job = Job(trial=TrialId(f"m.f{at}.r1"), flow=FlowId(f"f{at}"), keys=("provider:p",))
        scheduler.add(job)
        now_s = max(now_s + later_s, scheduler.wake_s(now_s) or 0.0)
        if scheduler.start(now_s) is None:
            return  # it was refused for longer than a run waits
        outcome = Outcome.COMPLETED if code is None else Outcome.FAILED
        after = remedy(outcome, code)
        ending = AttemptEnd(remedy=after, code=code, retry_after_s=None if pause_ms is None else pause_ms / 1000)
        again_s = scheduler.ended(job, ending, tries=at, now_s=now_s)
        if again_s is None or after not in (Remedy.AGAIN, Remedy.YIELD, Remedy.PARK):
            continue
        row = attempt(ended_at_ms=ended_at_ms, retry_at_ms=ended_at_ms + round((again_s - now_s) * 1000))
        sealed = summary(row.id, outcome=outcome, code=code, retry_after_ms=pause_ms)
        longest_ms = round(scheduler.longest_wait_s * 1000)
        assert can_be_due(row, sealed, longest_wait_ms=longest_ms)
        if pause_ms:
            early = attempt(ended_at_ms=ended_at_ms, retry_at_ms=ended_at_ms + min(pause_ms, longest_ms) - 1)
            assert not can_be_due(early, sealed, longest_wait_ms=longest_ms)


def attempt(*, ended_at_ms: int, retry_at_ms: int | None) -> LedgerAttempt:
    return LedgerAttempt(
        id=AttemptId("m.f.r1.1"),
        trial=TrialId("m.f.r1"),
        n=1,
        run=RunId("r"),
        state="sealed",
        started_at_ms=0,
        ended_at_ms=ended_at_ms,
        runtime_id=RuntimeId("s"),
        retry_at_ms=retry_at_ms,
    )
