"""`proctor try`: agents compared on a repository, now."""

import json
from pathlib import Path

import pytest
import yaml

from proctor.errors import InputError
from proctor.event.outcome import Outcome
from proctor.evidence.layout import RootPaths
from proctor.ids import AttemptId, RuntimeId
from proctor.report.campaign import build_report
from proctor.report.campaign_state import CampaignState, fold_rows
from proctor.spec.choices import Login
from proctor.spec.model import WorkspaceSpec
from proctor.surface.detect import DetectedAgent
from proctor.surface.try_agents import TryAgent, build_trial, side_by_side
from tests.lab import Lab, say_done
from tests.report.made import row
from tests.surface.conftest import ask
from tests.surface.repository import commit, git, make_repository, write

NO_ESTIMATE = "no estimate, because not every flow has an attempt with a known cost in this evidence root"
CODEX = DetectedAgent(name="codex", runtime_id=RuntimeId("codex_app_server"), provider="openai", login=Login.INHERIT)
CLAUDE = DetectedAgent(
    name="claude", runtime_id=RuntimeId("claude_code"), provider="anthropic", login=Login.TOKEN, token="MY_TOKEN"
)


@pytest.fixture
def repository(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(make_repository(lab.folder / "shop"))
    return lab.folder / "shop"


@pytest.mark.real_agent
@pytest.mark.requirement("surface.init")
def test_offline_each_agent_works_on_a_clone_and_all_are_shown_side_by_side(lab: Lab, repository: Path) -> None:
    steps = [{"patch": {"file": "calc.py", "content": "def add(a, b):\n    return b + a"}}, say_done()]
    script = lab.folder / "script.yaml"
    script.write_text(yaml.safe_dump({"version": 1, "steps": steps}))
    write(repository, {"calc.py": "not committed\n"})
    on = ("--on", "codex,codex_exec", "--probe", "grep -q 'b + a' calc.py")
    said = ask(lab, "try", "Turn it around", *on, "--script", str(script))
    assert said.code == 0, said.stderr
    rows = {line[:14].strip(): line[14:].split("  ") for line in said.stdout.splitlines()[:9]}
    shown = {name: [trial.strip() for trial in trials if trial.strip()] for name, trials in rows.items()}
    assert shown[""] == ["codex", "codex-exec"]
    assert (shown["outcome"], shown["verified"]) == (["completed"] * 2, ["yes"] * 2)
    assert shown["changes"] == ["1 file, +1 -1"] * 2
    assert shown["cost"] == ["$0.00"] * 2
    for attempt in ("task.codex.r1.1", "task.codex-exec.r1.1"):
        diff = lab.attempts()[attempt].workspace_diff
        assert str(diff) in said.stdout
        assert "+    return b + a" in diff.read_text()
    assert "without your uncommitted changes (1 file)\n" in said.stderr
    assert "Not verified" not in said.stdout
    assert "\nProbe: grep -q 'b + a' calc.py\n" in said.stdout
    assert "\n  codex and codex-exec made the same change:\n" in said.stdout
    assert (repository / "calc.py").read_text() == "not committed\n", "nobody touches the repository itself"
    # What was made on the spot is not what somebody wants to go on with.
    for words in (("campaign", "resume"), ("retry", "--only", "infra")):
        refused = ask(lab, *words, "--json")
        assert (refused.code, refused.json["error"]["code"]) == (2, "evidence.not-found")
    [campaign] = RootPaths(lab.root).campaigns()
    named = ask(lab, "campaign", "resume", campaign.folder.name, "--json")
    assert (named.code, named.json["error"]["code"]) == (2, "campaign.no-spec")


def test_of_several_attempts_the_one_that_counts_is_shown_with_what_it_cost() -> None:
    ids = [AttemptId(f"fix.codex.r1.{n}") for n in (1, 2, 3)]
    ends = (
        (Outcome.CRASHED, "peer.hangup", 0.1),
        (Outcome.COMPLETED, None, 0.2),
        (Outcome.CANCELLED, "run.cancelled", 0.3),
    )
    rows = (
        row(attempt_id=id_, outcome=outcome, code=code, usd=usd)
        for id_, (outcome, code, usd) in zip(ids, ends, strict=True)
    )
    [shown] = side_by_side(build_report(CampaignState(campaign_id=None, folded=fold_rows(rows))))
    assert (shown.attempt_id, shown.outcome, shown.usd) == (ids[1], Outcome.COMPLETED, 0.2)


@pytest.mark.real_agent
@pytest.mark.requirement("surface.init")
@pytest.mark.usefixtures("repository")
def test_why_a_probe_did_not_verify_and_that_no_model_is_asked_is_said(lab: Lab) -> None:
    said = ask(
        lab, "try", "Do it", "--on", "codex:gpt-5", "--offline", "--probe", "test -s no.py", "--progress", "rows"
    )
    assert said.code == 1, said.stderr
    rows = [json.loads(line)["type"] for line in Path("rows").read_text().splitlines()]
    assert (rows[0], rows[-1], "attempt.settled" in rows) == ("run.began", "run.ended", True)
    assert "the scripted model is used; gpt-5 is ignored\n" in said.stderr
    told = said.stdout.partition("\nNot verified:\n")[2].splitlines()[:2]
    assert told == [
        "  codex  `test -s no.py`: exited 1",
        "  The built-in script only adds PROCTOR-TRY.md; use --script FILE for another one.",
    ]


@pytest.mark.trust
@pytest.mark.parametrize(
    ("words", "what"),
    [
        ((), "`make test` passes already, so it cannot show that a task was done"),
        (("--probe", "test -s calc.py"), "`test -s calc.py` passes already, so it cannot show that a task was done"),
    ],
)
def test_try_refuses_a_probe_that_passes_already(lab: Lab, repository: Path, words: tuple[str, ...], what: str) -> None:
    write(repository, {"Makefile": "test:\n\ttest -s calc.py\n"})
    (repository / "tests/test_calc.py").unlink()
    commit(repository)
    error = ask(lab, "try", "Do it", "--on", "codex", "--offline", *words, "--json").json["error"]
    assert (error["code"], error["what"]) == ("task.nothing-fails", what)
    assert '`proctor try "…" --probe "COMMAND"' in error["suggestion"]
    assert not lab.root.exists()


@pytest.mark.trust
def test_try_offline_without_a_known_fix_says_how_to_write_a_script(lab: Lab, repository: Path) -> None:
    write(repository, {"Makefile": "test:\n\ttest -s NEWS\n"})
    (repository / "tests/test_calc.py").unlink()
    commit(repository)
    error = ask(lab, "try", "Write the news", "--on", "codex", "--offline", "--json").json["error"]
    assert error["code"] == "task.no-script"
    assert error["what"].startswith("none of the simple edits that Proctor tried makes `make test` pass")
    assert error["suggestion"].startswith("Write the fix yourself into proctor-scripts/first.yaml")


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("--on", "codex", "--yes"), "policy.login"),
        (("--on", "codex"), "policy.login"),
        (("--yes",), "policy.login"),
        (("--on", "nobody", "--offline"), "spec.unknown-runtime"),
        (("--on", "codex,codex", "--offline"), "usage"),
        (("--on", ",", "--offline"), "usage"),
    ],
)
@pytest.mark.usefixtures("repository")
def test_what_cannot_be_tried_is_refused_before_anything_runs(
    lab: Lab, words: tuple[str, ...], code: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("CODEX_HOME", "CLAUDE_CONFIG_DIR"):
        monkeypatch.setenv(name, str(lab.folder))
    for name in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "CODEX_ACCESS_TOKEN", "CLAUDE_CODE_OAUTH_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    said = ask(lab, "try", "Do it", *words, "--json")
    assert (said.code, said.json["error"]["code"]) == (InputError.exit, code)
    assert not lab.root.exists()


@pytest.mark.trust
@pytest.mark.usefixtures("repository")
def test_try_on_an_agent_that_is_not_installed_says_how_to_install_it(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PROCTOR_AGENTS", str(lab.folder))
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    said = ask(lab, "try", "Do it", "--on", "codex,claude", "--offline")
    assert (said.code, said.stdout) == (3, "")
    assert "Claude Code was not found: install claude-agent-sdk" in said.stderr
    assert "`pip install claude-agent-sdk==" in said.stderr
    assert "`make agents`" in said.stderr


@pytest.mark.usefixtures("repository")
def test_real_models_are_not_asked_before_somebody_agrees(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-0123456789")
    probe = ("--probe", "test -s NEWS")
    error = ask(lab, "try", "Do it", "--on", "codex:gpt-9", *probe, "--json").json["error"]
    assert (error["code"], error["what"]) == (
        "policy.spending",
        f"1 trial on openai/gpt-9 may cost money: {NO_ESTIMATE}",
    )
    dry = ask(lab, "try", "Do it", "--on", "codex:gpt-9", "--no-probe", "--dry-run", "--json")
    assert (dry.code, dry.json["trials"], dry.json["usd"]) == (0, ["task.codex.r1"], None)
    assert not lab.root.exists()


@pytest.mark.trust
def test_try_in_a_repository_without_a_commit_says_what_to_do(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    git(lab.folder, "init", "--quiet")
    monkeypatch.chdir(lab.folder)
    error = ask(lab, "try", "Do it", "--offline", "--json").json["error"]
    assert (error["code"], error["suggestion"]) == (
        "workspace.ref",
        "Run `git add --all` and `git commit`, then run it again.",
    )


def test_real_models_are_asked_with_the_login_that_is_there(repository: Path) -> None:
    contestants = [TryAgent(agent=CODEX, model="gpt-9"), TryAgent(agent=CLAUDE, model="sonnet")]
    spec = build_trial("Do it", contestants, folder=repository, workspace=WorkspaceSpec(), probe=None, script=None).spec
    told = [(flow.model and flow.model.name, flow.login, flow.token) for flow in spec.flows]
    assert told == [("gpt-9", Login.INHERIT, None), ("sonnet", Login.TOKEN, "MY_TOKEN")]
    assert json.dumps(spec.schedule.parallel) == "2"
