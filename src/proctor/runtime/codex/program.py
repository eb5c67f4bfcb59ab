"""Find the Codex program, and refuse an old version."""

import re
from typing import Final

from proctor.errors import MachineError, install_command
from proctor.runtime.base import Executable
from proctor.runtime.executable import ProgramSource, find

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


def locate() -> Executable:
    """Find Codex: $PROCTOR_CODEX, then the binary of the installed wheel, then `codex` on PATH."""
    return find(CODEX)


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
