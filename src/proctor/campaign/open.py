"""A campaign opened for a run of it: a new one frozen, or one that was cut off taken up where its seals end."""

import os
from collections.abc import AsyncIterator, Collection, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import anyio.to_thread

from proctor.campaign.freeze import Frozen, freeze, thaw
from proctor.campaign.ledger import Ledger, has_begun, open_ledger
from proctor.campaign.lock import campaign_lock
from proctor.campaign.preflight import Ready, preflight
from proctor.campaign.reconcile import reconcile
from proctor.campaign.scratch import open_scratch
from proctor.campaign.spending import prices_of
from proctor.campaign.stamp import stamp
from proctor.canonical import digest_bytes
from proctor.clock import Clock
from proctor.errors import MachineError
from proctor.evidence.artifacts import PlanFile
from proctor.evidence.layout import CampaignPaths, RootPaths, write_artifact
from proctor.evidence.reader import read_bytes
from proctor.evidence.redact import Redactor
from proctor.ids import CampaignId, CellId, Digest, RunId
from proctor.plan.model import Cell, Plan
from proctor.plan.remaining import remaining
from proctor.plan.standing import UNTRIED, CellProgress, Patience, fold_cells
from proctor.spec.load import LoadedSpec
from proctor.workspace.remove import remove


@dataclass(frozen=True, slots=True, kw_only=True)
class Opened:
    """A campaign that is ours to run. `cells` are to be tried; `standings` and the sums are of the runs before this.

    Where nothing is to be tried, no run has begun.
    """

    campaign_id: CampaignId
    run_id: RunId
    paths: CampaignPaths
    ready: Ready
    frozen: Frozen
    plan_file_digest: Digest
    book: Ledger
    scratch: Path
    cells: tuple[Cell, ...]
    patience: Patience
    standings: Mapping[CellId, CellProgress]
    took_ms: int
    usd: float
    usd_unknown: int


@asynccontextmanager
async def open_campaign(
    loaded: LoadedSpec,
    *,
    root: Path,
    clock: Clock,
    is_scratch_kept: bool,
    resume: CampaignPaths | None = None,
    only: Collection[CellId] | None = None,
    is_canary: bool = False,
) -> AsyncIterator[Opened]:
    """Its lock is held and its ledger open inside. A new one that could not begin leaves nothing behind.

    To be tried is what is not settled; or `only` these cells, and they as if nothing had counted yet.
    """
    run_id = RunId(stamp(clock))
    place = _place(loaded, root=root, clock=clock, resume=resume, is_canary=is_canary)
    async with AsyncExitStack() as stack:
        paths, ready = await stack.enter_async_context(place)
        redactor = Redactor(ready.secrets)
        scratch = stack.enter_context(open_scratch(run_id, is_kept=is_scratch_kept))
        bases = scratch / "bases"

        def frozen_spec() -> Frozen:
            if resume is not None:
                return thaw(loaded, paths=paths, workspaces=bases, redactor=redactor)
            return freeze(loaded, paths=paths, workspaces=bases, redactor=redactor, is_canary=is_canary)

        frozen = await anyio.to_thread.run_sync(frozen_spec)
        if resume is not None and not has_begun(paths.ledger):
            # A new one would have everything run again, and what is sealed would belong to nobody.
            raise MachineError("machine.ledger", f"{paths.folder.name} has a plan and no runs", file=str(paths.ledger))
        book = stack.enter_context(open_ledger(paths.ledger))
        claimed, usd_of = book.tried(state="claimed"), prices_of(loaded)
        book.apply(list(reconcile(claimed, root=RootPaths(root), at_ms=clock.wall_ms(), usd_of=usd_of)))
        plan, now_ms = frozen.plan, clock.wall_ms()
        patience = Patience(retries=plan.schedule.retries, mission_ms=plan.schedule.mission_ms)
        known, took_ms = fold_cells(book.tried(), patience=patience), book.took_ms()
        usd, usd_unknown = book.spent()
        cells = _to_try(plan, known, only=only)
        if cells:
            # Where a secret is a part of it, resume has to be told.
            file = "" if loaded.is_built else redactor.text(str(loaded.path)).text
            book.begin(plan, run=run_id, at_ms=now_ms, file=file, spec=loaded.digest)
        if resume is None:
            # Last of the set-up: a campaign without a plan was cut off before anything ran.
            write_artifact(paths.plan, PlanFile(plan=plan, snapshot=dict(frozen.snapshot)), redactor=redactor)
        yield Opened(
            campaign_id=CampaignId(paths.folder.name),
            run_id=run_id,
            paths=paths,
            ready=ready,
            frozen=frozen,
            plan_file_digest=digest_bytes(read_bytes(paths.plan)),
            book=book,
            scratch=scratch,
            cells=cells,
            patience=patience,
            standings=known
            if only is None
            else {**known, **{cell.id: known.get(cell.id, UNTRIED).anew() for cell in cells}},
            took_ms=took_ms,
            usd=usd,
            usd_unknown=usd_unknown,
        )


def _to_try(plan: Plan, known: Mapping[CellId, CellProgress], *, only: Collection[CellId] | None) -> tuple[Cell, ...]:
    if only is not None:
        return tuple(cell for cell in plan.cells if cell.id in only)
    return remaining(plan, {id_ for id_, standing in known.items() if standing.is_settled})


@asynccontextmanager
async def _place(
    loaded: LoadedSpec, *, root: Path, clock: Clock, resume: CampaignPaths | None, is_canary: bool
) -> AsyncIterator[tuple[CampaignPaths, Ready]]:
    """The campaign's folder under its lock, and a machine that is ready for it."""

    async def ready() -> Ready:
        # In a thread: it hashes programs, tries containment and ends leftovers, which may all take a while.
        return await anyio.to_thread.run_sync(lambda: preflight(loaded, root=root, clock=clock))

    if resume is not None:
        # First of all the lock: whoever loses the race for it has looked at nothing and changed nothing.
        with campaign_lock(resume):
            yield resume, await ready()
        return
    is_ready = await ready()
    name = f"{loaded.spec.campaign}-canary" if is_canary else loaded.spec.campaign
    with _new_folder(RootPaths(root).campaign(CampaignId(f"{name}-{stamp(clock)}"))) as paths:
        yield paths, is_ready


@contextmanager
def _new_folder(paths: CampaignPaths) -> Iterator[CampaignPaths]:
    paths.create()
    try:
        with campaign_lock(paths):
            yield paths
    finally:
        if not os.path.lexists(paths.plan):
            # Nothing ran, so there is nothing to keep: half a campaign would only look like damage.
            with suppress(OSError):
                remove(paths.folder)
