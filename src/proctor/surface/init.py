"""Write a first spec for a folder, ready to run, from what was detected in it."""

import json
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import yaml

from proctor.errors import InputError, disk_error
from proctor.evidence.disk import replace_file
from proctor.model.script import Patch
from proctor.spec.check_mission import suggest_id
from proctor.spec.choices import Login
from proctor.spec.tree import UNPRINTABLE
from proctor.surface.detect import KEPT_OUT, SCRIPTS, SPEC, DetectedAgent, DetectedFolder
from proctor.surface.first_task import TIMEOUT, FailingCommand
from proctor.surface.git_exclude import exclude

SCRIPT: Final = f"{SCRIPTS}/first.yaml"
NO_FIX: Final = "None of the simple edits that Proctor tried makes the tests pass."
_DONE: Final = 'PROCTOR-RESULT: {"done": true, "answer": ""}'
_NOT_DONE: Final = 'PROCTOR-RESULT: {"done": false, "answer": ""}'


@dataclass(frozen=True, slots=True, kw_only=True)
class InitPlan:
    """What a first spec is made from."""

    folder: Path
    agents: tuple[DetectedAgent, ...]
    detected: DetectedFolder
    failing: FailingCommand
    """The probe: a command that fails now."""
    task: str | None
    """The task in the user's words; None for "make the failing tests pass"."""
    is_offline: bool
    """Whether the spec uses the scripted model instead of a provider."""
    fix: Patch | None = None
    """A change that makes the command pass, for the scripted model; None if none is known."""

    @property
    def used(self) -> tuple[DetectedAgent, ...]:
        """Return the agents that get a flow. With a real model, only those with a login."""
        return self.agents if self.is_offline else tuple(agent for agent in self.agents if agent.is_ready)

    @property
    def files(self) -> tuple[Path, ...]:
        """Return the paths of the files to write."""
        return (self.folder / SPEC, *((self.folder / SCRIPT,) if self.is_offline else ()))


def refuse_existing(folder: Path, *, is_offline: bool) -> None:
    """Raise InputError if a file that `init` writes exists."""
    for path in (folder / SPEC, *((folder / SCRIPT,) if is_offline else ())):
        if path.exists():
            what = "the file exists already, and was not changed"
            raise InputError("usage", what, file=str(path), suggestion="--force overwrites it.")


def write_start(start: InitPlan) -> tuple[Path, ...]:
    """Write the files, over existing ones, and return their paths. Raises MachineError if the file system refuses."""
    texts = dict(zip(start.files, (render_spec(start), render_script(start.fix)), strict=False))
    try:
        for path, text in texts.items():
            path.parent.mkdir(exist_ok=True)
            replace_file(path, text.encode())
            path.chmod(0o644)
        exclude(start.folder, KEPT_OUT)
    except OSError as error:
        raise disk_error(error, path=start.folder) from error
    return tuple(texts)


def render_spec(start: InitPlan) -> str:
    """Render the spec as YAML, with comments for its author."""
    return f"""\
# Missions (what to do) x flows (who does it, and how) x repeats.    proctor run {SPEC}
# Keep this file out of commits: agents must not see how they are judged.
version: 1
campaign: {_quoted(campaign_name(start.folder))}

missions:
  - id: {"fix" if start.task is None else "task"}
    prompt: {_quoted(start.task or prompt_for(start.failing.command))}
    workspace: {_workspace(start.detected)}
    probes:
      # It fails now ({start.failing.row.summary}), and must pass when the agent is done. It runs on a copy of the
      # agent's files, without network and without your home folder.
      - {{kind: headless_run, command: {_quoted(start.failing.command)}, timeout: {TIMEOUT}}}
{_script_line(start)}    expect: {{outcome: completed, verified: yes}}

flows:
{_flows(start)}

{_model(start)}repeats: 1
limits: {{attempt: 20m, turn: 15m, stall: 5m}}
schedule: {{parallel: {len(start.used)}}}
"""


def prompt_for(command: str) -> str:
    """Return the task for a failing test command."""
    return f"Make the failing tests pass: `{command}` must exit with 0. Change the code, not the tests."


def _workspace(detected: DetectedFolder) -> str:
    workspace = detected.workspace
    if workspace.git is not None:
        return (
            f"{{git: {_quoted(workspace.git)}, ref: HEAD}}   # each attempt gets a private clone of the committed files"
        )
    excluded = ", ".join(map(_quoted, workspace.exclude))
    return f"{{copy: ., exclude: [{excluded}]}}   # each attempt gets a private copy of the folder"


def _script_line(start: InitPlan) -> str:
    line = f"    script: {SCRIPT}   # what the scripted model says; a real model ignores it\n"
    return line if start.is_offline else ""


def _flows(start: InitPlan) -> str:
    return "\n".join(_flow(agent, is_offline=start.is_offline) for agent in start.used)


def _flow(agent: DetectedAgent, *, is_offline: bool) -> str:
    head = f"  - id: {agent.name}\n    runtime: [{agent.runtime_id}]\n    sandbox: workspace-write\n    approvals: deny"
    real = f"model: {{provider: {agent.provider}, name: {agent.model}}}   # choose a model"
    if is_offline:
        if agent.model is None:
            return head
        return f"{head}\n    # {real}\n    # login: inherit   # or api-key, or token"
    token = f"\n    token: {agent.token}" if agent.login is Login.TOKEN else ""
    assert agent.login is not None, "an agent without a login gets no flow"
    return f"{head}\n    {real}\n    login: {agent.login.value}{token}"


def _model(start: InitPlan) -> str:
    return "model: {provider: scripted}   # on loopback: no key, no network, no cost\n" if start.is_offline else ""


def render_script(fix: Patch | None) -> str:
    """Render a script for any agent: it makes the change that fixes the tests, or says that none is known."""
    head = "# The replies of the scripted model, one step per reply. The agents that carry them out are real.\n"
    if fix is None:
        return f"""\
{head}# {NO_FIX} Write the fix yourself into this file:
# REPLACE the steps below with these, and run again. `old` and `new` are whole lines, with their indentation.
#   steps:
#     - patch:
#         file: PATH
#         old: "    the lines to replace, with their indentation"
#         new: "    the lines in their place, with their indentation"
#     - say: {_quoted(f"It is done.{chr(10)}{_DONE}")}
version: 1
steps:
  - run: ls
  - say: {_quoted(f"This script contains no fix yet. Edit {SCRIPT}.{chr(10)}{_NOT_DONE}")}
"""
    patch = {"file": fix.file, "old": fix.old, "new": fix.new}
    steps = [{"run": f"cat {shlex.quote(fix.file)}"}, {"say": f"The mistake is in {fix.file}.", "patch": patch}]
    steps.append({"say": f"{fix.file} is fixed.\n{_DONE}"})
    return f"""\
{head}# No model was asked: Proctor tried changes of one line until the tests passed, and this is the first that worked.
{yaml.safe_dump({"version": 1, "steps": steps}, sort_keys=False, allow_unicode=True)}"""


def _quoted(text: str) -> str:
    """Quote text for YAML on one line, as JSON. Characters that YAML forbids are replaced."""
    return json.dumps(UNPRINTABLE.sub("\N{REPLACEMENT CHARACTER}", text), ensure_ascii=False)


def campaign_name(folder: Path) -> str:
    """Return a valid campaign name for a folder.

    >>> campaign_name(Path("/a/My Repo (2)"))
    'my-repo-2'
    """
    return suggest_id(folder.resolve().name) or "first"
