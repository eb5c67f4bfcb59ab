"""Find the Claude Code program, and check its version."""

import re
from dataclasses import replace
from typing import Final

import anyio.to_thread
import msgspec

from proctor.errors import MachineError
from proctor.runtime.base import Executable, HostRequest
from proctor.runtime.claude_code import home
from proctor.runtime.executable import Greeting, ProgramSource, find, follow_launcher, reported_version

# The oldest tested version. It reports the state of each message, from which turns are counted.
MINIMUM_VERSION: Final = "2.1.325"
INSTALL: Final = (
    "claude-agent-sdk==0.2.182 from PyPI (`pip install claude-agent-sdk==0.2.182`, or `make agents` in a checkout of "
    "Proctor)"
)

CLAUDE: Final = ProgramSource(
    name="Claude Code",
    command="claude",
    override="PROCTOR_CLAUDE",
    package="claude-agent-sdk",
    module="claude_agent_sdk",
    file="_bundled/claude",
    install=INSTALL,
)

_GREETING: Final = Greeting(
    arguments=("-p", "--input-format", "stream-json", "--output-format", "stream-json", "--verbose"),
    line=b'{"type":"control_request","request_id":"1","request":{"subtype":"initialize"}}',
)


def locate() -> Executable:
    """Find the program: $PROCTOR_CLAUDE, then the wheel in this environment or in PROCTOR_AGENTS, then PATH."""
    return find(CLAUDE)


async def examine(request: HostRequest) -> Executable:
    """Return the program that really runs, with its version. Raises MachineError if it is known to be too old."""
    await anyio.to_thread.run_sync(home.write_home, request)
    own = home.own_variables(request)
    program = await follow_launcher(request, _GREETING, env=own)
    output = await reported_version(replace(request, executable=program), env=own)
    return program if output is None else msgspec.structs.replace(program, version=refuse_old(output))


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
