"""Find the Codex program, and refuse an old version."""

import re
from dataclasses import replace
from typing import Final

import msgspec

from proctor.errors import MachineError, install_command
from proctor.runtime.base import Executable, HostRequest
from proctor.runtime.codex.home import own_variables, write_home
from proctor.runtime.executable import Greeting, ProgramSource, find, follow_launcher, reported_version

MINIMUM_VERSION: Final = "0.163.0"
INSTALL: Final = f"openai-codex-cli-bin==0.163.0 from PyPI ({install_command('codex')})"
OVERRIDE: Final = "PROCTOR_CODEX"

CODEX: Final = ProgramSource(
    name="Codex",
    command="codex",
    override=OVERRIDE,
    package="openai-codex-cli-bin",
    module="codex_cli_bin",
    file="bin/codex",
    install=INSTALL,
    is_package_itself=True,
)

_GREETING: Final = Greeting(
    arguments=("app-server", "--listen", "stdio://"),
    line=b'{"id":1,"method":"initialize","params":{"clientInfo":{"name":"proctor","version":"0"}}}',
)


def locate() -> Executable:
    """Find Codex: $PROCTOR_CODEX, then the binary of the installed wheel, then `codex` on PATH."""
    return find(CODEX)


async def examine(request: HostRequest) -> Executable:
    """Return the program that really runs, with its version. Raises MachineError if it is known to be too old."""
    write_home(request)
    own = own_variables(request)
    program = await follow_launcher(request, _GREETING, env=own)
    said = await reported_version(replace(request, executable=program), env=own)
    if said is None:
        return program
    refuse_too_old(version_in(said), said=said)
    return msgspec.structs.replace(program, version=said)


def version_in(said: str) -> str | None:
    """Return the version in the output of `--version`.

    >>> version_in("codex-cli 0.163.0")
    '0.163.0'
    """
    found = re.search(r"\d+\.\d+\.\d+\S*", said)
    return None if found is None else found[0]


def refuse_too_old(version: str | None, *, said: str) -> str:
    """Return the version. `said` is the text it was read from. Raises MachineError if it is too old or unknown.

    >>> refuse_too_old("0.163.1", said="codex-cli 0.163.1")
    '0.163.1'
    """
    if version is None or _numbers(version) < _numbers(MINIMUM_VERSION):
        found = version or f"unknown ({said!r})"
        what = f"Codex {found} is older than {MINIMUM_VERSION}; install {INSTALL}"
        raise MachineError("machine.binary-too-old", what)
    return version


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"\d+", version)[:3])
