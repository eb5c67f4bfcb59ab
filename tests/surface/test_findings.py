"""The last line of `validate` and `verify`: how much of the evidence is not valid."""

import pytest

from proctor.errors import Exit
from proctor.evidence.reader import Finding
from proctor.surface.cli.command_formatter import CommandFormatter
from proctor.surface.cli.findings import render_examination
from proctor.surface.cli.output import Output
from proctor.surface.examine import Examination, ExaminedItem, ItemStatus


def item(kind: str, status: ItemStatus = ItemStatus.VALID, *codes: str) -> ExaminedItem:
    findings = tuple(Finding(code=code, file="f", detail="d") for code in codes)
    return ExaminedItem(kind=kind, name="n", run_id=None, status=status, findings=findings)


VALID, PARTIAL, INVALID = item("attempt"), item("attempt", ItemStatus.PARTIAL), item("attempt", ItemStatus.INVALID)
RUNNING = item("attempt", ItemStatus.PARTIAL, "evidence.running")
PROCESS, CAMPAIGN = item("process"), item("campaign")


@pytest.mark.requirement("evidence.integrity")
@pytest.mark.parametrize(
    ("items", "line"),
    [
        ([CAMPAIGN, VALID, VALID, PROCESS], "valid: 2 attempts and 1 agent process, checked strictly"),
        (
            [CAMPAIGN, INVALID, VALID, PROCESS],
            "invalid: 1 of 2 attempts (1 agent process checked, none invalid); checked strictly",
        ),
        ([INVALID, PARTIAL, VALID], "invalid: 1 of 3 attempts; partial: 1 of 3 attempts; checked strictly"),
        ([RUNNING, VALID], "running: 1 of 2 attempts; checked strictly"),
        (
            [item("campaign", ItemStatus.INVALID), VALID, PROCESS],
            "invalid: 1 of 1 campaign (1 attempt and 1 agent process checked, none invalid); checked strictly",
        ),
        ([], "partial: there is nothing to check"),
    ],
    ids=["valid", "invalid", "invalid and partial", "running", "campaign", "empty"],
)
def test_last_line_counts_what_is_not_valid(items: list[ExaminedItem], line: str) -> None:
    status = next(
        (each for each in (ItemStatus.INVALID, ItemStatus.PARTIAL) if each in {one.status for one in items}), None
    )
    found = Examination(
        place="p",
        is_strict=True,
        status=status or (ItemStatus.VALID if items else ItemStatus.PARTIAL),
        exit=Exit.OK,
        examined=tuple(items),
    )
    text = Output(is_json=False).plain(render_examination(found, calling=CommandFormatter()))
    assert text.splitlines()[-1] == line
