"""How full the context window is, as the real Codex reports it."""

from pathlib import Path
from typing import Any

import pytest

from proctor.event.message import UserPart
from proctor.event.model import RequestSent
from proctor.runtime.base import ContextUse
from proctor.runtime.codex_app_server import RUNTIME
from proctor.runtime.codex_app_server.session import context_use
from proctor.testing.agent_under_test import open_agent
from tests.runtime.messages import message
from tests.runtime.twin import run

USED = {"input": 12_000, "output": 5}


@pytest.mark.real_agent
def test_context_use_is_what_codex_reported_last_and_asks_for_nothing(tmp_path: Path) -> None:
    async def main() -> None:
        async with open_agent(RUNTIME, RUNTIME.locate({}), home=tmp_path / "home") as agent:
            async with agent.session({"say": "a", "usage": USED}, name="kept", is_persistent=True) as (session, tap):
                assert await session.read_context() == ContextUse()
                await session.turn("prompt 1")
                sent = len(tap.of(RequestSent))
                first = await session.read_context()
                assert len(tap.of(RequestSent)) == sent
                thread = session.thread
            async with agent.session({"say": "c"}, name="again", resume=thread) as (session, _):
                # Codex reports the usage of a resumed thread right after its reply, so before this one.
                await session.give([message(1, UserPart(text="question"))])
                assert await session.read_context() == first
                await session.compact()
                compacted = await session.read_context()
        assert (first.used_tokens, first.fixed_prompt_tokens, first.compacts_at_tokens) == (12_005, None, None)
        assert first.window_tokens is not None
        assert first.window_tokens > 100_000
        assert compacted.used_tokens is not None
        assert 0 < compacted.used_tokens < 12_000

    run(main)


@pytest.mark.parametrize("usage", [{}, {"total": 1}, {"total": {"totalTokens": -1}}, None])
def test_usage_of_unknown_shape_says_nothing(usage: Any) -> None:
    assert context_use(f'{{"params":{{"tokenUsage":{usage or "null"}}}}}'.encode()) is None
