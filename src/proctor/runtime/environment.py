"""The environment of an agent process: an allow list, what the flow adds, and variables that are never passed on."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Final

from proctor.errors import InputError
from proctor.fact import Authority, Fact
from proctor.spec.check_login import MODEL_VARIABLES

# Any other variable of the user's environment is passed on only if a flow names it.
ALLOWED: Final = (
    *("PATH", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "TERM", "USER", "LOGNAME", "SSL_CERT_FILE", "SSL_CERT_DIR"),
)

OF_A_MODEL: Final = "it is a model credential, which only `login` passes on"

BLOCKED: Final[Mapping[str, tuple[str, ...]]] = {
    "it makes programs load or run other code": (
        *("LD_*", "DYLD_*", "GCONV_PATH", "GLIBC_TUNABLES"),
        *("BASH_ENV", "ENV", "BASH_FUNC_*", "SHELLOPTS", "BASHOPTS", "PROMPT_COMMAND", "PS4", "ZDOTDIR"),
        *("PYTHONPATH", "PYTHONHOME", "PYTHONSTARTUP", "PYTHONUSERBASE", "NODE_OPTIONS", "NODE_PATH"),
        *("PERL5LIB", "PERL5OPT", "PERL5DB", "RUBYLIB", "RUBYOPT", "LUA_PATH", "LUA_CPATH"),
        *("JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "_JAVA_OPTIONS", "RUSTC_WRAPPER", "LESSOPEN", "LESSCLOSE"),
    ),
    "it can make git leave the workspace or run a program": ("GIT_*",),
    "it is a credential of a cloud provider or of the user's session": (
        *("AWS_*", "AZURE_*", "ARM_*", "GOOGLE_*", "GCLOUD_*", "CLOUDSDK_*", "GCP_*", "DIGITALOCEAN_*", "OCI_*"),
        *("KUBECONFIG", "DOCKER_*", "VAULT_*", "SSH_AUTH_SOCK", "SSH_AGENT_PID", "GPG_AGENT_INFO", "KRB5CCNAME"),
        *("DBUS_SESSION_BUS_ADDRESS", "XAUTHORITY", "NETRC"),
    ),
    OF_A_MODEL: MODEL_VARIABLES,
    "it sets the folder of an agent's settings and logins": (
        *("HOME", "CODEX_HOME", "CODEX_SQLITE_HOME", "CLAUDE_CONFIG_DIR", "GEMINI_*_HOME", "OPENCODE_*", "GOOSE_*"),
        *("XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME"),
    ),
    "it is reserved for Proctor": ("PROCTOR_*",),
}
"""Name patterns of variables that are never passed on, by reason."""

_HARMLESS: Final = ("GIT_AUTHOR_*", "GIT_COMMITTER_*", "GIT_TERMINAL_PROMPT", "AWS_REGION", "AWS_DEFAULT_REGION")


def why_blocked(name: str) -> str | None:
    """Return why a variable is never passed on, or None if it may be.

    >>> why_blocked("LD_PRELOAD"), why_blocked("GIT_AUTHOR_NAME")
    ('it makes programs load or run other code', None)
    """
    if any(fnmatchcase(name, pattern) for pattern in _HARMLESS):
        return None
    matches = (why for why, patterns in BLOCKED.items() if any(fnmatchcase(name, pattern) for pattern in patterns))
    return next(matches, None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Environment:
    """The environment of an agent process. Its runtime adds the home and the temporary folder."""

    values: Mapping[str, str] = field(repr=False)
    grounds: Mapping[str, str]
    """Why each variable is passed on, by name: `allowed`, `env`, `forward`, `profile` or `login`."""

    def fact(self) -> Fact:
        """Return the names with their grounds. Values are left out, because they may be secret."""
        return Fact(
            value=dict(sorted(self.grounds.items())),
            authority=Authority.OBSERVED,
            source="the complete environment of the process, before its runtime added its own variables",
        )


def agent_environment(
    environ: Mapping[str, str],
    *,
    env: Mapping[str, str],
    forward: Collection[str] = (),
    credential: Mapping[str, str] | None = None,
    profile: Mapping[str, str] | None = None,
    logins: Collection[str] = (),
) -> Environment:
    """Build the environment of an agent process.

    `profile` are the variables that the user's own profile needs; `logins` are the names of the variables that the
    campaign's logins are read from. Raises InputError if a flow names a variable that is never passed on, or forwards
    one that is not set.

    >>> agent_environment({"PATH": "/bin", "CI": "1", "AWS_PROFILE": "x"}, env={"MODE": "fast"}, forward=["CI"]).grounds
    {'PATH': 'allowed', 'MODE': 'env', 'CI': 'forward'}
    """
    named = (*((f"env.{name}", name) for name in env), *((f"forward[{at}]", name) for at, name in enumerate(forward)))
    for key, name in named:
        if (why := OF_A_MODEL if name in logins else why_blocked(name)) is not None:
            raise InputError(
                "policy.blocked-variable",
                f"{name} is never passed to an agent: {why}",
                key=key,
                suggestion=f"Remove {name} from the flow.",
            )
        if key.startswith("forward") and name not in environ:
            raise InputError(
                "policy.variable-unset",
                f"{name} is not set, so it cannot be forwarded",
                key=key,
                suggestion=f"Set {name} in the environment of Proctor, or remove it from `forward`.",
            )
    parts = (
        ("allowed", {name: environ[name] for name in ALLOWED if name in environ}),
        ("env", env),
        ("forward", {name: environ[name] for name in forward}),
        ("profile", profile or {}),
        ("login", credential or {}),
    )
    return Environment(
        values={name: value for _, part in parts for name, value in part.items()},
        grounds={name: ground for ground, part in parts for name in part},
    )


def refuse_tmpdir_above(home: Path, tmpdir: Path) -> None:
    """Raise InputError if the temporary folder contains the agent's home.

    Codex's sandboxed shell then fails silently, and the turn is still reported as completed.
    """
    if home.resolve().is_relative_to(tmpdir.resolve()):
        raise InputError("policy.tmpdir-above-home", f"TMPDIR {tmpdir} contains the agent's home {home}")
