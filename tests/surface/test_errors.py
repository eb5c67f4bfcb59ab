"""Whatever goes wrong: a block for people or JSON for programs, the right exit code, and never a traceback."""

import io
import json
import subprocess
import sys
from contextlib import redirect_stderr, redirect_stdout, suppress
from pathlib import Path
from typing import NoReturn

import pytest

from proctor.errors import CODES
from proctor.surface.cli.app import COMMANDS, answer, find_command
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
        "error  unknown key `promt`\n"
        "  where  bad.yaml:4: missions[0].promt\n"
        "  to do  Did you mean `prompt`?\n"
        "  code   spec.unknown-key\n"
        "\n"
        "error  expected a list, found a string\n"
        "  where  bad.yaml:6: flows[0].runtime\n"
        '  to do  Write a list: ["codex_app_server"].\n'
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
        ("rnu x.yaml", "usage", "proctor run x.yaml --json --root ROOT"),
        ("attempt explian x", "usage", "proctor attempt explain x --json --root ROOT"),
        ("validate --stric", "usage", "Did you mean `--strict`?"),
        ("attempt list --jsno", "usage", "Did you mean `--json`?"),
        ("lint x.yaml", "usage", "proctor campaign lint x.yaml --json --root ROOT"),
        (
            "cancel",
            "usage",
            "proctor campaign cancel --json --root ROOT\nproctor attempt cancel --json --root ROOT",
        ),
        ("status", "usage", "proctor campaign status --json --root ROOT"),
        ("resume", "usage", "proctor campaign resume --json --root ROOT"),
        ("explain x", "usage", "proctor attempt explain x --json --root ROOT"),
        ("explian x", "usage", "proctor attempt explain x --json --root ROOT"),
        ("campaign frobnicate", "usage", "proctor campaign --help"),
        ("run examples/quickstart.yaml --repeats 0", "spec.selection", "Pass 1 to 1000."),
        ("validate /nonexistent", "evidence.not-found", "Pass a folder that exists."),
        ("model serve x --port 99999", "usage", "proctor model serve --help"),
        ("run nowhere.yaml", "spec.unreadable", None),
        ("attempt explain nobody", "evidence.not-found", None),
        ("validate ./nowhere", "evidence.not-found", "Pass a folder that exists."),
        ("report", "evidence.not-found", "proctor run examples/quickstart.yaml --root ROOT"),
    ],
)
def test_an_error_as_json_has_every_field(
    lab: Lab, words: str, code: str, suggestion: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(Path(__file__).parents[2])
    said = ask(lab, *words.split(), "--json")
    assert (said.code, said.stderr) == (2, "")
    error = said.json["error"]
    assert list(error) == "code what file line key suggestion means todo retryable".split()
    told = error["suggestion"] and error["suggestion"].replace(str(lab.root), "ROOT")
    assert (error["code"], told) == (code, suggestion)
    todo = CODES[code].todo.replace("list`", f"list --root {lab.root}`")
    assert (error["means"], error["todo"]) == (CODES[code].means, error["suggestion"] or todo), "one advice"


def test_an_error_has_one_advice_and_a_selection_of_nothing_lists_what_there_is(lab: Lab) -> None:
    good = BAD.replace("promt: hello", "prompt: hello, script: s.yaml").replace(
        "codex_app_server", "[codex_app_server]"
    )
    (lab.folder / "good.yaml").write_text(good)
    (lab.folder / "s.yaml").write_text("version: 1\nsteps: [{say: hi}]\n")
    select = ("run", str(lab.folder / "good.yaml"), "--mission")
    assert ask(lab, *select, "oen").stderr == (
        "error  no mission has the id `oen`; the missions are: one\n"
        "  where  --mission\n"
        "  to do  Did you mean `one`?\n"
        "  code   spec.selection\n"
    )
    assert ask(lab, *select, "zzz").stderr == (
        "error  no mission has the id `zzz`; the missions are: one\n"
        "  where  --mission\n"
        "  to do  Select missions and tags that exist.\n"
        "  code   spec.selection\n"
    )
    assert ask(lab, "run", str(lab.folder / "goood.yaml")).stderr == (
        "error  this file does not exist\n"
        f"  where  {lab.folder / 'goood.yaml'}\n"
        f"  to do  Did you mean `{lab.folder / 'good.yaml'}`?\n"
        "  code   spec.unreadable\n"
    )


def test_list_alone_suggests_every_list_and_that_of_campaigns_first(lab: Lab) -> None:
    lines = ask(lab, "list").stderr.splitlines()
    assert [line[9:].partition(" --root")[0] for line in lines[1:5]] == [
        "proctor campaign list",
        "proctor attempt list",
        "proctor session list",
        "proctor runtimes list",
    ]


def test_missing_spec_suggests_a_similar_name_or_lists_the_specs_of_the_folder(lab: Lab) -> None:
    """All specs end with `.yaml`, which makes no two names similar."""
    for name, text in (("spec.yaml", BAD), ("notes.yaml", "a: 1\n"), ("empty.yaml", "\n")):
        (lab.folder / name).write_text(text)
    advice = {
        "nosuch.yaml": "Specs in that folder: spec.yaml.",
        "spce.yaml": f"Did you mean `{lab.folder / 'spec.yaml'}`?",
        "empty.yaml": "`proctor init` writes a first spec.",
    }
    for name, suggestion in advice.items():
        assert ask(lab, "run", str(lab.folder / name), "--json").json["error"]["suggestion"] == suggestion
    (lab.folder / "link.yaml").symlink_to("nowhere")
    assert ask(lab, "run", str(lab.folder / "link.yaml"), "--json").json["error"]["suggestion"] is None


def test_evidence_root_that_cannot_be_created_is_named(lab: Lab) -> None:
    spec = str(Path(__file__).parents[2] / "examples/quickstart.yaml")
    error = lab.proctor("run", spec, "--root", "/proc/nope")
    assert error.returncode == 3
    assert "error  cannot create /proc/nope: No such file or directory\n" in error.stderr
    assert "  to do  Pass another folder with --root.\n" in error.stderr


@pytest.mark.trust
@pytest.mark.parametrize("words", ["run good.yaml", "validate", "init", "runtimes conformance process"])
def test_interrupted_command_does_not_advise_to_resume_a_campaign(
    lab: Lab, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C arrives while the command looks at a folder, before there is a campaign."""

    def interrupted(*_: object) -> NoReturn:
        raise KeyboardInterrupt

    lab.root.mkdir()
    monkeypatch.chdir(lab.folder)
    with monkeypatch.context() as patch:
        patch.setattr("os.scandir", interrupted)
        patch.setattr("os.stat", interrupted)
        code, stderr = answer_with_stderr([*words.split(), *(() if "init" in words else ("--root", str(lab.root)))])
    assert code == 130
    assert stderr == "error  interrupted\n  to do  Run the command again.\n  code   run.interrupted\n"


def answer_with_stderr(words: list[str]) -> tuple[int, str]:
    stderr = io.StringIO()
    with redirect_stderr(stderr):
        return answer(words), stderr.getvalue()


@pytest.mark.trust
def test_error_has_one_advice_in_text_and_in_json(lab: Lab) -> None:
    """Every error with a suggestion prints it in place of the general advice of its code."""
    for words in ("rnu x.yaml", "validate --stric", "report", "run nowhere.yaml", "try Do --on nobody --offline"):
        said = ask(lab, *words.split())
        assert sum(line.startswith("  to do  ") for line in said.stderr.splitlines()) == 1, said.stderr
        error = ask(lab, *words.split(), "--json").json["error"]
        assert error["suggestion"] in (None, error["todo"])


@pytest.mark.parametrize("words", ["run x.yaml", "report", "validate", "attempt list", "attempt show x"])
def test_a_file_is_no_evidence_root(lab: Lab, words: str) -> None:
    lab.root.write_text("")
    (lab.folder / "x.yaml").write_text(BAD)
    said = ask(lab, *words.split(), "--json")
    assert (said.code, said.json["error"]["code"]) == (2, "evidence.root")
    assert said.json["error"]["what"] == f"{lab.root} is a file, not a folder"


def test_nothing_found_names_where_was_looked_and_offers_only_an_example_that_is_there(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(lab.folder)
    assert ask(lab, "attempt", "list").stdout == f"No attempts in {lab.root}.\n"
    run_one = f"Run a campaign with `proctor run SPEC --root {lab.root}`, or pass another evidence root with --root."
    for words in ("report", "campaign report", "campaign report nosuch", "validate"):
        assert ask(lab, *words.split(), "--json").json["error"]["suggestion"] == run_one
        said = ask(lab, *words.split()).stderr
        assert f"  to do  {run_one}\n" in said
        assert said.count("  to do") == 1, "one advice is enough"
    monkeypatch.chdir(Path(__file__).parents[2])
    first = f"To make some: proctor run examples/quickstart.yaml --root {lab.root}\n"
    assert ask(lab, "attempt", "list").stdout == f"No attempts in {lab.root}.\n{first}"


@pytest.mark.parametrize(
    ("words", "unknown", "meant"),
    [("rnu", "rnu", "run"), ("campain list", "campain", "campaign list"), ("rnu a.yaml", "rnu", "run a.yaml")],
)
def test_a_mistake_of_usage_has_one_hint(words: str, unknown: str, meant: str) -> None:
    stderr = io.StringIO()
    with redirect_stderr(stderr):
        assert answer(words.split()) == 2
    assert stderr.getvalue() == f"error  unknown command `{unknown}`\n  to do  proctor {meant}\n  code   usage\n"


def test_candidates_are_whole_commands_and_at_most_eight(lab: Lab) -> None:
    run = "20260101-120000-bbbbbb"
    for n in range(10):
        (lab.root / "runs" / run / "attempts" / f"fix{n}.codex.r1.1").mkdir(parents=True)
    tries = ask(lab, "attempt", "explain", "fix", "--json").json["error"]["suggestion"].splitlines()
    assert tries[0] == f"proctor attempt explain {run}/fix9.codex.r1.1 --json --root {lab.root}"
    assert (len(tries), tries[-1]) == (9, "and 2 more")


@pytest.mark.proctor_process
def test_ctrl_c_while_modules_are_imported_ends_without_a_traceback() -> None:
    program = """
import sys
class Interrupting:
    def find_spec(self, name, path=None, target=None):
        if name == "proctor.surface.cli.app":
            raise KeyboardInterrupt
sys.meta_path.insert(0, Interrupting())
sys.argv = ["proctor", "doctor"]
from proctor.__main__ import main
main()
"""
    said = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert (said.returncode, said.stdout, said.stderr) == (130, "", "")


def test_the_unforeseen_is_told_with_its_type_and_place_and_a_traceback_only_on_demand(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stumble(*_: object, **__: object) -> NoReturn:
        raise LookupError("nobody thought of it")

    monkeypatch.setattr("proctor.surface.cli.doctor.check_health", stumble)
    said = ask(lab, "doctor")
    assert (said.code, said.stdout) == (3, "")
    assert "error  LookupError: nobody thought of it\n  where  proctor/surface/cli/doctor.py:" in said.stderr
    assert "code   run.harness" in said.stderr
    assert "Traceback" not in said.stderr
    monkeypatch.setenv("PROCTOR_DEBUG", "1")
    assert "Traceback" in ask(lab, "doctor").stderr


def test_an_evidence_root_that_no_disk_could_hold_is_named(lab: Lab) -> None:
    error = lab.proctor("attempt", "list", "--root", "x" * 5000).stderr
    assert error.startswith("error  File name too long\n  where  xxxx")


def test_an_evidence_root_without_a_name_is_not_the_current_folder(lab: Lab) -> None:
    said = lab.proctor("attempt", "list", "--root", "")
    assert (said.returncode, said.stderr.splitlines()[0]) == (2, "error  argument --root: the path is empty")


@pytest.mark.proctor_process
def test_a_reader_that_leaves_early_is_no_error(lab: Lab) -> None:
    with started(lab, "doctor") as process:
        assert process.stdout is not None
        process.stdout.close()
        assert process.wait(timeout=60) == 0


@pytest.mark.proctor_process
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


@pytest.mark.requirement("surface.cli")
def test_help_is_no_wider_than_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    for words in ([], ["campaign"], *(name.split() for name in COMMANDS)):
        with suppress(SystemExit), redirect_stdout(io.StringIO()) as shown:
            answer([*words, "--help"])
        text, _, example = shown.getvalue().partition("\nexample:\n")
        assert example != ""
        assert [line for line in text.splitlines() if len(line) > 80] == [], words


def test_the_overview_names_every_command_and_exit_code(lab: Lab) -> None:
    said = lab.proctor()
    assert said.returncode == 0
    assert all(f"\n  {name} " in said.stdout for name in COMMANDS)
    assert "130 interrupted" in said.stdout
    assert lab.proctor("help").stdout == said.stdout
    assert lab.proctor("attempt").stdout.startswith("usage: proctor attempt COMMAND")


def test_where_the_current_folder_is_gone_that_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    stderr = io.StringIO()
    with redirect_stderr(stderr):
        assert answer(["campaign", "list"]) == 2
    assert "the current folder was deleted" in stderr.getvalue()
