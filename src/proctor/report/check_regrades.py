"""Check the regrades of a campaign: their files, and that their rows are those that their record names."""

from collections.abc import Iterator
from pathlib import Path

from proctor.canonical import digest_bytes
from proctor.errors import EvidenceError
from proctor.evidence.disk import unreadable
from proctor.evidence.layout import CampaignPaths, RegradePaths
from proctor.evidence.reader import Finding, read_artifact, read_bytes
from proctor.evidence.regrade_record import RegradeRecord

_DRAFT = "."
"""Begins the name of a regrade that was cut off while it was written."""


def check_regrades(campaign: CampaignPaths) -> Iterator[Finding]:
    """Yield what is wrong with the regrades. The seals of the attempts do not cover them."""
    name = campaign.regrades.name
    for folder in _list(campaign.regrades):
        if isinstance(folder, Finding):
            yield folder
        elif folder.name.startswith(_DRAFT):
            continue
        elif not folder.is_dir() or folder.is_symlink():
            detail = "not the folder of a regrade"
            yield Finding(code="evidence.extra-file", file=f"{name}/{folder.name}", detail=detail)
        else:
            yield from _check_one(RegradePaths(folder), campaign, prefix=f"{name}/{folder.name}")


def _check_one(paths: RegradePaths, campaign: CampaignPaths, *, prefix: str) -> Iterator[Finding]:
    for file in _list(paths.folder):
        if isinstance(file, Finding):
            yield file
        elif file not in (paths.record, paths.rows):
            detail = "not a part of a regrade"
            yield Finding(code="evidence.extra-file", file=f"{prefix}/{file.name}", detail=detail)
    try:
        record = read_artifact(paths.record, RegradeRecord)
        rows = digest_bytes(read_bytes(paths.rows))
    except EvidenceError as error:
        yield Finding(code=error.code, file=f"{prefix}/{error.file}", detail=error.what)
        return
    if rows != record.rows_digest:
        detail = f"not the rows that {paths.record.name} names"
        yield Finding(code="evidence.digest", file=f"{prefix}/{paths.rows.name}", detail=detail)
    if (record.regrade_id, record.campaign_id) != (paths.folder.name, campaign.folder.name):
        detail = "names another regrade or campaign"
        yield Finding(code="evidence.digest", file=f"{prefix}/{paths.record.name}", detail=detail)


def _list(folder: Path) -> Iterator[Path | Finding]:
    try:
        yield from sorted(folder.iterdir())
    except FileNotFoundError:
        return
    except OSError as error:
        yield Finding.of(unreadable(error, path=folder))
