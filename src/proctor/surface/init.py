"""Write a first spec for a repository, ready to run, from what was detected in it."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from proctor.errors import InputError, disk_error
from proctor.evidence.disk import replace_file
from proctor.spec.check_mission import suggest_id
from proctor.spec.model import Login
from proctor.spec.tree import UNPRINTABLE
from proctor.surface.detect import DetectedAgent, DetectedRepository
from proctor.surface.git_exclude import exclude

SPEC: Final = "proctor.yaml"
SCRIPT: Final = "proctor-scripts/first.yaml"
KEPT_OUT: Final = (SPEC, "proctor-scripts/")
_NOTES: Final = "AGENT-NOTES"


@dataclass(frozen=True, slots=True, kw_only=True)
class InitPlan:
    """What a first spec is made from."""

    folder: Path
    agents: tuple[DetectedAgent, ...]
    repository: DetectedRepository
    test_command: str | None
    is_offline: bool
    """Whether the spec uses the scripted model instead of a provider."""

    @property
    def used(self) -> tuple[DetectedAgent, ...]:
        """Return the agents that get a flow. With a real model, only those with a login."""
        return self.agents if self.is_offline else tuple(agent for agent in self.agents if agent.is_ready)


def write_start(start: InitPlan, *, is_forced: bool) -> tuple[Path, ...]:
    """Write the files and return their paths.

    Raises InputError if a file exists and `is_forced` is false, or if no agent can be used. Raises MachineError if the
    file system refuses.
    """
    if not start.used:
        raise InputError(
            "machine.binary-missing",
            "no agent is installed",
            suggestion="Install one; `proctor doctor` lists what it looks for.",
        )
    spec, script = start.folder / SPEC, start.folder / SCRIPT
    texts = {spec: render_spec(start), **({script: render_script(start)} if start.is_offline else {})}
    existing = [path for path in texts if path.exists()]
    if existing and not is_forced:
        what = "the file exists already, and was not changed"
        raise InputError("usage", what, file=str(existing[0]), suggestion="--force overwrites it.")
    try:
        for path, text in texts.items():
            path.parent.mkdir(exist_ok=True)
            replace_file(path, text.encode())
            path.chmod(0o644)
        exclude(start.folder, (*KEPT_OUT, ".proctor/"))
    except OSError as error:
        raise disk_error(error, path=start.folder) from error
    return tuple(texts)


def render_spec(start: InitPlan) -> str:
    """Render the spec as YAML, with comments for its author."""
    workspace = "workspace: {git: ., ref: HEAD}   # each attempt gets a private clone of the committed files"
    if start.repository.why_not is not None:
        workspace = (
            f"workspace: {{}}   # an empty folder, because this folder cannot be cloned: {start.repository.why_not}"
        )
    notes = _new_notes_file(start.folder)
    return f"""\
# Missions (what to do) x flows (who does it, and how) x repeats.    proctor run {SPEC}
# Keep this file out of commits: agents work on clones, and must not see how they are judged.
version: 1
campaign: {_quoted(campaign_name(start.folder))}

missions:
  - id: notes
    prompt: {_quoted(_prompt(notes, start.test_command))}
    {workspace}
    probes:
{_probe(start, notes)}
{_script_line(start)}    expect: {{outcome: completed, verified: yes}}

flows:
{_flows(start)}

{_model(start)}repeats: 1
limits: {{attempt: 10m, turn: 8m, stall: 3m}}
schedule: {{parallel: {len(start.used)}}}
"""


def _prompt(notes: str, test_command: str | None) -> str:
    tests = "" if test_command is None else f" `{test_command}` must pass as before."
    return f"Write {notes}: what this repository is, how it is laid out and how it is tested, in ten lines.{tests}"


def _probe(start: InitPlan, notes: str) -> str:
    """Render a probe that fails before the agent begins and passes once the notes are written."""
    has_notes, tests = f"test -s {notes}", start.test_command
    if tests is None:
        return f"      - {{kind: headless_run, command: {_quoted(has_notes)}}}   # no test command was found"
    full = _quoted(f"{has_notes} && {tests}")
    hazard = "      # The command runs in a copy of the clone, without uncommitted files such as node_modules or .venv."
    if not start.is_offline:
        return f"      - {{kind: headless_run, command: {full}, timeout: 5m}}\n{hazard}"
    with_tests = f"      # With a real model: {{kind: headless_run, command: {full}, timeout: 5m}}\n{hazard}"
    return f"      - {{kind: headless_run, command: {_quoted(has_notes)}}}\n{with_tests}"


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


def render_script(start: InitPlan) -> str:
    """Render a script that works in any repository: it lists the files and writes the notes that the probe expects."""
    notes = _new_notes_file(start.folder)
    tests = "unknown" if start.test_command is None else start.test_command
    content = f"This repository is {start.folder.resolve().name}.\nIts tests are run by: {tests}"
    marker = 'PROCTOR-RESULT: {"done": true, "answer": ""}'
    return f"""\
# The replies of the scripted model, one step per reply. The agent that carries them out is real.
version: 1
steps:
  - run: ls
  - say: I will write down what I found.
    patch:
      file: {notes}
      content: {_quoted(content)}
  - say: {_quoted(f"{notes} is written.{chr(10)}{marker}")}
"""


def _new_notes_file(folder: Path) -> str:
    """Return the name of a file that does not exist yet."""
    names = (f"{_NOTES}{end}.md" for end in ("", *(f"-{number}" for number in range(2, 100))))
    return next(name for name in names if not (folder / name).exists())


def _quoted(text: str) -> str:
    """Quote text for YAML on one line, as JSON. Characters that YAML forbids are replaced."""
    return json.dumps(UNPRINTABLE.sub("\N{REPLACEMENT CHARACTER}", text), ensure_ascii=False)


def campaign_name(folder: Path) -> str:
    """Return a valid campaign name for a folder.

    >>> campaign_name(Path("/a/My Repo (2)"))
    'my-repo-2'
    """
    return suggest_id(folder.resolve().name) or "first"
