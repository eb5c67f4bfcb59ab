"""The fences around an agent that has no sandbox of its own."""

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from proctor.contain.fences import Fences, fence_in
from proctor.runtime.base import SessionAsk
from proctor.spec.model import Contain, Network, Sandbox


def agent_fences(
    ask: SessionAsk, *, home: Path, program: str, search_path: str, readable: Iterable[Path] = ()
) -> Fences | None:
    """None where the flow leaves the machine open to it.

    Its workspace, unless that is read-only to it, its temporary folder and its home are writable, the rest of the
    machine is not; the user's home, our own folders and what the attempt hides are not there at all, but for what is
    installed there for the program and the search path, and what is named `readable`. It has the machine's network:
    its model is there. All of these paths must exist.
    """
    if ask.contain is Contain.NONE or ask.sandbox is Sandbox.DANGER_FULL_ACCESS:
        return None
    is_read_only = ask.sandbox is Sandbox.READ_ONLY
    fences = fence_in(
        (ask.tmp, home) if is_read_only else (ask.workspace, ask.tmp, home),
        hidden=ask.hidden,
        network=Network.HOST,
        search_path=search_path,
        program=program,
    )
    kept = (path.resolve() for path in ((ask.workspace, *readable) if is_read_only else readable))
    return replace(fences, read_only=tuple(dict.fromkeys((*fences.read_only, *kept))))
