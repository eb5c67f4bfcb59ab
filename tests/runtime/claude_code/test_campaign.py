"""A campaign on the real Claude Code: its evidence is whole, can be derived again, and tells no secret."""

from pathlib import Path

import pytest

from proctor.event.outcome import Outcome
from proctor.event.row import HistoryKept
from proctor.event.supervisor_events import decode_supervisor_row
from tests.lab import Lab, jsonl, mission, processes_with, report_of, rows_of, runner_ref_of, say_done

pytestmark = [pytest.mark.real_agent, pytest.mark.agent("claude_code")]

SECRET = "zq7-tripwire-84f1c2d9e0"


@pytest.mark.requirement("runtime.claude-code")
@pytest.mark.requirement("evidence.trace")
def test_a_mission_is_verified_and_its_evidence_is_derived_again_to_the_byte(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lab = Lab(tmp_path)
    monkeypatch.setenv("MY_TOKEN", SECRET)
    spec = lab.write_spec(
        [
            mission(
                "greet",
                {"do": [{"say": {"text": f"The word is {SECRET}.", "chunk_chars": 5}}, {"run": f"echo {SECRET}"}]},
                {"patch": {"file": "greet.py", "old": "print('Hello')", "new": "print('Hello, Ada')"}},
                say_done("Ada"),
                workspace={"copy": lab.workspace("greeting", {"greet.py": "print('Hello')\n"})},
                probes=[{"kind": "headless_run", "command": ["python3", "greet.py"], "stdout": "Hello, Ada\n"}],
            ),
            mission("fail", {"fault": {"status": 403}}),
        ],
        flow={"id": "claude", "runtime": ["claude_code"], "persistence": "persistent", "forward": ["MY_TOKEN"]},
        secrets=["MY_TOKEN"],
        schedule={"parallel": 2},
    )
    lab.run(spec)
    lab.assert_all_evidence_is_valid()
    greeted, failed = (lab.attempts()[f"{name}.claude.r1.1"] for name in ("greet", "fail"))
    report = report_of(greeted)
    assert (report.outcome, report.claimed, report.verified) == (Outcome.COMPLETED, True, True)
    assert report.metrics.tool_calls_by_kind == {"command": 1, "other": 1, "patch": 1}
    assert (report.metrics.unrecognized, report.metrics.turns) == (0, 1)
    assert (report_of(failed).outcome, report_of(failed).code) == (Outcome.FAILED, "provider.forbidden")
    ref = runner_ref_of(greeted)
    trace = {(row["attempt"], row["session"]) for row in jsonl(greeted.tool_calls)}
    assert trace == {(ref.attempt_id, ref.session_id)}
    facts = ref.facts
    assert facts["identity"].value["version"] == facts["version"].value
    assert (facts["identity"].authority, facts["persistence"].value) == ("verified", "persistent")
    assert [type(decode_supervisor_row(row)) for row in rows_of(greeted)].count(HistoryKept) == 1
    words = next(line["text"] for line in jsonl(greeted.transcript) if line["kind"] == "message")
    assert words == "The word is [redacted:MY_TOKEN]."
    again = lab.proctor("attempt", "rederive", greeted.folder.name, "--check")
    assert (again.returncode, again.stderr) == (0, "")
    for file in lab.root.rglob("*"):
        assert not file.is_file() or SECRET.encode() not in file.read_bytes(), file
    assert processes_with(str(tmp_path)) == []
