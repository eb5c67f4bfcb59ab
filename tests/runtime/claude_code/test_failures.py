"""Every row of Claude Code's failure table, driven on the real program: what goes wrong has the code it should."""

from pathlib import Path
from typing import Any

import pytest

from proctor.event.model import ErrorReported, TurnEnded
from proctor.runtime.base import ModelChoice
from proctor.runtime.claude_code.failures import FAILURES
from proctor.runtime.failures import diagnose
from proctor.transport.channel import Channel
from proctor.transport.fault import Alter, FaultChannel, LineFault
from tests.runtime.claude_code.real import Talk, claude, provider, run

pytestmark = [pytest.mark.real_agent, pytest.mark.agent("claude_code")]

NO_RETRIES = {"max_retries": 0}


def http(status: int, kind: str | None = None, message: str = "") -> dict[str, Any]:
    body = None if kind is None else {"type": "error", "error": {"type": kind, "message": message}}
    return {"fault": {"status": status} | ({} if body is None else {"body": body})}


def broken(how: str) -> dict[str, Any]:
    return {"say": {"text": "Hello there", "chunk_chars": 4}, "fault": {how: 3}}


TOO_LONG = "prompt is too long: 215000 tokens > 200000 maximum"
TOO_POOR = "Your credit balance is too low to access the Anthropic API."
BY_REPLY = {
    "context": http(400, "invalid_request_error", TOO_LONG),
    "http-401": http(401, "authentication_error", "invalid x-api-key"),
    "http-402": http(402),
    "http-403": http(403),
    "http-404": http(404),
    "http-413": http(413),
    "http-429": http(429),
    "http-500": http(500),
    "http-529": http(529),
    "http-4xx": http(418),
    "http-5xx": http(503),
    "credit": http(400, "invalid_request_error", TOO_POOR),
    "cut": broken("cut_after"),
    "garbled": broken("garbled_after"),
}
# A conversation of more than one exchange it tries to shorten first, and that is a request too.
STEPS = [step for id_, step in BY_REPLY.items() for step in [step] * (2 if id_ == "http-413" else 1)]
OTHERWISE = {"script", "unreachable", "key-missing", "retrying", "max-turns", "other"}
CODES = {row.id: row.code for row in FAILURES}


def test_every_row_is_driven() -> None:
    assert {row.id for row in FAILURES} == BY_REPLY.keys() | OTHERWISE


def found(talk: Talk) -> list[str | None]:
    """The rows that the ends of its turns came to."""
    ends = [(end.status, diagnose(FAILURES, end.error_class, end.error or "")) for end in talk.of(TurnEnded)]
    return [row.id if row is not None and status == "failed" else None for status, row in ends]


def test_what_a_provider_does_ends_the_turn_with_its_code_and_not_the_session(tmp_path: Path) -> None:
    async def main() -> None:
        async with (
            claude(tmp_path) as real,
            real.talk(*STEPS, {"say": "Better."}, options=NO_RETRIES) as talk,
        ):
            for id_ in BY_REPLY:
                await talk.session.turn(f"Meet {id_}.")
            await talk.session.turn("Go on.")
            await talk.session.turn("And on.")
            ids = [*BY_REPLY, None, "script"]
            assert found(talk) == ids
            assert talk.ends == [("completed", None) if id_ is None else ("failed", CODES[id_]) for id_ in ids]
            # What the program says for a provider that failed is no word of the agent's.
            assert talk.said == ["Better."]
            assert [event.will_retry for event in talk.of(ErrorReported)] == [False] * (len(BY_REPLY) + 1)

    run(main)


def test_what_it_tries_again_is_told_and_forgiven(tmp_path: Path) -> None:
    async def main() -> None:
        steps = [{"tries": [fault, {"say": "Better."}]} for fault in (http(529), broken("cut_after"))]
        async with claude(tmp_path) as real, real.talk(*steps, options={"max_retries": 1}) as talk:
            await talk.session.turn("Go on.")
            await talk.session.turn("Go on.")
            assert [(event.error_class, event.will_retry, event.code) for event in talk.of(ErrorReported)] == [
                ("overloaded:529", True, "provider.overloaded"),
                ("unknown", True, CODES["retrying"]),
            ]
            assert (talk.said, talk.ends) == (["Better."] * 2, [("completed", None)] * 2)

    run(main)


def test_without_a_provider_or_a_key_it_says_so(tmp_path: Path) -> None:
    async def main() -> None:
        async with claude(tmp_path) as real:
            nowhere = ModelChoice(provider="scripted", name="scripted", base_url="http://127.0.0.1:1/v1")
            async with real.talk({"say": "a"}, name="nowhere", model=nowhere, options=NO_RETRIES) as talk:
                await talk.session.turn("Go on.")
                assert (found(talk), talk.ends) == (["unreachable"], [("failed", "provider.unreachable")])
            async with real.talk({"say": "a"}, name="keyless", model=provider()) as talk:
                await talk.session.turn("Go on.")
                assert (found(talk), talk.ends) == (["key-missing"], [("failed", "provider.key-missing")])

    run(main)


def test_an_end_of_a_kind_that_nobody_knows_is_a_failure_of_the_agents(tmp_path: Path) -> None:
    def worse(line: bytes) -> bytes:
        return line.replace(b'"subtype":"success"', b'"subtype":"error_of_tomorrow"').replace(b"is_error", b"was_error")

    def between(channel: Channel) -> Channel:
        return FaultChannel(channel, [LineFault(at=lambda line: b'"type":"result"' in line, how=Alter(to=worse))])

    async def main() -> None:
        async with claude(tmp_path, wrap_channel=between) as real, real.talk({"say": "Done."}) as talk:
            await talk.session.turn("Go on.")
            assert (found(talk), talk.ends) == (["other"], [("failed", "agent.turn-failed")])

    run(main)


def test_its_own_limit_of_requests_ends_the_turn(tmp_path: Path) -> None:
    async def main() -> None:
        steps = ({"run": "true"}, {"say": "Too late."})
        async with claude(tmp_path) as real, real.talk(*steps, options={"max_turns": 1}) as talk:
            await talk.session.turn("Go on.")
            assert (found(talk), talk.ends) == (["max-turns"], [("failed", "agent.budget")])

    run(main)
