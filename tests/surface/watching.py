"""A campaign told by hand to whoever watches it."""

from pathlib import Path

from proctor.attempt.machine import State
from proctor.attempt.model import AttemptResult
from proctor.campaign.live import LiveView
from proctor.campaign.watch import RunStart
from proctor.event.model import Tokens, ToolBegan
from proctor.event.outcome import Outcome
from proctor.evidence.layout import RootPaths
from proctor.evidence.live import LiveLimit
from proctor.ids import AttemptId, CallId, RuntimeId, TurnId
from proctor.report.format_values import describe_call
from proctor.testing.clock import FakeClock
from tests.report.made import CAMPAIGN, RUN, summary

FIX, ASK = AttemptId("fix.codex.r1.1"), AttemptId("ask.codex.r1.1")
CODEX = RuntimeId("codex_app_server")
ALL = LiveLimit(key="all", maximum=8, current_maximum=8, taken=2)


def picture(clock: FakeClock, *, trials: int = 0) -> LiveView:
    """Where a token costs a ten-thousandth of a dollar."""

    def price(_: AttemptId, tokens: Tokens) -> float:
        return tokens.total / 10_000

    return LiveView(describe_call=describe_call, price=price, clock=clock, trials=trials)


def began(root: Path, *, trials: int = 3, settled: int = 0) -> RunStart:
    paths = RootPaths(root).campaign(CAMPAIGN)
    return RunStart(campaign_id=CAMPAIGN, run_id=RUN, paths=paths, trials=trials, settled=settled)


def tool(command: str) -> ToolBegan:
    given = {"command": f"/bin/bash -lc '{command}'"}
    return ToolBegan(frame=1, at_ms=1, turn=TurnId("t"), call=CallId("c"), kind="command", name="shell", input=given)


def sealed(attempt: AttemptId, *, outcome: Outcome = Outcome.COMPLETED, code: str | None = None) -> AttemptResult:
    return AttemptResult(attempt_id=attempt, state=State.SEALED, summary=summary(attempt, outcome=outcome, code=code))


def until(clock: FakeClock, seconds: float) -> int:
    return clock.wall_ms() + round(seconds * 1000)
