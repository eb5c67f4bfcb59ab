"""A session without an id sends, and its model is asked, what was recorded before sessions could be continued.

`.venv/bin/pytest tests/acceptance/test_no_engine.py --write-recordings` writes the recordings in `no_engine/` again.
They change only with the locked agent programs, or when a change of what is sent is intended.
"""

from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, Final

import pytest

import proctor
from proctor.testing.journals import recorded_journals
from tests.acceptance.recordings import LONGEST_CHARS, Symbols, bodies, recorded  # noqa: F401  a fixture
from tests.api.talk import bounded, script

RECORDINGS: Final = Path(__file__).with_name("no_engine")
CLAUDE: Final = pytest.mark.agent("claude_code")


async def add(arguments: Any) -> str:
    return str(arguments["a"] + arguments["b"])


NUMBER: Final = {"type": "integer"}
ADD: Final = proctor.Tool(
    name="add",
    description="Add two numbers.",
    schema={"type": "object", "properties": {"a": NUMBER, "b": NUMBER}, "required": ["a", "b"]},
    call=add,
)
FIRST: Final = ({"run": "echo hi"}, {"say": "It says hi."})
SECOND: Final = ({"call": {"tool": "add", "arguments": {"a": 1, "b": 2}}}, {"say": "Three."})


async def talk(folder: Path, runtime: str, *, in_pool: bool) -> None:
    """Two turns, of which the second calls the caller's tool; one turn where neither is supported."""
    is_exec = runtime == "codex_exec"
    request: dict[str, Any] = {} if is_exec else {"tools": [ADD]}
    request["script"] = script(folder, *FIRST, *(() if is_exec else SECOND))
    evidence: dict[str, Any] = {"evidence": "disk", "root": folder / "root"}
    async with AsyncExitStack() as stack:
        if in_pool:
            pool = await stack.enter_async_context(proctor.pool(runtime, **evidence))
            session = await stack.enter_async_context(pool.session(**request))
        else:
            session = await stack.enter_async_context(proctor.session(runtime, **request, **evidence))
        for prompt in ("What does it say?", "Add.")[: 1 if is_exec else 2]:
            assert (await session.say(prompt)).outcome is proctor.Outcome.COMPLETED


@pytest.mark.real_agent
@pytest.mark.long
@pytest.mark.parametrize(
    "case",
    [
        "codex_app_server-session",
        "codex_app_server-pool",
        "codex_exec-session",
        pytest.param("claude_code-session", marks=CLAUDE),
        pytest.param("claude_code-pool", marks=CLAUDE),
    ],
)
def test_session_without_id_sends_what_was_recorded(
    case: str,
    tmp_path: Path,
    bodies: list[dict[str, Any]],  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
    request: pytest.FixtureRequest,
) -> None:
    # The agents tell the model about these.
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    monkeypatch.setenv("SHELL", "/bin/bash")
    runtime, way = case.split("-")
    with recorded_journals() as journals:
        bounded(lambda: talk(tmp_path, runtime, in_pool=way == "pool"))
    now, texts = recorded(tmp_path / "root", journals, bodies, tmp=tmp_path)
    file = RECORDINGS / f"{case}.json"
    if request.config.getoption("write_recordings"):
        file.write_text(now)
    (tmp_path / "long-texts.txt").write_text(texts)
    assert now == file.read_text(), f"the long texts that were sent are in {tmp_path / 'long-texts.txt'}"


def test_symbols_are_equal_for_equal_values_and_long_texts_are_digested() -> None:
    one, other = "01a1f04e-c19f-74b2-937c-76720760e99d", "01a1f04e-c8f2-7880-be59-3525dbe0a762"
    symbols = Symbols({"/tmp/x": "<tmp>"})
    assert symbols.stable([f"/tmp/x/{one}", {"b": other, "a": f"msg_{one}"}, "http://127.0.0.1:4711/v1", 7]) == [
        "<tmp>/<id-1>",
        {"a": "msg_<id-1>", "b": "<id-2>"},
        "http://127.0.0.1:<port-1>/v1",
        7,
    ]
    digests = [symbols.stable("x" * LONGEST_CHARS + uuid)["sha256"] for uuid in (one, one, other)]
    assert digests[0] == digests[1] != digests[2]
    assert symbols.texts[0] == "x" * LONGEST_CHARS + "<id-1>"
