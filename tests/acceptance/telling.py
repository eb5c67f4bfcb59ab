"""What campaigns tell through the command line, and how one is killed in the middle."""

import json
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.lab import Lab, wait_until

EXAMPLES = Path(__file__).parents[2] / "examples" / "campaigns"


def told(lab: Lab, *words: str, exit_: int = 0) -> Any:
    """What a command says as JSON."""
    done = lab.proctor(*words, "--json")
    assert done.returncode == exit_, f"{words}: {done.returncode}\n{done.stdout}{done.stderr}"
    return json.loads(done.stdout)


def kill_in_the_middle(lab: Lab, *words: str, when: Callable[[], bool]) -> None:
    """kill -9 of a Proctor as soon as that holds."""
    victim = lab.start(*words)
    try:
        wait_until(when, deadline_s=60.0)
        assert victim.poll() is None, "it was done before it could be killed"
    finally:
        os.killpg(victim.pid, signal.SIGKILL)
        victim.wait(timeout=30)


def sealed(lab: Lab) -> set[str]:
    return {name for name, paths in lab.attempts().items() if paths.seal.exists()}
