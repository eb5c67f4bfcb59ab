"""Write the report of a campaign that has just run beside its ledger."""

import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import msgspec

from proctor.errors import Exit, MachineError, disk_error
from proctor.evidence.layout import CampaignPaths, RootPaths, write_artifact, write_text_artifact
from proctor.evidence.reader import Finding
from proctor.evidence.redact import Redactor
from proctor.ids import AttemptId
from proctor.report.campaign import CampaignReport, build_report, load_campaign_state
from proctor.report.markdown import render_markdown
from proctor.report.verdict import WORDS


def write_report(
    campaign: CampaignPaths,
    *,
    root: Path,
    redactor: Redactor,
    reasons: Mapping[AttemptId, str],
    is_interrupted: bool = False,
) -> CampaignReport:
    """Compose report.json and RESULTS.md, write them, and return the report.

    `reasons` say why attempts have no seal; their files do not record it. A disk error becomes a finding.
    """
    # The run has ended, even if another one has taken the lock meanwhile.
    state = replace(load_campaign_state(campaign, root=RootPaths(root)), is_running=False)
    report = build_report(state, is_interrupted=is_interrupted)
    rows = (msgspec.structs.replace(row, detail=row.detail or reasons.get(row.attempt_id)) for row in report.attempts)
    report = msgspec.structs.replace(report, attempts=tuple(rows))
    # Folders are written relative to the evidence root, so that the report stays true when the root is moved.
    rows = (msgspec.structs.replace(row, dir=os.path.relpath(row.dir, root)) for row in report.attempts)
    written = msgspec.structs.replace(report, attempts=tuple(rows))
    try:
        # First, so that a kill between the two writes does not leave the page of another report.
        _remove(campaign.results)
        write_artifact(campaign.report, written, redactor=redactor)
        write_text_artifact(campaign.results, render_markdown(redactor.value(written)), redactor=redactor)
    except MachineError as error:
        finding = Finding(code=error.code, file=error.file or campaign.report.name, detail=error.what)
        code = Exit.INFRASTRUCTURE if report.exit in (Exit.OK, Exit.JUDGED_NO, Exit.UNVERIFIED) else Exit(report.exit)
        return msgspec.structs.replace(report, exit=code, verdict=WORDS[code], findings=(*report.findings, finding))
    return report


def _remove(path: Path) -> None:
    try:
        path.unlink(missing_ok=True)
    except OSError as error:
        raise disk_error(error, path=path) from error
