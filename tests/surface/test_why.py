"""A failing probe's command, exit status and output, and the diff, wherever a failed attempt is reported."""

import subprocess
from xml.etree import ElementTree

import pytest

from tests.lab import Lab, mission, say_done

pytestmark = [pytest.mark.real_agent, pytest.mark.trust]

CHECK = "cat calc.py && echo 'expected 3' >&2 && exit 7"
NOISE = "mkdir -p __pycache__ && seq 500 > package-lock.json && printf 'a\\nb\\n' > __pycache__/calc.pyc"


@pytest.mark.requirement("campaign.report")
@pytest.mark.requirement("surface.cli")
def test_failing_probe_and_diff_are_shown_by_run_report_and_explain(lab: Lab) -> None:
    workspace = lab.workspace("ws", {"calc.py": "total = a - b\n"})
    probes = [{"kind": "headless_run", "command": CHECK}]
    patch = {"patch": {"file": "calc.py", "old": "total = a - b", "new": "total = b - a"}}
    spec = lab.write_spec(
        [mission("fix", {"run": NOISE}, patch, say_done(), workspace={"copy": workspace}, probes=probes)]
    )
    run = lab.proctor("run", str(spec))
    assert run.returncode == 1, run.stdout + run.stderr
    block = [
        f"`{CHECK}`: exited 7",
        "  total = b - a",
        "  stderr:",
        "  expected 3",
        "changed: calc.py (+1 -1)",
        "  @@ -1 +1 @@",
        "  -total = a - b",
        "  +total = b - a",
        "not shown: 2 generated files (502 changed lines)",
    ]
    assert "".join(f"    {line}\n" for line in block) in run.stdout
    for command in ("report", "campaign report --strict"):
        assert "".join(f"    {line}\n" for line in block) in lab.proctor(*command.split()).stdout
    page = lab.proctor("campaign", "report", "--format", "md").stdout
    assert "\n### fix/codex\n\n" + "".join(f"    {line}\n" for line in block) in page
    junit = lab.proctor("campaign", "report", "--format", "junit").stdout
    [failure] = ElementTree.fromstring(junit).iter("failure")
    assert "\n".join(block) in (failure.text or "")

    explained = lab.proctor("attempt", "explain", "fix").stdout
    assert "Changes\n  changed: calc.py (+1 -1)\n    @@ -1 +1 @@\n" in explained
    assert f"  NO: `{CHECK}`: exited 7\n" in explained
    assert "1 turn, 2 tool calls (0 failed)" in explained
    # The last line but one can be pasted: it makes the workspace again, and ends as the probe did.
    *_, pasted, note = explained.splitlines()
    again = subprocess.run(["bash", "-c", pasted], capture_output=True, text=True, timeout=30)
    assert (again.returncode, again.stdout, again.stderr) == (7, "total = b - a\n", "expected 3\n")
    assert note == "  # the spec has this command as a string, which bash runs"
    lab.assert_all_evidence_is_valid()
