"""What of the machine a process sees: a read-only root with exceptions, each a path and what becomes of it."""

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
from proctor.spec.model import Network

# /run holds the sockets of services: with the network gone, docker.sock would still take orders.
_SHARED: Final = ("/tmp", "/var/tmp", "/run")  # noqa: S108
_LOOKING: Final = Lock()


class Fence(StrEnum):
    """What becomes of a path and all below it."""

    WRITABLE = "writable"
    HIDDEN = "hidden"  # an empty folder of the process's own lies over it
    READ_ONLY = "read-only"


@dataclass(frozen=True, slots=True, kw_only=True)
class Fences:
    """The root is read-only but for these paths, which exist. The deepest wins; of equals the first named here."""

    writable: tuple[Path, ...] = ()
    hidden: tuple[Path, ...] = ()
    read_only: tuple[Path, ...] = ()
    network: Network = Network.NONE

    def rules(self) -> list[tuple[Path, Fence]]:
        """Those that change something, a path before what lies below it.

        >>> home = Path("/home/ada")
        >>> fences = Fences(writable=(home / "w",), hidden=(home, home / ".ssh"), read_only=(Path("/usr"),))
        >>> [(str(path), fence.value) for path, fence in fences.rules()]
        [('/home/ada', 'hidden'), ('/home/ada/w', 'writable')]
        """
        fates = {
            **dict.fromkeys(self.read_only, Fence.READ_ONLY),
            **dict.fromkeys(self.hidden, Fence.HIDDEN),
            **dict.fromkeys(self.writable, Fence.WRITABLE),
        }
        named = {str(path): fate for path, fate in fates.items()}
        return [(path, fate) for path, fate in sorted(fates.items()) if fate is not _fate_above(str(path), named)]


def _fate_above(path: str, fates: Mapping[str, Fence]) -> Fence:
    # By strings: Path.parents makes an object for each folder on the way, at every spawn.
    while path != "/":
        path = path.rpartition("/")[0] or "/"
        if path in fates:
            return fates[path]
    return Fence.READ_ONLY


def fence_in(
    writable: Iterable[Path],
    *,
    hidden: Iterable[Path] = (),
    network: Network = Network.NONE,
    search_path: str = "",
    program: str = "",
) -> Fences:
    """Fences around a process that works in `writable`, for as long as these paths stay as they are.

    Hidden are the user's home, the folders everybody shares, our own, and those given. What is installed there for the
    search path, or for a program that is named by its path, stays readable.
    """
    hides = _real((*_homes(), *map(Path, _SHARED), places.cache_dir(), places.state_dir(), *hidden))
    tops = frozenset(path for path in hides if hides.isdisjoint(path.parents))
    # One at a time: sessions that begin together in threads would each look through the whole search path.
    with _LOOKING:
        needed = _needed(tops, search_path=search_path, program=program)
    if network is Network.HOST:
        needed += _lost({os.path.realpath("/etc/resolv.conf")}, tops)
    return Fences(
        writable=tuple(sorted(_real(writable))),
        hidden=tuple(sorted(hides)),
        read_only=tuple(path for path in needed if path.exists()),
        network=network,
    )


def _homes() -> list[Path]:
    """By the environment and by the user database: a program may ask either."""
    homes = [os.path.expanduser("~")]  # noqa: PTH111  Path.home() raises where there is none
    with suppress(KeyError):
        homes.append(pwd.getpwuid(os.getuid()).pw_dir)
    return [Path(home) for home in homes if home.startswith("/")]


def _real(paths: Iterable[Path]) -> set[Path]:
    """Those that exist, without links on the way. The root is left out: it can be neither hidden nor opened whole."""
    return {path.resolve() for path in paths if path.exists()} - {Path("/")}


@lru_cache(maxsize=64)
def _needed(hides: frozenset[Path], *, search_path: str, program: str) -> tuple[Path, ...]:
    return _lost(installed(search_path, program=program), hides)


def _lost(paths: Collection[str], hides: Collection[Path]) -> tuple[Path, ...]:
    """Which of these would be hidden, and where they stand then: visible links are followed, hidden ones are gone."""
    below = tuple(f"{place}/" for place in hides)
    found = set()
    for path in paths:
        if path.startswith(below) or os.path.realpath(path).startswith(below):
            here = Path("/")
            for part in Path(path).parts[1:]:
                here = here / part if str(here / part).startswith(below) else (here / part).resolve()
            found.add(here)
    return tuple(sorted(found))
