"""Why a result failed, as each report shows it, whatever agents and probes wrote."""

from pathlib import Path
from xml.etree import ElementTree

import msgspec
import pytest

from proctor.evidence.artifacts import DiffExcerpt, FailedProbe, FailureExcerpt, FileExcerpt
from proctor.evidence.layout import AttemptPaths
from proctor.ids import AttemptId, Digest, MissionId
from proctor.probe.failure import failure_of
from proctor.probe.model import Phase, ProbeRow, Verdict
from proctor.report.campaign import CampaignReport
from proctor.report.explanation import explain
from proctor.report.explanation_text import render_commands, render_explanation
from proctor.report.failures import failure_lines
from proctor.report.junit import render_junit
from proctor.report.markdown import render_markdown
from proctor.report.row import AttemptRow
from proctor.report.text import render_report
from proctor.report.view import AttemptView
from proctor.spec.argv import argv_of
from tests.report.made import report, row
from tests.report.test_text import report_of, shown

pytestmark = [pytest.mark.trust, pytest.mark.requirement("campaign.report")]

NOW = Digest("sha256:now")
HOSTILE = (
    "\x1b[2J\x1b]0;owned\x07\u202egnp.exe\u2066\x85\x0b\x00\ufffe\ud800"
    "</failure><![CDATA[|`*_[x](javascript:1)]<script>\n# heading\n```\n\t| a | b |" + "é" * 9000
)


def probe_row(**changes: object) -> ProbeRow:
    probe = ProbeRow(
        criterion="It works.",
        phase=Phase.FINAL,
        index=0,
        kind="headless_run",
        probe_digest=Digest("sha256:probe"),
        workspace_digest=NOW,
        verdict=Verdict.FAIL,
        summary="exited 1",
        argv=argv_of("make test"),
        exit_code=1,
        stdout_tail="collected 3\n1 failed\n",
        stderr_tail="E  assert 1 == 2\n",
    )
    return msgspec.structs.replace(probe, **changes)


def failed(n: int, failure: FailureExcerpt | None) -> AttemptRow:
    made = row(
        attempt_id=AttemptId(f"m{n}.codex.r1.1"), mission_id=MissionId(f"m{n}"), verified=False, reasons=("exited 1",)
    )
    assert made.summary is not None
    return msgspec.structs.replace(made, summary=msgspec.structs.replace(made.summary, failure=failure))


def of_row(probe: ProbeRow, diff: str = "") -> FailureExcerpt:
    found = failure_of([probe], diff, workspace_digest=NOW, verified=False, is_met=None)
    assert found is not None
    return found


def hostile_report() -> CampaignReport:
    probe = probe_row(argv=argv_of(HOSTILE), summary=HOSTILE[:500], stdout_tail=HOSTILE, stderr_tail=HOSTILE)
    file = FileExcerpt(file=HOSTILE[:300], added=1, removed=0, lines=(HOSTILE,), lines_left_out=7)
    diff = DiffExcerpt(files=(file,), files_left_out=1, generated_files=2, generated_lines=3, other_paths=1)
    return report_of(failed(1, msgspec.structs.replace(of_row(probe), diff=diff)))


def test_failure_names_the_command_its_exit_status_and_its_last_lines() -> None:
    assert failure_lines(failed(1, of_row(probe_row()))) == [
        "`make test`: exited 1",
        "  collected 3",
        "  1 failed",
        "  stderr:",
        "  E  assert 1 == 2",
        "changes to the workspace: none",
    ]


def test_failure_keeps_the_end_of_both_streams() -> None:
    numbers = "\n".join(map(str, range(100)))
    [probe] = of_row(probe_row(stdout_tail=numbers, stderr_tail="one\ntwo")).probes
    assert (probe.stdout[-1], probe.stderr, len(probe.stdout)) == ("99", ("one", "two"), 8)
    [probe] = of_row(probe_row(stdout_tail=numbers, stderr_tail=numbers)).probes
    assert (len(probe.stdout), len(probe.stderr)) == (5, 5)


def test_result_that_did_not_fail_has_no_failure() -> None:
    passed = probe_row(verdict=Verdict.PASS)
    assert failure_of([passed], "", workspace_digest=NOW, verified=True, is_met=None) is None
    cannot_judge = probe_row(verdict=Verdict.UNAVAILABLE, summary="make is not on this machine")
    found = failure_of([cannot_judge], "", workspace_digest=NOW, verified=None, is_met=None)
    assert found is not None
    assert found.probes[0].verdict == "unavailable"


def test_failure_is_bounded() -> None:
    text = HOSTILE.replace("\ud800", "")
    rows = [probe_row(index=n, stdout_tail=text, stderr_tail=text, summary=text[:500]) for n in range(40)]
    found = failure_of(rows, text, workspace_digest=NOW, verified=False, is_met=False)
    assert found is not None
    assert (len(found.probes), found.probes_left_out) == (2, 38)
    assert len(msgspec.json.encode(found.probes)) < 20_000


def test_report_explains_three_failures_and_says_how_to_see_the_others() -> None:
    text = shown(render_report(report_of(*(failed(n, of_row(probe_row())) for n in range(5))), title="t"))
    assert text.count("`make test`: exited 1") == 3
    assert "  … 2 more failed attempts, such as:\n    proctor attempt explain " in text
    assert "m3.codex.r1.1\n" in text


def test_hostile_output_cannot_break_a_terminal() -> None:
    text = shown(render_report(hostile_report(), title="t"))
    assert all(char == "\n" or char.isprintable() for char in text), ascii(text)
    assert max(map(len, text.splitlines())) <= 100


def test_hostile_output_cannot_break_a_page() -> None:
    page = render_markdown(hostile_report())
    block = page.partition("### ")[2].partition("\n\n")[2].partition("\n\n## ")[0]
    assert all(line.startswith("    ") or not line for line in block.split("\n")), block
    assert "`make" not in block
    assert page.count("\n# ") == 0


def test_hostile_output_cannot_break_xml() -> None:
    suites = ElementTree.fromstring(render_junit(hostile_report()))
    [case] = suites.findall("testsuite[@name='codex']/testcase")
    [failure] = case.findall("failure")
    assert "exited" not in (failure.get("message") or "")
    assert "not shown: 2 generated files (3 changed lines)" in (failure.text or "")


def test_hostile_output_is_valid_json() -> None:
    encoded = msgspec.json.encode(of_row(probe_row(stdout_tail=HOSTILE.replace("\ud800", ""))))
    assert msgspec.json.decode(encoded, type=FailureExcerpt).probes[0].command == "make test"


def view(tmp_path: Path, *rows: ProbeRow, diff: str = "") -> AttemptView:
    return AttemptView(
        paths=AttemptPaths(tmp_path / "it's here"),
        record=None,
        prompt=None,
        tool_calls=(),
        transcript=(),
        runner=None,
        feedback=None,
        probes=rows,
        diff=diff,
        report=report(AttemptId("m.codex.r1.1"), verified=False),
        seal=None,
        findings=(),
    )


def test_explanation_shows_a_command_that_can_be_pasted(tmp_path: Path) -> None:
    binary = "diff --git a/a b.pyc b/a b.pyc\nnew file mode 100644\nBinary files /dev/null and b/a b.pyc differ\n"
    edit = "diff --git a/x b/x\nnew file mode 100644\n--- /dev/null\n+++ b/x\n@@ -0,0 +1 @@\n+1\n"
    [probe] = explain(view(tmp_path, probe_row(), diff=binary + edit), make_workspace="cp -R /w/. .").probes
    assert probe.run_again == (
        '(cd "$(mktemp -d)" && cp -R /w/. . && '
        f"git apply '--exclude=a b.pyc' '{tmp_path}/it'\"'\"'s here/workspace.diff' && bash -c 'make test')"
    )
    assert probe.command == "bash -c 'make test'"
    assert isinstance(probe.failure, FailedProbe)


def test_explanation_offers_no_command_that_a_terminal_does_not_show_as_it_is(tmp_path: Path) -> None:
    hidden = probe_row(argv=("cat", "a\u202etxt"))
    found = explain(view(tmp_path, hidden), make_workspace="")
    assert found.probes[0].run_again is None
    commands = render_commands(found)
    assert commands is not None
    text = shown(render_explanation(found)) + shown(commands)
    assert all(char == "\n" or char.isprintable() for char in text), ascii(text)
    assert "# in the workspace as the agent left it" in text
