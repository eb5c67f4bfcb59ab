"""Which Codex program runs."""

from typing import Final

from proctor.runtime.base import Executable
from proctor.runtime.executable import Program, find

MINIMUM_VERSION: Final = "0.163.0"
INSTALL: Final = "openai-codex-cli-bin==0.163.0 from PyPI (pip install 'proctor[codex]')"
OVERRIDE: Final = "PROCTOR_CODEX"

CODEX: Final = Program(
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
    """$PROCTOR_CODEX, else the installed wheel's own binary, else `codex` on PATH."""
    return find(CODEX)
