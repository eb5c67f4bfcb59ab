"""Copy a tree: files with their modes and times, links as links, without pipes, sockets and devices."""

import os
import shutil
from collections.abc import Sequence
from pathlib import Path

from proctor.errors import InputError, MachineError, exhaustion_code
from proctor.workspace.name import quoted
from proctor.workspace.walk import MAX_TREE_BYTES, EntryKind, WalkEntry, open_regular


def copy_tree(source: Path, entries: Sequence[WalkEntry], *, into: Path) -> None:
    """Copy the `entries` that a walk of `source` returned into the existing, empty folder `into`.

    Raises InputError if an entry cannot be read or the tree is larger than MAX_TREE_BYTES, and MachineError if `into`
    cannot be written.
    """
    for item in entries:
        if item.denied is not None:
            raise unreadable(source, item.path, why=item.denied)
    total_bytes = sum(item.size_bytes for item in entries)
    if total_bytes > MAX_TREE_BYTES:
        what = f"{source} has {total_bytes} bytes; the limit for a workspace is {MAX_TREE_BYTES} bytes"
        raise InputError("workspace.too-large", what)
    folders: list[WalkEntry] = []
    for item in entries:
        target = into / item.path
        try:
            match item.kind:
                case EntryKind.DIR:
                    target.mkdir(mode=0o700)
                    folders.append(item)
                case EntryKind.LINK if item.target is not None:
                    target.symlink_to(item.target)
                case EntryKind.FILE:
                    _copy_file(source, item, target=target)
        except OSError as problem:
            raise unwritable(target, problem) from None
    # Modes of folders are set last, the deepest first: a folder without write permission could not be filled.
    for item in reversed(folders):
        (into / item.path).chmod(item.mode)


def unreadable(source: Path, path: str, *, why: str) -> InputError:
    """Return the error for an entry of the tree that cannot be read."""
    return InputError("workspace.unreadable", f"cannot read {quoted(path)}: {why}", file=quoted(str(source)))


def unwritable(place: Path, problem: OSError) -> MachineError:
    """Return the error for a path that cannot be written."""
    code = exhaustion_code(problem.errno) or "machine.unwritable"
    return MachineError(code, f"{quoted(str(place))}: {problem.strerror}")


def _copy_file(source: Path, item: WalkEntry, *, target: Path) -> None:
    try:
        reading = open_regular(source / item.path)
    except OSError as problem:
        raise unreadable(source, item.path, why=problem.strerror or "it is no longer a regular file") from None
    with reading, target.open("xb") as writing:
        shutil.copyfileobj(reading, writing, 1024 * 1024)
        writing.flush()
        os.fchmod(writing.fileno(), item.mode)
        # Tools such as make compare times: the copies must be in the same order of age as the originals.
        os.utime(writing.fileno(), ns=(item.modified_ns, item.modified_ns))
