"""Campaigns on the real `codex exec`: sealed evidence, a code for every failure, and nothing left running."""

import json
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

import proctor
from proctor.campaign.stops import StopSignals
from proctor.campaign.watch import CampaignWatcher
from proctor.errors import RefusedError
from proctor.event.model import ErrorReported, Event, ToolBegan, TurnEnded
from proctor.event.outcome import Outcome
from proctor.evidence import layout
from proctor.evidence.artifacts import AttemptReport
from proctor.ids import AttemptId, FlowId
from proctor.runtime.codex_exec.failures import FAILURES
from proctor.runtime.codex_exec.normalize import ExecNormalizer
from proctor.runtime.failures import Failure, diagnose
from proctor.transport.channel import Channel
from proctor.transport.fault import Alter, Cut, Duplicate, FaultAction, FaultChannel, Inject, LineFault
from tests.acceptance.sittings import NO_ENGINE
from tests.acceptance.test_failures import BY_THE_MODEL, IMPATIENT, NOWHERE, http
from tests.api.talk import bounded, script
from tests.lab import (
    DONE,
    Lab,
    mission,
    processes_with,
    report_of,
    rows_of,
    runner_ref_of,
    say_done,
    tried_once,
    wait_until,
)

pytestmark = [pytest.mark.real_agent, pytest.mark.requirement("runtime.codex-exec")]

EXEC = ["codex_exec"]
TABLE = {row.id: row for row in FAILURES}
COMPLETED, CRASHED, FAILED = Outcome.COMPLETED, Outcome.CRASHED, Outcome.FAILED
USAGE = {"input": 80, "cached": 30, "output": 20, "reasoning": 5}


# ── evidence ──


@pytest.mark.requirement("evidence.redaction")
def test_attempts_that_are_kept_and_that_are_not_carry_different_facts_and_no_secret(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    secret = "zq7-exec-84f1c2d9e0"
    monkeypatch.setenv("EXEC_TOKEN", secret)
    said = {"say": f"It is {secret}.\n{DONE % secret}", "usage": USAGE}
    steps = ({"run": f"echo {secret} | tee made.txt; echo {secret} >&2", "usage": USAGE}, said)
    flows = [{"id": name, "runtime": EXEC, "persistence": name} for name in ("ephemeral", "persistent")]
    spec = lab.write_spec([mission("ask", *steps, prompt=f"Say {secret}.")], flows=flows, schedule={"parallel": 2})
    lab.run(spec)
    found = {name.split(".")[1]: paths for name, paths in lab.attempts().items()}
    reports = {flow: report_of(paths) for flow, paths in found.items()}
    ways = {flow: (each.outcome, each.claimed, each.metrics.tool_calls) for flow, each in reports.items()}
    assert ways == dict.fromkeys(("ephemeral", "persistent"), (COMPLETED, True, 1))
    usages = {flow: each.metrics.usage for flow, each in reports.items()}
    assert {flow: (each.tokens and each.tokens.total, each.authority) for flow, each in usages.items() if each} == {
        "ephemeral": (200, "live-turn-completed"),
        "persistent": (200, "rollout-record"),
    }
    facts = {flow: runner_ref_of(paths).facts for flow, paths in found.items()}
    assert {flow: (each["persistence"].value, each["persistence"].authority) for flow, each in facts.items()} == {
        flow: (flow, "observed") for flow in found
    }
    kept = found["persistent"].frames.read_text()
    assert '"saw":"history","source":"rollout"' in kept
    assert '{"kind":"message","text":"It is [redacted:EXEC_TOKEN].' in kept
    assert [file for file in lab.root.rglob("*") if file.is_file() and secret.encode() in file.read_bytes()] == []
    # Strictly, which derives everything again from the frames and compares the bytes.
    lab.assert_all_evidence_is_valid()


def test_a_conversation_goes_on_turn_by_turn_and_what_exec_cannot_do_is_refused_before_it_is_asked(lab: Lab) -> None:
    written = script(lab.folder, *({"say": word, "usage": USAGE} for word in ("One.", "Two.", "Three.")))

    async def test() -> None:
        async with proctor.pool("codex_exec", evidence="disk", root=lab.root) as pool:
            async with pool.session(script=written, id="kept", context=NO_ENGINE) as kept:
                assert [((await kept.say(text)).outcome, kept.answer) for text in ("First.", "Second.")] == [
                    (COMPLETED, "One."),
                    (COMPLETED, "Two."),
                ]
                with pytest.raises(RefusedError, match="cannot shorten its history") as refused:
                    await kept.compact()
                assert refused.value.code == "runtime.capability"
            async with pool.session(script=written, id="kept", context=NO_ENGINE) as again:
                assert ((await again.say("Third.")).outcome, again.thread) == (COMPLETED, kept.thread)
            async with pool.session(script=written) as fleeting:
                await fleeting.say("First.")
                ending = await fleeting.say("Second.")
                assert (ending.outcome, ending.code) == (Outcome.REFUSED, "runtime.capability")
        with pytest.raises(RefusedError, match="cannot ask before it acts"):
            async with proctor.session("codex_exec", script=written, approvals=nobody):
                pass

    bounded(test)
    usages = {
        tuple(each.tokens and each.tokens.total for each in usage.turns)
        for file in (lab.root / "runs").rglob(layout.REPORT)
        if (usage := msgspec.json.decode(file.read_bytes(), type=AttemptReport).metrics.usage) is not None
    }
    assert usages == {(100, 100), (100,)}


async def nobody(_: proctor.Question) -> proctor.Decision:
    raise AssertionError("nobody is asked")


# ── failures ──

BEFORE_THE_TURN = {"no-thread", "settings"}  # tests/runtime/codex_exec/test_session.py
BY_A_FLOW = {"unreachable", "settings"}
WITHOUT_KEY = "key-missing"
STEPS = {id_: step for id_, step in BY_THE_MODEL.items() if id_ in TABLE}
# What no words of Codex's tell apart here: the provider's own are all there is.
UNTOLD = {"policy": "other"}


@pytest.mark.requirement("schedule.recovery")
def test_every_row_of_the_table_is_driven() -> None:
    assert {*STEPS, *BEFORE_THE_TURN, *BY_A_FLOW, WITHOUT_KEY} == set(TABLE)
    assert len(TABLE) == len(FAILURES), "no two rows have one id"


def rows_fitted(paths: Any) -> tuple[list[Failure | None], list[Failure | None]]:
    """Which rows the errors fit that it tried again after, and the ends of its turns."""
    normalizer = ExecNormalizer()
    events = [event for row in rows_of(paths) for event in normalizer.feed(row)]
    words = [
        event.text.partition("(")[2][:-1] for event in events if isinstance(event, ErrorReported) and event.will_retry
    ]
    ends = [event.error or "" for event in events if isinstance(event, TurnEnded)]
    return (
        [diagnose(FAILURES, None, text, will_retry=True) for text in words],
        [diagnose(FAILURES, None, text) for text in ends],
    )


@pytest.mark.requirement("schedule.recovery")
def test_what_the_provider_does_is_told_apart_by_words_alone_and_what_it_gets_over_is_no_failure(lab: Lab) -> None:
    rows = {**{id_: id_ for id_ in STEPS}, **UNTOLD}
    missions = [mission(name, STEPS.get(name) or BY_THE_MODEL[name]) for name in rows]
    missions.append(mission("500-then-well", {"tries": [http(500), say_done()]}))
    flow = {"runtime": EXEC, "options": {"codex_exec": IMPATIENT}}
    for at in range(0, len(missions), 6):
        lab.run(lab.write_spec(missions[at : at + 6], flow=flow, schedule=tried_once(6)))
    lab.assert_all_evidence_is_valid()
    found = {name.partition(".")[0]: paths for name, paths in lab.attempts().items()}
    assert {name: (report_of(paths).outcome, report_of(paths).code) for name, paths in found.items()} == {
        **{name: (FAILED, TABLE[id_].code) for name, id_ in rows.items()},
        "500-then-well": (COMPLETED, None),
    }
    assert {name: rows_fitted(found[name]) for name in rows} == {
        name: ([] if TABLE[id_].retrying is None else [TABLE[id_]], [TABLE[id_]]) for name, id_ in rows.items()
    }


@pytest.mark.requirement("schedule.recovery")
def test_a_provider_that_is_not_there_and_settings_that_are_refused(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NOWHERE_API_KEY", "none-needed-here")
    options: dict[str, dict[str, Any]] = {"unreachable": IMPATIENT, "settings": {"stream_max_retries": "many"}}
    flows = [
        {"id": id_, "runtime": EXEC, "model": NOWHERE, "login": "api-key", "options": {"codex_exec": each}}
        for id_, each in options.items()
    ]
    lab.run(lab.write_spec([mission("ask", say_done())], flows=flows, schedule={"parallel": 2}))
    lab.assert_all_evidence_is_valid()
    reports = {name.split(".")[1]: report_of(paths) for name, paths in lab.attempts().items()}
    assert {id_: (report.outcome, report.code) for id_, report in reports.items()} == {
        "unreachable": (FAILED, TABLE["unreachable"].code),
        "settings": (CRASHED, TABLE["settings"].code),
    }
    why = 'Error loading config.toml: invalid type: string "many", expected u64'
    assert (reports["settings"].detail or "").startswith(
        f"the agent exited with status 1; the agent's last error: {why}\n"
    )


# ── what happens on the way ──


def says(text: str) -> Callable[[bytes], bool]:
    return lambda line: f'"type":"{text}"'.encode() in line


def malformed(line: bytes) -> bytes:
    return line[: len(line) // 2] + b"\xff\x00"


def bloated(line: bytes) -> bytes:
    return json.dumps({**json.loads(line), "ballast": "x" * 20_000_000}).encode()


STRANGERS = (
    *(b'{"type":"no.such"}', b'{"type":7}', b"[1, 2", b"not JSON at all", b'{"type":"item.completed","item":{}}'),
    *(b'{"type":"turn.completed","x":' + b"[" * 5000 + b"]" * 5000 + b"}", b'{"type":"turn.completed\xff"}'),
    b'{"type":"turn.failed","x":"\xff"}',
)
ON_THE_WAY: dict[str, tuple[Callable[[bytes], bool], FaultAction, int | None, Outcome]] = {
    "duplicate": (lambda _: True, Duplicate(), None, COMPLETED),
    "inject": (says("turn.started"), Inject(lines=STRANGERS), 1, COMPLETED),
    "malformed": (says("item.started"), Alter(to=malformed), None, COMPLETED),
    "malformed-end": (says("turn.completed"), Alter(to=malformed), 1, CRASHED),
    "cut": (says("item.started"), Cut(), 1, CRASHED),
    "cut-in-a-line": (says("turn.completed"), Cut(keep_bytes=40), 1, CRASHED),
    "long-line": (says("item.started"), Alter(to=bloated), 1, COMPLETED),
}


@pytest.mark.requirement("runtime.events.lossless")
def test_whatever_happens_on_the_way_the_outcome_is_typed_and_the_record_is_whole(lab: Lab) -> None:
    def between(flow: FlowId, channel: Channel) -> Channel:
        at, how, times, _ = ON_THE_WAY[flow]
        return FaultChannel(channel, [LineFault(at=at, how=how, times=times)])

    missions = [mission("ask", {"run": "echo out"}, {"say": DONE % "out"})]
    flows = [{"id": name, "runtime": EXEC} for name in ON_THE_WAY]
    lab.run(lab.write_spec(missions, flows=flows, schedule={"parallel": 4}), between=between)
    lab.assert_all_evidence_is_valid()
    reports = {name.split(".")[1]: report_of(paths) for name, paths in lab.attempts().items()}
    assert {flow: (report.outcome, report.code) for flow, report in reports.items()} == {
        flow: (outcome, "peer.hangup" if outcome is CRASHED else None)
        for flow, (_, _, _, outcome) in ON_THE_WAY.items()
    }
    done = {flow: report.metrics for flow, report in reports.items() if report.outcome is COMPLETED}
    assert {(each.tool_calls, each.tool_failures, each.turns) for each in done.values()} == {(1, 0, 1)}
    assert {flow: each.unrecognized for flow, each in done.items()} == {
        **dict.fromkeys(done, 0),
        "inject": len(STRANGERS),
        "malformed": 1,
    }


# ── the end ──


class StopsOne(CampaignWatcher):
    """Asks one attempt to stop as soon as its shell runs."""

    def __init__(self, stops: StopSignals) -> None:
        self._stops = stops

    def event_recorded(self, attempt: AttemptId, event: Event) -> None:
        if attempt.startswith("cancelled.") and isinstance(event, ToolBegan):
            self._stops.one[attempt].set()


@pytest.mark.requirement("schedule.recovery")
def test_what_our_own_clocks_end_and_what_somebody_stops_leaves_no_child(lab: Lab) -> None:
    nap = f"344.{os.getpid()}"
    missions = [
        mission("silent", {"fault": "hang"}),
        mission("long", {"run": f"sleep {nap}", "usage": USAGE}),
        mission("cancelled", {"run": f"sleep {nap}"}),
    ]
    stops = StopSignals()
    flow = {"runtime": EXEC, "persistence": "persistent"}
    spec = lab.write_spec(missions, flow=flow, schedule={"parallel": 3}, limits={"stall": "5s"})
    lab.run(spec, stops=stops, watcher=StopsOne(stops))
    lab.assert_all_evidence_is_valid()
    reports = {name.partition(".")[0]: report_of(paths) for name, paths in lab.attempts().items()}
    assert {name: (report.outcome, report.code) for name, report in reports.items()} == {
        "silent": (Outcome.STALLED, "limit.stall"),
        "long": (Outcome.STALLED, "limit.stall"),
        "cancelled": (Outcome.CANCELLED, "run.cancelled"),
    }
    usage = reports["long"].metrics.usage
    assert usage is not None
    assert (usage.tokens and usage.tokens.total, usage.authority) == (100, "rollout-record"), (
        "it is paid for all the same"
    )
    assert processes_with(nap) == []


@pytest.mark.requirement("attempt.no-orphans")
def test_nothing_is_left_of_a_turn_when_proctor_is_killed(lab: Lab, tmp_path: Path) -> None:
    nap = f"345.{os.getpid()}"
    lab.env = {"XDG_CACHE_HOME": str(tmp_path / "cache"), "XDG_STATE_HOME": str(tmp_path / "state")}
    napping = f"sleep {nap} & setsid env -i sleep {nap} & sleep {nap}"
    flow = {"runtime": EXEC, "isolation": "process", "sandbox": "danger-full-access"}
    victim = lab.start("run", str(lab.write_spec([mission("nap", {"run": napping}, say_done())], flow=flow)))
    try:
        wait_until(lambda: len(processes_with(f"sleep\0{nap}")) >= 3)
    finally:
        # Its stdin has ended long before, so that it does not go by itself when we do.
        os.kill(victim.pid, signal.SIGKILL)
        victim.wait(timeout=10)
    wait_until(lambda: processes_with(nap) == [] and processes_with(str(lab.folder)) == [], deadline_s=5.0)
    assert (processes_with(nap), processes_with(str(lab.folder))) == ([], [])
