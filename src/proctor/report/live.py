"""Find out whether an attempt without a seal is running or was cut off. Its files alone do not show it."""

import os
from collections.abc import Iterable

from proctor.errors import EvidenceError
from proctor.evidence.artifacts import AttemptRecord
from proctor.evidence.layout import SEAL, AttemptPaths, RootPaths, RunPaths
from proctor.evidence.reader import Finding, read_artifact
from proctor.ledger.reader import is_live

_UNFINISHED = ("evidence.partial", "evidence.torn")


def is_run_live(run: RunPaths) -> bool:
    """Return whether a Proctor process holds the lock of the campaign that this run belongs to."""
    folder = run.folder.absolute()
    root = RootPaths(folder.parent.parent)
    try:
        for paths in RunPaths(folder).attempts():
            if paths.attempt.is_file():
                return is_live(root.campaign(read_artifact(paths.attempt, AttemptRecord).campaign_id))
    except (EvidenceError, OSError):
        pass  # the reader of the files reports what is wrong with them
    return False


def is_running(paths: AttemptPaths) -> bool:
    """Return whether an attempt is still running."""
    return not os.path.lexists(paths.seal) and is_run_live(RunPaths(paths.folder.absolute().parent.parent))


def while_running(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Replace the findings that only mean that the attempt has not ended by `evidence.running`."""
    others = (finding for finding in findings if finding.code not in _UNFINISHED)
    return (Finding(code="evidence.running", file=SEAL, detail="no seal yet"), *others)
