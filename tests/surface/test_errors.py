"""Whatever goes wrong: a block for people or JSON for programs, the right exit code, and never a traceback."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from proctor.errors import CODES
from proctor.surface.cli.app import COMMANDS, find_command
from proctor.surface.cli.command import call
from tests.lab import Lab
from tests.surface.conftest import ask, started

BAD = """\
version: 1
campaign: bad
missions:
  - {id: one, promt: hello}
flows:
  - {id: codex, runtime: codex_app_server}
"""


@pytest.mark.requirement("surface.cli")
def test_every_fault_of_a_spec_is_a_block_that_says_where_and_what_to_do(lab: Lab) -> None:
    (lab.folder / "bad.yaml").write_text(BAD)
    said = lab.proctor("run", "bad.yaml")
    assert (said.returncode, said.stdout) == (2, "")
    assert said.stderr == (
        "error  an unknown key\n"
        "  where  bad.yaml:4 missions[0].promt\n"
        "  try    Did you mean `prompt`?\n"
        "  to do  Remove it, or use the key suggested.\n"
        "  code   spec.unknown-key\n"
        "\n"
        "error  expected a list, found a string\n"
        "  where  bad.yaml:6 flows[0].runtime\n"
        "  try    Write a list: [codex_app_server].\n"
        "  to do  Write the kind of value the message names.\n"
        "  code   spec.type\n"
    )
    told = lab.proctor("run", "bad.yaml", "--json")
    assert (told.returncode, told.stderr) == (2, "")
    assert [(error["code"], error["line"]) for error in json.loads(told.stdout)["errors"]] == [
        ("spec.unknown-key", 4),
        ("spec.type", 6),
    ]


@pytest.mark.requirement("surface.cli")
@pytest.mark.parametrize(
    ("words", "code", "suggestion"),
    [
        ("run", "usage", "proctor run --help"),
        ("rnu", "usage", "proctor run"),
        ("attempt explian x", "usage", "proctor attempt explain"),
        ("validate --stric", "usage", "proctor validate --help"),
        ("model serve x --port 99999", "usage", "proctor model serve --help"),
        ("run nowhere.yaml", "spec.unreadable", None),
        ("attempt explain nobody", "evidence.not-found", None),
        ("validate ./nowhere", "evidence.not-found", None),
        ("report", "evidence.not-found", "proctor run examples/quickstart.yaml"),
    ],
)
def test_an_error_as_json_has_every_field(lab: Lab, words: str, code: str, suggestion: str | None) -> None:
    said = ask(lab, *words.split(), "--json")
    assert (said.code, said.stderr) == (2, "")
    error = said.json["error"]
    assert list(error) == "code what file line key suggestion means todo retryable".split()
    assert (error["code"], error["suggestion"]) == (code, suggestion)
    assert (error["means"], error["todo"]) == (CODES[code].means, CODES[code].todo)


def test_the_unforeseen_is_told_with_its_type_and_place_and_a_traceback_only_on_demand(lab: Lab) -> None:
    too_long = "x" * 5000
    said = lab.proctor("attempt", "list", "--root", too_long)
    assert (said.returncode, said.stdout) == (3, "")
    assert "OSError" in said.stderr
    assert "  where  proctor/" in said.stderr
    assert "code   run.harness" in said.stderr
    assert "Traceback" not in said.stderr
    assert "Traceback" in lab.proctor("attempt", "list", "--root", too_long, PROCTOR_DEBUG="1").stderr


def test_a_reader_that_leaves_early_is_no_error(lab: Lab) -> None:
    with started(lab, "doctor") as process:
        assert process.stdout is not None
        process.stdout.close()
        assert process.wait(timeout=60) == 0


def test_a_full_disk_behind_stdout_is_told() -> None:
    with Path("/dev/full").open("w") as full:
        said = subprocess.run(
            [sys.executable, "-m", "proctor", "--help"], stdout=full, stderr=subprocess.PIPE, text=True
        )
    assert (said.returncode, "code   machine.disk-full" in said.stderr) == (3, True)


@pytest.mark.requirement("surface.cli")
@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_help_with_an_example(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    command = find_command(name)
    with pytest.raises(SystemExit) as ended:
        call(name, command, ["--help"])
    shown = capsys.readouterr().out
    assert ended.value.code in (None, 0)
    assert shown.startswith(f"usage: proctor {name} ")
    assert shown.endswith(f"example:\n  {command.example}\n")
    assert command.example.startswith(f"proctor {name}")
    assert max(map(len, shown.splitlines())) <= 100


def test_the_overview_names_every_command_and_exit_code(lab: Lab) -> None:
    said = lab.proctor()
    assert said.returncode == 0
    assert all(f"\n  {name} " in said.stdout for name in COMMANDS)
    assert "130 interrupted" in said.stdout
    assert lab.proctor("attempt").stdout.startswith("usage: proctor attempt COMMAND")
