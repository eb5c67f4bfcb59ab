"""Sessions that the real Claude Code keeps: taken up again, forked, and read back from its own file."""

from pathlib import Path

import pytest

from proctor.errors import RefusedError
from proctor.event.model import HistoryRead, SessionBegan, UsageReported
from proctor.ids import ThreadId
from tests.runtime.claude_code.real import claude, run

pytestmark = [pytest.mark.real_agent, pytest.mark.agent("claude_code")]


@pytest.mark.requirement("runtime.claude-code")
def test_a_kept_session_is_taken_up_forked_and_read_back(tmp_path: Path) -> None:
    async def main() -> None:
        async with claude(tmp_path) as real:
            steps = ({"do": [{"say": "4711 it is."}, {"run": "true"}]}, {"say": "Kept.", "usage": {"input": 100}})
            async with real.talk(*steps, name="kept", is_persistent=True) as kept:
                await kept.session.turn("Remember 4711.")
                await kept.session.read_history()
                thread = kept.session.thread
                assert thread is not None
                assert kept.session.facts["persistence"].value == "persistent"
            (history,) = kept.of(HistoryRead)
            assert (history.source, [(item.kind, item.text) for item in history.items]) == (
                "session file",
                [("prompt", "Remember 4711."), ("message", "4711 it is."), ("tool", "Bash"), ("message", "Kept.")],
            )
            async with real.talk({"say": "4711.", "usage": {"input": 7}}, name="resumed", resume=thread) as resumed:
                await resumed.session.turn("Which?")
            assert "4711 it is." in resumed.journal[-1].texts
            (began,) = resumed.of(SessionBegan)
            assert (began.thread, began.is_resumed, began.ephemeral) == (thread, True, False)
            # What the session had cost before is no part of it.
            assert [event.tokens.input for event in resumed.of(UsageReported)] == [7]
            async with real.talk({"say": "4711."}, name="forked", fork=thread) as forked:
                await forked.session.turn("And which?")
                assert forked.session.facts["persistence"].value == "ephemeral"
            assert "Which?" in forked.journal[-1].texts
            (began,) = forked.of(SessionBegan)
            assert began.thread != thread
            assert (began.is_resumed, began.ephemeral) == (True, True)

    run(main)


def test_what_is_not_kept_is_neither_taken_up_nor_read(tmp_path: Path) -> None:
    nobodys = ThreadId("00000000-0000-4000-8000-000000000000")

    async def main() -> None:
        async with claude(tmp_path) as real:
            with pytest.raises(RefusedError, match="has no stored session"):
                async with real.talk({"say": "a"}, name="unknown", resume=nobodys):
                    pass
            async with real.talk({"say": "a"}, name="ephemeral") as talk:
                await talk.session.turn("Go on.")
                with pytest.raises(RefusedError, match="has no stored session"):
                    await talk.session.read_history()

    run(main)
