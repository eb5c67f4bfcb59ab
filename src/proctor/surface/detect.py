"""Detect what a first spec needs: installed agents and their logins, the repository, and its test command."""

import json
import os
import re
import tomllib
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from proctor.config.model import Config, RolloutState
from proctor.errors import InputError, MachineError
from proctor.ids import RuntimeId
from proctor.runtime.credential import Account, login_problem
from proctor.runtime.registry import runtime_by_id
from proctor.spec.check_login import key_variable
from proctor.spec.model import Login
from proctor.surface.programs import Program, find_programs
from proctor.workspace.git import GitRefusedError, git

# Model names that the agent programs accept, as suggestions: the user may prefer another.
_SUGGESTED_MODELS: Final = {"openai": "gpt-5-codex", "anthropic": "sonnet"}
_MAKE_TEST: Final = re.compile(r"^test\s*:(?!=)", re.MULTILINE)
_NO_TEST: Final = "no test specified"
_NOT_OURS: Final = (":!/.proctor", ":!/proctor.yaml", ":!/proctor-scripts")


@dataclass(frozen=True, slots=True, kw_only=True)
class DetectedAgent:
    """An installed agent program, and the runtime that drives it."""

    name: str
    """Short name of the agent, such as `codex`."""
    runtime_id: RuntimeId
    provider: str | None
    """Model provider of the agent's account; None if the runtime has no account."""
    login: Login | None
    """The login available on this machine; None if there is no login."""
    token: str | None = None
    """Variable that holds the token; only with `Login.TOKEN`."""

    @property
    def model(self) -> str | None:
        return None if self.provider is None else _SUGGESTED_MODELS.get(self.provider)

    @property
    def is_ready(self) -> bool:
        """Return whether the agent can use a real model."""
        return self.login is not None and self.model is not None


def find_agents(config: Config) -> tuple[DetectedAgent, ...]:
    """Return one agent per installed program. Of several runtimes for it, the default one is used, else the first."""
    by_name: dict[str, Program] = {}
    for program in find_programs(config):
        if (
            program.program is not None
            and program.rollout.is_enabled
            and program.rollout.state is not RolloutState.LOCKED
        ):
            name = program.id.partition("_")[0]
            if name not in by_name or program.rollout.state is RolloutState.DEFAULT:
                by_name[name] = program
    return tuple(_agent(name, program.id, config) for name, program in by_name.items())


def select_agent(name: str, agents: tuple[DetectedAgent, ...], config: Config) -> DetectedAgent:
    """Return an agent by its short name or by the id of a runtime. Raises InputError if it is not installed."""
    for agent in agents:
        if name in (agent.name, agent.runtime_id):
            return agent
    runtime_id = RuntimeId(name.replace("-", "_"))
    if any(program.id == runtime_id and program.program is not None for program in find_programs(config)):
        return _agent(runtime_id.replace("_", "-"), runtime_id, config)
    installed = ", ".join(agent.name for agent in agents) or "none"
    what = f"no agent `{name}` is installed (installed: {installed})"
    raise InputError("spec.unknown-runtime", what, suggestion="proctor runtimes list")


def _agent(name: str, runtime_id: RuntimeId, config: Config) -> DetectedAgent:
    account = runtime_by_id(runtime_id, config).account
    login, token = (None, None) if account is None else _login(account)
    provider = None if account is None else account.provider
    return DetectedAgent(name=name, runtime_id=runtime_id, provider=provider, login=login, token=token)


def _login(account: Account) -> tuple[Login | None, str | None]:
    """Return the first login available: an API key, a token, or the user's own login; and the token's variable."""
    if os.environ.get(key_variable(account.provider), "").strip():
        return Login.API_KEY, None
    if os.environ.get(account.token_variable, "").strip():
        return Login.TOKEN, account.token_variable
    return (None if login_problem(account.file(os.environ)) else Login.INHERIT), None


@dataclass(frozen=True, slots=True, kw_only=True)
class DetectedRepository:
    """The state of a git repository."""

    why_not: str | None
    """Why agents cannot work on a clone of the folder; None if they can."""
    changes: int = 0
    """Files that differ from HEAD or are not in it, so that agents do not see them. Ignored files and Proctor's own
    are not counted.
    """


def look_at_repository(folder: Path) -> DetectedRepository:
    """Return whether agents can work on a clone of a folder, and what is not committed."""
    if not (folder / ".git").exists():
        return DetectedRepository(why_not="it is not the top of a git repository")
    try:
        git("rev-parse", "--verify", "--quiet", "HEAD^{commit}", cwd=folder)
        if git("rev-parse", "--is-shallow-repository", cwd=folder).strip() == b"true":
            return DetectedRepository(why_not="it is a shallow clone")
        changes = git("status", "--porcelain", "--untracked-files=all", "--", ".", *_NOT_OURS, cwd=folder).count(b"\n")
    except GitRefusedError:
        return DetectedRepository(why_not="it has no commit yet")
    except MachineError as error:
        return DetectedRepository(why_not=error.what)
    if (folder / ".gitmodules").exists():
        return DetectedRepository(why_not="it has submodules", changes=changes)
    return DetectedRepository(why_not=None, changes=changes)


def find_test_command(folder: Path) -> str | None:
    """Return the command that runs a repository's tests, guessed from its files; None if nothing is recognized."""
    return next(_test_commands(folder), None)


def _test_commands(folder: Path) -> Iterator[str]:
    if _has_pytest(folder):
        yield "python3 -m pytest -q"
    with suppress(OSError, ValueError, AttributeError, TypeError):
        script = json.loads((folder / "package.json").read_text())["scripts"]["test"]
        if _NO_TEST not in script:
            tools = {"pnpm-lock.yaml": "pnpm test", "yarn.lock": "yarn test", "bun.lock": "bun run test"}
            yield next((command for lock, command in tools.items() if (folder / lock).exists()), "npm test")
    with suppress(OSError, UnicodeDecodeError):
        if _MAKE_TEST.search((folder / "Makefile").read_text()):
            yield "make test"
    for file, command in (("Cargo.toml", "cargo test"), ("go.mod", "go test ./...")):
        if (folder / file).is_file():
            yield command


def _has_pytest(folder: Path) -> bool:
    if (folder / "pytest.ini").is_file() or any(folder.glob("test_*.py")) or any(folder.glob("tests/**/test_*.py")):
        return True
    with suppress(OSError, ValueError):
        return "pytest" in tomllib.loads((folder / "pyproject.toml").read_text()).get("tool", {})
    return False
