"""What a campaign may cost: everything that was used counts, whatever became of the attempt, and in whichever run."""

import sqlite3
from contextlib import closing
from pathlib import Path

import msgspec
import pytest

from bench.campaign import KEY, spec_of
from bench.runtimes import write_fake
from proctor.attempt.machine import State
from proctor.attempt.model import Watcher
from proctor.campaign.run import CampaignResult, run_campaign
from proctor.campaign.spending import Spending
from proctor.campaign.watch import CampaignWatcher
from proctor.event.model import Tokens, TurnBegan, UsageAuthority, UsageReported
from proctor.evidence.layout import CampaignPaths
from proctor.ids import AttemptId, FlowId, TurnId
from proctor.ledger.reader import read_costs
from proctor.spec.load import load_spec
from tests.runtime.twin import run

FLOW = FlowId("f")
EACH_USD = 0.000094
"""Of an attempt on the agent that is none: 12 tokens in at 2, and 7 out at 10 for a million."""


class Tampering(CampaignWatcher):
    """Changes what an attempt had written, so that there can be no seal."""

    def __init__(self, root: Path, *, is_legible: bool) -> None:
        self._root = root
        self._is_legible = is_legible

    def state_entered(self, attempt: AttemptId, state: State) -> None:
        if state is State.SETTLING:
            [record] = self._root.glob(f"runs/*/attempts/{attempt}/attempt.json")
            record.write_bytes(record.read_bytes() + b"\n" if self._is_legible else b"{}")


@pytest.fixture
def spec(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two trials on an agent that is none, and money for two attempts."""
    monkeypatch.setenv(KEY, "none-needed-here")
    monkeypatch.setenv("PROCTOR_CODEX", str(write_fake(tmp_path)))
    models = {"bench/gpt-5": {"input": 2, "output": 10}}
    (tmp_path / "prices.yaml").write_bytes(msgspec.json.encode({"version": 1, "since": "2026-11-01", "models": models}))
    file = tmp_path / "spec.yaml"
    changes = {"prices": "prices.yaml", "limits": {"usd": 2 * EACH_USD}, "schedule": {"parallel": 1, "retries": 0}}
    file.write_bytes(msgspec.json.encode({**spec_of(2, isolation="shared"), **changes}))
    return file


def campaign(
    spec: Path, *, resume: CampaignPaths | None = None, watcher: CampaignWatcher | None = None
) -> CampaignResult:
    root = spec.parent / "evidence"
    return run(lambda: run_campaign(load_spec(spec), root=root, watcher=watcher or CampaignWatcher(), resume=resume))


def change(paths: CampaignPaths, sql: str) -> None:
    with closing(sqlite3.connect(paths.ledger, isolation_level=None)) as writer:
        writer.execute(sql)


def spent(paths: CampaignPaths) -> list[tuple[object, ...]]:
    with closing(sqlite3.connect(paths.ledger)) as reader:
        return reader.execute("select id, state, tokens, usd from attempt order by id").fetchall()


def test_what_runs_counts_as_far_as_it_has_told_and_then_as_what_it_cost() -> None:
    spending = Spending(usd_of=lambda _, tokens: None if tokens is None else tokens.total / 100, most_usd=1.0)
    one, other = AttemptId("m.f.r1.1"), AttemptId("m.f.r2.1")
    for attempt, total in ((one, 40), (other, 60)):
        assert not spending.is_over
        meter = spending.watcher(FLOW, Watcher())
        tokens = Tokens(input=total, output=0, total=total)
        authority = UsageAuthority.LIVE_THREAD_USAGE
        meter.event_recorded(attempt, TurnBegan(frame=1, at_ms=1, turn=TurnId("t")))
        meter.event_recorded(
            attempt,
            UsageReported(
                frame=2,
                at_ms=2,
                turn=TurnId("t"),
                tokens=tokens,
                scope="thread",
                basis="cumulative",
                authority=authority,
            ),
        )
    assert spending.is_over, "though nothing has ended"
    assert spending.settle(one, FLOW, Tokens(input=30, output=0, total=30)) == 0.3
    assert not spending.is_over, "it is counted once"
    assert spending.settle(other, FLOW, None) == 0.6, "what it told as it ran is known, where nothing else is"
    assert (spending.settled_usd, spending.unknown, spending.is_over) == (pytest.approx(0.9), 0, False)


def test_what_an_attempt_used_that_was_cut_off_counts_in_the_next_run(spec: Path) -> None:
    first = campaign(spec)
    assert (first.how, spent(first.paths)) == (
        "done",
        [("m0.f.r1.1", "sealed", 19, EACH_USD), ("m0.f.r2.1", "sealed", 19, EACH_USD)],
    )
    # As if it had been killed before the second seal.
    cleared = "ended_at_ms = null, outcome = null, tokens = null, usd = null, summary = null, runtime = null"
    change(first.paths, f"update attempt set state = 'running', {cleared} where id = 'm0.f.r2.1'")
    [folder] = (spec.parent / "evidence").glob("runs/*/attempts/m0.f.r2.1")
    (folder / "seal.json").unlink()
    again = campaign(spec, resume=first.paths)
    assert (again.how, again.attempts) == ("budget", ())
    assert spent(first.paths) == [("m0.f.r1.1", "sealed", 19, EACH_USD), ("m0.f.r2.1", "abandoned", 19, EACH_USD)]
    assert read_costs(first.paths.ledger, flow=FLOW) == (1, EACH_USD), "half an attempt says nothing of a whole one"


@pytest.mark.parametrize(("is_legible", "tokens"), [(True, 19), (False, None)])
def test_what_an_attempt_cost_that_could_not_be_sealed_is_kept_by_its_frames_or_by_what_it_told_as_it_ran(
    spec: Path, is_legible: bool, tokens: int | None
) -> None:
    first = campaign(spec, watcher=Tampering(spec.parent / "evidence", is_legible=is_legible))
    assert [each.state for each in first.attempts] == [State.ABANDONED, State.ABANDONED]
    assert spent(first.paths) == [
        ("m0.f.r1.1", "abandoned", tokens, EACH_USD),
        ("m0.f.r2.1", "abandoned", tokens, EACH_USD),
    ]
    again = campaign(spec, resume=first.paths)
    assert (again.how, again.attempts) == ("budget", ())


def test_what_earlier_attempts_cost_that_is_not_known_is_said_in_every_run(spec: Path) -> None:
    first = campaign(spec)
    assert first.warnings == ()
    change(first.paths, "update attempt set usd = null")
    change(first.paths, "update attempt set outcome = 'cancelled', code = 'run.cancelled' where id = 'm0.f.r2.1'")
    again = campaign(spec, resume=first.paths)
    assert [each.attempt_id for each in again.attempts] == ["m0.f.r2.2"]
    assert again.warnings == ("the budget does not include 2 attempts whose cost is not known",)
