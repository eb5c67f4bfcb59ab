"""Explain one attempt. Without a seal, the explanation is derived from its frames as far as they go."""

import shlex
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import msgspec

from proctor import decoding
from proctor.attempt.recheck import derive_again
from proctor.errors import ProctorError
from proctor.event.trace import ToolCall
from proctor.evidence.artifacts import Feedback
from proctor.evidence.attempt_files import AttemptFiles
from proctor.evidence.layout import TOOL_CALLS, AttemptPaths, RootPaths
from proctor.ids import AttemptId
from proctor.ledger.reader import read_origin
from proctor.report.explanation import AttemptExplanation, explain
from proctor.report.live import is_running
from proctor.report.planned import read_frozen
from proctor.report.view import AttemptView, view_attempt
from proctor.workspace.snapshot import EMPTY


def explain_attempt(paths: AttemptPaths, *, spell: Callable[[str], str]) -> AttemptExplanation:
    """Return the explanation of an attempt. `spell` formats the suggested commands for this user."""
    with AttemptFiles(paths) as files:
        view, tokens = _view(files)
    explanation = explain(view, is_running=is_running(paths), make_workspace=_make_workspace(view))
    return msgspec.structs.replace(
        explanation,
        tokens=explanation.tokens if tokens is None else tokens,
        next=tuple(map(spell, explanation.next)),
    )


def _make_workspace(view: AttemptView) -> str | None:
    """Return a shell command that makes the untouched workspace in the current folder; None if it cannot be made."""
    record = view.record
    if record is None:
        return None
    if record.workspace_digest == EMPTY.digest:
        return ""
    try:
        campaign = RootPaths(view.paths.folder.absolute().parents[3]).campaign(record.campaign_id)
        origin = read_origin(campaign.ledger) if campaign.ledger.is_file() else None
    except ProctorError:
        return None
    keys = (key for key, digest in read_frozen(campaign).workspaces.items() if digest == record.workspace_digest)
    key = next(keys, None)
    if origin is None or not origin.file or key is None:
        return None
    if not key.startswith("git:"):
        source = Path(origin.file).parent / key
        return shlex.join(["cp", "-R", f"{source}/.", "."]) if source.is_dir() else None
    path, _, ref = key.removeprefix("git:").rpartition("@")
    source = Path(origin.file).parent / path
    if not source.is_dir():
        return None
    return f"{shlex.join(['git', 'clone', '-q', str(source), '.'])} && {shlex.join(['git', 'checkout', '-q', ref])}"


def _view(files: AttemptFiles) -> tuple[AttemptView, int | None]:
    """Return what the files contain and, without a seal, the tool calls, the claim and the tokens by the frames."""
    view = view_attempt(files)
    if files.is_sealed:
        return view, None
    try:
        again = derive_again(files)
    except ProctorError:
        return view, None  # the files are all there is
    calls = tuple(_call(line) for line in again.files[TOOL_CALLS].splitlines())
    claim = msgspec.structs.asdict(again.derived.claim)
    feedback = view.feedback or Feedback(attempt_id=AttemptId(view.paths.folder.name), **claim)
    return replace(view, tool_calls=calls, feedback=feedback), again.derived.metrics.total_tokens


def _call(line: bytes) -> ToolCall:
    # The fields of the hash chain are not needed, and are ignored.
    return decoding.decode(line, ToolCall)
