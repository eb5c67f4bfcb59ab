"""Hide from agents what judges them: the spec, its scripts and hidden files, the evidence, Proctor's own folders."""

import os
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

from proctor import places
from proctor.contain.fences import Hiding, locate_hidden, resolve_existing
from proctor.contain.installed import installed
from proctor.contain.ladder import Containment
from proctor.errors import InputError
from proctor.fact import Authority, Fact
from proctor.plan.model import ResolvedFlow
from proctor.runtime.agent_fences import writes_only_own_folders
from proctor.runtime.base import Executable, Runtime
from proctor.runtime.executable import agents_dir
from proctor.spec.choices import Sandbox
from proctor.spec.fence import Contain
from proctor.spec.load import LoadedSpec

_ROOT: Final = Path("/")
_CERTIFICATES: Final = ("SSL_CERT_FILE", "SSL_CERT_DIR")

JudgingPaths = Mapping[str, frozenset[Path]]
"""The paths that agents must not see, by what they are, with links resolved. The evidence root may not exist yet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentSight:
    """What the agent of a flow can see of the folders that hold what judges it."""

    roles: tuple[str, ...] = ()
    """What is hidden, such as `spec`."""
    hidden: tuple[Path, ...] = ()
    """The hidden paths, some of which may not exist yet. Empty if nothing is hidden."""
    visible: tuple[Path, ...] = ()
    """Paths in hidden folders that the agent can read, because its program needs them."""
    own: tuple[Path, ...] = ()
    """Paths in hidden folders that belong to the agent: its user's home of the program, and its TMPDIR."""

    def hiding(self, *writable: Path) -> Hiding | None:
        """Return the mounts for a process of the agent that has no fences. `writable` are its folders, and exist."""
        if not self.hidden:
            return None
        return Hiding(
            hidden=tuple(resolve_existing(self.hidden)),
            writable=(*self.own, *resolve_existing(writable)),
            read_only=self.visible,
        )


def find_judging_paths(
    loaded: LoadedSpec, *, root: Path | None, hidden: Iterable[Path] = (), is_conversation: bool = False
) -> JudgingPaths:
    """Return what must be hidden from the agents of a spec. `hidden` are more files or folders of its missions.

    The folder of a conversation's spec is where the caller works, and often the workspace, so it is not hidden.
    """
    files = (loaded.path, *(loaded.folder / spelled for spelled in loaded.sources))
    paths: dict[str, Iterable[Path]] = {
        "spec": () if is_conversation else (loaded.folder, *files),
        "scripts": loaded.scripts.values(),
        "hiddenFiles": hidden,
        "proctor": (places.cache_dir(), places.state_dir(), places.config_file().parent),
    }
    found = {role: frozenset(resolve_existing(each)) for role, each in paths.items()}
    if not loaded.is_built and loaded.folder.resolve() == _ROOT:
        found["spec"] |= {_ROOT}
    if root is not None and root.resolve() != _ROOT:
        found["evidence"] = frozenset({root.resolve()})
    return {role: each for role, each in found.items() if each}


def find_hidden_from_probes(loaded: LoadedSpec, *, root: Path | None) -> tuple[Path, ...]:
    """Return what a fenced probe must not see: its programs run the agent's work, which could look for the answers."""
    judging = find_judging_paths(loaded, root=root, hidden=loaded.overlays.values())
    return tuple(sorted(frozenset[Path]().union(*judging.values()) - {_ROOT}))


def find_sight(
    judging: JudgingPaths,
    *,
    flow: ResolvedFlow,
    containment: Containment,
    program: Executable | None,
    options: Mapping[str, Any],
    env: Mapping[str, str],
    user_home: Path | None,
) -> AgentSight:
    """Return what the agent of a flow sees, as its files are now.

    Visible in a hidden folder are the agent's program with its package, the folders of its PATH, the environment of
    Proctor's own Python, certificates, and files that the flow's options name. Raises InputError if what judges the
    agent lies in one of these.
    """
    if not can_hide(flow, containment):
        return AgentSight()
    everything = frozenset[Path]().union(*judging.values())
    tops = frozenset(path for path in everything if everything.isdisjoint(path.parents))
    needed = {
        *_installed(env.get("PATH") or os.defpath, program=_start_path(program)),
        *map(str, _packages(program)),
        sys.prefix,
        *(env[name] for name in _CERTIFICATES if name in env),
        *_named_files(options),
    }
    visible = tuple(path for path in locate_hidden(needed, tops) if path.exists())
    _refuse_visible(everything, (*visible, *everything.intersection(map(Path, map(os.path.realpath, needed)))))
    own = [Path(path) for path in (user_home, env.get("TMPDIR")) if path]
    return AgentSight(
        roles=tuple(judging),
        hidden=tuple(sorted(tops)),
        visible=visible,
        own=tuple(path for path in sorted(resolve_existing(own)) if any(map(path.is_relative_to, tops))),
    )


def _refuse_visible(judging: Iterable[Path], visible: Iterable[Path]) -> None:
    for path in sorted(judging):
        for folder in (*visible, _ROOT) if path == _ROOT else visible:
            if path.is_relative_to(folder.resolve()):
                where = "is" if path == folder.resolve() else f"lies in {folder},"
                what = f"{path} must be hidden from the agent, but {where} a path that its program needs"
                raise InputError("policy.judge-visible", what)


def can_hide(flow: ResolvedFlow, containment: Containment) -> bool:
    """Return whether anything is hidden from the agent of a flow. It may still be able to undo that."""
    return containment.rung == 1 and flow.contain is not Contain.NONE


def why_not_enforced(runtime: Runtime, flow: ResolvedFlow, containment: Containment) -> str | None:
    """Return why the agent of a flow may see what judges it; None if it cannot."""
    if containment.rung != 1:
        return f"the containment `{containment.variant}` cannot hide files"
    if flow.contain is Contain.NONE:
        return "the flow has `contain: none`"
    if flow.sandbox is Sandbox.DANGER_FULL_ACCESS:
        return "the flow has `sandbox: danger-full-access`, in which root can unmount what hides files"
    if os.geteuid() == 0 and not writes_only_own_folders(runtime, flow):
        return "a command outside the agent's sandbox runs as root, which can unmount what hides files"
    return None


def hiding_fact(sight: AgentSight, runtime: Runtime, flow: ResolvedFlow, containment: Containment) -> Fact:
    """Return the fact `hiding`. It names what is hidden by its role, never by its path."""
    if getattr(runtime, "confinement", None) is None:
        source = f"{runtime.id} does not say how it starts its agents"
        return Fact(value=None, authority=Authority.UNKNOWN, source=source)
    why = why_not_enforced(runtime, flow, containment)
    return Fact(
        value={"hidden": list(sight.roles), "isEnforced": why is None, "why": why},
        authority=Authority.OBSERVED,
        source="how the agent's process was started",
    )


# ── what an agent needs ──


@lru_cache(maxsize=64)
def _installed(search_path: str, *, program: str) -> frozenset[str]:
    return installed(search_path, program=program)


def _start_path(program: Executable | None) -> str:
    return "" if program is None else program.start_path


def _packages(program: Executable | None) -> Iterator[Path]:
    if program is not None:
        for file in dict.fromkeys((program.path, *program.shims, program.real_path, program.start_path)):
            yield _package_of(Path(file))


def _package_of(file: Path) -> Path:
    """Return the folder of the package that a program was installed with, or the file itself.

    >>> str(_package_of(Path("/x/lib/python3.11/site-packages/codex_cli_bin/bin/codex")))
    '/x/lib/python3.11/site-packages/codex_cli_bin'
    >>> str(_package_of(Path("/x/node_modules/@a/b/node_modules/c/c.js")))
    '/x/node_modules'
    >>> str(_package_of(Path("/x/agent.sh")))
    '/x/agent.sh'
    """
    if (agents := agents_dir()) is not None and file.is_relative_to(agents):
        return agents
    for folder in reversed(file.parents):
        # A package of node imports those beside it.
        if folder.name == "node_modules" or folder.parent.name in ("site-packages", "dist-packages"):
            return folder
    return file


def _named_files(options: Any) -> Iterator[str]:
    """Yield the texts in a flow's options that are absolute paths of files, such as those of a program."""
    if isinstance(options, str):
        if options.startswith("/") and "\0" not in options and os.path.isfile(options):  # noqa: PTH113
            yield options
    elif isinstance(options, Mapping):
        for each in options.values():
            yield from _named_files(each)
    elif isinstance(options, list):
        for each in options:
            yield from _named_files(each)
