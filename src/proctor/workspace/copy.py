"""A tree laid down a second time: files with their modes and times, links as links, pipes and sockets left out."""

import os
import shutil
from collections.abc import Sequence
from errno import EDQUOT, ENOSPC
from pathlib import Path

from proctor.errors import InputError, MachineError
from proctor.workspace.name import quoted
from proctor.workspace.walk import MAX_TREE_BYTES, EntryKind, Found, open_regular


def copy_tree(source: Path, found: Sequence[Found], *, into: Path) -> None:
    """Lays what was `found` in `source` into the existing, empty folder `into`. The modes of folders come last."""
    for item in found:
        if item.denied is not None:
            raise unreadable(source, item.path, why=item.denied)
    total_bytes = sum(item.size_bytes for item in found)
    if total_bytes > MAX_TREE_BYTES:
        what = f"{source} holds {total_bytes} bytes; at most {MAX_TREE_BYTES} are copied"
        raise InputError("workspace.too-large", what)
    folders: list[Found] = []
    for item in found:
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
    # Deepest first: a folder without write permission could not be filled.
    for item in reversed(folders):
        (into / item.path).chmod(item.mode)


def unreadable(source: Path, path: str, *, why: str) -> InputError:
    return InputError("workspace.unreadable", f"{quoted(path)} cannot be read: {why}", file=quoted(str(source)))


def unwritable(place: Path, problem: OSError) -> MachineError:
    code = "machine.disk-full" if problem.errno in (ENOSPC, EDQUOT) else "machine.unwritable"
    return MachineError(code, f"{quoted(str(place))}: {problem.strerror}")


def _copy_file(source: Path, item: Found, *, target: Path) -> None:
    try:
        reading = open_regular(source / item.path)
    except OSError as problem:
        raise unreadable(source, item.path, why=problem.strerror or "it is no regular file now") from None
    with reading, target.open("xb") as writing:
        shutil.copyfileobj(reading, writing, 1024 * 1024)
        writing.flush()
        os.fchmod(writing.fileno(), item.mode)
        # Tools such as make compare times; a copy must not look newer in another order than its original.
        os.utime(writing.fileno(), ns=(item.modified_ns, item.modified_ns))
