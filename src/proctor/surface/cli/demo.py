"""`proctor demo`."""

from pathlib import Path
from typing import Final, Unpack

from proctor.config.project import load_project_spec
from proctor.surface.cli.command import Command, evidence_root
from proctor.surface.cli.run import HOW, RunOptions, carry_out

QUICKSTART: Final = Path(__file__).parent.parent / "quickstart" / "quickstart.yaml"
"""The spec of the demo, which is in the package. `examples/quickstart.yaml` is a link to it."""


def demo(**how: Unpack[RunOptions]) -> int:
    """Run four example missions on the real Codex, offline and free.

    The model is scripted, so no login and no network is needed. Needs the extras `codex` and `model`
    of the package. Exits 0 if every result is as the example expects: one fix is verified, and one is
    only claimed.
    """
    return carry_out(load_project_spec(QUICKSTART), folder=evidence_root(how["root"]), **how)


COMMANDS = {"demo": Command(call=demo, example="proctor demo", arguments=HOW)}
