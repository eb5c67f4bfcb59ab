"""How full the context window is, as the real Claude Code reports it."""

from pathlib import Path
from typing import Any

import msgspec
import pytest

from proctor.errors import PeerError
from proctor.event.model import ReplyReceived, RequestSent, Unrecognized
from proctor.runtime.base import ContextUse
from proctor.runtime.claude_code.context_use import context_use
from tests.runtime.claude_code.real import claude, run


@pytest.mark.real_agent
@pytest.mark.agent("claude_code")
def test_context_use_is_read_from_the_program_on_request_only(tmp_path: Path) -> None:
    steps = {"say": "a", "usage": {"input": 12_000, "output": 5}}, {"say": "b", "usage": {"input": 34_000}}

    async def main() -> None:
        async with claude(tmp_path) as real, real.talk(*steps) as talk:
            assert await talk.session.read_context() == ContextUse()
            await talk.session.turn("prompt 1")
            assert [event.method for event in talk.of(RequestSent)] == ["initialize"]
            first = await talk.session.read_context()
            await talk.session.turn("prompt 2")
            second = await talk.session.read_context()
            assert (first.used_tokens, second.used_tokens) == (12_000, 34_000)
            assert first.window_tokens == second.window_tokens == 1_000_000
            assert first.compacts_at_tokens == 967_000
            assert first.fixed_prompt_tokens is not None
            assert 1_000 < first.fixed_prompt_tokens < 12_000
            assert [event.method for event in talk.of(ReplyReceived)] == ["initialize", *["get_context_usage"] * 2]
            assert talk.of(Unrecognized) == []

    run(main)


def reply(**fields: Any) -> bytes:
    response = {"subtype": "success", "request_id": "r", "response": fields}
    return msgspec.json.encode({"type": "control_response", "response": response})


def test_fixed_prompt_is_all_that_is_in_use_but_the_messages() -> None:
    sizes = [("system_prompt", 3, "used"), ("system_tools", 4, "used"), ("messages", 100, "used")]
    sizes += [("mcp_tools_deferred", 50, "deferred"), ("autocompact_buffer", 20, "buffer"), ("free_space", 9, "free")]
    categories = [{"id": id_, "tokens": tokens, "kind": kind} for id_, tokens, kind in sizes]
    line = reply(categories=categories, totalTokens=107, maxTokens=200, autoCompactThreshold=180)
    assert context_use(line) == ContextUse(window_tokens=200, used_tokens=107, fixed_prompt_tokens=7)
    enabled = reply(categories=[], totalTokens=0, maxTokens=0, autoCompactThreshold=180, isAutoCompactEnabled=True)
    assert context_use(enabled) == ContextUse(used_tokens=0, compacts_at_tokens=180)


@pytest.mark.parametrize("fields", [{"totalTokens": -1}, {"categories": 7}, {"maxTokens": 2**60}])
def test_reply_of_unknown_shape_is_a_typed_error(fields: dict[str, Any]) -> None:
    with pytest.raises(PeerError, match="get_context_usage"):
        context_use(reply(**fields))
