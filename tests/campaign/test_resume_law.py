"""Run all == run some, be killed at any point, resume: over the ledger, what is left, and what seals say."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from proctor.campaign import ledger
from proctor.campaign.ledger import SCHEMA, Ledger
from proctor.event.metrics import MetricsFold
from proctor.event.outcome import Outcome
from proctor.evidence.artifacts import AttemptReport, Expectation
from proctor.ids import AttemptId, CellId, Digest, FlowId, MissionId, RunId
from proctor.plan.model import Cell, Limits, Plan
from proctor.plan.recover import CUT_OFF, Remedy, remedy
from proctor.plan.remaining import remaining
from proctor.plan.standing import UNTRIED, CellProgress, Patience, Tried, fold_cells, fold_tries
from proctor.plan.wait import Wait
from proctor.spec.running import GatesSpec
from tests.plan.made import SCHEDULE

Ending = tuple[Outcome, str | None]

DONE: Ending = (Outcome.COMPLETED, None)
CRASHED: Ending = (Outcome.CRASHED, "peer.hangup")
LIMITED: Ending = (Outcome.FAILED, "provider.rate-limited")
FAILED: Ending = (Outcome.FAILED, "agent.turn-failed")
CANCELLED: Ending = (Outcome.CANCELLED, "run.cancelled")
ENDINGS = (DONE, CRASHED, LIMITED, FAILED)

PATIENCE = Patience(retries=1)
CELLS = tuple(
    Cell(id=CellId(f"m{n}.f.r1"), mission=MissionId(f"m{n}"), flow=FlowId("f"), repeat=1, digest=Digest("sha256:0"))
    for n in range(4)
)
PLAN = Plan(
    campaign="c",
    digest=Digest("sha256:0"),
    flows=(),
    limits=Limits(attempt_ms=3, turn_ms=2, stall_ms=1),
    cells=CELLS,
    schedule=SCHEDULE,
    gates=GatesSpec(),
)


class KilledError(Exception):
    """kill -9, as the model has it."""


def report(attempt: AttemptId, ending: Ending) -> AttemptReport:
    return AttemptReport(
        attempt_id=attempt,
        outcome=ending[0],
        code=ending[1],
        detail=None,
        claimed=None,
        verified=None,
        reasons=(),
        expectation=Expectation(met=None, misses=()),
        metrics=MetricsFold().finish(),
        workspace_digest_after=None,
        duration_ms=1,
    )


@dataclass
class World:
    """A ledger, the seals on disk, and agents whose n-th heard answer for a cell is known beforehand."""

    book: Ledger
    answers: dict[CellId, list[Ending]]
    seals: dict[AttemptId, Ending] = field(default_factory=dict)
    runs: int = 0

    def run(self, *, steps: int | None = None) -> None:
        """To the end, or until so many things were written."""
        self.reconcile()
        self.runs += 1
        run = RunId(f"r{self.runs}")
        self.book.begin(PLAN, run=run, at_ms=1, file="a.yaml", spec=Digest("sha256:s"))
        written = iter(range(10**6))

        def write() -> None:
            if next(written) == steps:
                raise KilledError

        while left := remaining(PLAN, self.settled()):
            cell = left[0]
            n = self.known().get(cell.id, UNTRIED).made + 1
            attempt = AttemptId(f"{cell.id}.{n}")
            write()
            self.book.apply([ledger.claim(attempt, cell=cell.id, n=n, run=run, at_ms=1)])
            write()
            heard = [each for id_, each in self.seals.items() if id_.startswith(cell.id)]
            self.seals[attempt] = self.answers[cell.id][len(heard)]
            write()
            self.book.apply([ledger.settle(attempt, report(attempt, self.seals[attempt]), at_ms=2)])

    def reconcile(self) -> None:
        for each in self.book.tried(state="claimed"):
            ending = self.seals.get(each.id)
            told = (
                ledger.abandon(each.id, code=CUT_OFF, at_ms=2)
                if ending is None
                else ledger.settle(each.id, report(each.id, ending), at_ms=2)
            )
            self.book.apply([told])

    def known(self) -> dict[CellId, CellProgress]:
        return dict(fold_cells(self.book.tried(), patience=PATIENCE))

    def settled(self) -> set[CellId]:
        return {id_ for id_, standing in self.known().items() if standing.is_settled}

    def results(self) -> dict[CellId, list[Ending]]:
        """Every sealed ending of each cell, in order; the last is its result."""
        found: dict[CellId, list[Ending]] = {}
        for each in self.book.tried():
            if each.state == "sealed" and each.outcome is not None:
                found.setdefault(each.cell, []).append((each.outcome, each.code))
        return found


@contextmanager
def world(answers: dict[CellId, list[Ending]]) -> Iterator[World]:
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        connection.executescript(SCHEMA)
        yield World(Ledger(connection), answers)


# After so many others each cell is done, so that every run ends.
answers = st.fixed_dictionaries(
    {cell.id: st.lists(st.sampled_from(ENDINGS), max_size=4).map(lambda each: [*each, DONE]) for cell in CELLS}
)


@pytest.mark.requirement("campaign.resume")
@given(answers=answers, kills=st.lists(st.integers(min_value=0, max_value=12), max_size=6))
def test_run_all_is_run_some_be_killed_resume(answers: dict[CellId, list[Ending]], kills: list[int]) -> None:
    with world(answers) as undisturbed, world(answers) as killed:
        undisturbed.run()
        for steps in kills:
            try:
                killed.run(steps=steps)
            except KilledError:
                continue
        killed.run()
        assert killed.results() == undisturbed.results()
        made: dict[CellId, list[int]] = {}
        for each in killed.book.tried():
            assert each.state != "claimed"
            made.setdefault(each.cell, []).append(each.n)
        assert all(numbers == [*range(1, len(numbers) + 1)] for numbers in made.values())
        assert set(made) == {cell.id for cell in CELLS}
        assert remaining(PLAN, killed.settled()) == ()


@given(endings=st.lists(st.sampled_from((*ENDINGS, CANCELLED)), min_size=1, max_size=8))
def test_a_cell_is_settled_by_a_result_or_when_its_retries_are_used_up(endings: list[Ending]) -> None:
    cell, standing = CELLS[0].id, UNTRIED
    for n, (outcome, code) in enumerate(endings, 1):
        tried = Tried(
            id=AttemptId(f"{cell}.{n}"), cell=cell, n=n, run=RunId("r"), state="sealed", claimed_at_ms=0,
            ended_at_ms=5, outcome=outcome, code=code,
        )  # fmt: skip
        standing = standing.then(tried, patience=PATIENCE)
        # An attempt without a seal settles nothing, however it is said to have ended.
        unsealed = msgspec.structs.replace(tried, state="abandoned")
        assert not UNTRIED.then(unsealed, patience=PATIENCE).is_settled
    failures = sum(remedy(*each) is Remedy.AGAIN for each in endings)
    result, is_settled = _result(endings)
    assert standing == CellProgress(
        made=len(endings),
        failures=failures,
        took_ms=5 * len(endings),
        result=result,
        is_settled=is_settled,
        run=RunId("r"),
    )
    anew = CellProgress(made=len(endings), result=result, run=RunId("r"))
    assert standing.again(patience=PATIENCE) == (anew if is_settled or failures > PATIENCE.retries else standing)


def _result(endings: list[Ending]) -> tuple[int | None, bool]:
    """The last that stands, and whether nothing follows it that is not as if it had not been."""
    result, is_settled, failures = None, False, 0
    for n, ending in enumerate(endings, 1):
        after = remedy(*ending)
        failures += after is Remedy.AGAIN
        if after is Remedy.NONE or (after is Remedy.AGAIN and failures > PATIENCE.retries):
            result, is_settled = n, True
        elif after is not Remedy.REDO:
            is_settled = False
    return result, is_settled


@given(
    endings=st.lists(st.sampled_from((*ENDINGS, CANCELLED)), min_size=1, max_size=4),
    more=st.lists(st.sampled_from((*ENDINGS, CANCELLED)), max_size=4),
)
def test_a_cell_that_another_run_tries_counts_there_as_in_the_ledger_and_its_result_speaks_meanwhile(
    endings: list[Ending], more: list[Ending]
) -> None:
    def tries(first: int, run: str, given: list[Ending]) -> list[Tried]:
        return [
            Tried(
                id=AttemptId(f"m.f.r1.{n}"),
                cell=CellId("m.f.r1"),
                n=n,
                run=RunId(run),
                state="sealed",
                claimed_at_ms=0,
                ended_at_ms=5,
                outcome=outcome,
                code=code,
            )
            for n, (outcome, code) in enumerate(given, first)
        ]

    for once in (tries(1, "r1", endings), tries(1, "r1", [*endings, DONE])):
        before = fold_tries(once, patience=PATIENCE)
        # As the run goes by that is told to try it, and as whoever reads the ledger afterwards sees it.
        running, again = before.again(patience=PATIENCE), tries(len(once) + 1, "r2", more)
        for each in again:
            running = running.then(each, patience=PATIENCE)
        assert fold_tries([*once, *again], patience=PATIENCE) == (running if again else before)
        if before.is_settled:
            assert running.result is not None
            assert running.is_settled is _result(more)[1]


def test_a_cell_that_has_used_up_its_time_is_not_tried_again() -> None:
    crash = Tried(
        id=AttemptId("m.f.r1.1"), cell=CellId("m.f.r1"), n=1, run=RunId("r"), state="sealed", claimed_at_ms=1000,
        ended_at_ms=4000, outcome=Outcome.CRASHED, code="peer.hangup", retry_at_ms=5000,
    )  # fmt: skip
    patient, hurried = Patience(retries=9, mission_ms=3001), Patience(retries=9, mission_ms=3000)
    assert UNTRIED.then(crash, patience=patient) == CellProgress(
        made=1, failures=1, took_ms=3000, run=RunId("r"), wait=Wait(since_ms=4000, until_ms=5000)
    )
    assert UNTRIED.then(crash, patience=hurried) == CellProgress(
        made=1, failures=1, took_ms=3000, result=1, is_settled=True, run=RunId("r")
    )


@pytest.mark.parametrize("patience", [Patience(retries=9, mission_ms=3000), Patience(retries=0)])
def test_what_used_up_its_patience_and_was_never_sealed_has_all_of_it_in_the_next_run(patience: Patience) -> None:
    lost = Tried(
        id=AttemptId("m.f.r1.1"), cell=CellId("m.f.r1"), n=1, run=RunId("r"), state="abandoned", claimed_at_ms=1000,
        ended_at_ms=4000, outcome=Outcome.UNKNOWN, code="machine.disk-full",
    )  # fmt: skip
    standing = UNTRIED.then(lost, patience=patience)
    assert (standing.is_settled, patience.is_over(standing.failures, took_ms=standing.took_ms)) == (False, True)
    later = standing.again(patience=patience)
    assert (later.made, later.failures, later.took_ms) == (1, 0, 0)
    crash = msgspec.structs.replace(
        lost, n=2, run=RunId("r2"), state="sealed", outcome=Outcome.CRASHED, code="peer.wire"
    )
    assert standing.then(crash, patience=patience) == later.then(crash, patience=patience)
