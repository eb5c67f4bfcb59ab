"""What a probe sees in place of the workspace: an overlay where this machine can mount one, otherwise a copy.

The subject is the lowest layer. What the probe writes is discarded or goes to a separate folder, so the subject stays
as it is, whatever the probe does.
"""

import os
import stat
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from proctor.contain.fences import Overlay
from proctor.errors import disk_error
from proctor.ids import Digest
from proctor.probe.model import ViewKind
from proctor.workspace.copy import copy_tree
from proctor.workspace.prepare import split_links_out
from proctor.workspace.remove import remove
from proctor.workspace.snapshot import Snapshot
from proctor.workspace.walk import EntryKind, walk

_WHITEOUT: Final = os.makedev(0, 0)
_NOT_COPIED: Final = (EntryKind.FIFO, EntryKind.SOCKET, EntryKind.DEVICE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """A workspace to be judged, as it is during one phase. Its processes have ended, so it does not change."""

    folder: Path
    digest: Digest
    left_out: tuple[str, ...] = ()
    """Paths that no probe sees: links out of the workspace, pipes, sockets and devices."""
    links_out: tuple[str, ...] = ()
    """Those of `left_out` that are links. What they lead to is not evidence, so no verdict may depend on it."""
    tree: Snapshot | None = None
    """The snapshot with that digest; None if only the digest is known."""
    has_overlay_attributes: bool = False
    """Whether a file has an attribute with which an overlay mount would show another tree. The view is then a copy."""


def examine_subject(folder: Path, digest: Digest, *, tree: Snapshot | None = None) -> Subject:
    """Return the subject in a folder whose digest, and maybe its snapshot, is known."""
    inside, outside = split_links_out(folder, walk(folder))
    special = [item.path for item in inside if item.kind in _NOT_COPIED]
    links = tuple(item.path for item in outside)
    return Subject(
        folder=folder,
        digest=digest,
        left_out=(*links, *special),
        links_out=links,
        tree=tree,
        has_overlay_attributes=any(_has_overlay_attributes(folder / item.path) for item in inside),
    )


def _has_overlay_attributes(path: Path) -> bool:
    try:
        return any(name.partition(".")[2].startswith("overlay.") for name in os.listxattr(path, follow_symlinks=False))
    except OSError:
        return False


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """What one run of a probe sees."""

    kind: ViewKind
    place: Path
    """Where the probe's programs find the workspace."""
    layers: tuple[Path, ...]
    """The folders that the view consists of, the lowest first. A later one hides files of an earlier one."""
    changes: Path | None = None
    """The folder that receives what the probe changes; None if that is discarded, or is in the copy itself."""
    work: Path | None = None
    """An empty folder on the same disk as `changes`, which the kernel needs; None without `changes`."""

    @property
    def overlay(self) -> Overlay | None:
        """The mount that makes the view; None for a copy."""
        if self.kind is ViewKind.COPY:
            return None
        return Overlay(place=self.place, layers=self.layers, changes=self.changes, work=self.work)

    def find(self, path: str) -> Path | None:
        """Return where a path of the view is outside the fence; None if it is not in the view.

        Links are not resolved: what they lead to in the view may be in another layer.
        """
        for layer in reversed(self.layers):
            place = layer / path
            try:
                status = place.lstat()
            except (OSError, ValueError):
                continue
            is_whiteout = stat.S_ISCHR(status.st_mode) and status.st_rdev == _WHITEOUT
            return None if is_whiteout else place
        return None


def make_view(
    subject: Subject,
    *,
    folder: Path,
    has_overlays: bool,
    over: Sequence[Path] = (),
    removed: Iterable[str] = (),
    keep_changes: bool = False,
) -> View:
    """Make a view of a subject in the empty folder `folder`.

    The folders `over` are laid over the subject, the last one on top. Files and folders in `removed` are not in the
    view unless a folder of `over` has them. Raises InputError if the subject cannot be read, and MachineError if
    `folder` cannot be written.
    """
    gone = (*subject.left_out, *removed)
    try:
        if has_overlays and not subject.has_overlay_attributes:
            view = _overlay(subject, gone, folder=folder, over=over, keep_changes=keep_changes)
            if view is not None:
                return view
        _copy(subject, gone, over, into=folder)
    except OSError as error:
        raise disk_error(error, path=folder) from error
    return View(kind=ViewKind.COPY, place=folder, layers=(folder,))


def _overlay(
    subject: Subject, gone: Sequence[str], *, folder: Path, over: Sequence[Path], keep_changes: bool
) -> View | None:
    """Return the view as an overlay, or None if this user may not hide files of a layer."""
    layers = [subject.folder]
    if gone:
        without = folder / "without"
        without.mkdir(mode=0o700)
        without.chmod(stat.S_IMODE(subject.folder.stat().st_mode))
        try:
            for path in gone:
                _white_out(subject.folder, path, layer=without)
        except PermissionError:
            remove(without)
            return None
        layers.append(without)
    layers += over
    if not keep_changes:
        return View(kind=ViewKind.OVERLAY, place=subject.folder, layers=tuple(layers))
    changes, work = folder / "changes", folder / "work"
    for each in (changes, work):
        each.mkdir(mode=0o700)
    return View(kind=ViewKind.OVERLAY, place=subject.folder, layers=tuple(layers), changes=changes, work=work)


def _white_out(root: Path, path: str, *, layer: Path) -> None:
    """Hide a path of the layers below. Its parent folders keep their modes: those of the highest layer count."""
    if not os.path.lexists(root / path):
        return
    for parent in [*Path(path).parents][-2::-1]:
        place = layer / parent
        if not place.exists():
            place.mkdir(mode=0o700)
            place.chmod(stat.S_IMODE((root / parent).stat().st_mode))
    os.mknod(layer / path, stat.S_IFCHR, _WHITEOUT)


def _copy(subject: Subject, gone: Sequence[str], over: Sequence[Path], *, into: Path) -> None:
    hidden = set(gone)
    entries = [item for item in walk(subject.folder) if not any(part in hidden for part in _with_parents(item.path))]
    copy_tree(subject.folder, entries, into=into)
    for layer in over:
        _lay_over(layer, into)


def _with_parents(path: str) -> list[str]:
    """
    >>> _with_parents("a/b/c")
    ['a/b/c', 'a/b', 'a']
    """
    found = [path]
    while "/" in path:
        path = path.rpartition("/")[0]
        found.append(path)
    return found


def _lay_over(layer: Path, into: Path) -> None:
    """Copy a layer over a copy, as an overlay mount would show it: a file replaces what has its name."""
    for item in walk(layer):
        target = into / item.path
        is_folder = item.kind is EntryKind.DIR
        if os.path.lexists(target) and not (is_folder and target.is_dir() and not target.is_symlink()):
            remove(target)
        if not is_folder:
            copy_tree(layer, [item], into=into)
        else:
            target.mkdir(exist_ok=True)
            target.chmod(item.mode)
