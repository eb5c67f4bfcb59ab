"""Probes of a whole campaign on the real Codex: fenced, and unavailable where this machine cannot fence them."""

import socket
from pathlib import Path

import pytest

from proctor.contain.ladder import FORCE_VARIABLE
from proctor.errors import CODES, MachineError
from tests.lab import Lab, jsonl, mission, report_of, say_done

pytestmark = pytest.mark.real_agent


@pytest.mark.requirement("attempt.contain")
@pytest.mark.parametrize("way", ["bundled-bwrap", "unshare"])
def test_what_an_agent_planted_runs_in_a_probe_without_reaching_anything(
    lab: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    home = tmp_path / "home"
    home.mkdir()
    (home / "token").write_text("planted")
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv(FORCE_VARIABLE, way)
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        trap = (
            f"cat > check.sh <<'END'\ncat {home}/token; find {lab.root} {tmp_path}/cache -name '*.json*' 2>/dev/null\n"
            f"(exec 3<>/dev/tcp/127.0.0.1/{port}) && echo reached\n"
            f"mkdir -p {home}; touch {home}/written; ! test -w /etc || echo may write; echo done\nEND\n"
        )
        work = mission(
            "trap",
            {"run": trap},
            say_done(),
            probes=[
                {"kind": "headless_run", "command": "bash check.sh 2>/dev/null", "stdout": "done\n"},
                {"kind": "headless_run", "command": "bash check.sh", "network": "host"},
                {"kind": "headless_run", "command": f"cat {home}/token", "contain": "none", "stdout": "planted"},
            ],
        )
        # The last probe passes on any workspace.
        lab.run(lab.write_spec([work]), is_unjudgeable_allowed=True)

    [paths] = lab.attempts().values()
    rows = [row for row in jsonl(paths.probes) if row["phase"] == "final"]
    assert [(row["verdict"], row["stdoutTail"]) for row in rows] == [
        ("pass", "done\n"),
        ("pass", "reached\ndone\n"),
        ("pass", "planted"),
    ]
    assert [row["contained"] for row in rows] == [
        {"by": way, "files": "fenced", "network": "none"},
        {"by": way, "files": "fenced", "network": "host"},
        {"by": way, "files": "none", "network": "host"},
    ]
    assert not any(row["mutated"] for row in rows)
    assert [path.name for path in home.iterdir()] == ["token"]
    lab.assert_all_evidence_is_valid()


@pytest.mark.requirement("attempt.contain")
@pytest.mark.requirement("attempt.no-orphans")
def test_on_the_last_rung_the_agent_works_and_a_probe_says_why_it_cannot_judge(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(FORCE_VARIABLE, "warden")
    work = mission(
        "write",
        {"run": "echo hello > made"},
        say_done(),
        probes=[
            {"kind": "headless_run", "command": ["cat", "made"], "stdout": "hello\n"},
            {"kind": "headless_run", "command": ["cat", "made"], "stdout": "hello\n", "contain": "none"},
        ],
    )
    with pytest.raises(MachineError, match="the containment `warden` cannot restrict files or network") as refused:
        lab.run(lab.write_spec([work]))
    assert refused.value.code == "probe.cannot-run"
    assert refused.value.suggestion == CODES["machine.no-fences"].todo
    lab.run(lab.write_spec([work]), is_unjudgeable_allowed=True)

    [paths] = lab.attempts().values()
    final = [row for row in jsonl(paths.probes) if row["phase"] == "final"]
    assert [(row["verdict"], row["summary"], row["contained"]) for row in final] == [
        ("unavailable", "the containment `warden` cannot restrict files or network", None),
        ("pass", "exited 0", {"by": "warden", "files": "none", "network": "host"}),
    ]
    assert report_of(paths).verified is None, "what could not be judged is not known"
    lab.assert_all_evidence_is_valid()
