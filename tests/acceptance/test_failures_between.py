"""What a real agent cannot be made to do is done to it on the way: the fault transport between Codex and us."""

import json
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import pytest

from proctor.errors import Bucket
from proctor.event.outcome import Outcome
from proctor.event.row import CancelRequested, ChannelClosed, ClockRanOut, Direction, SessionRefusal
from proctor.event.supervisor_events import decode_supervisor_row
from proctor.evidence.artifacts import ProcessRecord
from proctor.evidence.layout import RootPaths
from proctor.ids import FlowId
from proctor.transport.channel import Channel
from proctor.transport.fault import Alter, Cut, Delay, Duplicate, FaultAction, FaultChannel, Hold, Inject, LineFault
from tests.attempt.recorded import examined
from tests.lab import (
    DONE,
    Lab,
    mission,
    overloaded,
    processes_with,
    refusal,
    report_of,
    rows_of,
    runner_ref_of,
    say_done,
)

pytestmark = pytest.mark.real_agent


def says(text: str) -> Callable[[bytes], bool]:
    return lambda line: f'"method":"{text}"'.encode() in line


def anything(_: bytes) -> bool:
    return True


def malformed(line: bytes) -> bytes:
    return line[: len(line) // 2] + b"\xff\x00"


def bloated(line: bytes) -> bytes:
    """The same message with 20 MB of what nobody knows in it."""
    message = json.loads(line)
    message["params"]["ballast"] = "x" * 20_000_000
    return json.dumps(message).encode()


def unwilling(line: bytes) -> bytes:
    return refusal(line, code=-32600, message="not today")


STRANGERS = (
    b'{"method":"no/such/notification","params":{"threadId":7}}',
    b'{"id":"stranger","method":"no/such/request","params":{}}',
    b'{"id":424242,"result":{}}',
    b'{"method":"turn/completed","params":{"threadId":"somebody-else","turn":{"id":"t","status":"failed"}}}',
    b"[1, 2",
    b"not JSON at all",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    plan: Sequence[LineFault]
    outcome: Outcome
    code: str | None = None


def case(
    at: Callable[[bytes], bool] | int, how: FaultAction, outcome: Outcome, code: str | None = None, **more: Any
) -> Case:
    return Case(plan=[LineFault(at=at, how=how, **more)], outcome=outcome, code=code)


COMPLETED, CRASHED, STALLED, REFUSED = Outcome.COMPLETED, Outcome.CRASHED, Outcome.STALLED, Outcome.REFUSED
LOST = "peer.lost"

CASES = {
    "duplicate": case(anything, Duplicate(), COMPLETED, times=None),
    "reorder-starts": case(says("item/started"), Hold(lines=3), COMPLETED, times=None),
    "reorder-deltas": case(says("item/agentMessage/delta"), Hold(lines=1), COMPLETED, times=2),
    "reorder-turn": case(says("turn/started"), Hold(lines=4), COMPLETED),
    "reorder-end": case(says("item/completed"), Hold(lines=1), COMPLETED, times=None),
    "hold-the-end": case(says("turn/completed"), Hold(lines=1000), STALLED, "limit.stall"),
    "cut": case(says("item/started"), Cut(), CRASHED, LOST),
    "cut-in-a-line": case(says("turn/completed"), Cut(keep_bytes=40), CRASHED, LOST),
    "inject": case(says("turn/started"), Inject(lines=STRANGERS), COMPLETED),
    "delay": case(says("turn/started"), Delay(delay_s=0.3), COMPLETED),
    "malformed": case(says("item/agentMessage/delta"), Alter(to=malformed), COMPLETED, times=None),
    "malformed-end": case(says("turn/completed"), Alter(to=malformed), STALLED, "limit.stall"),
    "overloaded": case(lambda line: b'"result":{"thread":' in line, Alter(to=overloaded), COMPLETED),
    "refused-turn": case(lambda line: b'"result":{"turn":' in line, Alter(to=unwilling), REFUSED, "peer.refused"),
    "long-line": case(says("item/started"), Alter(to=bloated), COMPLETED),
}


@pytest.mark.long
@pytest.mark.requirement("runtime.events.lossless")
def test_whatever_happens_on_the_way_the_outcome_is_typed_and_the_record_is_whole(lab: Lab) -> None:
    channels: dict[str, FaultChannel] = {}

    def between(flow: FlowId, channel: Channel) -> Channel:
        assert flow not in channels, "one process for each flow"
        channels[flow] = FaultChannel(channel, CASES[flow].plan)
        return channels[flow]

    missions = [mission("ask", {"run": "echo out"}, {"say": {"text": DONE % "out", "chunk_chars": 9}})]
    flows = [{"id": name, "runtime": ["codex_app_server"]} for name in CASES]
    spec = lab.write_spec(missions, flows=flows, schedule={"parallel": 8}, limits={"stall": "5s", "turn": "30s"})
    lab.run(spec, between=between)

    attempts = {name.split(".")[1]: paths for name, paths in lab.attempts().items()}
    reports = {flow: report_of(paths) for flow, paths in attempts.items()}
    assert {flow: (report.outcome, report.code) for flow, report in reports.items()} == {
        flow: (case.outcome, case.code) for flow, case in CASES.items()
    }
    lab.assert_all_evidence_is_valid()
    done = {flow: report for flow, report in reports.items() if report.outcome is COMPLETED}
    counts = {(each.claimed, each.metrics.tool_calls, each.metrics.tool_failures) for each in done.values()}
    assert counts == {(True, 1, 0)}, "nothing is lost or counted twice"
    for flow, paths in attempts.items():
        seen = [
            type(saw)
            for row in rows_of(paths)
            if row.dir is Direction.SELF
            if (saw := decode_supervisor_row(row)) is not None
        ]
        stops = {kind for kind in seen if kind in (ClockRanOut, CancelRequested, SessionRefusal, ChannelClosed)}
        assert stops == STOPS[reports[flow].outcome], "what control did is what the record comes to"
    assert {flow: frames_in(lab, runner_ref_of(paths).process_id) for flow, paths in attempts.items()} == {
        flow: channel.lines_delivered for flow, channel in channels.items()
    }, "every line that came through is counted"


STOPS = {COMPLETED: set(), CRASHED: {ChannelClosed}, STALLED: {ClockRanOut}, REFUSED: {SessionRefusal}}


def frames_in(lab: Lab, process: str | None) -> int:
    [run] = RootPaths(lab.root).runs()
    record = (run.folder / "runtimes" / str(process) / "process.json").read_bytes()
    return msgspec.json.decode(record, type=ProcessRecord).frames_in


def test_an_agent_that_hangs_up_before_it_is_ready_refuses_the_attempt(lab: Lab) -> None:
    plan = [LineFault(at=1, how=Cut(keep_bytes=9))]
    lab.run(lab.write_spec([mission("ask", say_done())]), between=lambda _, channel: FaultChannel(channel, plan))
    [paths] = lab.attempts().values()
    report = report_of(paths)
    assert (report.outcome, report.code, report.bucket) == (Outcome.REFUSED, "peer.hangup", Bucket.INFRA)
    assert examined(paths, is_strict=True).findings == ()


class ShellsStarted:
    """Fits the line with which the last of so many shells has started."""

    def __init__(self, number: int) -> None:
        self._left = number

    def __call__(self, line: bytes) -> bool:
        self._left -= says("item/started")(line) and b'"commandExecution"' in line
        return self._left == 0


@pytest.mark.requirement("attempt.fresh-session")
def test_a_shared_server_whose_channel_breaks_costs_those_on_it_and_nobody_else(lab: Lab) -> None:
    plans = [[LineFault(at=ShellsStarted(3), how=Cut())], []]
    nap = f"320.{os.getpid()}"
    missions = [mission(f"m{number}", {"run": f"sleep {nap}"}, say_done()) for number in range(3)]
    spec = lab.write_spec([*missions, mission("last", say_done())], schedule={"parallel": 3})
    lab.run(spec, between=lambda _, channel: FaultChannel(channel, plans.pop(0)))
    reports = {name.partition(".")[0]: report_of(paths) for name, paths in lab.attempts().items()}
    assert {name: (report.outcome, report.code) for name, report in reports.items()} == {
        **{f"m{number}": (CRASHED, LOST) for number in range(3)},
        "last": (COMPLETED, None),
    }
    assert processes_with(nap) == []
    lab.assert_all_evidence_is_valid()
