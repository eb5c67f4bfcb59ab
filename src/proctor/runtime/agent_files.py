"""Read a file that an agent can write. The agent may have replaced it by a link, a pipe or a huge file."""

import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Final

MAX_BYTES: Final = 256 * 1024 * 1024


def read_lines(path: Path) -> Iterator[bytes]:
    """Yield the lines of a file. Raises OSError if it is not a regular file or is larger than MAX_BYTES."""
    # Non-blocking, because opening a FIFO would otherwise wait for a writer forever.
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(descriptor, "rb") as file:
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode) or status.st_size > MAX_BYTES:
            raise OSError(None, f"not a regular file of at most {MAX_BYTES} bytes")
        yield from file
