"""The end of a tree, however deep it is and whatever its modes are."""

import os
import stat
import tempfile
from itertools import count
from pathlib import Path


def remove(root: Path) -> None:
    """Removes `root` and all below it; links are removed, not followed. OSError where the machine refuses.

    A folder's own folders are moved up before it is removed, so that neither recursion nor the length of a path
    bounds the depth: shutil.rmtree gives up on trees that a few lines of shell make.
    """
    if not os.path.lexists(root):
        return
    if not _opened(root):
        root.unlink()
        return
    holder = Path(tempfile.mkdtemp(dir=root.parent, prefix=".removing-"))
    names = count()
    pending = [root.rename(holder / str(next(names)))]
    while pending:
        folder = pending.pop()
        for inner in list(folder.iterdir()):
            if _opened(inner):
                pending.append(inner.rename(holder / str(next(names))))
            else:
                inner.unlink()
        folder.rmdir()
    holder.rmdir()


def _opened(place: Path) -> bool:
    """Whether this is a folder, which is now ours to list, empty and move (moving one writes its `..`)."""
    if not stat.S_ISDIR(place.lstat().st_mode):
        return False
    place.chmod(0o700)
    return True
