"""A first spec for a repository: what was found in it, written so that it runs at once."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from proctor.errors import InputError, disk_refusal
from proctor.evidence.disk import replace_file
from proctor.spec.check_mission import id_like
from proctor.spec.model import Login
from proctor.spec.tree import UNPRINTABLE
from proctor.surface.surroundings import Agent, Repository
from proctor.surface.unseen import exclude

SPEC: Final = "proctor.yaml"
SCRIPT: Final = "proctor-scripts/first.yaml"
KEPT_OUT: Final = (SPEC, "proctor-scripts/")
_NOTES: Final = "AGENT-NOTES"


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """What a first spec is made of. Without any agent that has a login it is offline."""

    folder: Path
    agents: tuple[Agent, ...]
    repository: Repository
    test_command: str | None
    is_offline: bool

    @property
    def used(self) -> tuple[Agent, ...]:
        return self.agents if self.is_offline else tuple(agent for agent in self.agents if agent.is_ready)


def write_start(start: Start, *, is_forced: bool) -> tuple[Path, ...]:
    """The files, written. InputError where there is a spec already, and where there is no agent to write one for."""
    if not start.used:
        raise InputError("machine.binary-missing", "no agent is installed here", suggestion="proctor doctor")
    spec, script = start.folder / SPEC, start.folder / SCRIPT
    texts = {spec: render_spec(start), **({script: render_script(start)} if start.is_offline else {})}
    there = [path for path in texts if path.exists()]
    if there and not is_forced:
        what = "there is one already, and it stays as it is"
        raise InputError("usage", what, file=str(there[0]), suggestion="--force writes over it.")
    try:
        for path, text in texts.items():
            path.parent.mkdir(exist_ok=True)
            replace_file(path, text.encode())
            path.chmod(0o644)
        exclude(start.folder, (*KEPT_OUT, ".proctor/"))
    except OSError as error:
        raise disk_refusal(error, path=start.folder) from error
    return tuple(texts)


def render_spec(start: Start) -> str:
    where = "workspace: {git: ., ref: HEAD}   # each attempt gets a private clone of what is committed"
    if start.repository.why_not is not None:
        where = f"workspace: {{}}   # an empty folder: here {start.repository.why_not}"
    notes = _notes(start.folder)
    return f"""\
# Missions (what to do) x flows (who does it, and how) x repeats.    proctor run {SPEC}
# Keep this file out of commits: agents work on clones, and must not see how they are judged.
version: 1
campaign: {_quoted(campaign_name(start.folder))}

missions:
  - id: notes
    prompt: {_quoted(_prompt(notes, start.test_command))}
    {where}
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


def _probe(start: Start, notes: str) -> str:
    """It must fail before the agent begins, and pass afterwards."""
    written, tests = f"test -s {notes}", start.test_command
    if tests is None:
        return f"      - {{kind: headless_run, command: {_quoted(written)}}}   # no test command was found to add"
    whole = _quoted(f"{written} && {tests}")
    absent = "      # It runs in a copy of the clone: what is not committed (node_modules, .venv) is not there."
    if not start.is_offline:
        return f"      - {{kind: headless_run, command: {whole}, timeout: 5m}}\n{absent}"
    with_tests = f"      # With a real model: {{kind: headless_run, command: {whole}, timeout: 5m}}\n{absent}"
    return f"      - {{kind: headless_run, command: {_quoted(written)}}}\n{with_tests}"


def _script_line(start: Start) -> str:
    line = f"    script: {SCRIPT}   # what the scripted model says; a real model ignores it\n"
    return line if start.is_offline else ""


def _flows(start: Start) -> str:
    return "\n".join(_flow(agent, is_offline=start.is_offline) for agent in start.used)


def _flow(agent: Agent, *, is_offline: bool) -> str:
    head = f"  - id: {agent.name}\n    runtime: [{agent.strategy}]\n    sandbox: workspace-write\n    approvals: deny"
    real = f"model: {{provider: {agent.provider}, name: {agent.model}}}   # the model you want"
    if is_offline:
        if agent.model is None:
            return head
        return f"{head}\n    # {real}\n    # login: inherit   # or api-key, or token"
    token = f"\n    token: {agent.token}" if agent.login is Login.TOKEN else ""
    assert agent.login is not None, "one without a login is not used"
    return f"{head}\n    {real}\n    login: {agent.login.value}{token}"


def _model(start: Start) -> str:
    return "model: {provider: scripted}   # on loopback: no key, no network, no cost\n" if start.is_offline else ""


def render_script(start: Start) -> str:
    """Works in any repository: it looks around and writes the file that the probe asks for."""
    notes = _notes(start.folder)
    tests = "unknown" if start.test_command is None else start.test_command
    content = f"This repository is {start.folder.resolve().name}.\nIts tests are run by: {tests}"
    marker = 'PROCTOR-RESULT: {"done": true, "answer": ""}'
    return f"""\
# What the scripted model says, a step a reply. The agent that carries it out is real.
version: 1
steps:
  - run: ls
  - say: I will write down what I found.
    patch:
      file: {notes}
      content: {_quoted(content)}
  - say: {_quoted(f"{notes} is there.{chr(10)}{marker}")}
"""


def _notes(folder: Path) -> str:
    """A file that is not there yet."""
    names = (f"{_NOTES}{end}.md" for end in ("", *(f"-{number}" for number in range(2, 100))))
    return next(name for name in names if not (folder / name).exists())


def _quoted(text: str) -> str:
    """As YAML takes it on one line, which JSON is, without what no YAML may hold."""
    return json.dumps(UNPRINTABLE.sub("\N{REPLACEMENT CHARACTER}", text), ensure_ascii=False)


def campaign_name(folder: Path) -> str:
    """
    >>> campaign_name(Path("/a/My Repo (2)"))
    'my-repo-2'
    """
    return id_like(folder.resolve().name) or "first"
