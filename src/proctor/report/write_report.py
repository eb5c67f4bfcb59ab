"""The report of a campaign that has just run, kept beside its ledger."""

import os
from collections.abc import Mapping
from pathlib import Path

import msgspec

from proctor.errors import Exit, MachineError, disk_error
from proctor.evidence.layout import CampaignPaths, RootPaths, write_artifact, write_text_artifact
from proctor.evidence.reader import Finding
from proctor.evidence.redact import Redactor
from proctor.ids import AttemptId
from proctor.report.compose import compose
from proctor.report.markdown import render_markdown
from proctor.report.query import find_campaign
from proctor.report.row import Report
from proctor.report.verdict import WORDS


def keep_report(
    campaign: CampaignPaths,
    *,
    root: Path,
    redactor: Redactor,
    reasons: Mapping[AttemptId, str],
    is_interrupted: bool = False,
) -> Report:
    """Composes and writes it. `reasons` say why attempts have no seal, which stands in no file of theirs."""
    report = compose(find_campaign(RootPaths(root), campaign), is_interrupted=is_interrupted)
    told = (msgspec.structs.replace(row, detail=row.detail or reasons.get(row.attempt_id)) for row in report.attempts)
    report = msgspec.structs.replace(report, attempts=tuple(told))
    # What is kept names folders from the evidence root on, so that it stays true when that is moved.
    rows = (msgspec.structs.replace(row, dir=os.path.relpath(row.dir, root)) for row in report.attempts)
    kept = msgspec.structs.replace(report, attempts=tuple(rows))
    try:
        # Else one that is killed between the two leaves a page that another report gave.
        _remove(campaign.results)
        write_artifact(campaign.report, kept, redactor=redactor)
        write_text_artifact(campaign.results, render_markdown(redactor.value(kept)), redactor=redactor)
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
