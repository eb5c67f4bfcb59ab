"""The agent's environment: an allow list, what the flow adds, and nothing that would break its sandbox."""

from collections.abc import Mapping
from pathlib import Path

from proctor.errors import InputError

# Everything else in the user's environment stays out of the agent's.
ALLOWED = ("PATH", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "TERM", "USER", "LOGNAME", "SSL_CERT_FILE", "SSL_CERT_DIR")


def agent_environment(
    environ: Mapping[str, str], *, added: Mapping[str, str], key_variable: str | None
) -> dict[str, str]:
    """What the agent's process is given; its home and temporary folder are put in by the runtime.

    >>> agent_environment({"PATH": "/bin", "AWS_SECRET": "x"}, added={"MODE": "fast"}, key_variable=None)
    {'PATH': '/bin', 'MODE': 'fast'}
    """
    names = ALLOWED if key_variable is None else (*ALLOWED, key_variable)
    return {**{name: environ[name] for name in names if name in environ}, **added}


def refuse_tmpdir_above(home: Path, tmpdir: Path) -> None:
    """A temporary folder above the home silently disables a sandboxed shell: the turn still says completed."""
    if home.resolve().is_relative_to(tmpdir.resolve()):
        raise InputError("policy.tmpdir-above-home", f"TMPDIR {tmpdir} lies above the agent's home {home}")
