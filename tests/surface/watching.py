"""A campaign told by hand to whoever watches it."""

from pathlib import Path

from proctor.attempt.machine import State
from proctor.attempt.model import AttemptResult
from proctor.campaign.live import Picture
from proctor.campaign.watch import Began
from proctor.event.model import Tokens, ToolBegan
from proctor.event.outcome import Outcome
from proctor.evidence.layout import RootPaths
from proctor.evidence.live import LiveLimit
from proctor.ids import AttemptId, CallId, StrategyId, TurnId
from proctor.report.words import deed
from proctor.testing.clock import FakeClock
from tests.report.made import CAMPAIGN, RUN, report

FIX, ASK = AttemptId("fix.codex.r1.1"), AttemptId("ask.codex.r1.1")
CODEX = StrategyId("codex_app_server")
ALL = LiveLimit(key="all", most=8, now=8, taken=2)


def picture(clock: FakeClock, *, cells: int = 0) -> Picture:
    """Where a token costs a ten-thousandth of a dollar."""

    def price(_: AttemptId, tokens: Tokens) -> float:
        return tokens.total / 10_000

    return Picture(deed=deed, price=price, clock=clock, cells=cells)


def began(root: Path, *, cells: int = 3, settled: int = 0) -> Began:
    paths = RootPaths(root).campaign(CAMPAIGN)
    return Began(campaign_id=CAMPAIGN, run_id=RUN, paths=paths, cells=cells, settled=settled)


def tool(command: str) -> ToolBegan:
    given = {"command": f"/bin/bash -lc '{command}'"}
    return ToolBegan(frame=1, at_ms=1, turn=TurnId("t"), call=CallId("c"), kind="command", name="shell", input=given)


def sealed(attempt: AttemptId, *, outcome: Outcome = Outcome.COMPLETED, code: str | None = None) -> AttemptResult:
    return AttemptResult(attempt_id=attempt, state=State.SEALED, report=report(attempt, outcome=outcome, code=code))


def until(clock: FakeClock, seconds: float) -> int:
    return clock.wall_ms() + round(seconds * 1000)
