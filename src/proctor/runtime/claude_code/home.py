"""How the program is started: its arguments, its folders, its variables, and the fences around it."""

import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from proctor.contain.fences import Fences
from proctor.errors import InputError, disk_refusal
from proctor.fact import Fact
from proctor.runtime.base import HostAsk, SessionAsk
from proctor.runtime.claude_code import tools
from proctor.runtime.claude_code.claims import TRANSPORTS
from proctor.runtime.claude_code.login import ACCOUNT
from proctor.runtime.environment import refuse_tmpdir_above
from proctor.runtime.fenced import agent_fences, fences_fact
from proctor.spec.model import SCRIPTED, Login, Profile

# By itself it tries ten times, ever longer: more than a minute.
MAX_RETRIES: Final = 4
OPTIONS: Final = {"max_retries": 0, "max_turns": 1}
"""What a flow may set, and the least each may be."""

_QUIET: Final = {
    "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
    "DISABLE_AUTOUPDATER": "1",
    "DISABLE_TELEMETRY": "1",
    "DISABLE_ERROR_REPORTING": "1",
}
# One attempt would tell the next what it has learned.
_FORGETFUL: Final = {"CLAUDE_CODE_DISABLE_AUTO_MEMORY": "1"}

RESERVED: Final = frozenset(
    (*_QUIET, *_FORGETFUL, "ANTHROPIC_BASE_URL", "CLAUDE_CODE_MAX_RETRIES", "CLAUDE_CODE_SHELL_PREFIX")
) | {ACCOUNT.home_variable, "HOME", "TMPDIR", "ANTHROPIC_API_KEY", "PROCTOR_ATTEMPT"}
"""Variables this runtime sets itself."""


def check_options(options: Mapping[str, Any]) -> None:
    if (transport := options.get("transport", TRANSPORTS[0])) not in TRANSPORTS:
        raise InputError("spec.type", f"transport is {TRANSPORTS[0]}, not {transport!r}")
    for name, least in OPTIONS.items():
        value = options.get(name, least)
        if not isinstance(value, int) or isinstance(value, bool) or value < least:
            raise InputError("spec.type", f"{name} is a number from {least} up, not {value!r}")


def config_dir(ask: HostAsk) -> Path:
    """Where it keeps settings, logins and sessions."""
    is_users = ask.profile is Profile.MINE and ask.user_home is not None
    return ask.user_home if is_users and ask.user_home is not None else ask.home / "claude"


def write_home(ask: HostAsk) -> None:
    """Folders, and nothing of the user's but a link to an inherited login: its tokens are replaced by use."""
    refuse_tmpdir_above(ask.home, ask.tmp)
    try:
        for folder in (ask.home, ask.tmp, config_dir(ask)):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if ask.model.key_variable is not None:
            shell = _shell(ask)
            # It hands all of its environment to every command; this stands in between.
            shell.write_text(f'#!/bin/sh\nunset {shlex.quote(ask.model.key_variable)}\nexec /bin/bash -c "$1"\n')
            shell.chmod(0o700)
        link = ask.home / "claude" / ACCOUNT.file_name
        if _is_login_linked(ask) and ask.user_home is not None and not link.is_symlink():
            link.symlink_to(ask.user_home / ACCOUNT.file_name)
    except OSError as error:
        raise disk_refusal(error, path=ask.home) from error


def _is_login_linked(ask: HostAsk) -> bool:
    return ask.model.login is Login.INHERIT and ask.profile is not Profile.MINE


def _shell(ask: HostAsk) -> Path:
    return ask.home / "shell"


def arguments(program: str, ask: SessionAsk) -> list[str]:
    words = [program, "-p", "--input-format", "stream-json", "--output-format", "stream-json", "--verbose"]
    words += ["--include-partial-messages", "--permission-prompt-tool", "stdio", "--model", ask.model.name]
    if ask.profile is not Profile.MINE:
        words += ["--setting-sources=", "--strict-mcp-config"]
    if ask.tools:
        words += ["--mcp-config", tools.offered()]
    if "max_turns" in ask.options:
        words += ["--max-turns", str(ask.options["max_turns"])]
    if (thread := ask.resume or ask.fork) is not None:
        # With an equals sign: the value could not be taken for an argument of its own.
        words += [f"--resume={thread}"]
    if ask.fork is not None:
        words += ["--fork-session"]
    if is_ephemeral(ask):
        words += ["--no-session-persistence"]
    return words


def is_ephemeral(ask: SessionAsk) -> bool:
    return not ask.is_persistent and ask.resume is None


def variables(host: HostAsk, ask: SessionAsk) -> dict[str, str]:
    own = {
        **_QUIET,
        ACCOUNT.home_variable: str(config_dir(host)),
        # The user's own HOME is there with the user's own profile only.
        "HOME": host.env.get("HOME", str(host.home)),
        "TMPDIR": str(ask.tmp),
        "PROCTOR_ATTEMPT": ask.attempt,
        "CLAUDE_CODE_MAX_RETRIES": str(ask.options.get("max_retries", MAX_RETRIES)),
    }
    if ask.profile is not Profile.MINE:
        own |= _FORGETFUL
    if host.model.key_variable is not None:
        own["CLAUDE_CODE_SHELL_PREFIX"] = str(_shell(host))
    if ask.model.base_url is not None:
        # It adds the version by itself.
        own["ANTHROPIC_BASE_URL"] = ask.model.base_url.rstrip("/").removesuffix("/v1")
    if ask.model.provider == SCRIPTED:
        own["ANTHROPIC_API_KEY"] = "scripted"
    return own


# ── fences ──


def fences(host: HostAsk, ask: SessionAsk) -> Fences | None:
    """It has no sandbox of its own, so ours is around the whole of it; None where the flow wants none."""
    return agent_fences(
        ask,
        home=host.home,
        search_path=host.env.get("PATH", ""),
        program=host.program.real_path,
        writable=_users(host, ask).values(),
    )


def raised(host: HostAsk, ask: SessionAsk, fences: Fences | None) -> Fact:
    return fences_fact(fences, ask, home=host.home, **_users(host, ask))


def _users(host: HostAsk, ask: SessionAsk) -> dict[str, Path]:
    """What of the user's own it writes to, by what that is to it."""
    if ask.profile is Profile.MINE:
        return {"settings": config_dir(host), "state": Path(host.env.get("HOME", "/")) / ".claude.json"}
    if _is_login_linked(host) and host.user_home is not None:
        return {"login": host.user_home / ACCOUNT.file_name}
    return {}
