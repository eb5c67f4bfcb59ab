"""What there is around somebody who begins: agents and their logins, a repository, and how its tests are run."""

import json
import os
import re
import tomllib
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from proctor.config.model import Config, Rollout
from proctor.errors import InputError, MachineError
from proctor.ids import StrategyId
from proctor.runtime.credential import Account, login_fault
from proctor.runtime.registry import runtime_by_id
from proctor.spec.check_login import key_variable
from proctor.spec.model import Login
from proctor.surface.programs import Program, find_programs
from proctor.workspace.git import GitRefusedError, git

# Names that the agents' programs take; a user may well have another.
_MODELS: Final = {"openai": "gpt-5-codex", "anthropic": "sonnet"}
_MAKE_TEST: Final = re.compile(r"^test\s*:(?!=)", re.MULTILINE)
_NO_TEST: Final = "no test specified"
_NOT_OURS: Final = (":!/.proctor", ":!/proctor.yaml", ":!/proctor-scripts")


@dataclass(frozen=True, slots=True, kw_only=True)
class Agent:
    """A program that is there, and the way that it is driven. `login` is None where it has none."""

    name: str
    strategy: StrategyId
    provider: str | None
    login: Login | None
    token: str | None = None

    @property
    def model(self) -> str | None:
        return None if self.provider is None else _MODELS.get(self.provider)

    @property
    def is_ready(self) -> bool:
        """Whether it can talk to a real model."""
        return self.login is not None and self.model is not None


def find_agents(config: Config) -> tuple[Agent, ...]:
    """One for each program, by its short name: of several ways to drive it the default lane, else the first."""
    found: dict[str, Program] = {}
    for program in find_programs(config):
        if program.program is not None and program.lane.is_enabled and program.lane.rollout is not Rollout.LOCKED:
            short = program.id.partition("_")[0]
            if short not in found or program.lane.rollout is Rollout.DEFAULT:
                found[short] = program
    return tuple(_agent(short, program.id, config) for short, program in found.items())


def agent_called(name: str, agents: tuple[Agent, ...], config: Config) -> Agent:
    """By its short name or by the id of a runtime. InputError where no such agent is there."""
    for agent in agents:
        if name in (agent.name, agent.strategy):
            return agent
    strategy = StrategyId(name.replace("-", "_"))
    if any(program.id == strategy and program.program is not None for program in find_programs(config)):
        return _agent(strategy.replace("_", "-"), strategy, config)
    there = ", ".join(agent.name for agent in agents) or "none"
    what = f"no agent is called {name!r}; here are: {there}"
    raise InputError("spec.unknown-runtime", what, suggestion="proctor runtimes list")


def _agent(name: str, strategy: StrategyId, config: Config) -> Agent:
    account = runtime_by_id(strategy, config).account
    login, token = (None, None) if account is None else _login(account)
    provider = None if account is None else account.provider
    return Agent(name=name, strategy=strategy, provider=provider, login=login, token=token)


def _login(account: Account) -> tuple[Login | None, str | None]:
    """The first that is there: a key, a token, the user's own login."""
    if os.environ.get(key_variable(account.provider), "").strip():
        return Login.API_KEY, None
    if os.environ.get(account.token_variable, "").strip():
        return Login.TOKEN, account.token_variable
    return (None if login_fault(account.file(os.environ)) else Login.INHERIT), None


@dataclass(frozen=True, slots=True, kw_only=True)
class Repository:
    """What git says of a folder. `why_not` is why no agent can work on a clone of it, where that is so."""

    why_not: str | None
    changes: int = 0
    """Files that are not as in HEAD, or not in it, which agents do not see; not what git ignores, nor what is ours."""


def look_at_repository(folder: Path) -> Repository:
    if not (folder / ".git").exists():
        return Repository(why_not="it is not the top of a git repository")
    try:
        git("rev-parse", "--verify", "--quiet", "HEAD^{commit}", cwd=folder)
        if git("rev-parse", "--is-shallow-repository", cwd=folder).strip() == b"true":
            return Repository(why_not="it is a shallow clone")
        changes = git("status", "--porcelain", "--untracked-files=all", "--", ".", *_NOT_OURS, cwd=folder).count(b"\n")
    except GitRefusedError:
        return Repository(why_not="it has no commit yet")
    except MachineError as error:
        return Repository(why_not=error.what)
    if (folder / ".gitmodules").exists():
        return Repository(why_not="it has submodules", changes=changes)
    return Repository(why_not=None, changes=changes)


def find_test_command(folder: Path) -> str | None:
    """How the tests of a repository are run, as far as its files tell."""
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
