"""What is said of the history of a conversation, however it went: read back from the real agent when it is over."""

from pathlib import Path

import msgspec
import pytest

import proctor
from proctor.evidence.artifacts import RunnerRef
from tests.api.talk import bounded, nap, script

pytestmark = pytest.mark.real_agent


def _history(session: proctor.Session) -> str:
    assert session.folder is not None
    ref = msgspec.json.decode((session.folder / "runner.ref.json").read_bytes(), type=RunnerRef)
    assert "historyDifferences" not in ref.facts
    return str(ref.facts["history"].value)


@pytest.mark.requirement("runtime.history")
def test_a_history_is_the_same_after_turns_steering_an_interrupt_and_a_shortening(tmp_path: Path) -> None:
    turns = script(
        tmp_path, {"run": "sleep 0.5"}, {"say": "One."}, {"say": "Two."}, {"say": "Short."}, {"say": "Three."}
    )
    asleep = script(tmp_path, {"say": "I sleep.", "run": nap()}, {"say": "Never."})

    async def talk() -> None:
        async with proctor.pool(evidence="disk", root=tmp_path / "evidence") as pool:
            async with pool.session(script=turns, id="whole") as whole:
                async for event in whole.say("First?"):
                    if isinstance(event, proctor.ToolBegan):
                        await whole.steer("Faster!")
                await whole.say("Second?")
                await whole.compact()
                await whole.say("Third?")
                await whole.fork("gone")
            async with pool.session(script=script(tmp_path, {"say": "Again."}), id="whole") as resumed:
                await resumed.say("And now?")
            async with pool.session(script=asleep, id="cut") as cut:
                async for event in cut.say("Sleep."):
                    if isinstance(event, proctor.ToolBegan):
                        break
                await cut.interrupt()
            async with pool.session(script=script(tmp_path, {"say": "x"}), id="gone") as gone:
                await gone.say("Who?")
            assert [_history(each) for each in (whole, resumed, cut, gone)] == ["hydrated-verified"] * 4

    bounded(talk)
