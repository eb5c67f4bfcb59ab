"""Show the files of one attempt, as JSON or as text."""

from collections.abc import Iterator
from typing import Any

import msgspec
from rich.console import Group, RenderableType
from rich.text import Text

from proctor.evidence import layout
from proctor.report.format_values import legible
from proctor.report.text import render_findings
from proctor.report.view import AttemptView


def artifacts(view: AttemptView) -> dict[str, Any]:
    """Return what `attempt show --json` prints. A missing or damaged file is null, and `findings` says why."""
    return {
        "dir": str(view.paths.folder),
        "attempt": view.record,
        "prompt": view.prompt,
        "toolCalls": view.tool_calls,
        "transcript": view.transcript,
        "runnerRef": view.runner,
        "feedback": view.feedback,
        "probes": view.probes,
        "workspaceDiff": view.diff,
        "report": view.report,
        "seal": view.seal,
        "findings": view.findings,
    }


def render_artifacts(view: AttemptView) -> RenderableType:
    """Render the files one after the other, without the frames."""
    parts: list[RenderableType] = []
    for name, text in _files(view):
        parts += [Text(name, style="bold"), Text(legible(text).rstrip() or "(empty)"), Text()]
    if view.findings:
        parts += [Text("findings", style="bold red"), render_findings(view.findings), Text()]
    return Group(*parts, Text(legible(str(view.paths.folder)), style="dim"))


def _files(view: AttemptView) -> Iterator[tuple[str, str]]:
    structs = (
        (layout.ATTEMPT, view.record),
        (layout.RUNNER_REF, view.runner),
        (layout.FEEDBACK, view.feedback),
        (layout.REPORT, view.report),
        (layout.SEAL, view.seal),
    )
    texts = ((layout.PROMPT, view.prompt), (layout.WORKSPACE_DIFF, view.diff))
    streams = (
        (layout.TOOL_CALLS, view.tool_calls),
        (layout.TRANSCRIPT, view.transcript),
        (layout.PROBES, view.probes),
    )
    found = {
        **{name: None if value is None else layout.render_artifact(value).decode() for name, value in structs},
        **dict(texts),
        **{name: "\n".join(msgspec.json.encode(row).decode() for row in rows) for name, rows in streams},
    }
    for name in (*layout.SEALED, layout.SEAL):
        if name != layout.FRAMES:
            text = found[name]
            yield name, "(missing)" if text is None else text
