"""The kinds of probe there are: a new one is a file here and a line below."""

from typing import Final

from proctor.probe.kind import Kind
from proctor.probe.kinds import headless_run

KINDS: Final[dict[str, Kind]] = {
    "headless_run": headless_run.judge,
}
