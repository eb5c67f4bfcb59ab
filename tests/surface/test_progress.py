"""What people see while a campaign runs."""

import io
from pathlib import Path

import pytest
from rich.cells import cell_len
from rich.console import Console

from proctor.attempt.machine import State
from proctor.attempt.model import AttemptResult
from proctor.errors import MachineError
from proctor.event.model import ToolEnded, TurnBegan
from proctor.event.outcome import Outcome
from proctor.evidence.live import LiveLimit
from proctor.ids import AttemptId, CallId, TurnId
from proctor.surface.cli.progress import Progress
from proctor.surface.cli.screen import PlainScreen, TerminalScreen
from proctor.testing.clock import FakeClock
from tests.event.streams import total
from tests.surface.watching import ALL, ASK, CODEX, FIX, began, picture, sealed, tool, until


def drawn(screen: TerminalScreen) -> list[str]:
    written = io.StringIO()
    Console(file=written, width=120).print(screen)
    return [line.rstrip() for line in written.getvalue().splitlines()]


@pytest.mark.requirement("surface.progress")
def test_each_running_attempt_has_a_line_with_phase_tool_tokens_cost_and_age(tmp_path: Path) -> None:
    clock = FakeClock()
    seen = picture(clock)
    screen = TerminalScreen(Console(file=io.StringIO()), "quickstart", view=seen)
    progress = Progress(seen, screen, None)
    progress.began(began(tmp_path))
    for attempt in (FIX, ASK):
        progress.started(attempt, runtime_id=CODEX)
        progress.state_entered(attempt, State.PREPARING)
    progress.state_entered(FIX, State.TURN_RUNNING)
    progress.event_recorded(FIX, tool("cat greet.py\x1b[2J"))
    clock.advance(2)
    first = drawn(screen)
    assert first[0] == "quickstart  0 of 3 done  2.0 s"
    assert first[1].split("  ")[1:3] == ["fix.codex.r1.1", "working"]
    assert first[1].split() == [*"fix.codex.r1.1 working shell: cat greet.py\\x1b[2J ? tokens $? 2.0 s ago".split()]
    assert first[2].split() == [*"ask.codex.r1.1 preparing ? tokens $? 2.0 s ago".split()]
    progress.event_recorded(FIX, TurnBegan(frame=2, at_ms=2, turn=TurnId("t")))
    progress.event_recorded(FIX, total(1785, frame=3))
    progress.state_entered(ASK, State.SEALED)
    progress.settled(sealed(ASK), usd=0.5, retry_at_ms=None, is_settled=True)
    second = drawn(screen)
    assert second[0] == "quickstart  1 of 3 done  2.0 s"
    assert second[1].split()[-6:] == ["1,785", "tokens", "$0.18", "0", "ms", "ago"]
    assert second[2:] == ["  $0.50 so far"]


def test_what_does_not_fit_on_the_screen_is_counted_and_no_line_is_broken(tmp_path: Path) -> None:
    clock = FakeClock()
    seen = picture(clock)
    screen = TerminalScreen(Console(file=io.StringIO(), height=10), "night", view=seen)
    seen.began(began(tmp_path, trials=64))
    for number in range(64):
        attempt = AttemptId(f"mission-of-a-name-that-is-long-{number}.codex.r1.1")
        seen.state_entered(attempt, State.TURN_RUNNING)
        seen.event_recorded(attempt, tool("echo 世界 " * 40))
    lines = drawn(screen)
    assert len(lines) == 9
    assert lines[-1] == "  and 57 more"
    assert {cell_len(line) for line in lines[1:-1]} == {120}
    assert all("…  " in line for line in lines[1:-1])


@pytest.mark.requirement("surface.progress")
def test_the_footer_tells_what_is_rationed_what_is_shut_and_what_waits(tmp_path: Path) -> None:
    clock = FakeClock()
    seen = picture(clock)
    screen = TerminalScreen(Console(file=io.StringIO()), "night", view=seen)
    progress = Progress(seen, screen, None)
    progress.began(began(tmp_path, trials=9, settled=4))
    shut = LiveLimit(
        key="provider:openai",
        maximum=8,
        current_maximum=4,
        taken=0,
        until_ms=until(clock, 75),
        why="provider.rate-limited",
    )
    progress.scheduled((ALL, shut), waiting=5)
    progress.settled(
        sealed(FIX, outcome=Outcome.CRASHED, code="peer.hangup"),
        usd=None,
        retry_at_ms=until(clock, 4),
        is_settled=False,
    )
    progress.stopping("finishing what runs")
    assert drawn(screen) == [
        "night  4 of 9 done  0 ms  finishing what runs",
        "  running now: 2 (at most 8 at once)",
        (
            "  provider:openai  running now: 0 (at most 4 at once, normally 8), closed for 1 min 15 s: "
            "provider.rate-limited"
        ),
        "  5 trials waiting; 1 retry waits, the first in 4.0 s",
    ]
    progress.started(FIX, runtime_id=CODEX)
    assert "retry" not in drawn(screen)[-1]


def test_how_long_it_takes_yet_is_told_once_it_was_measured(tmp_path: Path) -> None:
    clock = FakeClock()
    seen = picture(clock)
    screen = TerminalScreen(Console(file=io.StringIO()), "night", view=seen)
    seen.began(began(tmp_path, trials=10, settled=4))
    clock.advance(10)
    seen.settled(sealed(FIX), usd=None, retry_at_ms=None, is_settled=True)
    assert drawn(screen) == ["night  5 of 10 done  10.0 s"]
    seen.settled(sealed(ASK), usd=None, retry_at_ms=None, is_settled=True)
    assert drawn(screen) == ["night  6 of 10 done  10.0 s  about 20.0 s left"]


def test_a_cancelled_attempt_leaves_its_trial_undone(tmp_path: Path) -> None:
    seen = picture(FakeClock())
    seen.began(began(tmp_path))
    seen.settled(
        sealed(FIX, outcome=Outcome.CANCELLED, code="run.cancelled"), usd=None, retry_at_ms=None, is_settled=False
    )
    assert (seen.settled_trials, seen.ended_here) == (0, 1)


@pytest.mark.requirement("surface.progress")
def test_without_a_terminal_there_is_a_line_for_each_thing_that_happens(tmp_path: Path) -> None:
    clock = FakeClock()
    seen, written = picture(clock), io.StringIO()
    screen = PlainScreen(Console(file=written, width=120), "night", view=seen)
    progress = Progress(seen, screen, None)
    progress.began(began(tmp_path))
    progress.state_entered(FIX, State.TURN_RUNNING)
    progress.event_recorded(FIX, tool("make test"))
    progress.event_recorded(
        FIX,
        ToolEnded(
            frame=3,
            at_ms=3,
            turn=TurnId("t"),
            call=CallId("c"),
            kind="command",
            name="shell",
            ok=False,
            status="failed",
        ),
    )
    clock.advance(1.5)
    progress.settled(
        sealed(FIX, outcome=Outcome.CRASHED, code="peer.hangup"),
        usd=None,
        retry_at_ms=until(clock, 4),
        is_settled=False,
    )
    shut = LiveLimit(
        key="provider:openai", maximum=8, current_maximum=8, taken=0, until_ms=until(clock, 9), why="asked to wait"
    )
    for limits in ((ALL, shut), (ALL, shut), (ALL,)):
        progress.scheduled(limits, waiting=2)
    error = MachineError("machine.disk-full", "no space left")
    progress.settled(
        AttemptResult(attempt_id=ASK, state=State.ABANDONED, error=error), usd=None, retry_at_ms=None, is_settled=False
    )
    progress.settled(sealed(FIX), usd=None, retry_at_ms=None, is_settled=True)
    screen.paint()
    assert written.getvalue().splitlines() == [
        "     0 ms  fix.codex.r1.1  working",
        "     0 ms  fix.codex.r1.1  shell failed: make test",
        "    1.5 s  fix.codex.r1.1  ended: crashed (peer.hangup), retry in 4.0 s   (0 of 3)",
        "    1.5 s  provider:openai  running now: 0 (at most 8 at once), closed for 9.0 s: asked to wait",
        "    1.5 s  provider:openai  open again",
        "    1.5 s  ask.codex.r1.1  abandoned: its evidence could not be written   (0 of 3)",
        "    1.5 s  fix.codex.r1.1  ended: completed   (1 of 3)",
    ]


def test_lines_that_had_no_room_are_counted_where_they_are_missing(tmp_path: Path) -> None:
    written = io.StringIO()
    screen = PlainScreen(Console(file=written, width=120), "night", view=picture(FakeClock()))
    for number in range(1003):
        screen.stopping(f"line {number}")
    screen.paint()
    screen.stopping("line 1003")
    screen.paint()
    lines = written.getvalue().splitlines()
    assert lines[:2] == ["3 lines left out", "line 3"]
    assert lines[-2:] == ["line 1002", "line 1003"]
    assert len(lines) == 1002
