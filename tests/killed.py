"""`python -m tests.killed FOLDER N WORDS...`: a command that dies before it makes the Nth change below a folder."""

import os
import subprocess
import sys
from pathlib import Path

from proctor.surface.cli.app import answer

DEAD = 9
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT
_CHANGES = {"os.mkdir", "os.remove", "os.rename", "os.rmdir"}


def killed(folder: Path, n: int, *words: str) -> bool:
    """Whether it came to its Nth change, and died there as by `kill -9`."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.killed", str(folder), str(n), *words],
        cwd=Path(__file__).parents[1],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert "run.harness" not in done.stderr, done.stderr
    return done.returncode == DEAD


def main() -> None:
    folder, at, *words = sys.argv[1:]
    seen = 0

    def count(event: str, about: tuple[object, ...]) -> None:
        nonlocal seen
        is_opened = event == "open" and isinstance(about[2], int) and bool(about[2] & _WRITING)
        if (is_opened or event in _CHANGES) and str(about[0]).startswith(folder):
            seen += 1
            if seen == int(at):
                os._exit(DEAD)

    sys.addaudithook(count)
    sys.exit(answer(words))


if __name__ == "__main__":
    main()
