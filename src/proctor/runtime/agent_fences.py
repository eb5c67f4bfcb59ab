"""The fences around an agent that has no sandbox."""

from collections.abc import Collection, Iterable
from dataclasses import replace
from pathlib import Path

from proctor.contain.fences import Fences, fence_in
from proctor.fact import Authority, Fact
from proctor.plan.model import ResolvedFlow
from proctor.runtime.base import Confinement, Runtime, SessionRequest
from proctor.spec.choices import Approvals, Profile, Sandbox
from proctor.spec.fence import Contain, Network


def agent_fences(
    request: SessionRequest,
    *,
    home: Path,
    search_path: str,
    program: str = "",
    writable: Iterable[Path] = (),
    readable: Iterable[Path] = (),
) -> Fences | None:
    """Return the fences for a session, or None if the flow does not restrict the agent.

    The agent may write to its workspace (unless the sandbox is read-only), its temporary folder, its home and the
    `writable` paths. The user's home, Proctor's folders and the paths that the attempt hides are invisible, except for
    the `readable` paths, the `visible` paths of the request, and what is installed there for the program and the search
    path. Everything else is read-only. The network is open, because the agent needs its model. A readable path must
    exist, a writable one need not.
    """
    if not _is_fenced(request):
        return None
    is_read_only = request.sandbox is Sandbox.READ_ONLY
    fences = fence_in(
        (request.tmp, home, *writable) if is_read_only else (request.workspace, request.tmp, home, *writable),
        hidden=request.hidden,
        network=Network.HOST,
        search_path=search_path,
        program=program,
    )
    readable = (*readable, *request.visible)
    visible = (path.resolve() for path in ((request.workspace, *readable) if is_read_only else readable))
    return replace(fences, read_only=tuple(dict.fromkeys((*fences.read_only, *visible))))


def _is_fenced(flow: SessionRequest | ResolvedFlow) -> bool:
    return flow.contain is not Contain.NONE and flow.sandbox is not Sandbox.DANGER_FULL_ACCESS


def writes_only_own_folders(runtime: Runtime, flow: ResolvedFlow) -> bool:
    """Return whether an agent of the flow can write only to its workspace, home and TMPDIR.

    False if that is not certain: its requests to leave its own sandbox may be accepted, the user's own settings may
    allow more, or the runtime does not say what confines its agents.
    """
    if flow.profile is Profile.MINE:
        return False
    match getattr(runtime, "confinement", None):
        case Confinement.FENCES:
            return _is_fenced(flow)
        case Confinement.SANDBOX:
            is_boxed = flow.sandbox is not Sandbox.DANGER_FULL_ACCESS
            return is_boxed and flow.approvals in (Approvals.DENY, Approvals.WORKSPACE)
        case _:
            return False


def fences_fact(fences: Fences | None, request: SessionRequest, **roles: Path) -> Fact:
    """Return the fact `fences`. It names each path by its role, such as `workspace`, and never by its name."""
    paths_by_role = {"workspace": request.workspace, "tmp": request.tmp, **roles}
    real = {role: path.resolve() for role, path in paths_by_role.items()}

    def roles_in(paths: Collection[Path]) -> list[str]:
        return [role for role, path in real.items() if path in paths]

    value = None
    if fences is not None:
        others = ["other"] if {*fences.writable} - {*real.values()} else []
        value = {
            "writable": [*roles_in(fences.writable), *others],
            "readOnly": roles_in(fences.read_only),
            "network": fences.network.value,
        }
    how = "without fences" if fences is None else "the rest of the machine is read-only, the user's home hidden"
    return Fact(value=value, authority=Authority.OBSERVED, source=f"how the process was started: {how}")
