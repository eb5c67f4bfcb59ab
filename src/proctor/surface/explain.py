"""Explain one attempt. Without a seal, the explanation is derived from its frames as far as they go."""

import shlex
import tempfile
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec

from proctor import decoding, places
from proctor.attempt.recheck import derive_again
from proctor.errors import ProctorError
from proctor.event.trace import ToolCall
from proctor.evidence.artifacts import Feedback
from proctor.evidence.attempt_files import AttemptFiles
from proctor.evidence.layout import TOOL_CALLS, AttemptPaths, RootPaths
from proctor.ids import AttemptId, Digest
from proctor.ledger.reader import read_origin
from proctor.report.explanation import HEADLESS_RUN, AttemptExplanation, ProbeSummary, explain
from proctor.report.live import is_running
from proctor.report.planned import read_frozen
from proctor.report.view import AttemptView, view_attempt
from proctor.spec.model import COPY_KEY, GIT_KEY
from proctor.workspace.clone import clone
from proctor.workspace.git import git
from proctor.workspace.prepare import is_excluded
from proctor.workspace.remove import remove
from proctor.workspace.snapshot import EMPTY, snapshot


def explain_attempt(paths: AttemptPaths, *, spell: Callable[[str], str]) -> AttemptExplanation:
    """Return the explanation of an attempt. `spell` formats the suggested commands for this user."""
    with AttemptFiles(paths) as files:
        view, tokens = _view(files)
    is_live = is_running(paths)
    recipe = _Recipe() if is_live or not view.probes else _find_recipe(view)
    explanation = explain(view, is_running=is_live, make_workspace=recipe.command, workspace_problem=recipe.problem)
    return msgspec.structs.replace(
        explanation,
        tokens=explanation.tokens if tokens is None else tokens,
        next=tuple(map(spell, explanation.next)),
        probes=tuple(
            msgspec.structs.replace(
                each, run_again=spell(f"proctor regrade {view.record.run_id}/{view.record.attempt_id}")
            )
            if view.record is not None and not is_live and _needs_regrade(each, recipe)
            else each
            for each in explanation.probes
        ),
    )


def _needs_regrade(probe: ProbeSummary, recipe: "_Recipe") -> bool:
    """Return whether only Proctor can run a probe again: more than a command, or one on hidden files."""
    return probe.failure is not None and (probe.kind != HEADLESS_RUN or recipe.has_hidden_files)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Recipe:
    """How the untouched workspace of an attempt is made again."""

    command: str | None = None
    """A shell command that makes it in the current folder; empty if it is empty, None if it cannot be made."""
    problem: str | None = None
    """Why it cannot be made, in a few words; None if it can or that is unknown."""
    has_hidden_files: bool = False
    """Whether probes see hidden files, which a command cannot lay over it."""


def _find_recipe(view: AttemptView) -> _Recipe:
    """Return how to make the workspace again, if its source is still as it was when the campaign began."""
    record = view.record
    if record is None:
        return _Recipe()
    if record.workspace_digest == EMPTY.digest:
        return _Recipe(command="")
    try:
        campaign = RootPaths(view.paths.folder.absolute().parents[3]).campaign(record.campaign_id)
        origin = read_origin(campaign.ledger) if campaign.ledger.is_file() else None
    except ProctorError:
        return _Recipe()
    frozen = read_frozen(campaign)
    if frozen.overlays:
        return _Recipe(has_hidden_files=True)
    keys = (key for key, digest in frozen.workspaces.items() if digest == record.workspace_digest)
    key = next(keys, None)
    if origin is None or not origin.file or key is None:
        return _Recipe()
    try:
        if key.startswith(GIT_KEY):
            path, _, ref = key.removeprefix(GIT_KEY).rpartition("@")
            return _recipe_of_clone(Path(origin.file).parent / path, ref, wanted=record.workspace_digest)
        path, exclude = _read_copy_key(key)
        return _recipe_of_copy(Path(origin.file).parent / path, exclude, wanted=record.workspace_digest)
    except (ProctorError, OSError, msgspec.DecodeError) as error:
        return _Recipe(problem=f"the workspace cannot be made again: {error}")


def _recipe_of_copy(source: Path, exclude: Sequence[str], *, wanted: Digest) -> _Recipe:
    if not source.is_dir():
        return _Recipe(problem=f"there is no folder {source}")
    seen = snapshot(source.resolve())
    left = replace(
        seen,
        entries=tuple(each for each in seen.entries if not is_excluded(each.path, exclude)),
        repository=None if is_excluded(".git", exclude) else seen.repository,
    )
    if left.digest != wanted:
        return _Recipe(problem=f"{source} has changed since the campaign began")
    steps = [["cp", "-R", f"{source}/.", "."], *([["rm", "-rf", "--", *exclude]] if exclude else [])]
    return _Recipe(command=" && ".join(map(shlex.join, steps)))


def _recipe_of_clone(source: Path, ref: str, *, wanted: Digest) -> _Recipe:
    """Return the recipe for the commit that `ref` names now, if a clone of it is the workspace of the campaign."""
    cache = places.cache_dir()
    cache.mkdir(mode=0o700, parents=True, exist_ok=True)
    scratch = Path(tempfile.mkdtemp(prefix="explain-", dir=cache))
    copy = scratch / "workspace"
    try:
        clone(source, ref, into=copy)
        if snapshot(copy).digest != wanted:
            return _Recipe(problem=f"{ref} of {source} has changed since the campaign began")
        commit = git("rev-parse", "HEAD", cwd=copy).decode().strip()
    finally:
        with suppress(OSError):
            remove(scratch)
    steps = [["git", "clone", "-q", str(source), "."], ["git", "checkout", "-q", commit]]
    return _Recipe(command=" && ".join(map(shlex.join, steps)))


def _read_copy_key(key: str) -> tuple[str, list[str]]:
    """Return the folder and the excluded paths of `WorkspaceSpec.key`."""
    if not key.startswith(COPY_KEY):
        return key, []
    path, *exclude = decoding.decode(key.removeprefix(COPY_KEY), list[str])
    return path, exclude


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
