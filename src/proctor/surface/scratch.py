"""Workspaces and agent homes that a dead run left in the user's cache."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from proctor.workspace.remove import remove

_KEPT = "kept-on-purpose"
_STAMP = len("YYYYMMDD-hhmmss")


@dataclass(frozen=True, slots=True, kw_only=True)
class Swept:
    """Folders by the id of their run: taken away, kept for a reason, or refused by the machine."""

    removed: tuple[str, ...] = ()
    kept: tuple[str, ...] = ()
    busy: tuple[str, ...] = ()
    refused: tuple[str, ...] = ()


def keep(scratch: Path) -> None:
    """Mark a run's folder as one that its owner wants to look at."""
    if scratch.is_dir():
        (scratch / _KEPT).touch()


def sweep(runs: Path) -> Swept:
    """Remove what no live Proctor can be using. Runs that began after one that still lives may be its own."""
    # Listed before the living are: a run takes its campaign's lock before it makes its folder.
    folders = sorted(each for each in runs.iterdir() if each.is_dir()) if runs.is_dir() else []
    oldest_living = min(_living(), default=None)
    removed, kept, busy, refused = [], [], [], []
    for folder in folders:
        if (folder / _KEPT).exists():
            kept.append(folder.name)
        elif oldest_living is not None and folder.name[:_STAMP] >= oldest_living:
            busy.append(folder.name)
        else:
            try:
                remove(folder)
                removed.append(folder.name)
            except OSError:
                refused.append(folder.name)
    return Swept(removed=tuple(removed), kept=tuple(kept), busy=tuple(busy), refused=tuple(refused))


def _living() -> Iterator[str]:
    """When each campaign began that some process holds the lock of now; the time is part of its id."""
    for process in Path("/proc").glob("[0-9]*"):
        try:
            handles = list((process / "fd").iterdir())
        except OSError:  # another user's, or gone meanwhile
            continue
        for handle in handles:
            try:
                lock = handle.readlink()
            except OSError:
                continue
            if lock.name == "lock" and lock.parent.parent.name == "campaigns":
                yield lock.parent.name[-len("YYYYMMDD-hhmmss-xxxxxx") :][:_STAMP]
