"""One turn as a command line: what is started, and how it comes by its thread."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from proctor.errors import RefusedError
from proctor.ids import ThreadId
from proctor.runtime.base import HostAsk, SessionAsk
from proctor.runtime.codex.home import PROVIDER, as_arguments, overrides, thread_settings
from proctor.runtime.codex_exec.rollout import is_id

How = Literal["start", "resume", "fork"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Opening:
    """A new thread, one that goes on, or one with the history of another; `of` is the one there is already."""

    how: How = "start"
    of: ThreadId | None = None


def opening_of(ask: SessionAsk, *, current: ThreadId | None) -> Opening:
    """How the next turn of a session begins. RefusedError where there is no such thread to go on with."""
    if current is not None:
        if not is_kept(ask):
            what = "codex exec keeps nothing of an ephemeral thread that another turn could go on with"
            raise RefusedError("runtime.capability", f"{what}: make the session persistent")
        return Opening(how="resume", of=_checked(current))
    if ask.resume is not None:
        return Opening(how="resume", of=_checked(ask.resume))
    return Opening() if ask.fork is None else Opening(how="fork", of=_checked(ask.fork))


def is_kept(ask: SessionAsk) -> bool:
    return ask.is_persistent or ask.resume is not None


def _checked(named: ThreadId) -> ThreadId:
    if not is_id(named):
        raise RefusedError("peer.refused", f"{named!r} is not the id of a thread of Codex's")
    return named


def arguments(host: HostAsk, ask: SessionAsk, opening: Opening, *, schema: Path | None) -> Sequence[str]:
    """The prompt comes by stdin. It is asked nothing on the way: `exec` has nobody to ask, and refuses by itself."""
    settings = {**thread_settings(ask), "model_provider": PROVIDER}
    return [
        host.program.real_path,
        "exec",
        "--json",
        # An attempt's workspace is whatever the mission says it is.
        "--skip-git-repo-check",
        *([] if is_kept(ask) else ["--ephemeral"]),
        *("--sandbox", ask.sandbox.value, "--cd", str(ask.workspace), "--model", ask.model.name),
        *overrides(host),
        *as_arguments(settings),
        *([] if schema is None else ["--output-schema", str(schema)]),
        *([] if opening.of is None else [opening.how, opening.of]),
        "-",
    ]
