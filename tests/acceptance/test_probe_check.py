"""`probe check`: probes are tested on the untouched workspace, on the solution and on every cheat, without an agent."""

import json
import signal
from pathlib import Path
from typing import Any

import pytest

from proctor import places
from proctor.probe.kinds import KINDS
from proctor.probe.model import kind_of
from proctor.spec.load import load_spec
from tests.lab import Lab, mission, say_done, wait_until

EXAMPLES = Path(__file__).parents[2] / "examples" / "probes"
NEEDS_A_BROWSER = {"browser_smoke", "render_hash"}
"""`make browser` checks their examples."""

GREET = {"kind": "headless_run", "command": "sh greet.sh", "stdout": "Hello, Ada\n"}
WEAK = {"kind": "headless_run", "command": "sh greet.sh | grep -q Ada"}


def patch_of(new: str, *, old: str = "echo Hello", name: str = "greet.sh") -> str:
    return f"--- a/{name}\n+++ b/{name}\n@@ -1 +1 @@\n-{old}\n+{new}\n"


SOLUTION = patch_of("echo Hello, Ada")
CHEAT = patch_of("echo Ada")


def spec_of(
    lab: Lab, *probes: dict[str, Any], solution: str | None = SOLUTION, cheats: str = CHEAT, **more: Any
) -> Path:
    workspace = {"copy": lab.workspace("base", {"greet.sh": "echo Hello\n"})}
    folder = lab.folder / "spec"
    terms: dict[str, Any] = {"workspace": workspace, "probes": list(probes), **more}
    for key, text in (("solution", solution), ("cheats", cheats)):
        if text:
            (folder / f"{key}.patch").write_text(text)
            terms[key] = f"{key}.patch" if key == "solution" else [f"{key}.patch"]
    return lab.write_spec([mission("task", say_done(), **terms)])


def check(lab: Lab, spec: Path, *words: str) -> tuple[int, list[tuple[str, str, bool]]]:
    said = lab.proctor("probe", "check", str(spec), "--json", *words)
    [only] = json.loads(said.stdout)["specs"]
    trees = [tree for each in only["missions"] for tree in each["trees"]]
    return said.returncode, [(each["tree"], each["verified"], each["isAsRequired"]) for each in trees]


@pytest.mark.long
@pytest.mark.requirement("probe.check")
def test_probe_check_exits_0_if_only_the_solution_is_verified(lab: Lab) -> None:
    spec = spec_of(lab, GREET)
    before = sorted(lab.folder.rglob("*"))
    assert check(lab, spec) == (
        0,
        [("untouched", "no", True), ("solution", "yes", True), ("cheat", "no", True)],
    )
    assert sorted(lab.folder.rglob("*")) == before
    said = lab.proctor("probe", "check", str(spec.parent), "--runs", "1")
    assert said.returncode == 0
    assert [line.split() for line in said.stdout.splitlines()[1:5]] == [
        ["mission", "tree", "verdict", "as", "required"],
        ["task", "untouched", "not", "verified", "yes"],
        ["solution", "solution.patch", "verified", "yes"],
        ["cheat", "cheats.patch", "not", "verified", "yes"],
    ]
    assert said.stdout.endswith("1 mission, 3 trees, 1 run each: all as required\n")
    assert "3/3 task: cheat cheats.patch" in said.stderr


@pytest.mark.long
@pytest.mark.requirement("probe.check")
def test_probe_check_exits_1_if_a_listed_cheat_is_verified(lab: Lab) -> None:
    spec = spec_of(lab, WEAK)
    assert check(lab, spec, "--runs", "1") == (
        1,
        [("untouched", "no", True), ("solution", "yes", True), ("cheat", "yes", False)],
    )
    said = lab.proctor("probe", "check", str(spec), "--runs", "1")
    assert said.returncode == 1
    assert "task, cheat cheats.patch: the cheat must not be verified, and is" in said.stdout
    assert "probe 1 (headless_run): passes: exited 0" in said.stdout


@pytest.mark.long
@pytest.mark.requirement("probe.check")
def test_probe_check_exits_1_if_the_solution_is_not_verified(lab: Lab) -> None:
    spec = spec_of(lab, GREET, solution=patch_of("echo Goodbye; exit 3"), cheats="")
    said = lab.proctor("probe", "check", str(spec), "--runs", "1")
    assert said.returncode == 1
    assert "task, solution solution.patch: the solution must be verified, and is not" in said.stdout
    assert "stdout | Goodbye" in said.stdout


@pytest.mark.long
@pytest.mark.requirement("probe.check")
@pytest.mark.parametrize(
    ("probe", "why"),
    [
        ({"kind": "headless_run", "command": "true"}, "already passes on the untouched workspace"),
        ({"kind": "headless_run", "command": "true", "role": "guard"}, "the guard has no mutant"),
    ],
)
def test_probe_check_exits_1_if_a_probe_can_judge_no_work(lab: Lab, probe: dict[str, str], why: str) -> None:
    said = lab.proctor("probe", "check", str(spec_of(lab, GREET, probe, cheats="")), "--runs", "1")
    assert said.returncode == 1
    assert "task, untouched: a probe cannot tell work from no work" in said.stdout
    assert why in said.stdout


@pytest.mark.long
@pytest.mark.requirement("probe.check")
def test_probe_check_reports_how_often_a_probe_was_flaky(lab: Lab) -> None:
    # The untouched workspace lacks the name. With it, the probe alternates, by a file that no view contains.
    counter = lab.folder / "counter"
    counter.write_text("")
    alternate = f"grep -q Ada greet.sh && echo >>{counter} && test $(( $(wc -l <{counter}) % 2 )) = 0"
    flaky = {"kind": "headless_run", "command": alternate, "contain": "none"}
    spec = spec_of(lab, flaky, cheats="")
    said = lab.proctor("probe", "check", str(spec), "--runs", "4")
    assert said.returncode == 1
    expected = "flaky: task, probe 1 (headless_run), on solution solution.patch: 2 of 4 runs differ"
    assert f"{expected} (fail, pass, fail, pass)" in said.stdout
    assert "the probe failed and passed on the same content" in said.stdout


@pytest.mark.requirement("probe.check")
@pytest.mark.parametrize("key", ["solution", "cheats"])
def test_probe_check_exits_2_with_file_and_key_if_a_patch_does_not_apply(lab: Lab, key: str) -> None:
    broken: dict[str, Any] = {key: patch_of("echo Hello, Ada", old="echo Goodbye")}
    said = lab.proctor("probe", "check", str(spec_of(lab, GREET, **broken)), "--json")
    error = json.loads(said.stdout)["error"]
    assert (said.returncode, error["code"]) == (2, "workspace.patch")
    assert error["key"] == f"missions[0].{key}{'[0]' if key == 'cheats' else ''}"
    assert error["file"].endswith("spec.yaml")
    assert error["line"] is not None
    assert "patch does not apply" in error["what"]


@pytest.mark.requirement("probe.check")
@pytest.mark.parametrize("terms", [{"solution": "gone.patch"}, {"cheats": ["gone.patch"]}])
def test_missing_solution_or_cheat_is_an_error_at_load(lab: Lab, terms: dict[str, Any]) -> None:
    [key] = terms
    spec = lab.write_spec([mission("task", say_done(), probes=[GREET], **terms)])
    for words in (("probe", "check"), ("campaign", "lint")):
        said = lab.proctor(*words, str(spec), "--json")
        found = json.loads(said.stdout)
        error = found["error"] if "error" in found else found["findings"][0]
        assert (said.returncode, error["code"]) == (2, "spec.missing-file")
        assert error["key"] == f"missions[0].{key}{'[0]' if key == 'cheats' else ''}"
        assert error["line"] is not None


@pytest.mark.requirement("probe.check")
def test_workspace_that_contains_the_solution_is_refused(lab: Lab) -> None:
    workspace = {"copy": lab.workspace("base", {"fix.patch": SOLUTION})}
    spec = lab.write_spec([mission("task", say_done(), workspace=workspace, probes=[GREET], solution="base/fix.patch")])
    said = lab.proctor("probe", "check", str(spec))
    assert said.returncode == 2
    assert "contains fix.patch, which the agent must not see" in said.stderr


def test_probe_check_exits_4_if_no_mission_has_a_probe(lab: Lab) -> None:
    said = lab.proctor("probe", "check", str(lab.write_spec([mission("task", say_done())])))
    assert said.returncode == 4
    assert "no probe" in said.stdout


def test_probe_check_says_that_a_mission_has_no_solution(lab: Lab) -> None:
    said = lab.proctor("probe", "check", str(spec_of(lab, GREET, solution=None, cheats="")), "--runs", "1")
    assert said.returncode == 0
    assert "task has no `solution`, so nothing shows that its probes can verify anything" in said.stdout


def test_probe_check_exits_3_if_a_probe_cannot_run_on_this_machine(lab: Lab) -> None:
    missing = {"kind": "headless_run", "command": ["no-such-program-here"]}
    said = lab.proctor("probe", "check", str(spec_of(lab, missing, cheats="")), "--runs", "1")
    assert said.returncode == 3
    assert "CANNOT RUN" in said.stdout


@pytest.mark.long
@pytest.mark.requirement("probe.check")
@pytest.mark.requirement("probe.kinds")
@pytest.mark.parametrize("kind", sorted(set(KINDS) - NEEDS_A_BROWSER))
def test_example_mission_of_each_kind_is_verified_by_its_solution_alone(lab: Lab, kind: str) -> None:
    # The second run on the untouched workspace must be judged like the first.
    runs = "2" if kind == "test_suite_parity" else "1"
    said = lab.proctor("probe", "check", str(EXAMPLES / f"{kind}.yaml"), "--runs", runs)
    assert said.returncode == 0, said.stdout


def test_every_kind_has_an_example_mission_with_a_solution_and_a_cheat() -> None:
    assert {file.stem for file in EXAMPLES.glob("*.yaml")} == set(KINDS)
    for kind in KINDS:
        [example] = load_spec(EXAMPLES / f"{kind}.yaml").missions
        assert kind in {kind_of(probe) for probe in example.probes}
        assert (example.solution is not None, len(example.cheats) > 0) == (True, True)


@pytest.mark.long
@pytest.mark.proctor_process
@pytest.mark.requirement("probe.check")
def test_probe_check_that_is_interrupted_leaves_nothing_behind(lab: Lab) -> None:
    marker = lab.folder / "running"
    slow = {"kind": "headless_run", "command": f"touch {marker}; sleep 300", "contain": "none", "timeout": "300s"}
    spec = spec_of(lab, slow)
    process = lab.start("probe", "check", str(spec))
    try:
        wait_until(marker.exists)
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=60) == 130
    finally:
        process.kill()
        process.wait()
    assert list((places.cache_dir() / "runs").glob("*")) == []
    assert list(places.spawns_dir().glob("*")) == []
    assert not lab.root.exists()
