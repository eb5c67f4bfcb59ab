"""The cases that a gate on runtime evidence must get right, each by the test of this folder that shows it.

The numbers are those of the list of cases; the letters are five situations that a first sketch of the gate verified.
Cases about resuming and the loop around an agent are not here: 2, 4, 18 to 24, 26.
"""

import ast
import json
from functools import cache
from pathlib import Path
from typing import get_args

import pytest

from proctor.errors import InputError
from proctor.evidence.artifacts import GateReason
from proctor.ids import Digest
from proctor.probe.gate import decide
from proctor.probe.kinds import KINDS
from proctor.probe.model import Phase, Verdict, require
from proctor.spec.command_probes import HeadlessRun
from proctor.spec.expect import ExpectedVerdict
from proctor.spec.load import load_spec
from proctor.spec.probes import ProbeSpec
from tests.lab import Lab, mission, say_done
from tests.probe.test_gate import BASE, NOW, row

FOLDER = Path(__file__).parent
HERE = Path(__file__).name
CASES = {
    "1 each verdict for goals and guards": (
        "test_gate.py::test_the_gate_agrees_with_a_brute_force_reading_of_every_two_rows"
    ),
    "3 evidence, then a file changes": f"{HERE}::test_evidence_about_other_content_says_nothing",
    "5 edited evidence": f"{HERE}::test_edited_probe_row_is_refused",
    "6 kind that raises or returns nothing": "test_run.py::test_a_kind_that_breaks_becomes_a_row_that_could_not_judge",
    "7 timeout with grandchildren": "test_run.py::test_a_probe_that_hangs_fails_and_its_whole_tree_is_gone",
    "8 100 MB of output": "test_run.py::test_endless_output_is_bounded_and_the_cut_is_stated",
    "9 output that is not UTF-8": "test_run.py::test_stdout_is_compared_to_the_last_byte",
    "10 string with &&": "test_run.py::test_a_string_is_given_to_a_real_shell_and_a_list_to_none",
    "11 links and paths out of the workspace": "test_run.py::test_link_to_content_that_is_in_no_evidence_is_left_out",
    "12 command that changes the tree": (
        "test_run.py::test_a_probe_works_on_a_copy_and_what_an_open_one_does_to_its_subject_is_seen"
    ),
    "13 probes at once on one port": "test_api_smoke.py::test_twenty_services_at_once_share_no_port",
    "14 service that never listens, exits early or ignores SIGTERM": (
        "test_api_smoke.py::test_api_smoke_fails_for_a_service_that"
    ),
    "15 flaky probe": "test_run.py::test_repeated_probe_records_every_run_and_gives_one_verdict",
    "16 unknown kind": f"{HERE}::test_unknown_kind_is_an_error_at_load",
    "17 mission without probes": "test_gate.py::test_zero_required_probes_are_never_verified_whatever_was_seen",
    "25 verification never turns a failure green": "test_gate.py::test_no_added_row_turns_a_no_into_a_yes",
    "27 placeholder that passes": f"{HERE}::test_every_kind_of_the_spec_is_judged_by_its_own_function",
    "a zero probes": "test_gate.py::test_zero_required_probes_are_never_verified_whatever_was_seen",
    "b later pass of the same kind": "test_gate.py::test_a_later_pass_of_a_probe_of_the_same_kind_hides_no_failure",
    "c failing probe without a criterion": (
        "test_gate.py::test_a_required_probe_that_fails_is_no_with_nothing_else_said_about_it"
    ),
    "d older pass, then a failure that changed the tree": (
        "test_gate.py::test_an_older_pass_does_not_outlive_a_failure_that_changed_the_tree"
    ),
    "e evidence of another command": "test_gate.py::test_evidence_of_another_command_of_the_same_kind_says_nothing",
}


@cache
def citations_of(file: str) -> dict[str, set[str]]:
    """The tests of a file, and the requirements that each cites."""
    tree = ast.parse((FOLDER / file).read_text())
    return {
        node.name: {
            str(argument.value)
            for decorator in node.decorator_list
            if isinstance(decorator, ast.Call) and ast.unparse(decorator.func) == "pytest.mark.requirement"
            for argument in decorator.args
            if isinstance(argument, ast.Constant)
        }
        for node in tree.body
        if isinstance(node, ast.FunctionDef)
    }


@pytest.mark.parametrize("case", CASES)
def test_case_has_a_test_that_cites_its_requirement(case: str) -> None:
    file, _, name = CASES[case].partition("::")
    assert any(row.startswith("probe.") for row in citations_of(file)[name]), CASES[case]


def test_every_case_about_probes_and_the_gate_is_here() -> None:
    numbers = {case.split()[0] for case in CASES}
    assert len(CASES) == len(numbers) == 22
    assert numbers == {"1", "3", *map(str, range(5, 18)), "25", "27", *"abcde"}


@pytest.mark.requirement("probe.gate")
def test_evidence_about_other_content_says_nothing() -> None:
    [probe] = require([HeadlessRun(command="one")])
    rows = [row(probe, Verdict.FAIL, phase=Phase.BASELINE, on=BASE), row(probe, Verdict.PASS, on=NOW)]
    assert decide([probe], rows, workspace_digest=NOW, base_digest=BASE).verified is ExpectedVerdict.YES
    changed = decide([probe], rows, workspace_digest=Digest("sha256:2"), base_digest=BASE)
    assert (changed.verified, changed.reason_codes) == (ExpectedVerdict.UNKNOWN, (GateReason.NOT_RUN,))


@pytest.mark.requirement("probe.gate")
def test_edited_probe_row_is_refused(lab: Lab) -> None:
    lab.is_other_agent_allowed = True
    probe = {"kind": "headless_run", "command": "test -e made"}
    flow = {"runtime": ["process"], "options": {"process": {"command": "true"}}}
    workspace = {"copy": lab.workspace("base", {"a.txt": "a\n"})}
    lab.run(lab.write_spec([mission("task", say_done(), probes=[probe], workspace=workspace)], flow=flow))
    [paths] = lab.attempts().values()
    assert lab.proctor("validate", "--strict", str(paths.folder)).returncode == 0
    paths.probes.write_text(paths.probes.read_text().replace('"verdict":"fail"', '"verdict":"pass"'))
    assert lab.proctor("validate", "--strict", str(paths.folder)).returncode == 5


@pytest.mark.requirement("probe.kinds")
def test_unknown_kind_is_an_error_at_load(tmp_path: Path) -> None:
    spec = {
        "version": 1,
        "campaign": "one",
        "missions": [{"id": "m", "prompt": "Do it.", "probes": [{"kind": "headless_rum", "command": "true"}]}],
        "flows": [{"id": "f", "runtime": ["codex_app_server"], "model": {"provider": "openai", "name": "x"}}],
    }
    file = tmp_path / "spec.yaml"
    file.write_text(json.dumps(spec, indent=1))
    with pytest.raises(InputError) as caught:
        load_spec(file)
    assert (caught.value.key, caught.value.suggestion) == ("missions[0].probes[0].kind", "Did you mean `headless_run`?")
    assert caught.value.line == file.read_text()[: file.read_text().index("headless_rum")].count("\n") + 1


@pytest.mark.requirement("probe.kinds")
def test_every_kind_of_the_spec_is_judged_by_its_own_function() -> None:
    kinds = {str(struct.__struct_config__.tag) for struct in get_args(ProbeSpec)}
    assert kinds == set(KINDS)
    assert len(set(KINDS.values())) == len(kinds)
