"""Remove a tree of any depth, whatever the modes of its folders are."""

import os
import stat
import tempfile
from itertools import count
from pathlib import Path


def remove(root: Path) -> None:
    """Remove `root` and everything below it. Links are removed, not followed. Raises OSError if that fails.

    The subfolders of each folder are moved up before it is removed, so that neither recursion nor path length limits
    the depth. shutil.rmtree fails on trees that a few lines of shell can create.
    """
    if not os.path.lexists(root):
        return
    if not _unlock_folder(root):
        root.unlink()
        return
    holder = Path(tempfile.mkdtemp(dir=root.parent, prefix=".removing-"))
    names = count()
    pending = [root.rename(holder / str(next(names)))]
    while pending:
        folder = pending.pop()
        for inner in list(folder.iterdir()):
            if _unlock_folder(inner):
                pending.append(inner.rename(holder / str(next(names))))
            else:
                inner.unlink()
        folder.rmdir()
    holder.rmdir()


def _unlock_folder(place: Path) -> bool:
    """Return whether `place` is a folder, and make it writable so that it can be listed, emptied and moved.

    Moving a folder needs write permission on the folder itself, because its `..` changes.
    """
    if not stat.S_ISDIR(place.lstat().st_mode):
        return False
    place.chmod(0o700)
    return True
