"""Files that an agent keeps of its own: whoever wrote them could have put anything in their place."""

import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Final

MAX_BYTES: Final = 256 * 1024 * 1024


def read_lines(path: Path) -> Iterator[bytes]:
    """Line by line. OSError where it is a link, a pipe or larger than anybody's history."""
    # Non-blocking, because opening somebody's FIFO would otherwise wait for a writer for ever.
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(descriptor, "rb") as file:
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode) or status.st_size > MAX_BYTES:
            raise OSError(None, "it is no file of a conversation")
        yield from file
