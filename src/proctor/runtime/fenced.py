"""The fences around an agent that has no sandbox of its own."""

from collections.abc import Collection, Iterable
from dataclasses import replace
from pathlib import Path

from proctor.contain.fences import Fences, fence_in
from proctor.fact import Authority, Fact
from proctor.runtime.base import SessionAsk
from proctor.spec.model import Contain, Network, Sandbox


def agent_fences(
    ask: SessionAsk,
    *,
    home: Path,
    search_path: str,
    program: str = "",
    writable: Iterable[Path] = (),
    readable: Iterable[Path] = (),
) -> Fences | None:
    """None where the flow leaves the machine open to it.

    Its workspace, unless that is read-only to it, its temporary folder, its home and what is named `writable` are
    writable, the rest of the machine is not; the user's home, our own folders and what the attempt hides are not there
    at all, but for what is installed there for the program and the search path, and what is named `readable`. It has
    the machine's network: its model is there. What is to be readable must exist; what is to be writable need not.
    """
    if ask.contain is Contain.NONE or ask.sandbox is Sandbox.DANGER_FULL_ACCESS:
        return None
    is_read_only = ask.sandbox is Sandbox.READ_ONLY
    fences = fence_in(
        (ask.tmp, home, *writable) if is_read_only else (ask.workspace, ask.tmp, home, *writable),
        hidden=ask.hidden,
        network=Network.HOST,
        search_path=search_path,
        program=program,
    )
    kept = (path.resolve() for path in ((ask.workspace, *readable) if is_read_only else readable))
    return replace(fences, read_only=tuple(dict.fromkeys((*fences.read_only, *kept))))


def fences_fact(fences: Fences | None, ask: SessionAsk, **roles: Path) -> Fact:
    """What was raised, in the same words for every agent: by what a path is to it, and never by the path."""
    named = {"workspace": ask.workspace, "tmp": ask.tmp, **roles}
    real = {role: path.resolve() for role, path in named.items()}

    def among(paths: Collection[Path]) -> list[str]:
        return [role for role, path in real.items() if path in paths]

    value = None
    if fences is not None:
        others = ["other"] if {*fences.writable} - {*real.values()} else []
        value = {
            "writable": [*among(fences.writable), *others],
            "readOnly": among(fences.read_only),
            "network": fences.network.value,
        }
    why = "none were raised" if fences is None else "the rest of the machine is read-only, the user's home hidden"
    return Fact(value=value, authority=Authority.OBSERVED, source=f"how the process was started: {why}")
