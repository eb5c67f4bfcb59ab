"""A campaign as its ledger shows it now: of each cell the attempt that speaks for it. Folders stay closed."""

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import msgspec

from proctor.errors import EvidenceError
from proctor.evidence.artifacts import AttemptReport
from proctor.evidence.layout import AttemptPaths, CampaignPaths, RootPaths
from proctor.evidence.reader import Problem, read_artifact
from proctor.evidence.tally import Tally, tally_of
from proctor.ids import AttemptId, CampaignId
from proctor.plan.standing import Patience, fold_tries
from proctor.report.cells import by_cell
from proctor.report.ledger import LedgerAttempt, LedgerCell, LedgerContents, is_live, read_ledger
from proctor.report.planned import Planned, read_plan
from proctor.report.score import INVALID, standing

Damage = Mapping[AttemptId, tuple[Problem, ...]]
"""What an examination found wrong with attempts."""


class CellResult(msgspec.Struct, frozen=True, gc=False):
    """A cell of the plan, and the attempt that speaks for it, if it was ever tried: its result, else its last.

    `stands` and `tally` are of its result, and None where it has none. One that is not settled is to be tried, be it
    anew; `last` is the attempt that was made last.
    """

    cell: LedgerCell
    spoken: LedgerAttempt | None = None
    stands: str | None = None
    tally: Tally | None = None
    is_settled: bool = False
    last: LedgerAttempt | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CampaignCells:
    """A campaign as its ledger shows it now. `attempts` are the ledger's, those it still calls claimed as their seals
    say.
    """

    campaign_id: CampaignId
    contents: LedgerContents
    attempts: Sequence[LedgerAttempt]
    plan: Planned
    cells: tuple[CellResult, ...]
    is_running: bool


def read_cells(campaign: CampaignPaths, *, root: RootPaths, damage: Damage | None = None) -> CampaignCells:
    """EvidenceError where ledger or plan cannot be read. What is damaged is no result of the agent's."""
    is_running = is_live(campaign)  # asked first: what ends meanwhile is told as running
    contents, plan = read_ledger(campaign), read_plan(campaign)
    attempts = look_up(contents.attempts, root=root)
    tried = {tries[0].cell: tries for tries in by_cell(attempts)}
    patience, damage = plan.patience, damage or {}
    return CampaignCells(
        campaign_id=CampaignId(campaign.folder.name),
        contents=contents,
        attempts=attempts,
        plan=plan,
        cells=tuple(_cell_result(cell, tried.get(cell.id, ()), damage, patience=patience) for cell in contents.cells),
        is_running=is_running,
    )


_decode_tally: Callable[[str], Tally] = msgspec.json.Decoder(Tally).decode


def _cell_result(cell: LedgerCell, tries: Sequence[LedgerAttempt], damage: Damage, *, patience: Patience) -> CellResult:
    """By the same fold that resume goes by."""
    if not tries:
        return CellResult(cell)
    stands, last = fold_tries(tries, patience=patience), tries[-1]
    if stands.result is None:
        return CellResult(cell, last, last=last)
    [spoken] = (each for each in tries if each.n == stands.result)
    try:
        tally = None if spoken.tally is None else _decode_tally(spoken.tally)
    except msgspec.DecodeError as error:
        raise EvidenceError("evidence.ledger", f"{spoken.id}: {error}", file="ledger.db") from error
    how = INVALID if spoken.id in damage else standing(spoken)
    return CellResult(cell, spoken, how, tally, stands.is_settled, last)


def look_up(attempts: Iterable[LedgerAttempt], *, root: RootPaths) -> list[LedgerAttempt]:
    """The same attempts, each that the ledger still calls claimed as its seal says."""
    return [_looked_up(each, root=root) if each.state == "claimed" else each for each in attempts]


def _looked_up(attempt: LedgerAttempt, *, root: RootPaths) -> LedgerAttempt:
    """The ledger was not told how it ended; its seal may."""
    paths: AttemptPaths = root.run(attempt.run).attempt(attempt.cell, n=attempt.n)
    if not os.path.lexists(paths.seal):
        return attempt
    try:
        report = read_artifact(paths.report, AttemptReport)
    except EvidenceError:
        return attempt  # whoever examines the evidence tells
    return msgspec.structs.replace(
        attempt,
        state="sealed",
        outcome=report.outcome,
        code=report.code,
        claimed=report.claimed,
        verified=report.verified,
        met=report.expectation.met,
        tool_calls=report.metrics.tool_calls,
        tokens=report.metrics.total_tokens,
        duration_ms=report.duration_ms,
        tally=msgspec.json.encode(tally_of(report)).decode(),
    )
