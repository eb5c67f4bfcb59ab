"""Find the Claude Code program, and check its version."""

import re
from typing import Final

from proctor.errors import MachineError
from proctor.runtime.base import Executable
from proctor.runtime.executable import ProgramSource, find

# The oldest tested version. It reports the state of each message, from which turns are counted.
MINIMUM_VERSION: Final = "2.1.325"
INSTALL: Final = "claude-agent-sdk==0.2.182 from PyPI (`make agents` does)"

CLAUDE: Final = ProgramSource(
    name="Claude Code",
    command="claude",
    override="PROCTOR_CLAUDE",
    package="claude-agent-sdk",
    module="claude_agent_sdk",
    file="_bundled/claude",
    install=INSTALL,
)


def locate() -> Executable:
    """Find the program: $PROCTOR_CLAUDE, then the wheel in this environment or in PROCTOR_AGENTS, then PATH."""
    return find(CLAUDE)


def version_in(output: str | None) -> str | None:
    """Return the version in the output of `--version`, or None if it has none.

    >>> version_in("2.1.325 (Claude Code)")
    '2.1.325'
    """
    match = re.match(r"\d+\.\d+\.\d+\S*", output or "")
    return None if match is None else match[0]


def refuse_old(output: str | None) -> str:
    """Return the version in the output of `--version`. Raises MachineError if it is unknown or too old."""
    version = version_in(output)
    if version is None or _numbers(version) < _numbers(MINIMUM_VERSION):
        reported = version or f"unknown ({output!r})"
        what = f"Claude Code {reported} is older than {MINIMUM_VERSION}; install {INSTALL}"
        raise MachineError("machine.binary-too-old", what)
    return version


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"\d+", version)[:3])
