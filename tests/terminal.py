"""A pseudo-terminal, and a command that runs at it."""

import os
import pty
import re
import select
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.lab import Lab

DEADLINE_S = 60.0


class Terminal:
    """What a person sees, and the keys they press."""

    def __init__(self, fd: int, process: "subprocess.Popen[bytes]") -> None:
        self._fd = fd
        self.process = process
        self.seen = ""

    def wait_for(self, pattern: str) -> str:
        """What was seen up to this, gone from `seen` afterwards."""
        end_s = time.monotonic() + DEADLINE_S
        while (found := re.search(pattern, self.seen)) is None:
            assert time.monotonic() < end_s, f"never seen: {pattern}\n{self.seen}"
            if select.select([self._fd], [], [], 1)[0]:
                try:
                    self.seen += re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", os.read(self._fd, 65536).decode()).replace(
                        "\r", ""
                    )
                except OSError:  # a terminal whose last user has left says EIO
                    pytest.fail(f"it ended before: {pattern}\n{self.seen}")
        before, self.seen = self.seen[: found.end()], self.seen[found.end() :]
        return before

    def type(self, keys: str) -> None:
        os.write(self._fd, keys.encode())


@contextmanager
def at_a_terminal(lab: Lab, *words: str, is_stdout_shown: bool = False) -> Iterator[Terminal]:
    """The command with a terminal as stdin and stderr, and as stdout if that is to be seen."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "proctor", *words],
        env={**os.environ, "PROCTOR_ROOT": str(lab.root), "TERM": "xterm", "COLUMNS": "200"},
        cwd=lab.folder,
        stdin=theirs,
        stdout=theirs if is_stdout_shown else subprocess.DEVNULL,
        stderr=theirs,
        start_new_session=True,
    )
    os.close(theirs)
    try:
        yield Terminal(ours, process)
    finally:
        process.kill()
        process.wait()
        os.close(ours)
