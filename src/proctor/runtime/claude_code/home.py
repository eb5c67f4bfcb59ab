"""How Claude Code is started: arguments, folders, environment variables and fences."""

import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from proctor.contain.fences import Fences
from proctor.errors import InputError, disk_error
from proctor.fact import Fact
from proctor.ids import ThreadId
from proctor.runtime.agent_fences import agent_fences, fences_fact
from proctor.runtime.base import HostRequest, SessionRequest
from proctor.runtime.claude_code import tools
from proctor.runtime.claude_code.capabilities import TRANSPORTS
from proctor.runtime.claude_code.login import ACCOUNT
from proctor.runtime.environment import refuse_tmpdir_above
from proctor.spec.choices import SCRIPTED, Login, Profile

# By default the program retries ten times with growing pauses, which takes more than a minute.
MAX_RETRIES: Final = 4
OPTIONS: Final = {"max_retries": 0, "max_turns": 1}
"""The options that a flow may set, with the smallest value of each."""

_QUIET: Final = {
    "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
    "DISABLE_AUTOUPDATER": "1",
    "DISABLE_TELEMETRY": "1",
    "DISABLE_ERROR_REPORTING": "1",
}
# With its memory on, one attempt could pass on what it learned to the next.
_FORGETFUL: Final = {"CLAUDE_CODE_DISABLE_AUTO_MEMORY": "1"}

RESERVED: Final = frozenset(
    (*_QUIET, *_FORGETFUL, "ANTHROPIC_BASE_URL", "CLAUDE_CODE_MAX_RETRIES", "CLAUDE_CODE_SHELL_PREFIX")
) | {ACCOUNT.home_variable, "HOME", "TMPDIR", "ANTHROPIC_API_KEY", "PROCTOR_ATTEMPT"}
"""Variables this runtime sets itself."""


def check_options(options: Mapping[str, Any]) -> None:
    if (transport := options.get("transport", TRANSPORTS[0])) not in TRANSPORTS:
        raise InputError("spec.type", f"`transport` must be {TRANSPORTS[0]}, not {transport!r}")
    for name, least in OPTIONS.items():
        value = options.get(name, least)
        if not isinstance(value, int) or isinstance(value, bool) or value < least:
            raise InputError("spec.type", f"`{name}` must be an integer of at least {least}, not {value!r}")


def config_dir(request: HostRequest) -> Path:
    """Return the folder in which the program keeps settings, logins and sessions."""
    is_users = request.profile is Profile.MINE and request.user_home is not None
    return request.user_home if is_users and request.user_home is not None else request.home / "claude"


def write_home(request: HostRequest) -> None:
    """Create the program's folders. Nothing of the user's is copied into them.

    An inherited login is linked, not copied, because the program replaces its tokens when it uses them.
    """
    refuse_tmpdir_above(request.home, request.tmp)
    try:
        for folder in (request.home, request.tmp, config_dir(request)):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if request.model.key_variable is not None:
            shell = _shell(request)
            # Claude Code passes its whole environment to every command. This script removes the key.
            shell.write_text(f'#!/bin/sh\nunset {shlex.quote(request.model.key_variable)}\nexec /bin/bash -c "$1"\n')
            shell.chmod(0o700)
        link = request.home / "claude" / ACCOUNT.file_name
        if _is_login_linked(request) and request.user_home is not None and not link.is_symlink():
            link.symlink_to(request.user_home / ACCOUNT.file_name)
    except OSError as error:
        raise disk_error(error, path=request.home) from error


def _is_login_linked(request: HostRequest) -> bool:
    return request.model.login is Login.INHERIT and request.profile is not Profile.MINE


def own_variables(request: HostRequest) -> dict[str, str]:
    """Return the variables for the program's folders. It reads its settings even for `--version`."""
    return {ACCOUNT.home_variable: str(config_dir(request)), "HOME": str(request.home)}


def _shell(request: HostRequest) -> Path:
    return request.home / "shell"


def arguments(
    program: str, request: SessionRequest, *, resume_at: str | None = None, stored: ThreadId | None = None
) -> list[str]:
    """Return the command line of a session.

    `resume_at` is the last message of the existing thread that it gets; `stored` names a new thread whose history is in
    a session file.
    """
    words = [program, "-p", "--input-format", "stream-json", "--output-format", "stream-json", "--verbose"]
    words += ["--include-partial-messages", "--permission-prompt-tool", "stdio", "--model", request.model.name]
    if request.profile is not Profile.MINE:
        words += ["--setting-sources=", "--strict-mcp-config"]
    if request.tools:
        words += ["--mcp-config", tools.mcp_config()]
    if "max_turns" in request.options:
        words += ["--max-turns", str(request.options["max_turns"])]
    if (thread := request.resume or request.fork or stored) is not None:
        # With an equals sign, so that the value cannot be parsed as a separate argument.
        words += [f"--resume={thread}"]
    if request.fork is not None:
        words += ["--fork-session"]
    if resume_at is not None:
        words += [f"--resume-session-at={resume_at}"]
    if is_ephemeral(request):
        words += ["--no-session-persistence"]
    return words


def is_ephemeral(request: SessionRequest) -> bool:
    return not request.is_persistent and request.resume is None


def variables(host: HostRequest, request: SessionRequest) -> dict[str, str]:
    own = {
        **_QUIET,
        ACCOUNT.home_variable: str(config_dir(host)),
        # The environment has HOME only with `profile: mine`.
        "HOME": host.env.get("HOME", str(host.home)),
        "TMPDIR": str(request.tmp),
        "PROCTOR_ATTEMPT": request.attempt,
        "CLAUDE_CODE_MAX_RETRIES": str(request.options.get("max_retries", MAX_RETRIES)),
    }
    if request.profile is not Profile.MINE:
        own |= _FORGETFUL
    if host.model.key_variable is not None:
        own["CLAUDE_CODE_SHELL_PREFIX"] = str(_shell(host))
    if request.model.base_url is not None:
        # The program appends /v1 itself.
        own["ANTHROPIC_BASE_URL"] = request.model.base_url.rstrip("/").removesuffix("/v1")
    if request.model.provider == SCRIPTED:
        own["ANTHROPIC_API_KEY"] = "scripted"
    return own


# ── fences ──


def fences(host: HostRequest, request: SessionRequest) -> Fences | None:
    """Return the fences around the whole program, which has no sandbox. None if the flow does not restrict it."""
    return agent_fences(
        request,
        home=host.home,
        search_path=host.env.get("PATH", ""),
        program=host.program.start_path,
        readable=() if host.program.launcher is None else (Path(host.program.real_path),),
        writable=_user_paths(host, request).values(),
    )


def session_fences_fact(host: HostRequest, request: SessionRequest, fences: Fences | None) -> Fact:
    return fences_fact(fences, request, home=host.home, **_user_paths(host, request))


def _user_paths(host: HostRequest, request: SessionRequest) -> dict[str, Path]:
    """Return the user's paths that the agent may write, by purpose."""
    if request.profile is Profile.MINE:
        return {"settings": config_dir(host), "state": Path(host.env.get("HOME", "/")) / ".claude.json"}
    if _is_login_linked(host) and host.user_home is not None:
        return {"login": host.user_home / ACCOUNT.file_name}
    return {}
