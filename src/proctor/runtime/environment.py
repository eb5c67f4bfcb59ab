"""The agent's environment: an allow list, what the flow adds, and what no agent is ever handed."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Final

from proctor.errors import InputError
from proctor.fact import Authority, Fact
from proctor.spec.check_login import MODEL_VARIABLES

# Everything else in the user's environment stays out of the agent's unless a flow asks for it by name.
ALLOWED: Final = (
    *("PATH", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "TERM", "USER", "LOGNAME", "SSL_CERT_FILE", "SSL_CERT_DIR"),
)

OF_A_MODEL: Final = "it is the credential of a model, which only `login` hands on"

BLOCKED: Final[Mapping[str, tuple[str, ...]]] = {
    "it makes programs load or run code that is not theirs": (
        *("LD_*", "DYLD_*", "GCONV_PATH", "GLIBC_TUNABLES"),
        *("BASH_ENV", "ENV", "BASH_FUNC_*", "SHELLOPTS", "BASHOPTS", "PROMPT_COMMAND", "PS4", "ZDOTDIR"),
        *("PYTHONPATH", "PYTHONHOME", "PYTHONSTARTUP", "PYTHONUSERBASE", "NODE_OPTIONS", "NODE_PATH"),
        *("PERL5LIB", "PERL5OPT", "PERL5DB", "RUBYLIB", "RUBYOPT", "LUA_PATH", "LUA_CPATH"),
        *("JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "_JAVA_OPTIONS", "RUSTC_WRAPPER", "LESSOPEN", "LESSCLOSE"),
    ),
    "it would lead git out of the workspace, or have it run something": ("GIT_*",),
    "it is a credential of a cloud or of your own session": (
        *("AWS_*", "AZURE_*", "ARM_*", "GOOGLE_*", "GCLOUD_*", "CLOUDSDK_*", "GCP_*", "DIGITALOCEAN_*", "OCI_*"),
        *("KUBECONFIG", "DOCKER_*", "VAULT_*", "SSH_AUTH_SOCK", "SSH_AGENT_PID", "GPG_AGENT_INFO", "KRB5CCNAME"),
        *("DBUS_SESSION_BUS_ADDRESS", "XAUTHORITY", "NETRC"),
    ),
    OF_A_MODEL: MODEL_VARIABLES,
    "it says where an agent keeps its settings and logins": (
        *("HOME", "CODEX_HOME", "CODEX_SQLITE_HOME", "CLAUDE_CONFIG_DIR", "GEMINI_*_HOME", "OPENCODE_*", "GOOSE_*"),
        *("XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME"),
    ),
    "it is Proctor's own": ("PROCTOR_*",),
}
"""Why a variable is never handed on, and the patterns of its name."""

_HARMLESS: Final = ("GIT_AUTHOR_*", "GIT_COMMITTER_*", "GIT_TERMINAL_PROMPT", "AWS_REGION", "AWS_DEFAULT_REGION")


def why_blocked(name: str) -> str | None:
    """
    >>> why_blocked("LD_PRELOAD"), why_blocked("GIT_AUTHOR_NAME")
    ('it makes programs load or run code that is not theirs', None)
    """
    if any(fnmatchcase(name, pattern) for pattern in _HARMLESS):
        return None
    matches = (why for why, patterns in BLOCKED.items() if any(fnmatchcase(name, pattern) for pattern in patterns))
    return next(matches, None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Environment:
    """What an agent's process is given, and on what ground. Its runtime adds the home and the temporary folder."""

    values: Mapping[str, str] = field(repr=False)
    grounds: Mapping[str, str]

    def fact(self) -> Fact:
        """Names alone: a value may be anything."""
        return Fact(
            value=dict(sorted(self.grounds.items())),
            authority=Authority.OBSERVED,
            source="names given to the process, each with the ground; nothing else of ours was",
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
    """InputError where a flow asks for what is never handed on, or forwards what is not there.

    `logins` are the variables that the campaign's own logins come from; `profile` is what the user's own profile needs.

    >>> agent_environment({"PATH": "/bin", "CI": "1", "AWS_PROFILE": "x"}, env={"MODE": "fast"}, forward=["CI"]).grounds
    {'PATH': 'allowed', 'MODE': 'env', 'CI': 'forward'}
    """
    asked = (*((f"env.{name}", name) for name in env), *((f"forward[{at}]", name) for at, name in enumerate(forward)))
    for key, name in asked:
        if (why := OF_A_MODEL if name in logins else why_blocked(name)) is not None:
            raise InputError(
                "policy.blocked-variable",
                f"no agent is handed {name}: {why}",
                key=key,
                suggestion="Take it out of the flow.",
            )
        if key.startswith("forward") and name not in environ:
            raise InputError(
                "policy.variable-unset",
                f"{name} is not set, so it cannot be handed on",
                key=key,
                suggestion=f"Set {name} where you run Proctor, or take it out of `forward`.",
            )
    given = (
        ("allowed", {name: environ[name] for name in ALLOWED if name in environ}),
        ("env", env),
        ("forward", {name: environ[name] for name in forward}),
        ("profile", profile or {}),
        ("login", credential or {}),
    )
    return Environment(
        values={name: value for _, part in given for name, value in part.items()},
        grounds={name: ground for ground, part in given for name in part},
    )


def refuse_tmpdir_above(home: Path, tmpdir: Path) -> None:
    """A temporary folder above the home silently disables a sandboxed shell: the turn still says completed."""
    if home.resolve().is_relative_to(tmpdir.resolve()):
        raise InputError("policy.tmpdir-above-home", f"TMPDIR {tmpdir} lies above the agent's home {home}")
