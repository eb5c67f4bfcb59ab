"""Failures of pi's provider and their codes, on the real program."""

from pathlib import Path
from typing import Any

from examples.plugins.pi.tests.real import OPTIONS, open_pi, run

from proctor.event.model import ErrorReported, TurnEnded
from proctor.runtime.base import Executable, ModelChoice
from proctor_pi import RUNTIME


def http(status: int, **body: Any) -> dict[str, Any]:
    fault: dict[str, Any] = {"status": status}
    return {"fault": {**fault, "body": {"error": body}} if body else fault}


def failed(code: str) -> dict[str, Any]:
    return {"say": "I beg", "fault": {"failed": {"code": code, "message": "so it is"}}}


# By row of the failure table: what the provider does, and whether pi retries.
FAULTS: dict[str, tuple[dict[str, Any], bool]] = {
    "http-401": (http(401), False),
    "http-402": (http(402), False),
    "http-403": (http(403), False),
    "http-404": (http(404), False),
    "http-4xx": (http(422), False),
    "http-429": (http(429), True),
    "http-500": (http(500), True),
    "http-5xx": (http(503), True),
    "http-529": (http(529), False),
    "quota": (http(429, code="insufficient_quota", message="You exceeded your current quota."), True),
    "rate-limit": (failed("rate_limit_exceeded"), True),
    "reply-failed": (failed("server_error"), True),
    "cut": ({"say": "I begin.", "fault": {"cut_after": 4}}, True),
    "garbled": ({"say": "I begin.", "fault": {"garbled_after": 4}}, False),
}
TOO_LONG = http(400, code="context_length_exceeded", message="It exceeds the context window.")


def test_provider_failures_have_their_codes(tmp_path: Path, program: Executable) -> None:
    codes = {row.id: row.code for row in RUNTIME.failures}
    assert FAULTS.keys() == codes.keys() - {"context", "unreachable", "script", "other"}

    async def test() -> None:
        async with open_pi(tmp_path, program) as pi:
            steps = [step for step, _ in FAULTS.values()]
            async with pi.session(*steps, TOO_LONG, TOO_LONG, name="faults", options=OPTIONS) as (session, tap):
                for row, (_, is_retried) in FAULTS.items():
                    before = len(tap.events)
                    await session.turn("Go on.")
                    events = tap.events[before:]
                    [ended] = [event for event in events if isinstance(event, TurnEnded)]
                    errors = [event for event in events if isinstance(event, ErrorReported)]
                    tried = [(error.will_retry, error.code) for error in errors]
                    assert (row, ended.status, ended.code) == (row, "failed", codes[row]), ended
                    again = [(True, codes[row]), (False, codes[row])] if is_retried else []
                    assert (row, tried) == (row, again)
                await session.turn("Go on.")
                # pi compacts its history, is refused again, and gives up.
                assert [event.code for event in tap.of(ErrorReported)[-1:]] == ["provider.context-full"]
                assert [event.code for event in tap.of(TurnEnded)[-1:]] == ["provider.context-full"]
            async with pi.session({"call": {"tool": "no_such_tool"}}, name="script", options=OPTIONS) as (session, tap):
                await session.turn("Go on.")
                assert [event.code for event in tap.of(TurnEnded)] == [codes["script"]]
            nobody = ModelChoice(provider="scripted", name="scripted", base_url="http://127.0.0.1:1/v1")
            async with pi.session({"say": "-"}, name="nobody", model=nobody, options=OPTIONS) as (session, tap):
                await session.turn("Go on.")
                assert [event.code for event in tap.of(TurnEnded)] == ["provider.unreachable"]

    run(test)
