"""`proctor init`: from a repository of one's own to a verified attempt in two commands."""

import json
import tempfile
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from proctor.errors import InputError
from proctor.ids import RuntimeId
from proctor.model.script import load_script
from proctor.spec.check_mission import suggest_id
from proctor.spec.load import load_spec
from proctor.spec.model import Login
from proctor.surface.cli.app import answer
from proctor.surface.detect import DetectedAgent, DetectedRepository, find_test_command, look_at_repository
from proctor.surface.git_exclude import to_do_first
from proctor.surface.init import KEPT_OUT, SCRIPT, SPEC, InitPlan, write_start
from tests.lab import Lab
from tests.surface.repository import commit, git, make_repository, write

CODEX = DetectedAgent(name="codex", runtime_id=RuntimeId("codex_app_server"), provider="openai", login=Login.API_KEY)
CLAUDE = DetectedAgent(
    name="claude", runtime_id=RuntimeId("claude_code"), provider="anthropic", login=Login.TOKEN, token="MY_TOKEN"
)
BARE = DetectedAgent(name="codex", runtime_id=RuntimeId("codex_app_server"), provider="openai", login=None)


def start(
    folder: Path, *agents: DetectedAgent, is_offline: bool = False, test_command: str | None = "make test"
) -> InitPlan:
    return InitPlan(
        folder=folder,
        agents=agents,
        repository=look_at_repository(folder),
        test_command=test_command,
        is_offline=is_offline,
    )


@pytest.mark.real_agent
@pytest.mark.requirement("surface.init")
def test_in_a_repository_of_ones_own_the_spec_it_writes_runs_and_is_verified(lab: Lab) -> None:
    make_repository(lab.folder)
    said = lab.proctor("init", "--offline", "--json", PROCTOR_AGENTS="/nowhere")
    told = json.loads(said.stdout)
    assert (said.returncode, told["testCommand"], told["isOffline"]) == (0, "python3 -m pytest -q", True)
    assert [each["name"] for each in told["agents"] if each["isUsed"]] == ["codex"]
    assert (
        git(lab.folder, "status", "--porcelain") == "?? evidence/\n" or git(lab.folder, "status", "--porcelain") == ""
    )
    ran = lab.proctor(*told["next"].split()[-2:], "--json", PROCTOR_AGENTS="/nowhere")
    assert ran.returncode == 0, ran.stderr
    [attempt] = json.loads(ran.stdout)["attempts"]
    assert (attempt["summary"]["outcome"], attempt["summary"]["claimed"], attempt["summary"]["verified"]) == (
        "completed",
        True,
        True,
    )
    diff = (lab.attempts()["notes.codex.r1.1"].workspace_diff).read_text()
    assert "+++ b/AGENT-NOTES.md" in diff


@pytest.mark.requirement("surface.init")
def test_with_logins_each_agent_has_a_flow_with_its_model_and_the_tests_are_the_probe(tmp_path: Path) -> None:
    folder = make_repository(tmp_path / "My Shop (2)")
    [file] = write_start(start(folder, CODEX, CLAUDE), is_forced=False)
    loaded = load_spec(file)
    assert loaded.spec.campaign == "my-shop-2"
    assert [(flow.id, flow.runtime, flow.model and flow.model.provider, flow.login) for flow in loaded.spec.flows] == [
        ("codex", ["codex_app_server"], "openai", Login.API_KEY),
        ("claude", ["claude_code"], "anthropic", Login.TOKEN),
    ]
    assert loaded.spec.flows[1].token == "MY_TOKEN"
    [mission] = loaded.missions
    assert [probe.command for probe in mission.probes] == ["test -s AGENT-NOTES.md && make test"]
    assert (mission.workspace.git, mission.workspace.ref, mission.script) == (".", "HEAD", None)


def test_only_agents_with_a_login_take_part_unless_it_is_offline(tmp_path: Path) -> None:
    folder = make_repository(tmp_path / "shop")
    [file] = write_start(start(folder, BARE, CLAUDE), is_forced=False)
    assert [flow.id for flow in load_spec(file).spec.flows] == ["claude"]
    write_start(start(folder, BARE, CLAUDE, is_offline=True), is_forced=True)
    assert [flow.id for flow in load_spec(file).spec.flows] == ["codex", "claude"]


def test_what_is_there_is_not_written_over_unless_forced(tmp_path: Path) -> None:
    folder = make_repository(tmp_path / "shop")
    write(folder, {SPEC: "mine", "AGENT-NOTES.md": "mine"})
    with pytest.raises(InputError) as caught:
        write_start(start(folder, BARE, is_offline=True), is_forced=False)
    assert (caught.value.code, caught.value.file) == ("usage", str(folder / SPEC))
    assert ((folder / SPEC).read_text(), (folder / SCRIPT).exists()) == ("mine", False)
    write_start(start(folder, BARE, is_offline=True), is_forced=True)
    [mission] = load_spec(folder / SPEC).missions
    assert [probe.command for probe in mission.probes] == ["test -s AGENT-NOTES-2.md"], "the first is there already"


def test_where_no_clone_can_be_made_the_first_mission_has_an_empty_folder(tmp_path: Path) -> None:
    folder = tmp_path / "loose"
    folder.mkdir()
    file, _ = write_start(start(folder, BARE, is_offline=True, test_command=None), is_forced=False)
    [mission] = load_spec(file).missions
    assert (mission.workspace.key, mission.prompt.endswith("in ten lines.")) == (None, True)


def test_the_spec_stays_out_of_commits_because_agents_must_not_see_it(tmp_path: Path) -> None:
    folder = make_repository(tmp_path / "shop")
    for _ in range(2):
        write_start(start(folder, BARE, is_offline=True), is_forced=True)
    assert git(folder, "status", "--porcelain", "--ignored").splitlines() == ["!! proctor-scripts/", "!! proctor.yaml"]
    assert (folder / ".git" / "info" / "exclude").read_text().count("proctor.yaml") == 1


@pytest.mark.requirement("surface.init")
@pytest.mark.parametrize("where", ["no-commit", "no-commit/sub [1]", "worktree"])
def test_the_spec_stays_out_of_commits_wherever_in_a_repository_it_lies(tmp_path: Path, where: str) -> None:
    """A repository without a commit, a subfolder, and a worktree, whose .git is a file."""
    (tmp_path / "no-commit").mkdir()
    git(tmp_path / "no-commit", "init", "--quiet")
    git(make_repository(tmp_path / "shop"), "worktree", "add", "--quiet", "--detach", str(tmp_path / "worktree"))
    folder = tmp_path / where
    folder.mkdir(exist_ok=True)
    write_start(start(folder, BARE, is_offline=True), is_forced=False)
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
    monkeypatch.chdir(make_repository(tmp_path / "shop", {SPEC: ""}))
    assert answer(["init", "--offline", "--force"]) == 0
    said = capsys.readouterr().out
    assert 0 < said.index("First: the history of HEAD contains proctor.yaml") < said.index("Next: ")


def test_without_an_agent_nothing_is_written(tmp_path: Path) -> None:
    with pytest.raises(InputError) as caught:
        write_start(start(tmp_path), is_forced=False)
    assert (caught.value.code, list(tmp_path.iterdir())) == ("machine.binary-missing", [])


def test_a_folder_that_is_not_there_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert answer(["init", str(tmp_path / "nowhere"), "--json"]) == 2
    assert json.loads(capsys.readouterr().out)["error"]["code"] == "usage"


def test_git_says_what_agents_can_work_on(tmp_path: Path) -> None:
    assert look_at_repository(tmp_path) == DetectedRepository(why_not="it is not the top of a git repository")
    git(tmp_path, "init", "--quiet")
    assert look_at_repository(tmp_path) == DetectedRepository(why_not="it has no commit yet")
    write(tmp_path, {"a.txt": "1\n"})
    commit(tmp_path)
    assert look_at_repository(tmp_path) == DetectedRepository(why_not=None)
    write(tmp_path, {"a.txt": "2\n", "new.txt": ""})
    assert look_at_repository(tmp_path) == DetectedRepository(why_not=None, changes=2)
    write(
        tmp_path, {".proctor/frames.jsonl": "", "proctor.yaml": "", "proctor-scripts/first.yaml": "", "new/too.txt": ""}
    )
    assert look_at_repository(tmp_path) == DetectedRepository(why_not=None, changes=3), "our own files do not count"
    write(tmp_path, {".gitmodules": ""})
    assert look_at_repository(tmp_path).why_not == "it has submodules"


@pytest.mark.requirement("surface.init")
@pytest.mark.parametrize(
    ("files", "command"),
    [
        ({}, None),
        ({"tests/deep/test_a.py": ""}, "python3 -m pytest -q"),
        ({"pyproject.toml": "[tool.pytest.ini_options]\n"}, "python3 -m pytest -q"),
        ({"pyproject.toml": "not TOML", "go.mod": ""}, "go test ./..."),
        ({"package.json": '{"scripts": {"test": "vitest"}}'}, "npm test"),
        ({"package.json": '{"scripts": {"test": "vitest"}}', "pnpm-lock.yaml": ""}, "pnpm test"),
        ({"package.json": '{"scripts": {"test": "echo \\"Error: no test specified\\""}}'}, None),
        ({"package.json": "[1]", "Makefile": "all:\n\ntest: all\n\ttrue\n"}, "make test"),
        ({"Makefile": "test := 1\n", "Cargo.toml": ""}, "cargo test"),
    ],
)
def test_how_tests_are_run_is_read_from_the_files(tmp_path: Path, files: dict[str, str], command: str | None) -> None:
    write(tmp_path, files)
    assert find_test_command(tmp_path) == command


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
            file, *_ = write_start(start(folder, CODEX, is_offline=is_offline), is_forced=True)
            loaded = load_spec(file)
            assert loaded.spec.campaign in (suggest_id(name), "first")
            assert [load_script(script).version for script in loaded.scripts.values()] == [1] * is_offline
