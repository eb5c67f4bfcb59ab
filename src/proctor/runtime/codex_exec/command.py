"""The command line of one turn, and how it opens its thread."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from proctor.errors import RefusedError
from proctor.ids import ThreadId
from proctor.runtime.base import HostRequest, SessionRequest
from proctor.runtime.codex.home import PROVIDER, as_arguments, overrides, thread_settings
from proctor.runtime.codex_exec.rollout import is_id

How = Literal["start", "resume", "fork"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Opening:
    """How a turn opens its thread. `of` is the existing thread to resume or fork."""

    how: How = "start"
    of: ThreadId | None = None


def opening_of(request: SessionRequest, *, current: ThreadId | None) -> Opening:
    """Return how the next turn opens its thread. Raises RefusedError if the thread cannot be resumed."""
    if current is not None:
        if not is_kept(request):
            what = "codex exec cannot continue an ephemeral thread with another turn"
            raise RefusedError("runtime.capability", f"{what}: make the session persistent")
        return Opening(how="resume", of=_checked(current))
    if request.resume is not None:
        return Opening(how="resume", of=_checked(request.resume))
    return Opening() if request.fork is None else Opening(how="fork", of=_checked(request.fork))


def is_kept(request: SessionRequest) -> bool:
    return request.is_persistent or request.resume is not None


def _checked(named: ThreadId) -> ThreadId:
    if not is_id(named):
        raise RefusedError("peer.refused", f"{named!r} is not a Codex thread id")
    return named


def arguments(host: HostRequest, request: SessionRequest, opening: Opening, *, schema: Path | None) -> Sequence[str]:
    """Return the command line of a turn. The prompt is sent to stdin. `exec` never asks, and denies by itself."""
    settings = {**thread_settings(request), "model_provider": PROVIDER}
    return [
        host.program.real_path,
        "exec",
        "--json",
        # A workspace need not be a git repository.
        "--skip-git-repo-check",
        *([] if is_kept(request) else ["--ephemeral"]),
        *("--sandbox", request.sandbox.value, "--cd", str(request.workspace), "--model", request.model.name),
        *overrides(host),
        *as_arguments(settings),
        *([] if schema is None else ["--output-schema", str(schema)]),
        *([] if opening.of is None else [opening.how, opening.of]),
        "-",
    ]
