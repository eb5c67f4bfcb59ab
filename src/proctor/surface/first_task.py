"""Find a first task in a folder: run its test command once, as a probe, on the files that agents will get."""

import re
import secrets
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import anyio
import anyio.to_thread

from proctor import places
from proctor.campaign.scratch import open_scratch
from proctor.contain.bundled import bundled_bwrap
from proctor.contain.intent import IntentLog, open_intents
from proctor.contain.ladder import Containment, choose, survey
from proctor.errors import InputError, MachineError
from proctor.evidence.redact import Redactor
from proctor.ids import RunId
from proctor.probe.missing import find_foreign_module
from proctor.probe.model import Phase, ProbeRow, Verdict
from proctor.probe.run import run_probe
from proctor.probe.view import Subject, examine_subject
from proctor.spec.command_probes import HeadlessRun
from proctor.surface.detect import DetectedFolder
from proctor.workspace.clone import clone
from proctor.workspace.prepare import prepare
from proctor.workspace.snapshot import snapshot
from proctor.workspace.walk import walk

TIMEOUT: Final = "5m"
_NO_TESTS: Final = 5
"""Exit code of pytest, and of unittest since Python 3.12, if there is no test."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UntouchedWorkspace:
    """A private copy of a folder as agents get it, on which probes can be run."""

    subject: Subject
    scratch: Path
    containment: Containment
    intents: IntentLog

    async def run(self, command: str, *, limit: str = TIMEOUT) -> ProbeRow:
        """Run a command as a probe of a mission would run it: contained, on a copy."""
        return await run_probe(
            HeadlessRun(command=command, timeout=limit),
            index=0,
            phase=Phase.BASELINE,
            subject=self.subject,
            scratch=self.scratch,
            containment=self.containment,
            intents=self.intents,
            redactor=Redactor(()),
        )


@asynccontextmanager
async def open_untouched(folder: Path, detected: DetectedFolder) -> AsyncIterator[UntouchedWorkspace]:
    """Copy or clone a folder into the cache, and delete the copy afterwards.

    Raises InputError if the folder cannot be a workspace, and MachineError if this machine cannot copy or contain.
    """
    with open_scratch(RunId(f"first-{secrets.token_hex(4)}"), is_kept=False) as scratch:
        copy = scratch / "workspace"
        await anyio.to_thread.run_sync(_fill, folder, detected, copy)
        async with open_intents(places.spawns_dir()) as intents:
            yield UntouchedWorkspace(
                subject=examine_subject(copy, snapshot(copy).digest),
                scratch=scratch,
                containment=choose(survey(bundled_bwrap=bundled_bwrap())),
                intents=intents,
            )


def _fill(folder: Path, detected: DetectedFolder, copy: Path) -> None:
    workspace = detected.workspace
    if workspace.git is not None:
        clone(folder / workspace.git, workspace.ref or "HEAD", into=copy)
    else:
        prepare(folder, into=copy, exclude=workspace.exclude)


@dataclass(frozen=True, slots=True, kw_only=True)
class FailingCommand:
    """A command that fails on the untouched workspace, so that it can verify a task."""

    command: str
    """The command, for a shell that starts at the top of the workspace."""
    row: ProbeRow

    @property
    def output(self) -> str:
        """Return the end of what the command printed."""
        return f"{self.row.stdout_tail}\n{self.row.stderr_tail}".strip()


async def find_failing(
    untouched: UntouchedWorkspace, commands: Sequence[str], *, changes: int, fix: str
) -> FailingCommand:
    """Return the first of `commands` that can be run, if it fails. `changes` is the number of uncommitted files.

    Raises InputError with `fix`, what the user should do instead, if it passes or none can be run.
    """
    reasons = []
    for command in commands:
        row = await untouched.run(command)
        if (reason := why_not_run(row)) is not None:
            reasons.append(f"`{command}` cannot be run: {reason}")
        elif row.verdict is Verdict.PASS:
            what = f"`{command}` passes already, so it cannot show that a task was done"
            if changes:
                what += f". It ran on HEAD, as agents do: {count_verb(changes)} not committed"
                fix = f"If it fails only with the uncommitted changes, commit them first. Otherwise: {fix}"
            raise InputError("task.nothing-fails", what, suggestion=fix)
        else:
            return FailingCommand(command=command, row=row)
    what = "; ".join(reasons) or "no test command was found in this folder"
    raise InputError("task.nothing-fails", what, suggestion=fix)


def missing_module_error(
    untouched: UntouchedWorkspace, failing: FailingCommand, *, folder: Path, task: str | None
) -> MachineError | None:
    """Return the error if the tests cannot be imported without a module that no file of the folder should provide.

    A module that the task names may be the one to write.
    """
    names = [folder.resolve().name, *re.findall(r"[\w-]+", task or "")]
    module = find_foreign_module(
        failing.output, files=(item.path for item in walk(untouched.subject.folder)), names=names
    )
    if module is None:
        return None
    return MachineError(
        "probe.cannot-run",
        f"`{failing.command}` cannot import `{module}`, which no file of this folder provides",
        suggestion="Activate the environment in which your tests run, and call Proctor by its path.\n"
        f"If the task is to write `{module}`, name it in the task.",
    )


def count_verb(files: int) -> str:
    """Return a number of files with its verb.

    >>> count_verb(1), count_verb(2)
    ('1 file is', '2 files are')
    """
    return "1 file is" if files == 1 else f"{files} files are"


def why_not_run(row: ProbeRow) -> str | None:
    """Return why a command says nothing about the files, or None if it does."""
    if row.verdict is Verdict.UNAVAILABLE or row.timed_out:
        return row.summary
    is_python = "pytest" in row.argv[-1] or "unittest" in row.argv[-1]
    return "it found no test" if row.exit_code == _NO_TESTS and is_python else None
