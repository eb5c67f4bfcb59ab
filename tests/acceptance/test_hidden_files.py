"""Hidden files: laid over the workspace when probes run, and out of the sight of every agent."""

from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import msgspec
import pytest

from proctor.errors import InputError
from proctor.evidence.artifacts import Judged
from tests.lab import Lab, mission, report_of, say_done

PROBE = {"kind": "headless_run", "command": "bash check.sh", "stdout": "right\n"}
CHECK = "test $(cat answer) = 42 && echo right\n"


def spec_of(lab: Lab, *steps: dict[str, Any], flow: dict[str, Any] | None = None, **more: Any) -> Any:
    hidden = lab.folder / "spec" / "hidden"
    hidden.mkdir(parents=True, exist_ok=True)
    (hidden / "check.sh").write_text(CHECK)
    workspace = {"copy": lab.workspace("base", {"answer": "0\n"})}
    task = mission("task", *steps, say_done(), probes=[PROBE], workspace=workspace, overlay="hidden", **more)
    return lab.write_spec([task], flow=flow or {})


@pytest.mark.long
@pytest.mark.real_agent
@pytest.mark.requirement("probe.tamper")
@pytest.mark.requirement("probe.sight")
def test_hidden_files_judge_the_work_of_codex_which_cannot_see_them(lab: Lab) -> None:
    look = f"find {lab.folder} -name check.sh >found 2>/dev/null; ls check.sh >>found 2>/dev/null; echo 42 >answer"
    lab.run(spec_of(lab, {"run": look}))
    [paths] = lab.attempts().values()
    report = report_of(paths)
    assert (report.verified, report.judged) == (True, Judged.OUTSIDE)
    diff = paths.workspace_diff.read_text()
    assert "found" in diff, "the agent looked for it"
    assert "check.sh" not in diff, "the agent found it"
    lab.assert_all_evidence_is_valid()


@pytest.mark.long
@pytest.mark.real_agent
@pytest.mark.requirement("probe.tamper")
def test_file_of_the_agent_does_not_replace_a_hidden_one(lab: Lab) -> None:
    lab.run(spec_of(lab, {"run": "echo 'echo right' >check.sh"}))
    [paths] = lab.attempts().values()
    assert report_of(paths).verified is False


@pytest.fixture
def elsewhere() -> Iterator[Path]:
    """A folder that is not in one of those which a fence always hides, unless this checkout is."""
    with TemporaryDirectory(dir=Path(__file__).parents[2], prefix=".spec-") as folder:
        yield Path(folder)


@pytest.mark.long
@pytest.mark.requirement("probe.outside")
@pytest.mark.requirement("probe.sight")
def test_product_finds_no_golden_or_solution_while_it_is_judged(lab: Lab, elsewhere: Path) -> None:
    lab.is_other_agent_allowed = True
    (elsewhere / "base").mkdir()
    (elsewhere / "base" / "answer.sh").write_text("echo nothing\n")
    (elsewhere / "golden.txt").write_text("expected 42\n")
    steal = f"cat {elsewhere}/golden.txt || grep -h expected {elsewhere}/*.yaml"
    (elsewhere / "cheat.patch").write_text(f"--- a/answer.sh\n+++ b/answer.sh\n@@ -1 +1 @@\n-echo nothing\n+{steal}\n")
    (elsewhere / "solution.patch").write_text(
        "--- a/answer.sh\n+++ b/answer.sh\n@@ -1 +1 @@\n-echo nothing\n+echo expected 42\n"
    )
    probe = {"kind": "stdout_golden", "cases": [{"command": ["bash", "answer.sh"], "golden": "golden.txt"}]}
    task = {"id": "task", "prompt": "Do it.", "workspace": {"copy": "base"}, "probes": [probe]}
    agent = {"process": {"command": f"echo '{steal}' >answer.sh"}}
    flow = {"id": "f", "runtime": ["process"], "options": agent}
    spec: dict[str, Any] = {"version": 1, "campaign": "steal", "flows": [flow]}
    (elsewhere / "script.yaml").write_bytes(msgspec.json.encode({"version": 1, "steps": [say_done()]}))
    spec["missions"] = [{**task, "script": "script.yaml", "solution": "solution.patch", "cheats": ["cheat.patch"]}]
    (elsewhere / "spec.yaml").write_bytes(msgspec.json.encode(spec))
    checked = lab.proctor("probe", "check", str(elsewhere / "spec.yaml"), "--runs", "1")
    assert checked.returncode == 0, checked.stdout
    lab.proctor("run", str(elsewhere / "spec.yaml"), "--yes")
    [paths] = lab.attempts().values()
    assert report_of(paths).verified is False, paths.probes.read_text()


@pytest.mark.requirement("probe.sight")
@pytest.mark.parametrize(
    ("flow", "what"),
    [
        ({"sandbox": "danger-full-access", "isolation": "process"}, "`sandbox: danger-full-access`"),
        ({"contain": "none"}, "`contain: none`"),
    ],
)
def test_mission_with_hidden_files_is_refused_where_its_agent_could_see_them(
    lab: Lab, flow: dict[str, Any], what: str
) -> None:
    with pytest.raises(InputError) as refused:
        lab.run(spec_of(lab, flow=flow))
    [error] = refused.value.all_errors
    assert (error.code, error.key, lab.attempts()) == ("policy.hidden-files", "missions[0].overlay", {})
    assert what in error.what


@pytest.mark.requirement("probe.sight")
def test_missing_folder_of_hidden_files_is_an_error_with_its_key(lab: Lab) -> None:
    spec = spec_of(lab)
    (lab.folder / "spec" / "hidden" / "check.sh").unlink()
    (lab.folder / "spec" / "hidden").rmdir()
    with pytest.raises(InputError) as refused:
        lab.run(spec)
    [error] = refused.value.all_errors
    assert (error.code, error.key) == ("spec.missing-file", "missions[0].overlay")


@pytest.mark.long
@pytest.mark.requirement("probe.outside")
@pytest.mark.parametrize(
    ("probe", "require", "code", "verified"),
    [
        ({"command": "test -e made"}, None, 0, "yes (inside)"),
        ({"command": "test -e made"}, "verified", 0, "yes (inside)"),
        ({"command": "test -e made"}, "outside", 4, "yes (inside)"),
        ({"command": "cat made", "stdout": "1\n"}, "outside", 0, "yes "),
        (None, None, 0, "no probe"),
        (None, "verified", 4, "no probe"),
    ],
)
def test_require_decides_what_counts_as_verified(
    lab: Lab, probe: dict[str, Any] | None, require: str | None, code: int, verified: str
) -> None:
    lab.is_other_agent_allowed = True
    probes = [] if probe is None else [{"kind": "headless_run", **probe}]
    flow = {"runtime": ["process"], "options": {"process": {"command": "echo 1 >made"}}}
    spec = lab.write_spec([mission("task", say_done(), probes=probes)], flow=flow)
    ran = lab.proctor("run", str(spec), *(() if require is None else ("--require", require)))
    assert ran.returncode == code, ran.stdout + ran.stderr
    assert verified in ran.stdout
    # The campaign remembers what was required of it.
    assert lab.proctor("campaign", "report").returncode == code
    [paths] = lab.attempts().values()
    report = paths.report
    forged = msgspec.json.decode(report.read_bytes())
    assert forged.get("judged") == ({"yes (inside)": "inside", "yes ": "outside"}.get(verified))
