"""Dialects by entry point: the built-in ones are always there, a plugin's only where the config names it."""

import json
import re
from pathlib import Path
from typing import Any

import msgspec
import pytest

import proctor
from proctor.config.load import load_config
from proctor.ids import RuntimeId
from proctor.model.dialects import DialectError, Dialects, built_in_dialects, express, load_dialects, order_for
from proctor.model.player import Player, Refusal, RequestKind
from proctor.model.script import Patch, Run, Script
from proctor.model.wire import Item, ReplyRequest, Tool
from tests.plugins import install

pytestmark = [pytest.mark.trust, pytest.mark.requirement("runtime.strategy.ids")]

TAU = RuntimeId("tau")
# The built-in dialect of Claude Code takes a tool of this name, too, but passes other arguments.
BASH = Tool(name="Bash", properties={"line": {"type": "string"}})
LS = Run(command="ls")

SOURCE = """
import json
from proctor.model.wire import ToolCall

def run(intent, tools):
    calls = [ToolCall(tool=tool, payload=json.dumps({"line": intent.command})) for tool in tools if tool.name == "Bash"]
    return tuple(calls)

def patch(intent, tools):
    return ()
"""


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of packages on the path; the current folder is the project, and its config names the plugin."""
    folder = tmp_path / "site"
    folder.mkdir()
    monkeypatch.syspath_prepend(folder)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "proctor.toml").write_text('plugins = ["tau"]\n')
    return folder


def install_dialect(site: Path, module: str, source: str | None) -> None:
    modules = {} if source is None else {module: source}
    install(site, "proctor-tau", points={}, dialects={"tau": module}, modules=modules)


def arguments_of_ls(dialects: Dialects) -> Any:
    [call] = express(LS, [BASH], dialects=dialects)
    return json.loads(call.payload)


def test_dialect_of_a_plugin_is_loaded_only_if_the_config_names_it(site: Path, tmp_path: Path) -> None:
    marker = site / "was-imported"
    install_dialect(site, "unnamed_dialect", f"open({str(marker)!r}, 'w').close()\n{SOURCE}")
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "proctor.toml").write_text("plugins = []\n")

    assert list(load_dialects(load_config(tmp_path / "elsewhere"))) == list(built_in_dialects()) == ["claude", "codex"]
    assert not marker.exists()
    assert list(load_dialects()) == ["claude", "codex", "tau"]
    assert marker.exists()


def test_dialect_of_the_runtime_is_tried_before_others_with_the_same_tool_names(site: Path) -> None:
    install_dialect(site, "first_dialect", SOURCE)
    dialects = load_dialects()

    assert arguments_of_ls(order_for(TAU, dialects)) == {"line": "ls"}
    assert arguments_of_ls(order_for(RuntimeId("claude_code"), dialects)) == {"command": "ls"}


@pytest.mark.parametrize(
    ("module", "source", "says"),
    [
        ("absent_dialect", None, "tau (absent_dialect, from proctor-tau): ModuleNotFoundError: No module named"),
        ("raising_dialect", "raise RuntimeError('no luck')", "RuntimeError: no luck"),
        ("partial_dialect", "def run(intent, tools): ...", "it has no `patch`"),
        (
            "failing_dialect",
            "def run(intent, tools): 1 / 0\npatch = run",
            "failed: ZeroDivisionError: division by zero",
        ),
        (
            "wrong_dialect",
            "def run(intent, tools): return ['ls']\npatch = run",
            "returned ['ls'], which is not a tuple",
        ),
    ],
)
def test_broken_dialect_fails_only_the_scripts_that_need_it(
    site: Path, module: str, source: str | None, says: str
) -> None:
    install_dialect(site, module, source)
    dialects = load_dialects()

    assert arguments_of_ls(dialects) == {"command": "ls"}
    with pytest.raises(DialectError, match=re.escape(says)):
        express(Patch(file="a", delete=True), [Tool(name="other", properties={})], dialects=dialects)
    script = msgspec.convert({"version": 1, "steps": [{"run": "ls"}]}, Script)
    player = Player("key", script, dialects=order_for(TAU, dialects))
    request = ReplyRequest(model="m", tools=(BASH,), items=(Item(raw=b"u", is_users=True, parts=()),))
    served = player.serve(request)
    assert served.kind is RequestKind.REFUSED
    assert isinstance(served.answer, Refusal)
    assert served.answer.message.startswith("step 0 needs `run`, but the dialect `tau` ")
    assert player.misfit is not None
    assert says in player.misfit


def test_core_contains_nothing_of_the_pi_plugin() -> None:
    word = re.compile(r"\bpi\b", re.IGNORECASE)
    sources = Path(proctor.__file__).parent.rglob("*.py")
    assert [path.name for path in sources if word.search(path.read_text())] == []
