"""Run git without user or system configuration: no hook, filter, helper, prompt or network transport."""

import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from proctor.errors import MachineError

TIMEOUT_S: Final = 300.0

# The complete environment except PATH. Commands that would run programs from a repository's config are not used.
_ENV: Final = {
    "HOME": "/nonexistent",
    "LC_ALL": "C.UTF-8",
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_GLOBAL": "/dev/null",
    "GIT_ATTR_NOSYSTEM": "1",
    "GIT_TEMPLATE_DIR": "",
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_ASKPASS": "false",
    "GIT_ALLOW_PROTOCOL": "none",
    "GIT_NO_LAZY_FETCH": "1",
    # The original history, without substitutions by replace refs.
    "GIT_NO_REPLACE_OBJECTS": "1",
    "GIT_OPTIONAL_LOCKS": "0",
}
# Both files are caches of the objects. In an agent's repository the agent may have written anything into them.
_SETTINGS: Final = ("-c", "core.commitGraph=false", "-c", "core.multiPackIndex=false", "-c", "safe.directory=*")


class GitRefusedError(Exception):
    """git failed. The message is the last line of its stderr."""


def git(
    *arguments: str,
    cwd: Path,
    env: Mapping[str, str] | None = None,
    stdin: bytes = b"",
    timeout_s: float = TIMEOUT_S,
) -> bytes:
    """Run git and return its stdout.

    Raises GitRefusedError if git fails, and MachineError if it cannot be started or runs longer than `timeout_s`.
    """
    program = shutil.which("git")
    if program is None:
        raise MachineError("machine.binary-missing", "there is no program git on PATH; a git workspace needs it")
    try:
        done = subprocess.run(
            [program, *_SETTINGS, *arguments],
            cwd=cwd,
            env={**_ENV, "PATH": os.environ.get("PATH", os.defpath), **(env or {})},
            input=stdin,
            capture_output=True,
            timeout=timeout_s,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise MachineError("machine.git", f"git {arguments[0]} did not end within {timeout_s:g} s") from None
    except OSError as error:
        raise MachineError("machine.git", f"cannot start git in {cwd}: {error.strerror}") from error
    if done.returncode != 0:
        lines = done.stderr.decode(errors="replace").strip().splitlines() or [f"exit {done.returncode}"]
        raise GitRefusedError(lines[-1])
    return done.stdout


def escape_list_path(path: Path) -> str:
    r"""Return a path as written in one of git's colon-separated lists.

    >>> print(escape_list_path(Path("/a b")), escape_list_path(Path("/a:b")))
    /a b "/a:b"
    """
    text = str(path)
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"' if ":" in text or '"' in text else text
