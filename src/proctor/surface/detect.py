"""Detect what a first spec needs: installed agents and their logins, how agents get the files, and the test command."""

import json
import os
import re
import shlex
import tomllib
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from proctor.config.model import Config, RolloutState
from proctor.errors import InputError, MachineError
from proctor.ids import RuntimeId, runtime_id_of
from proctor.runtime.credential import Account, login_problem
from proctor.runtime.registry import runtime_by_id
from proctor.spec.check_login import key_variable
from proctor.spec.choices import Login
from proctor.spec.model import WorkspaceSpec
from proctor.surface.programs import Program, find_programs
from proctor.workspace.git import GitRefusedError, git

# Model names that the agent programs accept, as suggestions: the user may prefer another.
_SUGGESTED_MODELS: Final = {"openai": "gpt-5-codex", "anthropic": "sonnet"}
_MAKE_TEST: Final = re.compile(r"^test\s*:(?!=)", re.MULTILINE)
_NO_TEST: Final = "no test specified"
SPEC: Final = "proctor.yaml"
SCRIPTS: Final = "proctor-scripts"
KEPT_OUT: Final = (SPEC, SCRIPTS, ".proctor")
"""Proctor's own files in a folder, which agents must not see."""


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
    """Return one agent per installed program. Of several runtimes for it, its default one is used, else the first."""
    by_name: dict[str, Program] = {}
    for program in find_programs(config):
        if (
            program.program is not None
            and program.rollout.is_enabled
            and program.rollout.state is not RolloutState.LOCKED
        ):
            name = program.id.partition("_")[0]
            if name not in by_name or program.id == runtime_id_of(name):
                by_name[name] = program
    return tuple(_agent(name, program.id, config) for name, program in by_name.items())


def select_agent(name: str, agents: tuple[DetectedAgent, ...], config: Config) -> DetectedAgent:
    """Return an agent by its short name or by the id of a runtime.

    Raises InputError if there is no such runtime, and MachineError, with what to install, if its program is missing.
    """
    for agent in agents:
        if name in (agent.name, agent.runtime_id):
            return agent
    runtime_id = runtime_id_of(name.replace("-", "_"))
    for program in find_programs(config):
        if program.id == runtime_id and program.program is not None:
            return _agent(runtime_id.replace("_", "-"), runtime_id, config)
        if program.id == runtime_id and program.problem is not None:
            problem = program.problem
            raise MachineError(problem.code, problem.what, suggestion=problem.todo)
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
class DetectedFolder:
    """How agents get a private copy of a folder."""

    workspace: WorkspaceSpec
    """The workspace of a mission whose spec is in the folder."""
    below: str = ""
    """Path of the folder inside the workspace; empty if it is the workspace."""
    changes: int = 0
    """Files that differ from HEAD or are not in it, so that agents do not see them. Ignored files and Proctor's own
    are not counted.
    """

    def command(self, words: str) -> str:
        """Return a shell command that runs in the folder, for a shell that starts at the top of the workspace."""
        return f"cd {shlex.quote(self.below)} && {words}" if self.below else words


def look_at_folder(folder: Path) -> DetectedFolder:
    """Return how agents can work on a folder: on a clone of its repository, or on a copy of it if git has no commit
    with it.

    Raises InputError, with what to do, for a repository without a commit or with submodules. Raises MachineError if git
    does not work.
    """
    here = folder.resolve()
    top = next((each for each in (here, *here.parents) if (each / ".git").exists()), None)
    if top is None:
        return _copied(folder)
    below = "" if top == here else here.relative_to(top).as_posix()
    if not _is_committed(top, below):
        if below:
            return _copied(folder)
        what = f"{folder}: the git repository has no commit yet, so agents have nothing to work on"
        raise InputError("workspace.ref", what, suggestion="Run `git add --all` and `git commit`, then run it again.")
    if (top / ".gitmodules").exists():
        todo = "Run it in a copy without git: `mkdir ../copy && tar -c --exclude=.git . | tar -x -C ../copy`."
        raise InputError("workspace.submodule", f"{top} has submodules", suggestion=todo)
    ours = [f":!/{below}{'/' if below else ''}{name}" for name in KEPT_OUT]
    changes = git("status", "--porcelain", "--untracked-files=all", "--", ".", *ours, cwd=top).count(b"\n")
    up = "/".join([".."] * (below.count("/") + 1)) if below else "."
    return DetectedFolder(workspace=WorkspaceSpec(git=up, ref="HEAD"), below=below, changes=changes)


def _is_committed(top: Path, below: str) -> bool:
    try:
        return bool(git("ls-tree", "-r", "--name-only", "HEAD", "--", *([f"{below}/"] if below else ()), cwd=top))
    except GitRefusedError:
        return False


def _copied(folder: Path) -> DetectedFolder:
    # Virtual environments contain links to the system's Python, and links must not lead out of a workspace.
    environments = [name for name in (".venv", "venv", ".tox", ".nox") if (folder / name).is_dir()]
    return DetectedFolder(workspace=WorkspaceSpec(copy=".", exclude=[*KEPT_OUT, *environments]))


def find_test_commands(folder: Path) -> list[str]:
    """Return commands that may run a repository's tests, guessed from its files, the most likely first."""
    return list(_test_commands(folder))


def _test_commands(folder: Path) -> Iterator[str]:
    if _has_pytest(folder):
        yield "python3 -m pytest -q"
    if _has_unittest(folder):
        yield "python3 -m unittest -q"
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


def _has_unittest(folder: Path) -> bool:
    """Return whether `python3 -m unittest` would find a test: it looks into packages below the folder."""
    for file in (*folder.glob("test*.py"), *folder.glob("*/test*.py")):
        is_found = file.parent == folder or (file.parent / "__init__.py").is_file()
        with suppress(OSError, UnicodeDecodeError):
            if is_found and "unittest" in file.read_text():
                return True
    return False
