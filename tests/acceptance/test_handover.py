"""Sessions with a context engine that move between the real agents: what was said on one is known on the other."""

import shutil
from pathlib import Path
from typing import Final

import pytest

import proctor
from proctor.testing.journals import recorded_journals
from tests.acceptance.sittings import CLAUDE, CODEX, Said, SessionLab, conversation, first_requests, last_request
from tests.api.talk import bounded

pytestmark = [pytest.mark.real_agent, pytest.mark.long]

WINDOW: Final = proctor.Context(engine="window", policy="strict")
LOSSLESS: Final = proctor.Context(engine="lossless", policy="strict")
FIRST: Final = ({"run": "echo marker-$((40+2))"}, {"say": "It says so."})
FIRST_SAID: Final[list[Said]] = [
    ("user", "What does it say?"),
    ("call", "echo marker-$((40+2))"),
    ("result", "marker-42"),
    ("agent", "It says so."),
]
SECOND_SAID: Final[list[Said]] = [("user", "Sure?"), ("agent", "Quite.")]


@pytest.fixture
def lab(tmp_path: Path) -> SessionLab:
    return SessionLab(tmp_path)


@pytest.mark.agent("claude_code")
@pytest.mark.requirement("context.handover")
@pytest.mark.requirement("context.given")
@pytest.mark.requirement("session.one")
@pytest.mark.parametrize("context", [WINDOW, LOSSLESS], ids=["window", "lossless"])
def test_conversation_moves_between_agents_as_items(context: proctor.Context, lab: SessionLab) -> None:
    async def talk() -> None:
        await lab.sit(CODEX, "x", ["What does it say?"], *FIRST, context=context)
        await lab.sit("claude_code", "x", ["Sure?"], {"say": "Quite."}, context=context)
        await lab.sit(CODEX, "x", ["And now?", "Really?"], {"say": "Yes."}, {"say": "Really."}, context=context)

    with recorded_journals() as journals:
        bounded(talk)
    before = [*FIRST_SAID, *SECOND_SAID]
    assert first_requests(journals) == [
        FIRST_SAID[:1],
        [*FIRST_SAID, SECOND_SAID[0]],
        [*before, ("user", "And now?")],
    ]
    last: list[Said] = [("user", "And now?"), ("agent", "Yes."), ("user", "Really?")]
    assert last_request(journals[-1]) == [*before, *last]
    contexts = [shown.turn.context for shown in lab.report("x").turns]
    assert [(each.how, each.given, each.reason, each.commit) for each in contexts if each is not None] == [
        ("none", 0, "no thread", "committed"),
        ("items", 4, "another runtime", "committed"),
        ("items", 6, "another runtime", "committed"),
        ("none", 0, "same thread", "committed"),
    ]
    lab.assert_verified("x")


@pytest.mark.agent("claude_code")
@pytest.mark.requirement("session.mirror")
def test_engine_whose_state_was_removed_has_it_again_from_the_mirror(lab: SessionLab) -> None:
    async def talk() -> None:
        await lab.sit(CODEX, "x", ["What does it say?"], *FIRST, context=LOSSLESS)
        shutil.rmtree(lab.root / "sessions" / "x" / "engines")
        await lab.sit("claude_code", "x", ["Sure?"], {"say": "Quite."}, context=LOSSLESS)

    with recorded_journals() as journals:
        bounded(talk)
    assert first_requests(journals)[1] == [*FIRST_SAID, SECOND_SAID[0]]
    lab.assert_verified("x")


@pytest.mark.requirement("context.projection.native")
@pytest.mark.parametrize("runtime", [CODEX, CLAUDE])
def test_agent_that_takes_no_items_gets_the_same_as_text(runtime: str, lab: SessionLab) -> None:
    async def talk() -> None:
        await lab.sit(runtime, "x", ["What does it say?"], *FIRST, context=WINDOW)
        await lab.sit("codex_exec", "x", ["Sure?", "Quite sure?"], {"say": "Quite."}, {"say": "Yes."}, context=WINDOW)

    with recorded_journals() as journals:
        bounded(talk)
    [(role, text)] = conversation(journals[1].rows[0])
    assert role == "user"
    assert text.startswith("Proctor assembled context for this turn:\n")
    assert text.endswith("</conversation_context>\nCurrent user request:\nSure?")
    assert [text.count(word) for word in ("> What does it say?", "> It says so.")] == [1, 1]
    # The thread has it now, so the next prompt is nothing but the prompt.
    assert last_request(journals[1]) == [("user", text), ("agent", "Quite."), ("user", "Quite sure?")]
    contexts = [shown.turn.context for shown in lab.report("x").turns]
    assert [(each.how, each.given) for each in contexts if each is not None] == [("none", 0), ("text", 4), ("none", 0)]
    assert lab.mirror("x") == [*FIRST_SAID, *SECOND_SAID, ("user", "Quite sure?"), ("agent", "Yes.")]
    lab.assert_verified("x")
