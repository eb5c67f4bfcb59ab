"""`campaign lint`: all that is wrong is told at once, with its place, and nothing is started."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from proctor import places
from proctor.event.claim import FOOTER
from proctor.surface.cli.app import answer

Lint: TypeAlias = Callable[..., tuple[int, Any]]

SPEC = """\
version: 1
campaign: night
missions:
  - id: fix
    prompt: Fix it.
    script: say.yaml
    workspace: {copy: tree}
    probes: [{kind: headless_run, command: [cat, a.txt]}]
    tags: [quick]
  - {id: ask, prompt: What?, script: say.yaml}
flows: [{id: codex, runtime: [codex_app_server]}]
repeats: 2
template: careful.txt
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "tree").mkdir()
    (tmp_path / "tree" / "a.txt").write_text("one\n")
    (tmp_path / "say.yaml").write_text("version: 1\nsteps: [{say: hi}]\n")
    (tmp_path / "careful.txt").write_text("{{prompt}} On {{flow}}.")
    return tmp_path


@pytest.fixture
def lint(folder: Path, capsys: pytest.CaptureFixture[str]) -> Lint:
    """Writes the spec, and gives the exit code and what was said."""

    def ask(spec: str, *words: str, as_json: bool = True) -> tuple[int, Any]:
        (folder / "spec.yaml").write_text(spec)
        code = answer(["campaign", "lint", str(folder / "spec.yaml"), *words, *(["--json"] if as_json else [])])
        said = capsys.readouterr()
        assert said.err == ""
        return code, json.loads(said.out) if as_json else said.out

    return ask


def told(folder: Path, said: Any) -> list[tuple[Any, ...]]:
    """Each finding as (code, file, line, key)."""
    return [
        (each["code"], each["file"] and os.path.relpath(each["file"], folder), each["line"], each["key"])
        for each in said["findings"]
    ]


@pytest.mark.requirement("campaign.lint")
@pytest.mark.real_agent
def test_a_campaign_that_would_run_is_told_with_its_size(lint: Lint) -> None:
    assert lint(SPEC) == (
        0,
        {
            "ok": True,
            "findings": [],
            "warnings": [],
            "campaign": "night",
            "missions": ["fix", "ask"],
            "flows": ["codex"],
            "trials": 4,
        },
    )
    assert lint(SPEC, as_json=False) == (0, "night: 2 missions × 1 flow × 2 repeats = 4 trials; no errors found\n")


@pytest.mark.real_agent
def test_prompts_are_shown_as_they_will_be_asked_of_what_is_selected(lint: Lint) -> None:
    code, said = lint(SPEC, "--prompts", "--tag", "quick")
    assert (code, said["missions"], said["prompts"]) == (
        0,
        ["fix"],
        [{"missionId": "fix", "flowId": "codex", "prompt": f"Fix it. On codex.\n\n{FOOTER}\n"}],
    )
    text = lint(SPEC, "--prompts", as_json=False)[1]
    assert "fix in codex\n  Fix it. On codex.\n\n  When you are finished, end your last message with" in text


@pytest.mark.requirement("campaign.lint")
@pytest.mark.real_agent
def test_all_that_this_machine_or_the_files_would_refuse_is_told_at_once(lint: Lint, folder: Path) -> None:
    (folder / "say.yaml").write_text("version: 1\nsteps:\n  - {sya: hi}\n")
    (folder / "more.yaml").write_text("version: 1\nsteps: []\n")
    (folder / "tree" / "out").symlink_to("/etc/hostname")
    spec = SPEC.replace("[cat, a.txt]", "[no-such-judge]").replace("What?, script: say", "What?, script: more")
    spec = spec.replace(
        "flows: [{id: codex, runtime: [codex_app_server]}]",
        "flows:\n"
        "  - {id: codex, runtime: [codex_app_server], options: {codex_app_server: {max_turns: 1}}}\n"
        "  - {id: other, runtime: [codex_ap_server]}\n"
        "  - {id: real, runtime: [codex_app_server], model: {provider: lint-host, name: x}, login: api-key}\n"
        "hooks: {before: [no-such-hook], after: ./missing.sh}\n"
        "schedule: {parallel: 2, runtimes: {codex_app_server: 3}}",
    )
    code, said = lint(spec)
    assert code == 2
    assert told(folder, said) == [
        ("spec.unknown-key", "say.yaml", 3, "steps[0].sya"),
        ("spec.type", "more.yaml", 2, "steps"),
        ("spec.unknown-key", "spec.yaml", 12, "flows[0].options.codex_app_server"),
        ("spec.unknown-runtime", "spec.yaml", 13, "flows[1].runtime"),
        ("policy.login", "spec.yaml", 14, "flows[2].login"),
        ("spec.missing-file", "spec.yaml", 15, "hooks.before"),
        ("workspace.link-out", "spec.yaml", 7, "missions[0].workspace.copy"),
    ]
    assert said["warnings"] == [
        "mission `fix`, probe 1: `no-such-judge` is not installed on this machine, so the probe cannot verify anything",
        "`schedule.runtimes.codex_app_server` is 3, but has no effect: `schedule.parallel` is only 2",
    ]
    assert [each.name for each in places.cache_dir().iterdir() if each.name.startswith("lint-")] == []


@pytest.mark.requirement("campaign.lint")
def test_a_missing_agent_is_the_machines_and_not_the_specs(lint: Lint, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PROCTOR_CODEX", "/nowhere/codex")
    code, said = lint(SPEC)
    assert (code, [each["code"] for each in said["findings"]]) == (3, ["machine.binary-missing"])


@pytest.mark.requirement("campaign.lint")
def test_of_a_spec_from_a_newer_proctor_nothing_but_its_version_is_told(lint: Lint, folder: Path) -> None:
    code, said = lint("version: 2\ncampaign: Night\nfuture: {}\nflows: 3\n")
    assert (code, told(folder, said)) == (2, [("spec.version", "spec.yaml", 1, "version")])


@pytest.mark.requirement("campaign.lint")
def test_a_selection_of_nothing_is_told_of_the_word_that_made_it(lint: Lint) -> None:
    code, said = lint(SPEC, "--mission", "fxi", "--tag", "quick", "--glob", "z*")
    assert (code, [(each["key"], each["suggestion"]) for each in said["findings"]]) == (
        2,
        [("--mission", "Did you mean `fix`?"), ("--glob", None)],
    )


def test_people_get_a_block_for_each_problem_and_their_number(lint: Lint) -> None:
    code, said = lint(SPEC.replace("tags: [quick]", "tgas: [quick]").replace("repeats: 2", "repeats: 0"), as_json=False)
    assert code == 2
    assert said.count("error  ") == 2
    assert said.endswith("2 findings: the campaign cannot run\n")


@pytest.mark.requirement("campaign.lint")
@pytest.mark.real_agent
def test_a_scripted_patch_of_lines_that_the_workspace_does_not_have_is_warned_of(lint: Lint, folder: Path) -> None:
    (folder / "tree" / "a.txt").write_text("one\n  two\n")
    steps = [
        {"patch": {"file": "a.txt", "old": "one\ntwo", "new": "2"}},
        {"patch": {"file": "a.txt", "old": "2", "new": "3"}},
    ]
    (folder / "say.yaml").write_text(json.dumps({"version": 1, "steps": steps}))
    assert lint(SPEC)[1]["warnings"] == []
    steps = [{"patch": {"file": "a.txt", "old": "on", "new": "2"}}]
    (folder / "say.yaml").write_text(json.dumps({"version": 1, "steps": steps}))
    code, said = lint(SPEC)
    what = "a.txt does not have the lines that the patch replaces (it must quote whole lines)"
    assert (code, said["warnings"]) == (0, [f"mission `fix`, say.yaml: {what}"])


@pytest.mark.requirement("campaign.lint")
def test_where_git_is_missing_all_else_is_told_too(
    lint: Lint, folder: Path, monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    (folder / ".git").mkdir()
    monkeypatch.setenv("PATH", str(tmp_path_factory.mktemp("empty")))
    repositories = SPEC.replace("{copy: tree}", "{git: ., ref: HEAD}").replace("[cat, a.txt]", "[no-such-program]")
    _, said = lint(repositories + "hooks: {before: [no-such-hook]}\n")
    codes = [each["code"] for each in said["findings"]]
    assert {"machine.binary-missing", "spec.missing-file"} <= set(codes)
    assert "mission `fix`, probe 1: `no-such-program` is not installed" in said["warnings"][0]


@pytest.mark.requirement("campaign.lint")
def test_where_the_cache_cannot_be_written_all_else_is_told_too(
    lint: Lint, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "cache").write_text("a file")
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder / "cache"))
    _, said = lint(SPEC + "hooks: {before: [no-such-hook]}\n")
    assert {"machine.unwritable", "spec.missing-file"} <= {each["code"] for each in said["findings"]}


def test_a_hook_that_may_not_be_executed_is_not_called_missing(lint: Lint, folder: Path) -> None:
    (folder / "ready").write_text("#!/bin/sh\n")
    code, said = lint(f"{SPEC}hooks: {{before: [./ready]}}\n")
    assert code == 2
    assert [each["what"] for each in said["findings"]] == [f"{folder / 'ready'} is not executable"]


@pytest.mark.requirement("campaign.lint")
@pytest.mark.parametrize(
    ("expect", "is_warned"),
    [
        ("{answer: '4'}", True),
        ("{outcome: completed}", True),
        ("{answer: '4', verified: yes}", False),
        ("{outcome: timed_out}", False),
        ("{trace: {}}", False),
    ],
)
def test_expectation_that_replaces_the_one_about_probes_is_warned_of(lint: Lint, expect: str, is_warned: bool) -> None:
    spec = SPEC.replace("    tags: [quick]\n", f"    tags: [quick]\n    expect: {expect}\n")
    warnings = [each for each in lint(spec)[1]["warnings"] if "`verified`" in each]
    problem = "`expect` does not state `verified`, so a result that the probes refute is still as expected"
    assert warnings == ([f"mission `fix`: {problem}; add `verified: yes`"] if is_warned else [])
