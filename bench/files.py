"""The time a file system takes to create the files and folders of an attempt, which is part of every result."""

# ruff: noqa: PTH102, PTH105, PTH106  pathlib would be a part of what is measured

import os
import time
from pathlib import Path

_STREAMS = 4
_WHOLE_FILES = 7
_SCRATCH = ("workspace", "tmp", "probes")
_DATA = b"x" * 1024


def files_cpu_s(folder: Path, *, attempts: int) -> float:
    """Return the CPU time for the files of one attempt. ext4 takes up to fifty times as long right after deletions."""
    folder.mkdir()
    began_s = time.process_time()
    for number in range(attempts):
        kept, scratch = f"{folder}/{number}", f"{folder}/{number}.scratch"
        os.mkdir(kept)
        for stream in range(_STREAMS):
            _write(f"{kept}/{stream}.jsonl")
        for name in ("", *_SCRATCH):
            os.mkdir(f"{scratch}/{name}")
        for file in range(_WHOLE_FILES):
            _write(f"{kept}/.{file}.tmp")
            os.replace(f"{kept}/.{file}.tmp", f"{kept}/{file}.json")
        for name in (*_SCRATCH, ""):
            os.rmdir(f"{scratch}/{name}")
    return (time.process_time() - began_s) / attempts


def _write(path: str) -> None:
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    os.write(file, _DATA)
    os.close(file)
