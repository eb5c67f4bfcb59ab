"""Whoever watches a run may leave or stop reading: the attempts go on, and their evidence is whole."""

import os
import subprocess
import sys

import pytest

from tests.lab import Lab, mission, report_of, say_done, wait_until

pytestmark = pytest.mark.real_agent

PIPE_BYTES = 4096


def start_with_stderr(lab: Lab, stderr: int) -> "subprocess.Popen[bytes]":
    # Failing calls are reported as they happen, so there is something to write during each turn.
    calls = [{"run": f"echo {'x' * 60}; exit 1"} for _ in range(6)]
    missions = [mission(f"m{number}", *calls, say_done()) for number in range(4)]
    return subprocess.Popen(
        [sys.executable, "-m", "proctor", "run", str(lab.write_spec(missions))],
        env={**os.environ, "PROCTOR_ROOT": str(lab.root)},
        cwd=lab.folder,
        stdout=subprocess.DEVNULL,
        stderr=stderr,
    )


def seals(lab: Lab) -> int:
    return sum(paths.seal.exists() for paths in lab.attempts().values())


def test_a_reader_that_does_not_read_holds_nothing_up(lab: Lab) -> None:
    reader, writer = os.pipe()
    fill = b"." * PIPE_BYTES
    os.set_blocking(writer, False)
    try:
        while os.write(writer, fill):
            pass
    except BlockingIOError:
        os.set_blocking(writer, True)
    process = start_with_stderr(lab, writer)
    os.close(writer)
    try:
        wait_until(lambda: seals(lab) == 4, deadline_s=90.0)
    finally:
        os.close(reader)
        process.wait(timeout=60)
    assert {report_of(paths).outcome.value for paths in lab.attempts().values()} == {"completed"}


def test_a_reader_that_leaves_changes_nothing(lab: Lab) -> None:
    reader, writer = os.pipe()
    process = start_with_stderr(lab, writer)
    os.close(writer)
    os.close(reader)
    assert process.wait(timeout=120) == 0, "no mission has a probe, and nothing failed"
    assert seals(lab) == 4
    lab.assert_all_evidence_is_valid()
