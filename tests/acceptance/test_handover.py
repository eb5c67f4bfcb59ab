"""Sessions with a context engine that move between the real agents: what was said on one is known on the other."""

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Final

import pytest

import proctor
from proctor.testing.journals import recorded_journals
from tests.acceptance.sittings import CLAUDE, CODEX, Said, SessionLab, conversation, first_requests, last_request
from tests.api.talk import bounded

pytestmark = [pytest.mark.real_agent, pytest.mark.long]

EXAMPLE: Final = Path(__file__).parents[2] / "examples/handover.py"
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


# ── examples/handover.py ──


def load_example() -> ModuleType:
    spec = importlib.util.spec_from_file_location("handover", EXAMPLE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.proctor_process
@pytest.mark.agent("claude_code")
@pytest.mark.requirement("context.handover")
@pytest.mark.requirement("surface.docs")
def test_example_shows_what_each_request_held(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, str(EXAMPLE)], cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stderr) == (0, "")
    turns = re.findall(r"^Turn \d on (\S+): (.*)$", done.stdout, re.MULTILINE)
    assert turns == [
        (CODEX, "nothing to give (no thread)"),
        ("claude_code", "4 messages given as items (another runtime)"),
        (CODEX, "8 messages given as items (another runtime)"),
    ]
    *_, last = done.stdout.split("  request ")
    assert re.findall(r"^    ([> ]) (\S+) +(\w+)", last, re.MULTILINE) == [
        (">", "user", "text"), (">", "-", "function_call"), (">", "-", "function_call_output"),
        (">", "assistant", "text"), (">", "user", "text"), (">", "-", "function_call"),
        (">", "-", "function_call_output"), (">", "assistant", "text"), (" ", "user", "text"),
    ]  # fmt: skip
    assert list(tmp_path.iterdir()) == []


@pytest.mark.agent("claude_code")
def test_example_exits_1_if_a_request_lacks_what_was_said(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", "set by the example")
    example = load_example()
    monkeypatch.setattr(example, "LOSSLESS", proctor.Context(engine="lossless", tools="elided"))
    assert example.main() == 1
    said = capsys.readouterr()
    assert "(another runtime)" in said.out
    assert said.err == "\nA request did not hold what was said before.\n"


@pytest.mark.proctor_process
def test_example_says_if_claude_code_is_not_installed(tmp_path: Path) -> None:
    env = {**os.environ, "PROCTOR_CLAUDE": str(tmp_path / "none")}
    done = subprocess.run([sys.executable, str(EXAMPLE)], env=env, capture_output=True, text=True, timeout=120)
    assert done.returncode == 3
    assert "`make agents`" in done.stderr
    assert "Traceback" not in done.stderr
