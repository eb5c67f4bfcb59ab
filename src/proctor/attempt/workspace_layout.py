"""Creates the scratch folder of an attempt or conversation, and lays out its workspace in one of four ways."""

import os
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias

import anyio
import anyio.to_thread

from proctor.attempt.model import AttemptRequest
from proctor.errors import MachineError, disk_error
from proctor.ids import Digest
from proctor.workspace.prepare import prepare
from proctor.workspace.remove import remove
from proctor.workspace.snapshot import EMPTY, Snapshot, snapshot

WORKSPACE = "workspace"
"""Folder in the scratch folder for a workspace that is not used in place."""
TMP = "tmp"
"""Folder in the scratch folder for the agent's temporary files."""
REMOVE_S = 30.0
"""Time limit for removing a scratch folder, in seconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EmptyFolder:
    """The agent works in a new, empty folder."""

    root: Path
    """The folder in which the agent works."""
    base_root: None = field(default=None, init=False)

    def create(self) -> Snapshot:
        """Create the folder, and return its snapshot. Raises MachineError if the disk refuses."""
        _make_folder(self.root)
        return EMPTY


@dataclass(frozen=True, slots=True, kw_only=True)
class PristineCopy:
    """The agent works in a private copy of a frozen folder."""

    root: Path
    """The folder in which the agent works."""
    base_root: Path
    """The frozen folder."""
    digest: Digest
    """The digest that the frozen folder had when it was frozen."""

    def create(self) -> Snapshot:
        """Copy the frozen folder, and return the snapshot of the copy. Raises MachineError if its digest is wrong."""
        prepare(self.base_root, into=self.root)
        return _untouched(self.root, digest=self.digest)


@dataclass(frozen=True, slots=True, kw_only=True)
class InPlace:
    """The agent works directly in the caller's folder."""

    root: Path
    """The caller's folder."""
    base_root: Path | None
    """Where a copy of the caller's folder is kept for the diff. None if there will be no diff."""

    def create(self) -> Snapshot:
        """Copy the caller's folder, and return the snapshot of the copy. Returns EMPTY if no copy is kept.

        Raises InputError if it has an entry that cannot be copied, and MachineError if the disk refuses.
        """
        if self.base_root is None:
            return EMPTY
        _make_folder(self.base_root.parent)
        prepare(self.root, into=self.base_root)
        return snapshot(self.base_root)


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftTree:
    """The agent works in the folder that the attempt left which it continues."""

    root: Path
    """The folder in which the agent works. It exists."""
    base_root: Path | None
    """The frozen folder that the first attempt started from. None for the empty tree."""
    digest: Digest
    """The digest that the frozen folder had when it was frozen."""

    def create(self) -> Snapshot:
        """Return the snapshot of the frozen folder. Raises MachineError if its digest is wrong."""
        return EMPTY if self.base_root is None else _untouched(self.base_root, digest=self.digest)


def _untouched(tree: Path, *, digest: Digest) -> Snapshot:
    base = snapshot(tree)
    if base.digest != digest:
        raise MachineError("workspace.base-changed", "the frozen workspace has changed since the run began")
    return base


WorkspaceLayout: TypeAlias = EmptyFolder | PristineCopy | InPlace | LeftTree
"""How a workspace is created. `base_root` is what its changes are compared with; None for the empty tree."""


def private_workspace(request: AttemptRequest) -> EmptyFolder | PristineCopy | LeftTree:
    """Return the layout of a workspace in the scratch folder: a copy of the frozen folder, empty, or one left there."""
    root = request.scratch / WORKSPACE
    if request.continuation is not None:
        return LeftTree(root=root, base_root=request.workspace_source, digest=request.workspace_digest)
    if request.workspace_source is None:
        return EmptyFolder(root=root)
    return PristineCopy(root=root, base_root=request.workspace_source, digest=request.workspace_digest)


def create_scratch(scratch: Path, *, is_kept: bool = False) -> None:
    """Create the scratch folder with the folder for temporary files. Raises MachineError if the disk refuses."""
    _make_folder(scratch, exist_ok=is_kept)
    _make_folder(scratch / TMP, exist_ok=is_kept)


def _make_folder(folder: Path, *, exist_ok: bool = False) -> None:
    """Create a folder for this user only, with the folders above it. Raises MachineError if the disk refuses."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=exist_ok)
    except OSError as error:
        raise disk_error(error, path=folder) from error


async def remove_scratch(request: AttemptRequest) -> None:
    """Remove the scratch folders of an attempt, unless the request keeps them for the user or for another attempt.

    Shielded from cancellation and limited to REMOVE_S. What cannot be removed is left for the end of the run.
    """
    if request.is_scratch_kept:
        return
    for folder in _remove_empty(request):
        with anyio.CancelScope(shield=True), anyio.move_on_after(REMOVE_S), suppress(OSError):
            await anyio.to_thread.run_sync(remove, folder, abandon_on_cancel=True)


def _remove_empty(request: AttemptRequest) -> list[Path]:
    """Remove what is empty of the scratch folders, which takes longer in a thread. Return the others."""
    left = [request.judging] if os.path.lexists(request.judging) else []
    if request.is_kept:
        return left
    try:
        place = str(request.scratch)
        for name in (WORKSPACE, TMP):
            os.rmdir(f"{place}/{name}")  # noqa: PTH106  making a Path takes as long as the call itself
        os.rmdir(place)  # noqa: PTH106
    except OSError:
        left.append(request.scratch)
    return left
