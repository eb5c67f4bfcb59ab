"""`proctor init`: from a repository of one's own to a verified attempt in two commands."""

import json
import tempfile
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from proctor.errors import InputError
from proctor.ids import Digest, RuntimeId
from proctor.model.script import Patch, load_script
from proctor.probe.missing import find_foreign_module
from proctor.probe.model import Phase, ProbeRow, Verdict
from proctor.spec.check_mission import suggest_id
from proctor.spec.choices import Login
from proctor.spec.load import load_spec
from proctor.spec.model import WorkspaceSpec
from proctor.surface.cli.app import answer
from proctor.surface.detect import KEPT_OUT, SPEC, DetectedAgent, DetectedFolder, find_test_commands, look_at_folder
from proctor.surface.first_task import FailingCommand, why_not_run
from proctor.surface.git_exclude import to_do_first
from proctor.surface.init import SCRIPT, InitPlan, refuse_existing, write_start
from proctor.surface.one_line_fix import candidates
from tests.lab import Lab
from tests.surface.repository import commit, git, make_repository, write

CODEX = DetectedAgent(name="codex", runtime_id=RuntimeId("codex_app_server"), provider="openai", login=Login.API_KEY)
CLAUDE = DetectedAgent(
    name="claude", runtime_id=RuntimeId("claude_code"), provider="anthropic", login=Login.TOKEN, token="MY_TOKEN"
)
BARE = DetectedAgent(name="codex", runtime_id=RuntimeId("codex_app_server"), provider="openai", login=None)
FIX = Patch(file="calc.py", old="    return a - b", new="    return a + b")
TESTED_BY_MAKE = {"calc.py": "add = 1\n", "Makefile": "test:\n\tgrep -q 'add = 1' calc.py\n"}
COLLECTED = "\n==== short test summary info ====\n!!!! Interrupted: 1 error during collection !!!!\n"
ABSENT = "E   ModuleNotFoundError: No module named '{}'"


def row(**more: object) -> ProbeRow:
    fields = {"verdict": Verdict.FAIL, "summary": "exited 1", "exit_code": 1, "argv": ("bash", "-c", "make test")}
    made = {"phase": Phase.BASELINE, "index": 0, "kind": "headless_run", "criterion": "c", **fields, **more}
    return ProbeRow(probe_digest=Digest("d"), workspace_digest=Digest("d"), **made)  # type: ignore[arg-type]


def start(
    folder: Path, *agents: DetectedAgent, is_offline: bool = False, task: str | None = None, fix: Patch | None = None
) -> InitPlan:
    return InitPlan(
        folder=folder,
        agents=agents,
        detected=look_at_folder(folder),
        failing=FailingCommand(command="make test", row=row()),
        task=task,
        is_offline=is_offline,
        fix=fix,
    )


@pytest.mark.trust
@pytest.mark.requirement("surface.init")
def test_init_in_a_repository_whose_tests_pass_asks_for_a_task_and_writes_nothing(lab: Lab) -> None:
    folder = make_repository(lab.folder / "shop", TESTED_BY_MAKE)
    said = Lab(folder).proctor("init", "--offline", "--json")
    error = json.loads(said.stdout)["error"]
    assert (said.returncode, error["code"]) == (2, "task.nothing-fails")
    assert error["what"] == "`make test` passes already, so it cannot show that a task was done"
    assert '`proctor init --task "…" --probe "COMMAND"`' in error["suggestion"]
    assert git(folder, "status", "--porcelain", "--ignored") == ""


@pytest.mark.trust
@pytest.mark.requirement("surface.init")
def test_init_without_a_test_command_asks_for_a_task(lab: Lab) -> None:
    said = lab.proctor("init", "--offline")
    assert said.returncode == 2
    assert "no test command was found in this folder" in said.stderr
    assert list(lab.folder.iterdir()) == []


@pytest.mark.long
@pytest.mark.trust
@pytest.mark.requirement("surface.init")
def test_init_takes_a_task_with_a_probe_that_fails_and_refuses_one_that_passes(lab: Lab) -> None:
    folder = make_repository(lab.folder / "shop", TESTED_BY_MAKE)
    words = ("init", "--offline", "--task", "Write a changelog", "--json", "--probe")
    assert Lab(folder).proctor(*words, "test -s calc.py").returncode == 2
    missing = Lab(folder).proctor(*words, "no-such-program CHANGES.md")
    assert "cannot be run: " in json.loads(missing.stdout)["error"]["what"]
    said = Lab(folder).proctor(*words, "test -s CHANGES.md")
    assert (said.returncode, json.loads(said.stdout)["hasFix"]) == (0, False)
    [mission] = load_spec(folder / SPEC).missions
    assert (mission.id, mission.prompt) == ("task", "Write a changelog")
    assert [probe.argv for probe in mission.probes] == [("bash", "-c", "test -s CHANGES.md")]
    assert "Write the fix yourself into proctor-scripts/first.yaml" in json.loads(said.stdout)["first"]
    steps = Lab(folder).proctor(*words[:4], "--force", "--probe", "test -s CHANGES.md").stdout
    assert "\nNext: " not in steps
    assert 0 < steps.index("\nFirst: None of the simple edits that Proctor tried") < steps.index("\nThen: proctor run ")


def test_init_and_try_refuse_tests_that_need_a_module_that_is_not_installed(lab: Lab) -> None:
    """No change of the code installs it, so the mission could not be solved."""
    files = {"Makefile": "test:\n\t@cat output; exit 2\n", "output": ABSENT.format("toolz") + COLLECTED}
    here = Lab(make_repository(lab.folder / "shop", files))
    for words in (("init",), ("try", "Make the failing tests pass", "--on", "codex")):
        said = here.proctor(*words, "--offline", "--json")
        error = json.loads(said.stdout)["error"]
        assert (said.returncode, error["code"]) == (3, "probe.cannot-run")
        assert error["what"].endswith("cannot import `toolz`, which no file of this folder provides")
        assert "Activate the environment in which your tests run, and call Proctor by its path." in error["suggestion"]
        assert "\n  E   ModuleNotFoundError: No module named 'toolz'\n" in said.stderr
    assert not (here.folder / SPEC).exists()
    assert here.proctor("init", "--offline", "--task", "Write toolz.py").returncode == 0


@pytest.mark.parametrize(
    ("output", "files", "module"),
    [
        (ABSENT.format("toolz") + COLLECTED, ["shop.py"], "toolz"),
        (ABSENT.format("toolz.curried") + COLLECTED, ["shop.py"], "toolz"),
        ("ImportError while loading conftest 'x'.\n" + ABSENT.format("toolz"), [], "toolz"),
        ("Failed to import test module: a\nModuleNotFoundError: No module named 'toolz'\n\n\n-----\n", [], "toolz"),
        (ABSENT.format("calc") + COLLECTED, ["tests/test_calc.py"], None),
        (ABSENT.format("shop.price") + COLLECTED, ["src/shop/__init__.py"], None),
        (ABSENT.format("my_shop") + COLLECTED, ["my-shop/setup.py"], None),
        (ABSENT.format("distutils") + COLLECTED, [], None),
        (ABSENT.format("tomli") + "\nE   ImportError: no TOML" + COLLECTED, [], None),
        (ABSENT.format("toolz") + "\n1 failed\n", [], None),
    ],
)
def test_module_that_the_repository_should_provide_is_not_foreign(
    output: str, files: list[str], module: str | None
) -> None:
    assert find_foreign_module(output, files=files) == module


@pytest.mark.parametrize(
    ("found", "reason"),
    [
        (row(), None),
        (row(verdict=Verdict.UNAVAILABLE, summary="bash is not on this machine"), "bash is not on this machine"),
        (row(exit_code=127, stderr_tail="bash: line 1: ./shop: No such file or directory\n"), None),
        (row(exit_code=5, argv=("bash", "-c", "python3 -m pytest -q")), "it found no test"),
        (row(timed_out=True, summary="did not end within 300 s"), "did not end within 300 s"),
    ],
)
def test_command_that_says_nothing_about_the_files_is_recognized(found: ProbeRow, reason: str | None) -> None:
    why = why_not_run(found)
    assert why is None if reason is None else why is not None and why.endswith(reason)


@pytest.mark.parametrize(
    ("line", "fixed", "test"),
    [
        ("    return a - b", "    return a + b", ""),
        ("    return sum(prices[1:])", "    return sum(prices)", ""),
        ("    return 'Hello, Bob'", "    return 'Hello, Ada'", "assert greet() == 'Hello, Ada'"),
        ("  if (n <= 10) {", "  if (n < 10) {", ""),
        ("limit = 9", "limit = 10", ""),
    ],
)
def test_common_mistakes_of_one_line_are_among_the_candidates(line: str, fixed: str, test: str) -> None:
    tried = [each.text for each in candidates({"calc.py": line}, tests={"test_calc.py": test}, output="")]
    assert fixed in tried[:12]


@pytest.mark.requirement("surface.init")
def test_with_logins_each_agent_has_a_flow_with_its_model_and_the_tests_are_the_probe(tmp_path: Path) -> None:
    folder = make_repository(tmp_path / "My Shop (2)")
    [file] = write_start(start(folder, CODEX, CLAUDE))
    loaded = load_spec(file)
    assert loaded.spec.campaign == "my-shop-2"
    assert [(flow.id, flow.runtime, flow.model and flow.model.provider, flow.login) for flow in loaded.spec.flows] == [
        ("codex", ["codex_app_server"], "openai", Login.API_KEY),
        ("claude", ["claude_code"], "anthropic", Login.TOKEN),
    ]
    assert loaded.spec.flows[1].token == "MY_TOKEN"
    [mission] = loaded.missions
    assert [probe.argv for probe in mission.probes] == [("bash", "-c", "make test")]
    assert mission.prompt.startswith("Make the failing tests pass: `make test` must exit with 0.")
    assert (mission.workspace.git, mission.workspace.ref, mission.script) == (".", "HEAD", None)


def test_only_agents_with_a_login_take_part_unless_it_is_offline(tmp_path: Path) -> None:
    folder = make_repository(tmp_path / "shop")
    [file] = write_start(start(folder, BARE, CLAUDE))
    assert [flow.id for flow in load_spec(file).spec.flows] == ["claude"]
    write_start(start(folder, BARE, CLAUDE, is_offline=True))
    assert [flow.id for flow in load_spec(file).spec.flows] == ["codex", "claude"]


def test_what_is_there_is_not_written_over_unless_forced(lab: Lab) -> None:
    folder = make_repository(lab.folder / "shop", {**TESTED_BY_MAKE, "calc.py": "add = 0\n"})
    write(folder, {SCRIPT: "mine"})
    with pytest.raises(InputError) as caught:
        refuse_existing(folder, is_offline=True)
    assert (caught.value.code, caught.value.file) == ("usage", str(folder / SCRIPT))
    refuse_existing(folder, is_offline=False)
    assert Lab(folder).proctor("init", "--offline").returncode == 2
    assert ((folder / SCRIPT).read_text(), (folder / SPEC).exists()) == ("mine", False)
    assert Lab(folder).proctor("init", "--offline", "--force").returncode == 0
    [step] = [each for each in load_script(folder / SCRIPT).steps if each.patch is not None]
    assert step.patch == Patch(file="calc.py", old="add = 0", new="add = 1")


def test_existing_spec_is_refused_before_agents_are_looked_for(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("proctor.surface.cli.init.find_agents", lambda _: pytest.fail("looked for agents"))
    write(lab.folder, {SPEC: "mine"})
    said = lab.proctor("init", "--json")
    assert (said.returncode, json.loads(said.stdout)["error"]["suggestion"]) == (2, "--force overwrites it.")


def test_script_without_a_fix_claims_nothing_and_says_where_to_write_it(tmp_path: Path) -> None:
    _, script = write_start(start(make_repository(tmp_path / "shop"), BARE, is_offline=True))
    assert '"done": false' in (load_script(script).steps[-1].say or "")  # type: ignore[operator]
    assert "None of the simple edits that Proctor tried makes the tests pass." in script.read_text()
    commented = [line[4:] for line in script.read_text().splitlines() if line.startswith("#   ")]
    shown = tmp_path / "shown.yaml"
    shown.write_text("version: 1\n" + "\n".join(commented))
    [patch, done] = load_script(shown).steps
    assert patch.patch is not None
    assert "with their indentation" in (patch.patch.old or "")
    assert '"done": true' in str(done.say)


@pytest.mark.trust
def test_folder_without_git_is_copied_without_the_files_of_proctor(tmp_path: Path) -> None:
    folder = tmp_path / "loose"
    write(folder, {"a.txt": "", ".venv/bin/x": "", ".proctor/health.db": ""})
    file, _ = write_start(start(folder, BARE, is_offline=True, fix=FIX))
    [mission] = load_spec(file).missions
    assert mission.workspace == WorkspaceSpec(copy=".", exclude=[*KEPT_OUT, ".venv"])


def test_the_spec_stays_out_of_commits_because_agents_must_not_see_it(tmp_path: Path) -> None:
    folder = make_repository(tmp_path / "shop")
    for _ in range(2):
        write_start(start(folder, BARE, is_offline=True))
    assert git(folder, "status", "--porcelain", "--ignored").splitlines() == ["!! proctor-scripts/", "!! proctor.yaml"]
    assert (folder / ".git" / "info" / "exclude").read_text().count("proctor.yaml") == 1


@pytest.mark.requirement("surface.init")
@pytest.mark.parametrize("where", ["shop/sub [1]", "worktree"])
def test_the_spec_stays_out_of_commits_wherever_in_a_repository_it_lies(tmp_path: Path, where: str) -> None:
    """A subfolder that is not committed, and a worktree, whose .git is a file."""
    git(make_repository(tmp_path / "shop"), "worktree", "add", "--quiet", "--detach", str(tmp_path / "worktree"))
    folder = tmp_path / where
    folder.mkdir(exist_ok=True)
    write_start(start(folder, BARE, is_offline=True))
    write(folder, {".proctor/frames.jsonl": ""})
    assert git(folder, "status", "--porcelain") == ""


@pytest.mark.requirement("surface.init")
def test_where_git_has_a_spec_already_it_says_what_to_do_about_it(tmp_path: Path) -> None:
    folder = make_repository(tmp_path / "shop")
    write(folder, {SPEC: ""})
    assert to_do_first(folder, KEPT_OUT) is None
    git(folder, "add", SPEC)
    staged = to_do_first(folder, KEPT_OUT)
    assert staged is not None
    assert staged.endswith("Run `git rm --cached proctor.yaml`.")
    commit(folder)
    git(folder, "rm", "--quiet", "--cached", SPEC)
    committed = to_do_first(folder, KEPT_OUT)
    assert committed is not None
    assert f"`workspace: {{git: {folder}, ref: HEAD}}`" in committed


@pytest.mark.real_agent
def test_what_to_do_first_is_said_before_what_is_next(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(make_repository(tmp_path / "shop", {**TESTED_BY_MAKE, "calc.py": "add = 0\n", SPEC: ""}))
    assert answer(["init", "--offline", "--force"]) == 0
    said = capsys.readouterr().out
    assert 0 < said.index("First: the history of HEAD contains proctor.yaml") < said.index("Then: ")


@pytest.mark.trust
def test_without_an_agent_nothing_is_written(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("proctor.surface.cli.init.find_agents", lambda _: ())
    said = lab.proctor("init", "--json")
    assert json.loads(said.stdout)["error"]["code"] == "machine.binary-missing"
    assert list(lab.folder.iterdir()) == []


def test_a_folder_that_is_not_there_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert answer(["init", str(tmp_path / "nowhere"), "--json"]) == 2
    error = json.loads(capsys.readouterr().out)["error"]
    assert (error["code"], error["suggestion"]) == ("usage", "Pass a folder that exists.")


@pytest.mark.trust
def test_folder_decides_what_agents_work_on(tmp_path: Path) -> None:
    copied = WorkspaceSpec(copy=".", exclude=list(KEPT_OUT))
    assert look_at_folder(tmp_path) == DetectedFolder(workspace=copied)
    git(tmp_path, "init", "--quiet")
    with pytest.raises(InputError, match="has no commit yet") as caught:
        look_at_folder(tmp_path)
    assert caught.value.suggestion == "Run `git add --all` and `git commit`, then run it again."
    write(tmp_path, {"a.txt": "1\n", "x/y/b.txt": ""})
    commit(tmp_path)
    cloned = WorkspaceSpec(git=".", ref="HEAD")
    assert look_at_folder(tmp_path) == DetectedFolder(workspace=cloned)
    below = DetectedFolder(workspace=WorkspaceSpec(git="../..", ref="HEAD"), below="x/y")
    assert look_at_folder(tmp_path / "x/y") == below
    assert below.command("make test") == "cd x/y && make test"
    write(tmp_path, {"a.txt": "2\n", "new.txt": "", "elsewhere/b.txt": ""})
    assert look_at_folder(tmp_path) == DetectedFolder(workspace=cloned, changes=3)
    assert look_at_folder(tmp_path / "elsewhere").workspace == copied, "git has nothing of it"
    write(tmp_path, {".proctor/frames.jsonl": "", "proctor.yaml": "", "proctor-scripts/first.yaml": ""})
    assert look_at_folder(tmp_path).changes == 3, "Proctor's own files do not count"
    write(tmp_path, {".gitmodules": ""})
    with pytest.raises(InputError, match="has submodules"):
        look_at_folder(tmp_path)


@pytest.mark.requirement("surface.init")
@pytest.mark.parametrize(
    ("files", "commands"),
    [
        ({}, []),
        ({"tests/deep/test_a.py": ""}, ["python3 -m pytest -q"]),
        ({"test_a.py": "import unittest\n"}, ["python3 -m pytest -q", "python3 -m unittest -q"]),
        ({"pyproject.toml": "[tool.pytest.ini_options]\n"}, ["python3 -m pytest -q"]),
        ({"pyproject.toml": "not TOML", "go.mod": ""}, ["go test ./..."]),
        ({"package.json": '{"scripts": {"test": "vitest"}}'}, ["npm test"]),
        ({"package.json": '{"scripts": {"test": "vitest"}}', "pnpm-lock.yaml": ""}, ["pnpm test"]),
        ({"package.json": '{"scripts": {"test": "echo \\"Error: no test specified\\""}}'}, []),
        ({"package.json": "[1]", "Makefile": "all:\n\ntest: all\n\ttrue\n"}, ["make test"]),
        ({"Makefile": "test := 1\n", "Cargo.toml": ""}, ["cargo test"]),
    ],
)
def test_how_tests_are_run_is_read_from_the_files(tmp_path: Path, files: dict[str, str], commands: list[str]) -> None:
    write(tmp_path, files)
    assert find_test_commands(tmp_path) == commands


@pytest.mark.long
@settings(max_examples=60, deadline=None)
@given(name=st.text(st.characters(exclude_characters="/\0", exclude_categories=["Cs"]), min_size=1, max_size=70))
@example(name="2024")
@example(name="1e3")
@example(name="yes")
@example(name="null")
@example(name="2026-01-01")
@example(name="a" * 39 + "-b")
@example(name="a" * 63 + "-b")
@example(name="!")
@example(name="\ufeff\x85\u2028")
@example(name="\udcff")
def test_whatever_the_folder_is_called_what_is_written_loads(name: str) -> None:
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place) / name
        try:
            folder.mkdir()
        except OSError:
            return  # no folder can be called so: "..", or too long a name
        for is_offline in (True, False):
            file, *_ = write_start(start(folder, CODEX, is_offline=is_offline, fix=FIX))
            loaded = load_spec(file)
            assert loaded.spec.campaign in (suggest_id(name), "first")
            assert [load_script(script).version for script in loaded.scripts.values()] == [1] * is_offline
