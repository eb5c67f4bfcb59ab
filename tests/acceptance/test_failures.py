"""Every row of the failure table happens to the real Codex, and ends in the code that is documented."""

import json
import os
import re
import signal
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest

from proctor.campaign.stops import StopSignals
from proctor.campaign.watch import CampaignWatcher
from proctor.errors import CODES, bucket_of
from proctor.event.model import ErrorReported, Event, ToolBegan, TurnEnded
from proctor.event.outcome import Outcome
from proctor.event.row import Direction, Row
from proctor.evidence.artifacts import AttemptReport
from proctor.ids import AttemptId, FlowId
from proctor.runtime.base import ModelChoice
from proctor.runtime.codex_app_server.failures import FAILURES
from proctor.runtime.codex_app_server.normalize import CodexNormalizer
from proctor.runtime.failures import EVERYWHERE, Failure, diagnose
from proctor.spec.choices import Login
from proctor.transport.channel import Channel
from proctor.transport.fault import Alter, FaultChannel, LineFault
from proctor.transport.process import AgentProcess
from tests.attempt.recorded import examined
from tests.lab import DONE, Lab, mission, overloaded, processes_with, report_of, rows_of, say_done, tried_once
from tests.runtime.real import real_server
from tests.runtime.twin import run

pytestmark = pytest.mark.real_agent

TABLE = {row.id: row for row in (*FAILURES, *EVERYWHERE)}
IMPATIENT = {"request_max_retries": 1, "stream_max_retries": 1, "stream_idle_timeout_ms": 1500}
NOWHERE = {"provider": "nowhere", "name": "any", "base_url": "http://127.0.0.1:1/v1"}


def http(status: int, **more: Any) -> dict[str, Any]:
    return {"fault": {"status": status, **more}}


def error(code: str, message: str = "no") -> dict[str, Any]:
    return {"error": {"type": code, "code": code, "message": message}}


def failed(code: str, message: str = "no") -> dict[str, Any]:
    return {"fault": {"failed": {"code": code, "message": message}}}


def broken(how: str) -> dict[str, Any]:
    return {"say": "Hello.", "fault": {how: 3}}


def of_class(info: Any) -> dict[str, Any]:
    """An error that the fault transport gives this class on its way to us."""
    return http(400, body=error("class", f"CLASS {json.dumps(info)} SSALC"))


BY_THE_MODEL: dict[str, dict[str, Any]] = {
    "http-400": http(400),
    "http-401": http(401),
    "http-402": http(402),
    "http-403": http(403),
    "http-404": http(404),
    "http-429": http(429, retry_after=1),
    "http-4xx": http(422),
    "http-500": http(500),
    "http-503": http(503),
    "http-5xx": http(502),
    "script": {"call": {"tool": "nobody_offers_this"}},
    "quota": failed("insufficient_quota"),
    "plan": http(429, body=error("usage_not_included")),
    "usage-limit": http(429, body=error("usage_limit_reached")),
    "rate-limit": failed("rate_limit_exceeded"),
    "overloaded": http(503, body=error("server_is_overloaded")),
    "flex": failed("flex_unavailable"),
    "cut": broken("cut_after"),
    "idle": broken("silent_after"),
    "garbled": broken("garbled_after"),
    "reply-failed": failed("server_error"),
    "context": failed("context_length_exceeded"),
    "invalid-prompt": failed("invalid_prompt", "Invalid prompt: it was flagged."),
    "policy": failed("cyber_policy"),
    "other": http(400, body="a body in plain words"),
    "unauthorized": of_class("unauthorized"),
    "internal": of_class("internalServerError"),
    "rate": of_class("rateLimitExceeded"),
    "bad-request": of_class("badRequest"),
    "no-connection": of_class({"httpConnectionFailed": {"httpStatusCode": None}}),
    "disconnected": of_class({"responseStreamDisconnected": {"httpStatusCode": None}}),
    "budget": of_class("sessionBudgetExceeded"),
    "denials": of_class("tooManyDenials"),
    "sandbox": of_class("sandboxError"),
    "request": of_class({"activeTurnNotSteerable": {"turnKind": "review"}}),
}
# The same rows by other ways.
OTHERWISE = {
    "cut-at-once": ("cut", {"fault": {"cut_after": 0}}),
    "quota-http": ("quota", http(429, body=error("insufficient_quota"))),
    "overloaded-reply": ("overloaded", failed("server_is_overloaded")),
    "slow-down": ("rate-limit", http(503, body=error("slow_down"))),
    "empty-400": ("http-400", http(400, body="")),
    "prompt-400": ("invalid-prompt", http(400, body=error("invalid_prompt", "Invalid prompt: it was flagged."))),
    "misaligned": ("policy", failed("misalignment_policy_violation")),
}
# What a provider or a model does wrong and the agent gets over.
HARMLESS: dict[str, list[dict[str, Any]]] = {
    "500-then-well": [{"tries": [http(500), say_done()]}],
    "cut-then-well": [{"tries": [broken("cut_after"), say_done()]}],
    "bad-arguments": [{"call": {"tool": "exec_command", "arguments": {"no": "command"}}}, say_done()],
    "bad-patch": [{"patch": {"file": "absent.txt", "old": "a", "new": "b"}}, say_done()],
    "big-output": [{"run": "head -c 3000000 /dev/zero | tr '\\0' x"}, say_done()],
    "big-words": [{"say": {"text": "word " * 20000 + DONE % "", "chunk_chars": 4000}}],
}
BY_THE_FLOW: dict[str, dict[str, Any]] = {
    "unreachable": {"options": {"codex_app_server": IMPATIENT}},
    "refused": {"options": {"codex_app_server": {"stream_max_retries": "many"}}},
}


# No campaign gets that far: a login without its key is refused before anything runs.
WITHOUT_KEY = "key-missing"


def altered(text: bytes, to: Callable[[bytes], bytes]) -> list[LineFault]:
    return [LineFault(at=lambda line: text in line, how=Alter(to=to), times=None)]


STARTED = b'"result":{"thread":'
ON_THE_WAY = {
    "busy": altered(STARTED, overloaded),
    "no-protocol": altered(STARTED, lambda line: line.replace(STARTED, b'"result":{"threads":')),
    "too-old": altered(b'"userAgent"', lambda line: re.sub(rb"proctor/[0-9.]+", b"proctor/0.1.0", line)),
}
# Driven on every runtime in test_script_unfit.py.
BY_THE_SCRIPT = "unfit"
# `lost` is injected in test_failures_between.py, and `operator-cancel` in test_attempt_cancel.py.
BY_THE_MACHINE = ["killed", "ended", "lost", "silent", "long-turn", "long-attempt", "cancelled", "operator-cancel"]
# Driven in test_blame.py.
BY_THE_AGENT = ["killed-itself", "spoiled", "endless", "disk-used-up", "disk-full"]


@pytest.mark.requirement("schedule.recovery")
def test_every_row_of_the_table_is_driven_here_and_has_a_code() -> None:
    by_others = [*BY_THE_MACHINE, *BY_THE_AGENT, BY_THE_SCRIPT, WITHOUT_KEY]
    assert sorted([*BY_THE_MODEL, *BY_THE_FLOW, *ON_THE_WAY, *by_others]) == sorted(TABLE)
    assert len(TABLE) == len((*FAILURES, *EVERYWHERE)), "no two rows have one id"
    assert {row.code for row in TABLE.values()} <= set(CODES)
    injected = {id_ for id_, step in BY_THE_MODEL.items() if "CLASS " in json.dumps(step)} | set(ON_THE_WAY)
    assert {row.id for row in TABLE.values() if not row.is_seen} == injected | {"lost"}


def reclassed(line: bytes) -> bytes:
    """The error with the class that its own text asks for."""
    message = json.loads(line)
    params = message["params"]
    error = params["error"] if message["method"] == "error" else params["turn"]["error"]
    found = re.search(r"CLASS (.*?) SSALC", json.loads(error["message"])["error"]["message"])
    assert found is not None
    error["codexErrorInfo"] = json.loads(found[1])
    return json.dumps(message).encode()


def told(lab: Lab) -> dict[str, AttemptReport]:
    """What each attempt ended with, by mission; with the advice that belongs to the code."""
    lab.assert_all_evidence_is_valid()
    reports = {name.partition(".")[0]: report_of(paths) for name, paths in lab.attempts().items()}
    for report in reports.values():
        if report.code is not None:
            meaning = CODES[report.code]
            bucket = bucket_of(report.code, has_begun=report.metrics.turns > 0)
            advice = (bucket, meaning.retryable, meaning.todo)
            assert (report.bucket, report.retryable, report.todo) == advice
    return reports


def sequences(lab: Lab) -> dict[str, tuple[list[Failure | None], Failure | None]]:
    """Which rows the errors of an attempt fit: those that it tried again after, and the one that ended its turn."""
    found = {}
    for name, paths in lab.attempts().items():
        normalizer = CodexNormalizer()
        events = [event for row in rows_of(paths) for event in normalizer.feed(row)]
        retried = [event for event in events if isinstance(event, ErrorReported) and event.will_retry]
        ends = [event for event in events if isinstance(event, TurnEnded)]
        found[name.partition(".")[0]] = (
            [row_of(event.error_class, event.text.partition(": ")[2], will_retry=True) for event in retried],
            row_of(ends[0].error_class, ends[0].error or "", will_retry=False) if ends else None,
        )
    return found


def row_of(error_class: str | None, text: str, *, will_retry: bool) -> Failure | None:
    return diagnose(FAILURES, error_class, text, will_retry=will_retry)


@pytest.mark.requirement("schedule.recovery")
def test_what_the_provider_does_is_told_apart_also_where_the_agent_calls_it_other(lab: Lab) -> None:
    steps: Mapping[str, list[dict[str, Any]]] = {
        **{id_: [step] for id_, step in BY_THE_MODEL.items()},
        **{name: [step] for name, (_, step) in OTHERWISE.items()},
        **HARMLESS,
    }
    rows = {**{id_: id_ for id_ in BY_THE_MODEL}, **{name: id_ for name, (id_, _) in OTHERWISE.items()}}
    plan = [
        LineFault(at=lambda line: b"CLASS " in line and b"codexErrorInfo" in line, how=Alter(to=reclassed), times=None)
    ]
    for at in range(0, len(steps), 16):
        missions = [mission(name, *steps[name]) for name in list(steps)[at : at + 16]]
        flow = {"options": {"codex_app_server": IMPATIENT}}
        spec = lab.write_spec(missions, flow=flow, schedule=tried_once(len(missions)))
        lab.run(spec, between=lambda _, channel: FaultChannel(channel, plan))

    assert {name: (report.outcome, report.code) for name, report in told(lab).items()} == {
        **{name: (Outcome.FAILED, TABLE[id_].code) for name, id_ in rows.items()},
        **dict.fromkeys(HARMLESS, (Outcome.COMPLETED, None)),
    }
    seen = sequences(lab)
    assert {name: seen[name][1] for name in rows} == {name: TABLE[id_] for name, id_ in rows.items()}
    assert {name: seen[name][0] for name in BY_THE_MODEL} == {
        id_: [] if TABLE[id_].retrying is None else [TABLE[id_]] for id_ in BY_THE_MODEL
    }, "it tries again exactly where the table says so"


@pytest.mark.requirement("schedule.recovery")
def test_a_provider_that_is_not_there_and_a_session_that_is_refused(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NOWHERE_API_KEY", "none-needed-here")
    waiting = {"options": {"codex_app_server": {"unbounded_connection_retries": True}}}
    flows = [
        {"id": id_, "runtime": ["codex_app_server"], "model": NOWHERE, "login": "api-key", **flow}
        for id_, flow in {**BY_THE_FLOW, "waiting": waiting}.items()
    ]
    lab.run(lab.write_spec([mission("ask", say_done())], flows=flows, schedule={"parallel": 8}, limits={"turn": "5s"}))
    lab.assert_all_evidence_is_valid()
    reports = {name.split(".")[1]: report_of(paths) for name, paths in lab.attempts().items()}
    assert {name: (report.outcome, report.code) for name, report in reports.items()} == {
        "unreachable": (Outcome.FAILED, "provider.unreachable"),
        "refused": (Outcome.REFUSED, "peer.refused"),
        # It would go on trying for ever: our clock ends it, and still says what it waited for.
        "waiting": (Outcome.TIMED_OUT, "provider.unreachable"),
    }
    assert {id_: reports[id_].code for id_ in BY_THE_FLOW} == {id_: TABLE[id_].code for id_ in BY_THE_FLOW}


@pytest.mark.requirement("schedule.recovery")
def test_an_agent_whose_key_is_not_in_its_environment_says_so(tmp_path: Path) -> None:
    model = ModelChoice(
        provider="nowhere",
        name="some-model",
        base_url="http://127.0.0.1:1/v1",
        key_variable="NOWHERE_API_KEY",
        login=Login.API_KEY,
    )

    async def main() -> list[TurnEnded]:
        async with real_server(tmp_path, model=model) as real, real.talk({"say": "hi"}, model=model) as talk:
            await talk.session.turn("Say hi.")
        normalizer = CodexNormalizer()
        rows = [
            Row(seq=seq, at_ms=0, dir=dir_, prev="", frame=msgspec.Raw(said))
            for seq, (dir_, said) in enumerate(talk.tap.rows)
            if dir_ in (Direction.IN, Direction.OUT)
        ]
        return [event for row in rows for event in normalizer.feed(row) if isinstance(event, TurnEnded)]

    assert [ended.code for ended in run(main)] == [TABLE[WITHOUT_KEY].code]


@pytest.mark.requirement("schedule.recovery")
@pytest.mark.requirement("runtime.compat")
def test_an_agent_that_will_not_have_a_session_says_why(lab: Lab) -> None:
    flows = [{"id": id_, "runtime": ["codex_app_server"]} for id_ in ON_THE_WAY]
    spec = lab.write_spec([mission("ask", say_done())], flows=flows, schedule=tried_once(3))
    lab.run(spec, between=lambda flow, channel: FaultChannel(channel, ON_THE_WAY[flow]))
    found = {name.split(".")[1]: paths for name, paths in lab.attempts().items()}
    reports = {id_: report_of(paths) for id_, paths in found.items()}
    assert {id_: (report.outcome, report.code) for id_, report in reports.items()} == {
        id_: (Outcome.REFUSED, TABLE[id_].code) for id_ in ON_THE_WAY
    }
    assert [examined(paths, is_strict=True).findings for paths in found.values()] == [()] * 3


class Signals(CampaignWatcher):
    """The agent of an attempt gets a signal as soon as its shell runs."""

    def __init__(self) -> None:
        self.agents: dict[str, int] = {}

    def between(self, flow: FlowId, channel: Channel) -> Channel:
        assert isinstance(channel, AgentProcess)
        assert channel.agent is not None
        self.agents[flow] = channel.agent.pid
        return channel

    def event_recorded(self, attempt: AttemptId, event: Event) -> None:
        if isinstance(event, ToolBegan):
            flow = attempt.split(".")[1]
            os.kill(self.agents[flow], {"killed": signal.SIGKILL, "ended": signal.SIGTERM}[flow])


@pytest.mark.requirement("schedule.recovery")
def test_an_agent_that_is_killed_is_told_from_one_that_ends(lab: Lab) -> None:
    nap = f"317.{os.getpid()}"
    flows = [{"id": id_, "runtime": ["codex_app_server"], "isolation": "process"} for id_ in ("killed", "ended")]
    spec = lab.write_spec([mission("nap", {"run": f"sleep {nap}"}, say_done())], flows=flows, schedule={"parallel": 2})
    signals = Signals()
    lab.run(spec, watcher=signals, between=signals.between)
    lab.assert_all_evidence_is_valid()
    reports = {name.split(".")[1]: report_of(paths) for name, paths in lab.attempts().items()}
    closed = "the agent closed its output"
    assert {id_: (report.outcome, report.code, report.detail) for id_, report in reports.items()} == {
        "killed": (Outcome.CRASHED, TABLE["killed"].code, f"{closed}; the agent was ended by signal 9 (SIGKILL)"),
        "ended": (Outcome.CRASHED, TABLE["ended"].code, f"{closed}; the agent exited with status 0"),
    }
    assert processes_with(nap) == []


class StopsOne(CampaignWatcher):
    """Asks one attempt to stop as soon as its shell runs."""

    def __init__(self, stops: StopSignals) -> None:
        self._stops = stops

    def event_recorded(self, attempt: AttemptId, event: Event) -> None:
        if attempt.startswith("cancelled.") and isinstance(event, ToolBegan):
            self._stops.one[attempt].set()


@pytest.mark.requirement("schedule.recovery")
def test_what_our_own_clocks_end_and_what_somebody_stops(lab: Lab) -> None:
    talk = [deed for _ in range(12) for deed in ({"say": "Still here."}, {"delay": "700ms"})]
    # The hook makes the probe slow only inside the attempt, so that the check before the run is quick.
    made = lab.folder / "made"
    slow = f"test -e {made} && sleep 318.{os.getpid()}"
    slow_probe = {"kind": "headless_run", "command": slow, "timeout": "60s", "contain": "none"}
    missions = [
        mission("silent", {"fault": "hang"}),
        mission("long-turn", {"do": talk}),
        mission("long-attempt", say_done(), probes=[slow_probe], hooks={"before": f"touch {made}"}),
        mission("cancelled", {"run": f"sleep 319.{os.getpid()}"}),
    ]
    stops = StopSignals()
    limits = {"stall": "3s", "turn": "5s", "attempt": "8s"}
    spec = lab.write_spec(missions, schedule={"parallel": 4}, limits=limits)
    lab.run(spec, stops=stops, watcher=StopsOne(stops))
    assert {name: (report.outcome, report.code) for name, report in told(lab).items()} == {
        "silent": (Outcome.STALLED, TABLE["silent"].code),
        "long-turn": (Outcome.TIMED_OUT, TABLE["long-turn"].code),
        "long-attempt": (Outcome.TIMED_OUT, TABLE["long-attempt"].code),
        "cancelled": (Outcome.CANCELLED, TABLE["cancelled"].code),
    }
