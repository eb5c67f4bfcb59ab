"""The command line of one turn, and how it opens its thread."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

from proctor.errors import RefusedError
from proctor.ids import ThreadId
from proctor.runtime.base import HostRequest, SessionRequest
from proctor.runtime.codex.home import (
    BASE_URL,
    PROVIDER,
    as_arguments,
    codex_home,
    overrides,
    thread_settings,
    written_profile,
)
from proctor.runtime.codex.stored_threads import is_id
from proctor.runtime.conversion import clean
from proctor.spec.choices import SCRIPTED

How = Literal["start", "resume", "fork"]
INSTRUCTIONS: Final = "developer_instructions"


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


@contextmanager
def written_arguments(
    host: HostRequest, request: SessionRequest, opening: Opening, *, schema: Path | None
) -> Iterator[Sequence[str]]:
    """Yield the command line of a turn, whose files exist inside the block.

    Every user of the machine can read a command line, and Linux limits the length of one argument to 128 KiB. So what
    is private or long is in a profile, a file of settings that `--profile` names: the URL of a scripted model, which
    holds a token, and instructions.
    """
    settings = {**overrides(host), **thread_settings(request), "model_provider": PROVIDER}
    private: dict[str, Any] = {}
    if request.model.provider == SCRIPTED and BASE_URL in settings:
        private[BASE_URL] = settings.pop(BASE_URL)
    if (instructions := instructions_of(request, opening)) is not None:
        private[INSTRUCTIONS] = instructions
    if not private:
        yield arguments(host, request, opening, settings=settings, schema=schema)
        return
    with written_profile(private, home=codex_home(host)) as profile:
        yield arguments(host, request, opening, settings=settings, schema=schema, profile=profile)


def instructions_of(request: SessionRequest, opening: Opening) -> str | None:
    """Return the instructions that Codex gets with this turn. It takes them only for a new thread."""
    return clean(request.instructions) if opening.how == "start" and request.instructions is not None else None


def arguments(
    host: HostRequest,
    request: SessionRequest,
    opening: Opening,
    *,
    settings: Mapping[str, Any],
    schema: Path | None,
    profile: str | None = None,
) -> Sequence[str]:
    """Return the command line of a turn. The prompt is sent to stdin. `exec` never asks, and denies by itself."""
    return [
        host.program.start_path,
        "exec",
        "--json",
        # A workspace need not be a git repository.
        "--skip-git-repo-check",
        *([] if is_kept(request) else ["--ephemeral"]),
        *("--sandbox", request.sandbox.value, "--cd", str(request.workspace), "--model", request.model.name),
        *([] if profile is None else ["--profile", profile]),
        *as_arguments(settings),
        *([] if schema is None else ["--output-schema", str(schema)]),
        *([] if opening.of is None else [opening.how, opening.of]),
        "-",
    ]
