"""Remove a tree of any depth, whatever the modes of its folders are."""

import os
import secrets
import stat
from itertools import count
from pathlib import Path


def remove(root: Path) -> None:
    """Remove `root` and everything below it. Links are removed, not followed. Raises OSError if that fails.

    The subfolders of each folder are moved up to `root` before it is removed, so that neither recursion nor path length
    limits the depth. shutil.rmtree fails on trees that a few lines of shell can create. Nothing is created, because the
    tree may have used up its disk.
    """
    if not os.path.lexists(root):
        return
    if not _unlock_folder(root):
        root.unlink()
        return
    # No name in the tree can be the same as one of these by chance or by intent.
    prefix = f".removing-{secrets.token_hex(8)}-"
    names = count()
    pending = _empty_of_files(root)
    while pending:
        folder = pending.pop()
        pending += [inner.rename(root / f"{prefix}{next(names)}") for inner in _empty_of_files(folder)]
        folder.rmdir()
    root.rmdir()


def _empty_of_files(folder: Path) -> list[Path]:
    """Remove everything in a folder that is not a folder itself, and return the folders."""
    folders = []
    for inner in list(folder.iterdir()):
        if _unlock_folder(inner):
            folders.append(inner)
        else:
            inner.unlink()
    return folders


def _unlock_folder(place: Path) -> bool:
    """Return whether `place` is a folder, and make it writable so that it can be listed, emptied and moved.

    Moving a folder needs write permission on the folder itself, because its `..` changes.
    """
    if not stat.S_ISDIR(place.lstat().st_mode):
        return False
    place.chmod(0o700)
    return True
