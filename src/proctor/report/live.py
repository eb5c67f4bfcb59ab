"""Whether what has no seal is being written right now, which a look at its files alone cannot tell."""

import os
from collections.abc import Iterable

from proctor.errors import EvidenceError
from proctor.evidence.artifacts import AttemptRecord
from proctor.evidence.layout import SEAL, AttemptPaths, RootPaths, RunPaths
from proctor.evidence.reader import Finding, read_artifact
from proctor.ledger.reader import is_live

_UNFINISHED = ("evidence.partial", "evidence.torn")


def is_run_live(run: RunPaths) -> bool:
    """Whether some Proctor holds the campaign that this run's attempts belong to."""
    folder = run.folder.absolute()
    root = RootPaths(folder.parent.parent)
    try:
        for paths in RunPaths(folder).attempts():
            if paths.attempt.is_file():
                return is_live(root.campaign(read_artifact(paths.attempt, AttemptRecord).campaign_id))
    except (EvidenceError, OSError):
        pass  # whoever reads the files themselves tells what is wrong with them
    return False


def is_running(paths: AttemptPaths) -> bool:
    return not os.path.lexists(paths.seal) and is_run_live(RunPaths(paths.folder.absolute().parent.parent))


def while_running(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """What is wrong with something that runs: that it has no end yet is not."""
    others = (finding for finding in findings if finding.code not in _UNFINISHED)
    return (Finding(code="evidence.running", file=SEAL, detail="no seal yet"), *others)
