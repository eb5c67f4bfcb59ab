"""Agents cannot see what judges them: the spec's folder, scripts, evidence, frozen workspaces, Proctor's folders."""

import os
import shutil
import venv
from pathlib import Path
from typing import Any

import pytest

from proctor import places
from proctor.contain.bundled import CODEX_WHEEL, bundled_file
from proctor.contain.ladder import FORCE_VARIABLE
from proctor.runtime.codex.program import CODEX
from tests.lab import Lab, jsonl, mission, report_of, runner_ref_of, say_done
from tests.runtime.process.commands import flow as command_flow
from tests.workspace.repositories import git

pytestmark = [pytest.mark.real_agent, pytest.mark.requirement("probe.sight")]

ANSWER = "the-hidden-answer"
PROBE = {"kind": "headless_run", "command": "cat seen", "stdout": "seen\n"}
ENFORCED = {"hidden": ["spec", "scripts", "proctor", "evidence"], "isEnforced": True, "why": None}
NOTHING = "attempts processes runs tmp workspace seen\n"
"""What an agent prints that sees only the workspaces and homes of its run, and none of the copies for its probes."""
BY_ROOT = "can unmount what hides files"


class Hideout:
    """A lab in which every folder that judges holds the answer, as does a script outside the spec's folder."""

    def __init__(self, lab: Lab) -> None:
        self.lab = lab
        self.spec, self.elsewhere = lab.folder / "spec", lab.folder / "elsewhere"
        self.folders = (self.spec, lab.root, places.state_dir(), places.cache_dir())
        for folder in (*self.folders, self.elsewhere):
            folder.mkdir(exist_ok=True)
            (folder / "answer.txt").write_text(ANSWER)

    def run(self, flow: dict[str, Any], **top: Any) -> list[str]:
        """Let two agents look for the answer, one after the other. Return what each of them printed."""
        look = self.look()
        lab, workspace = self.lab, {"copy": self.lab.workspace("base", {"file": ANSWER[:3]})}
        work = [mission(id_, {"run": look}, say_done(), workspace=workspace, probes=[PROBE]) for id_ in ("one", "two")]
        file = lab.write_spec(work, flow={"id": "f", **flow}, schedule={"parallel": 1}, **top)
        script = (self.spec / "two.yaml").rename(self.elsewhere / "two.yaml")
        script.write_text(f"{script.read_text()}# {ANSWER}\n")
        file.write_text(file.read_text().replace("script: two.yaml", "script: ../elsewhere/two.yaml"))
        lab.run(file)
        lab.assert_all_evidence_is_valid()
        assert [report_of(paths).verified for paths in lab.attempts().values()] == [True, True]
        return [output for paths in lab.attempts().values() for output in printed(paths)]

    def look(self) -> str:
        # In two parts, so that the answer is not in what the agent keeps of its own commands.
        answer = f'"{ANSWER[:5]}""{ANSWER[5:]}"'
        cache = places.cache_dir()
        return "; ".join(
            (
                f"grep -rslF {answer} {' '.join(map(str, self.folders))} {self.elsewhere}/two.yaml",
                f"find {self.spec} {self.lab.root} {places.state_dir()} -mindepth 1",
                f"find {cache} -mindepth 1 -maxdepth 3 -printf '%f\\n' | sort | sed 1d | tr '\\n' ' '",
                f"find {cache} -mindepth 5 -maxdepth 5 -path '*/attempts/*' -printf '%f\\n' | sort -u | tr '\\n' ' '",
                "echo seen | tee seen $TMPDIR/seen",
            )
        )

    def facts(self) -> list[Any]:
        return [runner_ref_of(paths).facts["hiding"].value for paths in self.lab.attempts().values()]


def printed(paths: Any) -> list[str]:
    return [row["output"] for row in jsonl(paths.tool_calls)]


@pytest.fixture
def hideout(lab: Lab) -> Hideout:
    return Hideout(lab)


@pytest.mark.parametrize(
    "flow",
    [
        {"runtime": ["codex_app_server"], "isolation": "shared"},
        {"runtime": ["codex_app_server"], "isolation": "process"},
        {"runtime": ["codex_exec"]},
    ],
    ids=["shared", "process", "exec"],
)
def test_codex_sees_nothing_of_what_judges_it(hideout: Hideout, flow: dict[str, Any]) -> None:
    assert hideout.run(flow) == [NOTHING] * 2
    assert hideout.facts() == [ENFORCED] * 2


def test_codex_sees_nothing_of_what_judges_it_without_bwrap(hideout: Hideout, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(FORCE_VARIABLE, "unshare")
    assert hideout.run({}) == [NOTHING] * 2
    assert hideout.facts() == [ENFORCED] * 2


def test_agent_with_full_access_must_undo_hiding_to_see_what_judges_it(hideout: Hideout) -> None:
    assert hideout.run({"sandbox": "danger-full-access", "isolation": "process"}) == [NOTHING] * 2
    [fact, _] = hideout.facts()
    assert (fact["hidden"], fact["isEnforced"]) == (ENFORCED["hidden"], False)
    assert BY_ROOT in fact["why"]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can unmount")
def test_fact_says_that_an_agent_could_leave_its_sandbox(hideout: Hideout) -> None:
    assert hideout.run({"approvals": "accept"}) == [NOTHING] * 2
    [fact, _] = hideout.facts()
    assert not fact["isEnforced"]
    assert BY_ROOT in fact["why"]


@pytest.mark.parametrize("way", ["contain: none", "the containment `warden`"])
def test_fact_says_where_nothing_is_hidden(hideout: Hideout, monkeypatch: pytest.MonkeyPatch, way: str) -> None:
    if "warden" in way:
        monkeypatch.setenv(FORCE_VARIABLE, "warden")
    work = mission("look", {"run": f"cat {hideout.spec}/answer.txt"}, say_done())
    hideout.lab.run(hideout.lab.write_spec([work], flow={} if "warden" in way else {"contain": "none"}))

    [paths] = hideout.lab.attempts().values()
    assert printed(paths) == [ANSWER]
    [fact] = hideout.facts()
    assert (fact["hidden"], fact["isEnforced"]) == ([], False)
    assert way in fact["why"]


def test_fenced_command_sees_nothing_of_what_judges_it(lab: Lab) -> None:
    lab.is_other_agent_allowed = True
    hideout = Hideout(lab)
    flows = {
        "danger": command_flow(hideout.look(), sandbox="danger-full-access", isolation="process"),
        "fenced": command_flow(hideout.look()),
    }
    lab.run(lab.write_spec([mission("m", say_done())], flows=[{"id": id_, **flow} for id_, flow in flows.items()]))

    rows = [row for paths in lab.attempts().values() for row in jsonl(paths.transcript)]
    assert [row["text"] for row in rows if row["kind"] == "message"] == [NOTHING.strip()] * 2
    danger, fenced = hideout.facts()
    assert (danger["isEnforced"], fenced) == (False, ENFORCED)


# ── a spec at the root of a repository that holds its own environment ──


@pytest.fixture
def repository(lab: Lab) -> Path:
    """A repository with an environment that Codex is installed in. The spec and its script are not committed."""
    place = lab.folder / "spec"
    (place / "src").mkdir(parents=True)
    (place / "src" / "product.py").write_text("print('product')\n")
    git("init", "-q", cwd=place)
    git("add", "src", cwd=place)
    git("commit", "-qm", "first", cwd=place)
    (place / "answer.txt").write_text(ANSWER)
    venv.create(place / ".venv", symlinks=True)
    program = bundled_file(CODEX_WHEEL, CODEX.file)
    assert program is not None
    package = program.parent.parent
    [packages] = (place / ".venv" / "lib").glob("python*/site-packages")
    shutil.copytree(package, packages / package.name, copy_function=_link_or_copy)
    return place


def _link_or_copy(source: str, target: str) -> None:
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)


@pytest.mark.parametrize("runtime", ["codex_app_server", "codex_exec"])
def test_agent_in_the_environment_of_the_specs_repository_runs_and_does_not_see_the_repository(
    lab: Lab, repository: Path, monkeypatch: pytest.MonkeyPatch, runtime: str
) -> None:
    [program] = (repository / ".venv").glob(f"lib/*/site-packages/{CODEX_WHEEL}/{CODEX.file}")
    monkeypatch.setenv(CODEX.override, str(program))
    monkeypatch.setenv("PATH", f"{repository}/.venv/bin:{os.environ['PATH']}")
    look = f"ls -A {repository}; python -c 'import sys; print(sys.prefix)'; touch {repository}/.venv/x; ls; echo > made"
    work = mission("look", {"run": look}, say_done(), workspace={"git": ".", "ref": "HEAD"})
    lab.run(lab.write_spec([work], flow={"runtime": [runtime]}))

    [paths] = lab.attempts().values()
    [output] = printed(paths)
    assert output.splitlines()[:2] == [".venv", f"{repository}/.venv"]
    assert output.splitlines()[-1] == "src"
    assert "Read-only file system" in output
    assert "+++ b/made" in paths.workspace_diff.read_text()
    assert runner_ref_of(paths).facts["hiding"].value == ENFORCED


def test_spec_is_refused_if_a_script_lies_in_a_folder_that_the_agent_needs(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", f"{lab.folder}/spec/bin:{os.environ['PATH']}")
    file = lab.write_spec([mission("look", say_done())])
    (lab.folder / "spec" / "bin").mkdir()
    script = (lab.folder / "spec" / "look.yaml").rename(lab.folder / "spec" / "bin" / "look.yaml")
    file.write_text(file.read_text().replace("script: look.yaml", "script: bin/look.yaml"))

    refused = lab.proctor("run", str(file))

    assert refused.returncode == 2
    assert "policy.judge-visible" in refused.stderr
    assert str(script) in refused.stderr.replace("\n", "")
    assert not lab.attempts()
