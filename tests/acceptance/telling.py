"""What campaigns tell through the command line, and what of it is the same for two that came to the same."""

import json
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.lab import Lab, wait_until

EXAMPLES = Path(__file__).parents[2] / "examples" / "campaigns"

# Which campaign it is, when and how often it was tried: two that came to the same differ in these and in times only.
_OWN = {"campaignId", "specFile", "name", "runs", "effort"}


def told(lab: Lab, *words: str, exit_: int = 0) -> Any:
    """What a command says as JSON."""
    done = lab.proctor(*words, "--json")
    assert done.returncode == exit_, f"{words}: {done.returncode}\n{done.stdout}{done.stderr}"
    return json.loads(done.stdout)


def but_for_times(value: Any) -> Any:
    """What a report says of results, and nothing of which run they are of."""
    match value:
        case dict():
            return {
                key: but_for_times(each) for key, each in value.items() if key not in _OWN and not key.endswith("Ms")
            }
        case list():
            return [but_for_times(each) for each in value]
        case _:
            return value


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
