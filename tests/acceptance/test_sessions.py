"""Sessions with an id on the real agents: what the model is shown after the session was closed and opened again."""

from pathlib import Path
from typing import Final

import pytest

import proctor
from proctor.testing.journals import recorded_journals
from tests.acceptance.sittings import CLAUDE, CODEX, RUNTIMES, Said, SessionLab, conversation, first_requests, tool
from tests.api.talk import bounded

pytestmark = [pytest.mark.real_agent, pytest.mark.long]

FIRST: Final = ({"run": "echo marker-$((40+2))"}, {"say": "It says so."})
FIRST_SAID: Final[list[Said]] = [
    ("user", "What does it say?"),
    ("call", "echo marker-$((40+2))"),
    ("result", "marker-42"),
    ("agent", "It says so."),
]
ADD: Final = {"call": {"tool": "add", "arguments": {"a": 3, "b": 4}}}
ADD_SAID: Final[list[Said]] = [("call", '{"a": 3, "b": 4}'), ("result", "seven")]


@pytest.fixture
def lab(tmp_path: Path) -> SessionLab:
    return SessionLab(tmp_path)


# ── another process ──


@pytest.mark.requirement("session.one")
@pytest.mark.requirement("session.mirror")
@pytest.mark.parametrize("runtime", RUNTIMES)
def test_session_continues_in_new_agent_process_with_all_that_was_said(runtime: str, lab: SessionLab) -> None:
    async def talk() -> None:
        thread = await lab.sit(runtime, "x", ["What does it say?"], *FIRST)
        again = await lab.sit(runtime, "x", ["Once more?"], {"run": "echo other"}, {"say": "Done."})
        third = await lab.sit(runtime, "x", ["And now?", "Sure?"], {"say": "Yes."}, {"say": "Sure."})
        assert thread == again == third is not None

    with recorded_journals() as journals:
        bounded(talk)
    second: list[Said] = [("user", "Once more?"), ("call", "echo other"), ("result", "other"), ("agent", "Done.")]
    assert first_requests(journals) == [
        FIRST_SAID[:1],
        [*FIRST_SAID, second[0]],
        [*FIRST_SAID, *second, ("user", "And now?")],
    ]
    last: list[Said] = [("user", "And now?"), ("agent", "Yes."), ("user", "Sure?")]
    assert conversation(journals[-1].rows[-1]) == [*FIRST_SAID, *second, *last]
    assert lab.mirror("x") == [*FIRST_SAID, *second, *last, ("agent", "Sure.")]
    lab.assert_verified("x")


@pytest.mark.requirement("session.one")
@pytest.mark.parametrize("runtime", [CODEX, CLAUDE])
def test_session_continues_with_the_same_tools(runtime: str, lab: SessionLab) -> None:
    async def talk() -> None:
        for prompt in ("Three and four?", "Again?"):
            await lab.sit(runtime, "x", [prompt], ADD, {"say": "Seven."}, tools=[tool()])

    with recorded_journals() as journals:
        bounded(talk)
    whole = [("user", "Three and four?"), *ADD_SAID, ("agent", "Seven."), ("user", "Again?"), *ADD_SAID]
    assert conversation(journals[-1].rows[-1]) == whole
    assert lab.mirror("x") == [*whole, ("agent", "Seven.")]
    lab.assert_verified("x")


@pytest.mark.requirement("session.one")
@pytest.mark.parametrize("others", [[], [tool("subtract")], [tool(), tool("subtract")]])
def test_session_with_other_tools_has_lost_its_thread(others: list[proctor.Tool], lab: SessionLab) -> None:
    async def talk() -> None:
        await lab.sit(CODEX, "x", ["Three and four?"], ADD, {"say": "Seven."}, tools=[tool()])
        with pytest.raises(proctor.MachineError, match="other tools") as lost:
            await lab.sit(CODEX, "x", ["Again?"], {"say": "Never."}, tools=others)
        assert lost.value.code == "session.thread-lost"
        await lab.sit(CODEX, "x", ["Again?"], {"say": "Seven."}, tools=[tool()])

    bounded(talk)
    lab.assert_verified("x")
