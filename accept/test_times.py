"""Timing checks on the real agent, for a machine that is not busy (`make accept`)."""

import time

import pytest

from proctor.event.outcome import Outcome
from tests.lab import Lab, mission, processes_with, report_of, say_done


@pytest.mark.real_agent
@pytest.mark.requirement("attempt.clocks")
@pytest.mark.parametrize(
    ("isolation", "sandbox", "nap"),
    [
        ("shared", "workspace-write", "305.171"),
        ("process", "workspace-write", "305.172"),
        ("process", "danger-full-access", "305.173"),
    ],
)
def test_a_three_second_turn_limit_ends_everything_within_six(lab: Lab, isolation: str, sandbox: str, nap: str) -> None:
    napping = f"sleep {nap} & setsid env -i sleep {nap} & sleep {nap}"
    spec = lab.write_spec(
        [mission("nap", {"run": napping}, say_done())],
        flow={"isolation": isolation, "sandbox": sandbox},
        limits={"turn": "3s"},
    )
    began_s = time.monotonic()
    lab.run(spec)
    took_s = time.monotonic() - began_s
    assert processes_with(nap) == []
    [paths] = lab.attempts().values()
    assert report_of(paths).outcome is Outcome.TIMED_OUT
    assert took_s < 6.0
