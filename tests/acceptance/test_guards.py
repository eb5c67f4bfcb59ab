"""Guards: a probe that must keep passing, and whose mutant shows that it can fail."""

from typing import Any

import pytest

from proctor.errors import InputError
from proctor.evidence.layout import PROBES
from tests.lab import Lab, jsonl, mission, report_of, say_done

GOAL = {"kind": "headless_run", "command": "test -e made", "criterion": "It is made."}
OLD = {"kind": "headless_run", "command": "grep -q '^safe$' calc.txt", "role": "guard", "criterion": "It stays safe."}
MUTANT = "--- a/calc.txt\n+++ b/calc.txt\n@@ -1 +1 @@\n-safe\n+broken\n"
HARMLESS = MUTANT.replace("+broken", "+safe\n+more").replace("+1 @@", "+1,2 @@")


def spec_of(lab: Lab, *probes: dict[str, Any], mutant: str = MUTANT, command: str = "touch made", **more: Any) -> Any:
    spec = lab.folder / "spec"
    spec.mkdir(exist_ok=True)
    (spec / "mutant.patch").write_text(mutant)
    lab.is_other_agent_allowed = True
    workspace = {"copy": lab.workspace("base", {"calc.txt": "safe\n"})}
    flow = {"runtime": ["process"], "options": {"process": {"command": command}}}
    return lab.write_spec([mission("task", say_done(), probes=list(probes), workspace=workspace, **more)], flow=flow)


@pytest.mark.long
@pytest.mark.requirement("probe.roles")
@pytest.mark.parametrize(
    ("command", "verified", "criteria"),
    [
        ("touch made", True, [True, True]),
        ("touch made; echo broken >calc.txt", False, [True, False]),
        ("echo safe >other.txt", False, [False, True]),
        ("true", False, [False, True]),
    ],
)
def test_goal_and_guard_verify_together(lab: Lab, command: str, verified: bool, criteria: list[bool]) -> None:
    lab.run(spec_of(lab, GOAL, {**OLD, "mutant": "mutant.patch"}, command=command))
    [paths] = lab.attempts().values()
    report = report_of(paths)
    assert report.verified is verified
    assert [(each.criterion, each.verified) for each in report.criteria] == [
        ("It is made.", criteria[0]),
        ("It stays safe.", criteria[1]),
    ]
    rows = [(row["phase"], row["role"], row["verdict"]) for row in jsonl(paths.folder / PROBES)]
    assert rows[:3] == [("baseline", "goal", "fail"), ("baseline", "guard", "pass"), ("mutant", "guard", "fail")]
    explained = " ".join(lab.proctor("attempt", "explain", str(paths.folder)).stdout.split())
    after = "pass" if criteria[1] else "fail"
    assert f"It stays safe. `grep -q '^safe$' calc.txt` before pass mutant fail after {after}" in explained
    lab.assert_all_evidence_is_valid()


@pytest.mark.long
@pytest.mark.requirement("probe.roles")
def test_agent_that_does_nothing_has_failed_where_only_guards_judge(lab: Lab) -> None:
    done = lab.run(spec_of(lab, {**OLD, "mutant": "mutant.patch"}, command="true"))
    [attempt] = done.attempts
    assert attempt.summary is not None
    assert (attempt.summary.verified, attempt.summary.result) == (None, "failed")
    assert attempt.summary.reason_codes == ("unchanged",)
    lab.assert_all_evidence_is_valid()


@pytest.mark.requirement("probe.roles")
@pytest.mark.parametrize(
    ("guard", "mutant", "code", "what"),
    [
        (OLD, HARMLESS, "probe.passes-mutant", "the guard passes on its mutant `mutant.patch`"),
        (
            {**OLD, "command": "grep -q new calc.txt"},
            MUTANT,
            "probe.fails-untouched",
            "the guard fails on the untouched",
        ),
        (OLD, MUTANT.replace("-safe", "-other"), "workspace.patch", "`mutant.patch` does not apply"),
    ],
)
def test_guard_that_can_judge_nothing_stops_the_run_before_work_begins(
    lab: Lab, guard: dict[str, Any], mutant: str, code: str, what: str
) -> None:
    with pytest.raises(InputError) as refused:
        lab.run(spec_of(lab, GOAL, {**guard, "mutant": "mutant.patch"}, mutant=mutant))
    [error] = refused.value.all_errors
    assert (error.code, lab.attempts()) == (code, {})
    assert what in str(error)
    assert (error.key or "").startswith("missions[0].probes[1]")


@pytest.mark.requirement("probe.roles")
def test_guard_without_a_mutant_is_a_lint_finding_and_leaves_the_mission_unverified(lab: Lab) -> None:
    spec = spec_of(lab, GOAL, OLD)
    linted = lab.proctor("campaign", "lint", str(spec))
    assert "mission `task`, probe 2: a guard without `mutant` leaves the mission unverified" in linted.stdout
    [attempt] = lab.run(spec).attempts
    assert attempt.summary is not None
    assert (attempt.summary.verified, attempt.summary.unjudged) == (None, "no-mutant")


@pytest.mark.long
@pytest.mark.requirement("probe.gate")
def test_waived_criterion_ends_unverified_and_is_on_record(lab: Lab) -> None:
    waiver = {"criterion": "It stays safe.", "by": "Ada", "why": "rewritten next week"}
    command = "touch made; echo broken >calc.txt"
    spec = spec_of(lab, GOAL, {**OLD, "mutant": "mutant.patch"}, command=command, waive=[waiver])
    [attempt] = lab.run(spec).attempts
    assert attempt.summary is not None
    assert (attempt.summary.verified, attempt.summary.unjudged) == (None, "waived")
    [paths] = lab.attempts().values()
    assert [(each.verified, each.waived_by) for each in report_of(paths).criteria] == [(True, None), (None, "Ada")]
    assert any("waived by Ada: rewritten next week" in reason for reason in report_of(paths).reasons)
    lab.assert_all_evidence_is_valid()


@pytest.mark.requirement("probe.roles")
@pytest.mark.parametrize(
    ("change", "key", "what"),
    [
        ({"mutant": "missing.patch"}, "probes[1].mutant", "`missing.patch` does not exist"),
        ({"mutant": "mutant.patch", "role": "goal"}, "probes[1].mutant", "`mutant` has no effect on a goal"),
    ],
)
def test_wrong_mutant_is_an_error_at_load(lab: Lab, change: dict[str, str], key: str, what: str) -> None:
    with pytest.raises(InputError) as refused:
        lab.run(spec_of(lab, GOAL, {**OLD, **change}))
    [error] = refused.value.all_errors
    assert error.key == f"missions[0].{key}"
    assert what in str(error)
    assert error.line is not None


def test_waiver_of_an_unknown_criterion_is_an_error_at_load(lab: Lab) -> None:
    waiver = {"criterion": "It is fast.", "by": "Ada", "why": "no time"}
    with pytest.raises(InputError, match="no probe of the mission has the criterion `It is fast"):
        lab.run(spec_of(lab, GOAL, waive=[waiver]))
