"""Find and read what a program wrote in the fence, without following it elsewhere, and start the next one afresh."""

import os
from pathlib import Path
from typing import Final

import anyio.to_thread

from proctor.probe.kind import MAX_ARTIFACT_BYTES, ProbeWorkspace
from proctor.probe.view import View
from proctor.spec.probe_options import OUT
from proctor.workspace.remove import remove
from proctor.workspace.walk import open_regular

MAX_WRITTEN_BYTES: Final = MAX_ARTIFACT_BYTES
"""Largest file that is read."""


def find_written(path: str, *, view: View, out: Path) -> Path | None:
    """Return where a file that a program wrote is outside the fence; None if its folder leads elsewhere by a link.

    `path` is one of the workspace or, if it begins with `{out}/`, of the folder `out`. The file may not exist.
    """
    below = path.removeprefix(f"{OUT}/")
    top = view.changes or view.place if below == path else out
    place = top / below
    real = Path(os.path.realpath(place.parent), place.name)
    return real if real.is_relative_to(top.resolve()) else None


def read_written(path: str, *, view: View, out: Path) -> bytes | None:
    """Return the content of such a file; None if it is not a regular file.

    Of a file that is too large, one byte more than MAX_WRITTEN_BYTES is returned.
    """
    place = find_written(path, view=view, out=out)
    if place is None:
        return None
    try:
        with open_regular(place) as stream:
            return stream.read(MAX_WRITTEN_BYTES + 1)
    except OSError:
        return None


async def start_afresh(workspace: ProbeWorkspace) -> View:
    """Return a new view, and empty the folders in which an earlier program could leave something for the next one."""
    folders = [workspace.out, *(Path(workspace.env[name]) for name in ("HOME", "TMPDIR"))]

    def empty() -> None:
        for folder in folders:
            for place in folder.iterdir():
                remove(place)

    await anyio.to_thread.run_sync(empty)
    return await workspace.make_view()
