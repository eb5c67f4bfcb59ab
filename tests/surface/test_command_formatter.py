"""Commands as they are printed: to be pasted as they stand."""

import sys
from pathlib import Path

import pytest

from proctor.surface.cli.app import COMMANDS, find_command
from proctor.surface.cli.command import ROOT
from proctor.surface.cli.command_formatter import CommandFormatter, program


@pytest.fixture
def venv(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of programs, in the current folder and not on PATH."""
    programs = tmp_path / ".venv" / "bin"
    programs.mkdir(parents=True)
    for name in ("proctor", "python"):
        (programs / name).write_text("")
        (programs / name).chmod(0o700)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", "/nowhere")
    return programs


def test_the_program_is_named_as_it_was_called(venv: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def called(*argv: str, by: str = "python") -> str:
        monkeypatch.setattr(sys, "argv", [*argv])
        monkeypatch.setattr(sys, "orig_argv", [by, "-m", "proctor"])
        return program()

    assert called(".venv/bin/proctor") == ".venv/bin/proctor"
    assert called(str(venv / "proctor")) == ".venv/bin/proctor"
    assert called("/some where/proctor") == "'/some where/proctor'"
    assert called("/lib/proctor/__main__.py") == "python -m proctor"
    assert called("/lib/proctor/__main__.py", by=str(venv / "python")) == ".venv/bin/python -m proctor"
    assert called("/bin/pytest") == "proctor"
    monkeypatch.setenv("PATH", str(venv))
    assert called(str(venv / "proctor")) == "proctor"


def test_commands_are_quoted_and_carry_the_root_that_was_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PROCTOR_ROOT", raising=False)
    assert CommandFormatter.of(None).command("validate", "a b") == "proctor validate 'a b'"
    assert CommandFormatter.of(Path("my root")).command("validate", "a b") == "proctor validate 'a b' --root 'my root'"
    monkeypatch.setenv("PROCTOR_ROOT", "/kept")
    calling = CommandFormatter.of(None)
    assert calling == CommandFormatter.in_words(["report"]) == CommandFormatter.in_words(["report", "--root=/kept"])
    assert calling.spell("Run `proctor attempt list`.") == "Run `proctor attempt list --root /kept`."
    assert calling.spell("Run `proctor runtimes list` to see the ids.") == "Run `proctor runtimes list` to see the ids."
    assert calling.spell("proctor run --help") == "proctor run --help"
    assert calling.spell("proctor report --root x") == "proctor report --root x"


def test_advice_about_a_session_names_the_session_of_the_command() -> None:
    calling = CommandFormatter.in_words(["session", "say", "my shop", "Hello?", "--root", "kept"])
    assert calling.spell("Run `proctor session verify ID --rebuild`.") == (
        "Run `proctor session verify 'my shop' --rebuild --root kept`."
    )
    assert calling.spell("`proctor engines check ID`") == "`proctor engines check ID`"
    assert CommandFormatter.in_words(["session", "list"]).session is None


def test_root_is_added_to_exactly_the_commands_that_take_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PROCTOR_ROOT", raising=False)
    calling = CommandFormatter.of(Path("kept"))
    spelled = {name for name in COMMANDS if calling.spell(f"proctor {name} x").endswith(" --root kept")}
    assert spelled == {name for name in COMMANDS if ROOT in find_command(name).arguments}
