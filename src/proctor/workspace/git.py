"""git, run so that nobody's configuration has a say: no hook, filter, helper, prompt or transport."""

import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from proctor.errors import MachineError

TIMEOUT_S: Final = 300.0

# The whole environment but for PATH. What a repository's own config could still run is not asked for.
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
    # History as it was made, not as replace refs tell it.
    "GIT_NO_REPLACE_OBJECTS": "1",
    "GIT_OPTIONAL_LOCKS": "0",
}
# Caches of what the objects say; in an agent's repository, whatever the agent wrote there.
_SETTINGS: Final = ("-c", "core.commitGraph=false", "-c", "core.multiPackIndex=false", "-c", "safe.directory=*")


class GitRefusedError(Exception):
    """git said no; the last line of its words."""


def git(
    *words: str,
    cwd: Path,
    env: Mapping[str, str] | None = None,
    stdin: bytes = b"",
    timeout_s: float = TIMEOUT_S,
) -> bytes:
    """Its stdout. GitRefusedError where it fails, MachineError where it cannot be run or does not end."""
    program = shutil.which("git")
    if program is None:
        raise MachineError("machine.binary-missing", "git is not on PATH; a git workspace needs it")
    try:
        done = subprocess.run(
            [program, *_SETTINGS, *words],
            cwd=cwd,
            env={**_ENV, "PATH": os.environ.get("PATH", os.defpath), **(env or {})},
            input=stdin,
            capture_output=True,
            timeout=timeout_s,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise MachineError("machine.git", f"git {words[0]} did not end within {timeout_s:g} s") from None
    except OSError as error:
        raise MachineError("machine.git", f"git cannot be started in {cwd}: {error.strerror}") from error
    if done.returncode != 0:
        said = done.stderr.decode(errors="replace").strip().splitlines() or [f"exit {done.returncode}"]
        raise GitRefusedError(said[-1])
    return done.stdout


def listed(path: Path) -> str:
    r"""A path in one of git's lists, in which a colon parts them.

    >>> print(listed(Path("/a b")), listed(Path("/a:b")))
    /a b "/a:b"
    """
    text = str(path)
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"' if ":" in text or '"' in text else text
