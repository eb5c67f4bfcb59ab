"""Fences: what a process may read, write and reach. Hiding: what a process that is otherwise free cannot see."""

import os
import pwd
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from pathlib import Path
from threading import Lock
from typing import Final

from proctor import places
from proctor.contain.installed import installed
from proctor.spec.fence import Network

# /run holds the sockets of services: docker.sock, for example, would accept commands even without a network.
_SHARED: Final = ("/tmp", "/var/tmp", "/run")  # noqa: S108
_SEARCH_LOCK: Final = Lock()


class Fence(StrEnum):
    """Access to a path and everything below it."""

    WRITABLE = "writable"
    HIDDEN = "hidden"
    """An empty temporary file system, private to the process, is mounted over the folder; /dev/null over a file."""
    READ_ONLY = "read-only"


@dataclass(frozen=True, slots=True, kw_only=True)
class Overlay:
    """Folders that a process sees as one, at one path. It can change what it sees there, and none of the folders."""

    place: Path
    layers: tuple[Path, ...]
    """The folders, the lowest first. A later one hides files of an earlier one."""
    changes: Path | None = None
    """The folder that receives what the process changes; None if that is discarded."""
    work: Path | None = None
    """An empty folder on the same disk as `changes`, which the kernel needs; None without `changes`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fences:
    """Exceptions to a read-only root. Every path must exist.

    The rule for the deepest enclosing path applies. If a path is listed more than once, writable wins over hidden, and
    hidden over read-only.
    """

    writable: tuple[Path, ...] = ()
    hidden: tuple[Path, ...] = ()
    read_only: tuple[Path, ...] = ()
    network: Network = Network.NONE
    overlay: Overlay | None = None
    """Mounted last, at a path that no rule lies below. Needs a containment that has overlays."""

    def rules(self) -> list[tuple[Path, Fence]]:
        """Return the rules that change the access of their path, each parent path before the paths below it.

        >>> home = Path("/home/ada")
        >>> fences = Fences(writable=(home / "w",), hidden=(home, home / ".ssh"), read_only=(Path("/usr"),))
        >>> [(str(path), fence.value) for path, fence in fences.rules()]
        [('/home/ada', 'hidden'), ('/home/ada/w', 'writable')]
        """
        return _effective(self, root=Fence.READ_ONLY)


@dataclass(frozen=True, slots=True, kw_only=True)
class Hiding:
    """Paths that a process cannot see, with exceptions. Everything else is as it is without a fence.

    Every path must exist. The rule for the deepest enclosing path applies, with the precedence of `Fences`.
    """

    hidden: tuple[Path, ...] = ()
    writable: tuple[Path, ...] = ()
    read_only: tuple[Path, ...] = ()
    """Visible although they lie in a hidden folder."""

    def rules(self) -> list[tuple[Path, Fence]]:
        """Return the rules that change the access of their path, each parent path before the paths below it.

        >>> repository = Path("/repository")
        >>> hiding = Hiding(hidden=(repository,), writable=(Path("/work"),), read_only=(repository / ".venv",))
        >>> [(str(path), fence.value) for path, fence in hiding.rules()]
        [('/repository', 'hidden'), ('/repository/.venv', 'read-only')]
        """
        return _effective(self, root=Fence.WRITABLE)


def _effective(paths: Fences | Hiding, *, root: Fence) -> list[tuple[Path, Fence]]:
    fences = {
        **dict.fromkeys(paths.read_only, Fence.READ_ONLY),
        **dict.fromkeys(paths.hidden, Fence.HIDDEN),
        **dict.fromkeys(paths.writable, Fence.WRITABLE),
    }
    by_path = {str(path): fence for path, fence in fences.items()}
    return [
        (path, fence)
        for path, fence in sorted(fences.items())
        if fence is not _fence_above(str(path), by_path, root=root)
    ]


def _fence_above(path: str, fences: Mapping[str, Fence], *, root: Fence) -> Fence:
    # Strings, because this runs at every spawn and Path.parents makes an object for each parent folder.
    while path != "/":
        path = path.rpartition("/")[0] or "/"
        if path in fences:
            return fences[path]
    return root


def fence_in(
    writable: Iterable[Path],
    *,
    hidden: Iterable[Path] = (),
    network: Network = Network.NONE,
    search_path: str = "",
    program: str = "",
) -> Fences:
    """Return the fences around a process that may write only in `writable`. They describe these paths as they are now.

    The user's home, the shared folders such as /tmp, Proctor's own cache and state folders, and the paths in `hidden`
    are hidden. Installations inside a hidden folder stay readable if `search_path` or `program` (an absolute path)
    needs them.
    """
    hidden_paths = resolve_existing((*_homes(), *map(Path, _SHARED), places.cache_dir(), places.state_dir(), *hidden))
    tops = frozenset(path for path in hidden_paths if hidden_paths.isdisjoint(path.parents))
    # The lock lets threads that start sessions together share one scan of the search path through the cache.
    with _SEARCH_LOCK:
        needed = _needed_paths(tops, search_path=search_path, program=program)
    if network is Network.HOST:
        needed += locate_hidden({os.path.realpath("/etc/resolv.conf")}, tops)
    return Fences(
        writable=tuple(sorted(resolve_existing(writable))),
        hidden=tuple(sorted(hidden_paths)),
        read_only=tuple(path for path in needed if path.exists()),
        network=network,
    )


def _homes() -> list[Path]:
    """Return the home folder from the environment and from the user database: a program may use either."""
    homes = [os.path.expanduser("~")]  # noqa: PTH111  Path.home() raises if there is no home
    with suppress(KeyError):
        homes.append(pwd.getpwuid(os.getuid()).pw_dir)
    return [Path(home) for home in homes if home.startswith("/")]


def resolve_existing(paths: Iterable[Path]) -> set[Path]:
    """Return the paths that exist, with links resolved. The root is left out: it cannot be hidden or made writable."""
    return {path.resolve() for path in paths if path.exists()} - {Path("/")}


@lru_cache(maxsize=64)
def _needed_paths(hidden: frozenset[Path], *, search_path: str, program: str) -> tuple[Path, ...]:
    return locate_hidden(installed(search_path, program=program), hidden)


def locate_hidden(paths: Collection[str], hidden: Collection[Path]) -> tuple[Path, ...]:
    """Return where those of `paths` that would be hidden must be mounted.

    Links that stay visible are resolved. Links inside a hidden folder no longer exist and are not resolved.
    """
    below = tuple(f"{folder}/" for folder in hidden)
    mount_points = set()
    for path in paths:
        if path.startswith(below) or os.path.realpath(path).startswith(below):
            here = Path("/")
            for part in Path(path).parts[1:]:
                here = here / part if str(here / part).startswith(below) else (here / part).resolve()
            mount_points.add(here)
    return tuple(sorted(mount_points))
