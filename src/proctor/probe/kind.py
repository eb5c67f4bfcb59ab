"""The interface of a kind of probe: its input, its result and its environment."""

import os
import shutil
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Protocol

import anyio.to_thread

from proctor.contain.fences import Fences
from proctor.contain.intent import IntentLog
from proctor.contain.ladder import Containment
from proctor.contain.launch import new_marker, wrap
from proctor.errors import MachineError
from proctor.evidence.artifacts import Judged
from proctor.evidence.redact import Redactor
from proctor.ids import Digest
from proctor.probe.model import ControlsRecord, Fault, ProbeProgram, ProbeRow, TestsRecord, Verdict
from proctor.probe.program import identify_programs, missing_program
from proctor.probe.view import Subject, View
from proctor.transport.process import ExitStatus, ProcessResult, run_once
from proctor.workspace.snapshot import Snapshot

MAX_OUTPUT_BYTES: Final = 1024 * 1024
_CONTROL_S: Final = 30.0
MAX_ARTIFACT_BYTES: Final = 16 * 1024 * 1024
"""Largest file that a probe may keep as evidence."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HiddenFiles:
    """Files of a mission that no agent sees. They are laid over the workspace when a probe runs."""

    folder: Path
    """The folder that contains them, at their paths in the workspace."""
    digest: Digest
    """The digest of its content."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UntouchedTree:
    """The workspace before the agent started."""

    folder: Path | None
    """A folder with its files; None if it is empty."""
    tree: Snapshot
    """Its snapshot. Files are compared with it before they are used: an agent without fences can reach the folder."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeReference:
    """What a run of a probe is compared with."""

    untouched: UntouchedTree | None = None
    """None if the subject itself is untouched."""
    protect: Sequence[str] = ()
    """Globs of the files that the agent must leave as they are."""
    sources: Mapping[str, bytes] = field(default_factory=dict)
    """Files of the spec, by their path as the spec has it."""
    hidden: HiddenFiles | None = None
    """The mission's hidden files; None if it has none."""
    baseline: ProbeRow | None = None
    """The row of this probe on the untouched workspace; None without one."""


NO_REFERENCE: Final = ProbeReference()


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """What a kind of probe changes in the view before it runs."""

    over: tuple[Path, ...] = ()
    """Folders that are laid over the subject."""
    removed: tuple[str, ...] = ()
    """Files of the subject that are not in the view."""
    keep_changes: bool = False
    """Whether the kind reads what its programs write to the view."""
    tampered: tuple[str, ...] = ()
    """Protected files that are not as they were. If there are any, the probe fails and nothing is run."""
    plan: Any = None
    """What the kind itself needs to know about its layout."""


class LayOut(Protocol):
    """Plans the view of one kind of probe. Writes only to `folder`, which is empty. Runs in a thread."""

    def __call__(self, spec: Any, *, subject: Subject, reference: ProbeReference, folder: Path) -> Layout: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeWorkspace:
    """One probe's view of the workspace, and the only way to run a program in it."""

    view: View
    """What programs see unless `run` names another view."""
    make_view: Callable[[], Awaitable[View]]
    """Makes another view of the workspace as it is, without what earlier programs changed. It has the same layers, and
    a folder for its changes if the layout keeps them. It is removed with the probe."""
    subject: Subject
    """The workspace itself, which only Proctor reads."""
    out: Path
    """An empty folder outside the view, in which the probe's programs may write."""
    tools: Path
    """An empty folder outside the view that the probe's programs can read, and only Proctor can write."""
    env: Mapping[str, str]
    """The complete environment of the probe's programs; nothing is inherited."""
    containment: Containment
    intents: IntentLog
    redactor: Redactor
    """Must be applied to program output before the output is shortened: a partial secret is not recognized."""
    fence: Callable[[str, View], Fences] | None = None
    """Returns the fences for a program that sees a view; None leaves files and network unrestricted."""
    programs: list[ProbeProgram] = field(default_factory=list)
    """The programs that were run or are missing."""
    agent_folders: Sequence[Path] | None = None
    """The only folders that the agent can write to; None if it can write wherever Proctor's user can."""
    layout: Layout = Layout()
    """What the kind itself has changed in the view."""
    reference: ProbeReference = NO_REFERENCE

    def has_tool(self, program: str) -> bool:
        """Return whether the machine (not the workspace) has the program."""
        return shutil.which(program, path=self.env["PATH"]) is not None

    def note_missing(self, program: str) -> None:
        """Record that a program that the probe needs does not exist."""
        self.programs.append(missing_program(program))

    async def run(
        self,
        argv: Sequence[str],
        *,
        timeout_s: float,
        max_output_bytes: int = MAX_OUTPUT_BYTES,
        stdin: bytes = b"",
        env: Mapping[str, str] | None = None,
        view: View | None = None,
        records: Sequence[str] | None = None,
        stdout_to: Callable[[bytes], None] | None = None,
    ) -> ProcessResult:
        """Run a program in the workspace, contained, and end all its processes with it.

        `env` is added to the environment. `records` is the command whose programs are recorded, if that is not `argv`
        itself. An overlay view without a folder for changes starts anew with each program;
        a copy keeps what earlier programs changed. `stdout_to` receives all of stdout, of which the result has only the
        first `max_output_bytes`. Raises MachineError if the program cannot be started.
        """
        view = self.view if view is None else view
        fences = None if self.fence is None else self.fence(argv[0], view)
        plan = wrap(
            self.containment,
            argv,
            env={**self.env, **(env or {})},
            cwd=view.place,
            marker=new_marker(),
            fences=fences,
        )
        # Before they run: what they leave behind must not be taken for what they were.
        found = await anyio.to_thread.run_sync(
            lambda: identify_programs(
                records or argv, workspace=view.place, search_path=self.env["PATH"], agent_folders=self.agent_folders
            )
        )
        self.programs.extend(each for each in found if each not in self.programs)
        try:
            return await run_once(
                plan,
                intents=self.intents,
                timeout_s=timeout_s,
                max_output_bytes=max_output_bytes,
                stdin=stdin,
                stdout_to=stdout_to,
            )
        except MachineError as problem:
            is_of_workspace = "/" in argv[0] and not argv[0].startswith("/")
            if is_of_workspace or problem.code != "machine.spawn-failed" or not await self._can_start(view):
                raise
            # The same containment starts another program, so its error message was printed by this one.
            message = problem.what.encode(errors="replace")
            return ProcessResult(
                exit=ExitStatus(code=1),
                stdout=b"",
                stderr=message,
                timed_out=False,
                stdout_cut=False,
                stderr_cut=False,
            )

    async def _can_start(self, view: View) -> bool:
        """Return whether the containment starts a program that does nothing."""
        fences = None if self.fence is None else self.fence("true", view)
        plan = wrap(self.containment, ("true",), env=self.env, cwd=view.place, marker=new_marker(), fences=fences)
        try:
            finished = await run_once(plan, intents=self.intents, timeout_s=_CONTROL_S, max_output_bytes=0)
        except MachineError:
            return False
        return finished.exit is not None and finished.exit.code == 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """The verdict of a probe kind, with the observation behind it."""

    verdict: Verdict
    summary: str
    """What was observed, never what was expected: an agent may be shown it."""
    argv: tuple[str, ...] = ()
    """The command line that was run, without what the kind adds to it; empty if none was."""
    finished: ProcessResult | None = None
    """The result of the command; None if none was run."""
    fault: Fault | None = None
    """Where the cause lies if the verdict is `unavailable`; None for other verdicts."""
    judged: Judged = Judged.INSIDE
    """Where the verdict comes from."""
    controls: ControlsRecord | None = None
    """What the report says about the control tests; None if there are none."""
    tests: TestsRecord | None = None
    """The tests of the report; None without a report."""
    artifacts: Mapping[str, bytes] = field(default_factory=dict)
    """Files to keep as evidence, by a plain name such as `screenshot.png`. Text is redacted. Of other files, those that
    contain a secret and those over MAX_ARTIFACT_BYTES are left out, which the row's summary says."""


class ProbeKind(Protocol):
    """One kind of probe. An exception that it raises is recorded as the verdict `unavailable`.

    A MachineError, or an OSError that says that the machine lacks a resource, is the machine's fault. Any other
    exception lies with the workspace: the same probe could judge the untouched one.
    """

    async def __call__(self, spec: Any, workspace: ProbeWorkspace, /) -> Judgement: ...


def probe_environment(
    *, search_path: str, home: Path, temporary: Path, of_agents: Iterable[Path] = ()
) -> dict[str, str]:
    """Return the complete environment of a probe.

    Entries of PATH that an agent could fill are left out: relative ones, and those below `of_agents`.

    >>> paths = "/usr/bin:.::bin:/scratch/run/home/bin"
    >>> home, scratch = Path("/h"), Path("/scratch")
    >>> probe_environment(search_path=paths, home=home, temporary=Path("/t"), of_agents=[scratch])["PATH"]
    '/usr/bin'
    """
    folders = tuple(of_agents)
    entries = search_path_of(search_path).split(os.pathsep)
    return {
        "PATH": os.pathsep.join(
            entry for entry in entries if not any(Path(entry).is_relative_to(folder) for folder in folders)
        ),
        "HOME": str(home),
        "TMPDIR": str(temporary),
        "LANG": "C.UTF-8",
        "PYTHONDONTWRITEBYTECODE": "1",
    }


def search_path_of(search_path: str) -> str:
    """Return a search path without its relative entries: where a probe's programs are looked up."""
    return os.pathsep.join(entry for entry in search_path.split(os.pathsep) if Path(entry).is_absolute())
