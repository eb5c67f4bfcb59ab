"""Rows of an auto run for tests."""

from collections.abc import Iterator

from proctor.auto.model import (
    AnyAutoRow,
    AskKind,
    AutoBudget,
    CriteriaSource,
    RoundAsked,
    RoundDecided,
    RoundProbed,
    RoundSettled,
    RunStarted,
)
from proctor.auto.wall_clock import Moment
from proctor.event.outcome import Outcome
from proctor.ids import AttemptId, Digest, RunId, RuntimeId, ThreadId

TREE = Digest("t" * 64)


class Story:
    """Makes the rows of a run in order. One second passes with each row."""

    def __init__(self, budget: AutoBudget | None = None) -> None:
        self.rows: list[AnyAutoRow] = []
        self.rounds = 0
        self.budget = budget or AutoBudget(rounds=10)
        self.start()

    def moment(self) -> Moment:
        n = len(self.rows)
        return Moment(boot="b", since_boot_ms=1000 * n, wall_ms=10**12 + 1000 * n)

    def start(self, budget: AutoBudget | None = None) -> None:
        self.rows.append(
            RunStarted(
                at=self.moment(),
                run_id=RunId("run"),
                goal_sha256=Digest("g"),
                runtime_id=RuntimeId("codex_app_server"),
                criteria_sha256=Digest("c"),
                criteria_by=CriteriaSource.FILE,
                required_probes=(),
                base_digest=TREE,
                budget=budget or self.budget,
            )
        )

    def ask(self, asks: AskKind = AskKind.FINDINGS) -> None:
        self.rounds += 1
        digest = None if asks is AskKind.NOTHING else Digest("p")
        self.rows.append(
            RoundAsked(
                at=self.moment(),
                round=self.rounds,
                attempt_id=AttemptId(f"auto.{self.rounds}"),
                asks=asks,
                prompt_sha256=digest,
                workspace_digest=TREE,
            )
        )

    def settle(self, outcome: Outcome = Outcome.COMPLETED, *, code: str | None = None, tokens: int | None = 10) -> None:
        self.rows.append(
            RoundSettled(
                at=self.moment(),
                round=self.rounds,
                outcome=outcome,
                code=code,
                thread_id=ThreadId("t"),
                tokens=tokens,
                usd=None,
                workspace_digest=TREE,
            )
        )

    def probe(self) -> None:
        self.rows.append(RoundProbed(at=self.moment(), round=self.rounds, probes_sha256=Digest("p")))

    def decide(self, verified: bool | None = False, *, met: int = 0, findings: str = "") -> None:
        self.rows.append(
            RoundDecided(
                at=self.moment(),
                round=self.rounds,
                verified=verified,
                met=met,
                findings=Digest(findings or f"round {self.rounds}"),
                seal_sha256=Digest("s"),
            )
        )

    def round(
        self,
        verified: bool | None = False,
        *,
        asks: AskKind = AskKind.FINDINGS,
        outcome: Outcome = Outcome.COMPLETED,
        code: str | None = None,
        tokens: int | None = 10,
        met: int = 0,
        findings: str = "",
    ) -> None:
        self.ask(asks)
        self.settle(outcome, code=code, tokens=tokens)
        self.probe()
        self.decide(verified, met=met, findings=findings)

    def prefixes(self) -> Iterator[list[AnyAutoRow]]:
        for n in range(1, len(self.rows) + 1):
            yield self.rows[:n]
