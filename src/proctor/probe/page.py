"""Look at a page in Chromium: find the browser, run it in the fence, and decode what it showed.

Chromium is found on this machine and never downloaded. Proctor itself compares what was observed.
"""

import base64
import binascii
import importlib.util
import os
import shutil
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import anyio.to_thread
import msgspec

from proctor.clock import SYSTEM_CLOCK
from proctor.contain.fences import Fences
from proctor.probe.command import describe_exit, judge_missing
from proctor.probe.kind import Judgement, ProbeWorkspace
from proctor.probe.model import Fault, Verdict
from proctor.probe.observe import observe
from proctor.probe.program import identify_programs
from proctor.probe.services import OutputObservation, ReadyObservation, find_start_problem
from proctor.probe.view import View
from proctor.spec.duration import parse_duration_s
from proctor.spec.page_probes import BrowserSmoke, RenderHash
from proctor.spec.service_probes import ServiceSpec
from proctor.transport.process import ProcessResult
from proctor.workspace.name import quoted

CHROMIUM_VARIABLE: Final = "PROCTOR_CHROMIUM"
"""Names the Chromium to use, as an absolute path."""
CHROMIUM_NAMES: Final = ("chromium", "chromium-browser", "google-chrome")
"""Where Chromium is looked for on PATH, the first that exists."""
EXTRA: Final = "proctor-harness[browser]"

# Of the whole time, what the program in the fence has left for screenshot, trace and end after the last step.
_RESERVE_S: Final = 10.0
_RESERVE_SHARE: Final = 0.3
_MARGIN_S: Final = 1.0
_MARGIN_SHARE: Final = 0.1


class PageStep(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One action in a page, and the elements whose text is read after it. Never a text that is expected."""

    action: str
    target: str
    value: str = ""
    selector: str | None = None
    read: tuple[str, ...] = ()


class PageRequest(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What the program in the fence does."""

    chromium: str
    service: tuple[str, ...] | None
    ready_s: float
    stop_s: float
    file: str | None
    steps: tuple[PageStep, ...]
    width: int
    height: int
    has_trace: bool
    steps_until_s: float
    """When all steps must be done, by the machine's steady clock, which the fence shares."""
    end_until_s: float
    """When everything must be over, by the same clock."""


class SeenElement(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What a selector matched."""

    count: int
    text: str


class SeenStep(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What the page showed after one step."""

    problem: str | None
    title: str
    elements: tuple[SeenElement, ...]
    is_settled: bool


class SeenLines(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The first lines of one kind, and how many there were."""

    first: tuple[str, ...] = ()
    total: int = 0


class SeenPage(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Everything that was observed in the fence."""

    no_browser: str | None = None
    start_error: str | None = None
    ready: ReadyObservation | None = None
    steps: tuple[SeenStep, ...] = ()
    console: SeenLines = SeenLines()
    page_errors: SeenLines = SeenLines()
    requests: SeenLines = SeenLines()
    dialogs: SeenLines = SeenLines()
    blocked: SeenLines = SeenLines()
    popups: SeenLines = SeenLines()
    downloads: SeenLines = SeenLines()
    screenshot: str = ""
    trace: str = ""
    output: OutputObservation | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PageVisit:
    """What was observed of a page, or the judgement if it could not be looked at."""

    seen: SeenPage
    judgement: Judgement
    """Without a final verdict; with it if the page could not be looked at."""
    is_over: bool
    """Whether the judgement is final."""


def find_chromium(search_path: str) -> str | None:
    """Return the path of Chromium, or None if this machine has none: what PROCTOR_CHROMIUM names, else one on PATH."""
    named = os.environ.get(CHROMIUM_VARIABLE)
    if named is not None:
        is_program = Path(named).is_absolute() and Path(named).is_file() and os.access(named, os.X_OK)
        return named if is_program else None
    return next(filter(None, (shutil.which(name, path=search_path) for name in CHROMIUM_NAMES)), None)


def missing_modules(*modules: str) -> str | None:
    """Return a summary that names what to install if Proctor's environment lacks one of the modules, else None."""
    names = {"PIL": "Pillow"}
    absent = [names.get(module, module) for module in modules if importlib.util.find_spec(module) is None]
    return f"{' and '.join(absent)} is not in Proctor's environment: install {EXTRA}" if absent else None


def no_chromium() -> str:
    """Return the summary if there is no Chromium."""
    named = os.environ.get(CHROMIUM_VARIABLE)
    if named is not None:
        return f"{CHROMIUM_VARIABLE} is {named!r}, which is not the absolute path of a program"
    what = "install it (Debian's package chromium), or set PROCTOR_CHROMIUM to its absolute path"
    return f"Chromium is not on this machine: {what}"


def unavailable(summary: str, argv: tuple[str, ...]) -> Judgement:
    """Return the judgement if this machine lacks something."""
    return Judgement(verdict=Verdict.UNAVAILABLE, summary=summary, argv=argv, fault=Fault.MACHINE)


async def visit(
    spec: BrowserSmoke | RenderHash, workspace: ProbeWorkspace, steps: Sequence[PageStep], *, has_trace: bool
) -> PageVisit:
    """Do the steps in a page of the workspace, in the fence."""
    missing, chromium = _find_missing(spec, workspace)
    if missing is not None:
        return PageVisit(seen=SeenPage(), judgement=missing, is_over=True)
    timeout_s = parse_duration_s(spec.timeout)
    service = spec.service or ServiceSpec(start=["true"])
    now_s = SYSTEM_CLOCK.steady_s()
    workspace.programs.extend(
        await anyio.to_thread.run_sync(
            lambda: identify_programs(
                (chromium,),
                workspace=workspace.view.place,
                search_path=workspace.env["PATH"],
                agent_folders=workspace.agent_folders,
            )
        )
    )
    observed = await observe(
        _with_readable(workspace, Path(chromium)),
        "browser",
        PageRequest(
            chromium=chromium,
            service=None if spec.service is None else spec.service.argv,
            ready_s=parse_duration_s(service.ready),
            stop_s=parse_duration_s(service.stop),
            file=spec.file,
            steps=tuple(steps),
            width=spec.width,
            height=spec.height,
            has_trace=has_trace,
            steps_until_s=now_s + timeout_s - min(_RESERVE_S, timeout_s * _RESERVE_SHARE),
            end_until_s=now_s + timeout_s - min(_MARGIN_S, timeout_s * _MARGIN_SHARE),
        ),
        SeenPage,
        timeout_s=timeout_s,
        records=() if spec.service is None else spec.service.argv,
    )
    return _conclude(spec, observed.value, observed.finished, timeout_s=timeout_s)


def _find_missing(spec: BrowserSmoke | RenderHash, workspace: ProbeWorkspace) -> tuple[Judgement | None, str]:
    """Return the judgement if something is missing, and Chromium."""
    if (summary := missing_modules("playwright")) is not None:
        return unavailable(summary, spec.argv), ""
    chromium = find_chromium(workspace.env["PATH"])
    if chromium is None:
        workspace.note_missing(os.environ.get(CHROMIUM_VARIABLE, CHROMIUM_NAMES[0]))
        return unavailable(no_chromium(), spec.argv), ""
    if spec.service is not None:
        return judge_missing(spec.service.argv, workspace), chromium
    place = workspace.view.find(spec.file or "")
    if place is None or not place.is_file():
        summary = f"{quoted(spec.file or '')} is not in the workspace"
        return Judgement(verdict=Verdict.FAIL, summary=summary, argv=spec.argv), chromium
    return None, chromium


def _with_readable(workspace: ProbeWorkspace, program: Path) -> ProbeWorkspace:
    """Keep the folder of a program readable in the fence, also if it is below the user's home."""
    make = workspace.fence
    if make is None:
        return workspace

    def fence(started: str, view: View) -> Fences:
        fences = make(started, view)
        return replace(fences, read_only=(*fences.read_only, program.parent.resolve(), program.resolve().parent))

    return replace(workspace, fence=fence)


def _conclude(
    spec: BrowserSmoke | RenderHash, seen: SeenPage | None, finished: ProcessResult, *, timeout_s: float
) -> PageVisit:
    output = None if seen is None else seen.output
    # The observations are not what the product printed.
    finished = replace(
        finished,
        stdout=b"" if output is None else output.stdout.encode("latin-1", errors="replace"),
        stdout_cut=False,
        stderr=finished.stderr if output is None else output.stderr.encode("latin-1", errors="replace"),
    )
    judgement = Judgement(verdict=Verdict.FAIL, summary="", argv=spec.argv, finished=finished)
    if seen is None:
        summary = describe_exit(finished, timeout_s=timeout_s)
        if not finished.timed_out:
            summary = f"nothing was observed that can be read: the observer {summary}"
        return PageVisit(seen=SeenPage(), judgement=replace(judgement, summary=summary), is_over=True)
    if seen.no_browser is not None:
        summary = f"Chromium did not start: {seen.no_browser}"
        unable = replace(judgement, verdict=Verdict.UNAVAILABLE, fault=Fault.MACHINE, summary=summary)
        return PageVisit(seen=seen, judgement=unable, is_over=True)
    if seen.start_error is not None:
        summary = f"the service could not be started: {shorten(seen.start_error)}"
        return PageVisit(seen=seen, judgement=replace(judgement, summary=summary), is_over=True)
    problem = None if seen.ready is None else find_start_problem(seen.ready)
    if problem is not None:
        return PageVisit(seen=seen, judgement=replace(judgement, summary=problem), is_over=True)
    return PageVisit(seen=seen, judgement=judgement, is_over=False)


def decode_file(text: str) -> bytes:
    """Return a file that the program in the fence sent; empty if it is not base64."""
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return b""


def forbidden(seen: SeenPage) -> list[str]:
    """Return what no page may do, in words: open dialogs, windows or local files, or start downloads."""
    kinds = (
        ("opened a dialog", seen.dialogs),
        ("went to a forbidden address", seen.blocked),
        ("opened a window", seen.popups),
        ("started a download", seen.downloads),
    )
    return [describe_lines(what, lines) for what, lines in kinds if lines.total]


def describe_lines(what: str, lines: SeenLines) -> str:
    """Return what was observed, with the first line.

    >>> describe_lines("opened a dialog", SeenLines(first=("alert 'x'", "alert 'y'"), total=2))
    "opened a dialog: alert 'x' (and 1 more)"
    """
    more = f" (and {lines.total - 1} more)" if lines.total > 1 else ""
    return f"{what}: {shorten(lines.first[0]) if lines.first else '?'}{more}"


def shorten(text: str, limit: int = 160) -> str:
    """Return the beginning of a text in one line."""
    line = " ".join(text.split())
    return line if len(line) <= limit else f"{line[:limit]}…"
