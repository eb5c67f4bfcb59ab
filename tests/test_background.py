"""The test runner in the background: what a test starts has no signal ignored because of that."""

import os
import signal
import subprocess

from tests.background import ignore_by_handler, ignoring


def ignored_by_child() -> int:
    said = subprocess.run(["grep", "^SigIgn", "/proc/self/status"], capture_output=True, check=True).stdout
    # 32 and 33 are the C library's own.
    return int(said.split()[1], 16) & 0x7FFFFFFF


def test_a_process_that_runs_tests_stays_deaf_to_a_signal_and_its_children_do_not() -> None:
    with ignoring(signal.SIGHUP, signal.SIGINT):
        assert ignored_by_child() == 0b11

        ignore_by_handler()

        assert ignored_by_child() == 0
        os.kill(os.getpid(), signal.SIGHUP)
        os.kill(os.getpid(), signal.SIGINT)
