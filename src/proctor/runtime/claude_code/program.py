"""Which Claude Code program runs, and whether we know it."""

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
    """$PROCTOR_CLAUDE, else a wheel's own binary, in our environment or among our agents, else `claude` on PATH."""
    return find(CLAUDE)


def version_in(said: str | None) -> str | None:
    """
    >>> version_in("2.1.325 (Claude Code)")
    '2.1.325'
    """
    found = re.match(r"\d+\.\d+\.\d+\S*", said or "")
    return None if found is None else found[0]


def refuse_old(said: str | None) -> str:
    """The version that `--version` reports. MachineError where it is older than what we know, or none."""
    version = version_in(said)
    if version is None or _numbers(version) < _numbers(MINIMUM_VERSION):
        found = version or f"unknown ({said!r})"
        what = f"Claude Code {found} is older than {MINIMUM_VERSION}; install {INSTALL}"
        raise MachineError("machine.binary-too-old", what)
    return version


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"\d+", version)[:3])
