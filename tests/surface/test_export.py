"""`proctor attempt export`: rows for other readers, and a check of such rows."""

import json
from pathlib import Path

import pytest

from tests.surface.conftest import Quickstart, ask

pytestmark = pytest.mark.real_agent


@pytest.mark.requirement("evidence.transcript")
def test_an_attempt_of_the_real_agent_is_exported_twice_alike_and_reads_back(
    quickstart: Quickstart, tmp_path: Path
) -> None:
    lab, file = quickstart.lab, tmp_path / "session.jsonl"
    shown = ask(lab, "attempt", "export", "fix", "--codex-native")
    written = ask(lab, "attempt", "export", "fix", "--codex-native", "-o", str(file), "--json")
    assert (shown.code, written.code) == (0, 0)
    assert file.read_text() == shown.stdout
    assert written.json == {"attemptId": "fix.codex.r1.1", "file": str(file), "rows": len(shown.stdout.splitlines())}

    rows = [json.loads(line) for line in shown.stdout.splitlines()]
    kinds = [row.get("subtype", row["type"]) for row in rows]
    assert [kinds[0], *kinds[-3:]] == [
        "codex_native_thread_status",
        "assistant",
        "codex_native_execution_summary",
        "codex_native_thread_status",
    ]
    assert rows[-2]["codexNativeHistoryCompleteness"] == "live-only"
    assert rows[-2]["codexNativeExecutableVersion"] == "codex-cli 0.163.0"
    assert rows[0]["cwd"].endswith("/workspace")
    assert len({row["uuid"] for row in rows}) == len(rows)

    checked = ask(lab, "attempt", "export", "--check", str(file), "--json")
    assert (checked.code, checked.json) == (0, {"file": str(file), "rows": len(rows), "skipped": []})


@pytest.mark.requirement("evidence.transcript")
def test_a_check_names_what_is_skipped_and_says_so_by_its_exit_code(quickstart: Quickstart, tmp_path: Path) -> None:
    file = tmp_path / "session.jsonl"
    file.write_text("nonsense\n")
    said = ask(quickstart.lab, "attempt", "export", "--check", str(file))
    assert said.code == 5
    assert said.stdout.startswith(f"{file}:1: JSON is malformed")
    assert said.stdout.endswith("\n0 rows, 1 line skipped\n")


def test_what_cannot_be_exported_is_refused(quickstart: Quickstart, tmp_path: Path) -> None:
    lab = quickstart.lab
    assert ask(lab, "attempt", "export", "fix").code == 2
    assert ask(lab, "attempt", "export", "--codex-native").code == 2
    assert ask(lab, "attempt", "export", "fix", "--codex-native", "-o", str(tmp_path / "none" / "rows")).code == 2
    assert ask(lab, "attempt", "export", "--check", str(tmp_path / "none")).code == 2
    frames = quickstart.folder("fix") / "frames.jsonl"
    frames.write_bytes(frames.read_bytes() + b"\n")
    assert ask(lab, "attempt", "export", "fix", "--codex-native").code == 5
