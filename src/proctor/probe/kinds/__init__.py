"""The registry of probe kinds. A new kind is a file in this folder and a line below."""

from typing import Final

from proctor.probe.kind import ProbeKind
from proctor.probe.kinds import headless_run

KINDS: Final[dict[str, ProbeKind]] = {
    "headless_run": headless_run.judge,
}
