"""A campaign as its ledger shows it now: of each cell the attempt that speaks for it. Folders stay closed."""

import os
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import msgspec

from proctor.errors import EvidenceError
from proctor.evidence.artifacts import AttemptReport
from proctor.evidence.layout import AttemptPaths, CampaignPaths, RootPaths
from proctor.evidence.reader import Problem, read_artifact
from proctor.evidence.tally import Tally, tally_of
from proctor.ids import AttemptId, CampaignId
from proctor.plan.standing import Patience, fold_tries
from proctor.report.ledger import LedgerAttempt, LedgerCell, LedgerContents, is_live, read_ledger
from proctor.report.planned import Planned, read_plan, read_selection
from proctor.report.score import INVALID, standing
from proctor.spec.running import SelectSpec

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
    selected: SelectSpec
    cells: tuple[CellResult, ...]
    is_running: bool


def read_cells(campaign: CampaignPaths, *, root: RootPaths, damage: Damage | None = None) -> CampaignCells:
    """EvidenceError where ledger or plan cannot be read. What is damaged is no result of the agent's."""
    is_running = is_live(campaign)  # asked first: what ends meanwhile is told as running
    contents, plan = read_ledger(campaign), read_plan(campaign)
    known, patience, damage = look_up(contents, root=root), plan.patience, damage or {}
    tries = known.tries
    return CampaignCells(
        campaign_id=CampaignId(campaign.folder.name),
        contents=contents,
        attempts=known.attempts,
        plan=plan,
        selected=read_selection(campaign),
        cells=tuple(_cell_result(cell, tries.get(cell.id, ()), damage, patience=patience) for cell in contents.cells),
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
    spoken = last if last.n == stands.result else next(each for each in tries if each.n == stands.result)
    try:
        tally = None if spoken.tally is None else _decode_tally(spoken.tally)
    except msgspec.DecodeError as error:
        raise EvidenceError("evidence.ledger", f"{spoken.id}: {error}", file="ledger.db") from error
    how = INVALID if spoken.id in damage else standing(spoken)
    return CellResult(cell, spoken, how, tally, stands.is_settled, last)


def count_alike(cells: Iterable[CellResult]) -> list[tuple[CellResult, int]]:
    """Of the cells that came to the same, the first and how many they are: endings are few, however many cells."""
    first: dict[tuple[object, ...] | None, CellResult] = {}
    counts: Counter[tuple[object, ...] | None] = Counter()
    for each in cells:
        said, last = each.spoken, each.last
        key = (
            (each.stands, each.is_settled, said.state, said.outcome, said.code, said.verified, said.met, last.state)
            if said is not None and last is not None
            else None
        )
        if key not in first:
            first[key] = each
        counts[key] += 1
    return [(each, counts[key]) for key, each in first.items()]


def look_up(contents: LedgerContents, *, root: RootPaths) -> LedgerContents:
    """The same, each attempt that the ledger still calls claimed as its seal says."""
    open_ = {each.cell for tries in contents.tries.values() for each in tries if each.state == "claimed"}
    looked_up = {cell: [_looked_up(each, root=root) for each in contents.tries[cell]] for cell in open_}
    return replace(contents, tries={**contents.tries, **looked_up}) if looked_up else contents


def _looked_up(attempt: LedgerAttempt, *, root: RootPaths) -> LedgerAttempt:
    """Where the ledger was not told how it ended, its seal may."""
    if attempt.state != "claimed":
        return attempt
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
