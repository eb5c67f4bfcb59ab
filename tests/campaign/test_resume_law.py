"""Run all == run some, be killed at any point, resume: over the ledger, what is left, and what seals say."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from proctor.event.outcome import Outcome
from proctor.evidence.artifacts import Expectation
from proctor.ids import AttemptId, Digest, FlowId, MissionId, RunId, RuntimeId, TrialId
from proctor.ledger import writer
from proctor.ledger.schema import DATABASE, LedgerAttempt
from proctor.ledger.writer import Ledger
from proctor.plan.model import Limits, Plan, Trial
from proctor.plan.progress import UNTRIED, RetryBudget, TrialProgress, fold_attempts, fold_trials
from proctor.plan.recover import CUT_OFF, Remedy, remedy
from proctor.plan.remaining import remaining
from proctor.plan.wait import Wait
from proctor.spec.campaign_options import GatesSpec
from tests.plan.made import SCHEDULE
from tests.report.made import summary

Ending = tuple[Outcome, str | None]

DONE: Ending = (Outcome.COMPLETED, None)
CRASHED: Ending = (Outcome.CRASHED, "peer.lost")
LIMITED: Ending = (Outcome.FAILED, "provider.rate-limited")
FAILED: Ending = (Outcome.FAILED, "agent.turn-failed")
CANCELLED: Ending = (Outcome.CANCELLED, "run.cancelled")
ENDINGS = (DONE, CRASHED, LIMITED, FAILED)

PATIENCE = RetryBudget(retries=1)
TRIALS = tuple(
    Trial(id=TrialId(f"m{n}.f.r1"), mission=MissionId(f"m{n}"), flow=FlowId("f"), repeat=1, digest=Digest("sha256:0"))
    for n in range(4)
)
PLAN = Plan(
    campaign="c",
    digest=Digest("sha256:0"),
    flows=(),
    limits=Limits(attempt_ms=3, turn_ms=2, stall_ms=1),
    trials=TRIALS,
    schedule=SCHEDULE,
    gates=GatesSpec(),
)


FAKE = RuntimeId("fake")


class KilledError(Exception):
    """kill -9, as the model has it."""


def sealed(attempt: AttemptId, ending: Ending) -> writer.Statement:
    outcome, code = ending
    unexpected = Expectation(met=None, keys={}, unmet=())
    return writer.seal_attempt(
        attempt, summary(attempt, outcome=outcome, code=code, verified=None, expectation=unexpected), at_ms=2
    )


@dataclass
class World:
    """A ledger, the seals on disk, and agents whose n-th heard answer for a trial is known beforehand."""

    book: Ledger
    answers: dict[TrialId, list[Ending]]
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
            trial = left[0]
            n = self.known().get(trial.id, UNTRIED).attempts_made + 1
            attempt = AttemptId(f"{trial.id}.{n}")
            write()
            self.book.apply([writer.start_attempt(attempt, trial=trial.id, n=n, run=run, at_ms=1)])
            write()
            heard = [each for id_, each in self.seals.items() if id_.startswith(trial.id)]
            self.seals[attempt] = self.answers[trial.id][len(heard)]
            write()
            self.book.apply([sealed(attempt, self.seals[attempt])])

    def reconcile(self) -> None:
        for each in self.book.attempts(state="running"):
            ending = self.seals.get(each.id)
            told = writer.abandon_attempt(each.id, code=CUT_OFF, at_ms=2) if ending is None else sealed(each.id, ending)
            self.book.apply([told])

    def known(self) -> dict[TrialId, TrialProgress]:
        return dict(fold_trials(self.book.attempts(), retry_budget=PATIENCE))

    def settled(self) -> set[TrialId]:
        return {id_ for id_, standing in self.known().items() if standing.is_settled}

    def results(self) -> dict[TrialId, list[Ending]]:
        """Every sealed ending of each trial, in order; the last is its result."""
        found: dict[TrialId, list[Ending]] = {}
        for each in self.book.attempts():
            if each.state == "sealed" and each.outcome is not None:
                found.setdefault(each.trial, []).append((each.outcome, each.code))
        return found


@contextmanager
def world(answers: dict[TrialId, list[Ending]]) -> Iterator[World]:
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        connection.executescript(DATABASE.schema)
        yield World(Ledger(connection), answers)


# After so many others each trial is done, so that every run ends.
answers = st.fixed_dictionaries(
    {trial.id: st.lists(st.sampled_from(ENDINGS), max_size=4).map(lambda each: [*each, DONE]) for trial in TRIALS}
)


@pytest.mark.requirement("campaign.resume")
@given(answers=answers, kills=st.lists(st.integers(min_value=0, max_value=12), max_size=6))
def test_run_all_is_run_some_be_killed_resume(answers: dict[TrialId, list[Ending]], kills: list[int]) -> None:
    with world(answers) as undisturbed, world(answers) as killed:
        undisturbed.run()
        for steps in kills:
            try:
                killed.run(steps=steps)
            except KilledError:
                continue
        killed.run()
        assert killed.results() == undisturbed.results()
        made: dict[TrialId, list[int]] = {}
        for each in killed.book.attempts():
            assert each.state != "running"
            made.setdefault(each.trial, []).append(each.n)
        assert all(numbers == [*range(1, len(numbers) + 1)] for numbers in made.values())
        assert set(made) == {trial.id for trial in TRIALS}
        assert remaining(PLAN, killed.settled()) == ()


@given(endings=st.lists(st.sampled_from((*ENDINGS, CANCELLED)), min_size=1, max_size=8))
@pytest.mark.requirement("campaign.resume")
def test_a_trial_is_settled_by_a_result_or_when_its_retries_are_used_up(endings: list[Ending]) -> None:
    trial, standing = TRIALS[0].id, UNTRIED
    for n, (outcome, code) in enumerate(endings, 1):
        tried = LedgerAttempt(
            id=AttemptId(f"{trial}.{n}"), trial=trial, n=n, run=RunId("r"), state="sealed", started_at_ms=0,
            ended_at_ms=5, outcome=outcome, code=code,
        )  # fmt: skip
        standing = standing.after(tried, retry_budget=PATIENCE)
        # An attempt without a seal settles nothing, however it is said to have ended.
        unsealed = msgspec.structs.replace(tried, state="abandoned")
        assert not UNTRIED.after(unsealed, retry_budget=PATIENCE).is_settled
    failures = sum(remedy(*each) is Remedy.AGAIN for each in endings)
    result, is_settled = _result(endings)
    assert standing == TrialProgress(
        attempts_made=len(endings),
        failures=failures,
        took_ms=5 * len(endings),
        result=result,
        is_settled=is_settled,
        run=RunId("r"),
    )
    anew = TrialProgress(attempts_made=len(endings), result=result, run=RunId("r"))
    assert standing.for_new_run(retry_budget=PATIENCE) == (
        anew if is_settled or failures > PATIENCE.retries else standing
    )


def _result(endings: list[Ending]) -> tuple[int | None, bool]:
    """The last that stands, and whether nothing remedy_for it that is not as if it had not been."""
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
@pytest.mark.requirement("campaign.resume")
def test_a_trial_that_another_run_tries_counts_there_as_in_the_ledger_and_its_result_speaks_meanwhile(
    endings: list[Ending], more: list[Ending]
) -> None:
    def tries(first: int, run: str, given: list[Ending]) -> list[LedgerAttempt]:
        return [
            LedgerAttempt(
                id=AttemptId(f"m.f.r1.{n}"),
                trial=TrialId("m.f.r1"),
                n=n,
                run=RunId(run),
                state="sealed",
                started_at_ms=0,
                ended_at_ms=5,
                outcome=outcome,
                code=code,
            )
            for n, (outcome, code) in enumerate(given, first)
        ]

    for once in (tries(1, "r1", endings), tries(1, "r1", [*endings, DONE])):
        before = fold_attempts(once, retry_budget=PATIENCE)
        # As the run goes by that is told to try it, and as whoever reads the ledger afterwards sees it.
        running, again = before.for_new_run(retry_budget=PATIENCE), tries(len(once) + 1, "r2", more)
        for each in again:
            running = running.after(each, retry_budget=PATIENCE)
        assert fold_attempts([*once, *again], retry_budget=PATIENCE) == (running if again else before)
        if before.is_settled:
            assert running.result is not None
            assert running.is_settled is _result(more)[1]


def test_a_trial_that_has_used_up_its_time_is_not_tried_again() -> None:
    crash = LedgerAttempt(
        id=AttemptId("m.f.r1.1"), trial=TrialId("m.f.r1"), n=1, run=RunId("r"), state="sealed", started_at_ms=1000,
        ended_at_ms=4000, outcome=Outcome.CRASHED, code="peer.lost", retry_at_ms=5000,
    )  # fmt: skip
    patient, hurried = RetryBudget(retries=9, mission_ms=3001), RetryBudget(retries=9, mission_ms=3000)
    assert UNTRIED.after(crash, retry_budget=patient) == TrialProgress(
        attempts_made=1, failures=1, took_ms=3000, run=RunId("r"), wait=Wait(since_ms=4000, until_ms=5000)
    )
    assert UNTRIED.after(crash, retry_budget=hurried) == TrialProgress(
        attempts_made=1, failures=1, took_ms=3000, result=1, is_settled=True, run=RunId("r")
    )


@pytest.mark.parametrize("retry_budget", [RetryBudget(retries=9, mission_ms=3000), RetryBudget(retries=0)])
def test_what_used_up_its_patience_and_was_never_sealed_has_all_of_it_in_the_next_run(
    retry_budget: RetryBudget,
) -> None:
    lost = LedgerAttempt(
        id=AttemptId("m.f.r1.1"), trial=TrialId("m.f.r1"), n=1, run=RunId("r"), state="abandoned", started_at_ms=1000,
        ended_at_ms=4000, outcome=Outcome.UNKNOWN, code="machine.disk-full",
    )  # fmt: skip
    standing = UNTRIED.after(lost, retry_budget=retry_budget)
    assert (standing.is_settled, retry_budget.is_over(standing.failures, took_ms=standing.took_ms)) == (False, True)
    later = standing.for_new_run(retry_budget=retry_budget)
    assert (later.attempts_made, later.failures, later.took_ms) == (1, 0, 0)
    crash = msgspec.structs.replace(
        lost, n=2, run=RunId("r2"), state="sealed", outcome=Outcome.CRASHED, code="peer.wire"
    )
    assert standing.after(crash, retry_budget=retry_budget) == later.after(crash, retry_budget=retry_budget)
