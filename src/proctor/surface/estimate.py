"""What a campaign would come to: cells, attempts, time at full length, and money as far as it was measured."""

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from ipaddress import ip_address
from math import ceil
from urllib.parse import urlsplit

import msgspec

from proctor.campaign.ledger import read_costs
from proctor.errors import EvidenceError, MachineError
from proctor.event.model import Tokens
from proctor.evidence.layout import CampaignPaths, RootPaths
from proctor.evidence.reader import read_artifact
from proctor.ids import CellId, FlowId
from proctor.plan.expand import name_cells, resolve_flow, resolve_limits, resolve_schedule
from proctor.plan.model import ResolvedFlow, ResolvedModel, Schedule
from proctor.report.query import campaigns_by_age
from proctor.spec.load import LoadedSpec
from proctor.spec.prices import price_key

_MOST_CAMPAIGNS = 20
_SOME = Tokens(input=1_000_000, output=1_000_000, total=2_000_000, cached_input=0)


class FlowEstimate(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """`usd_each` is what an attempt of the flow has cost here, on average of the `measured` ones; None is unknown."""

    flow_id: FlowId
    model: str
    is_paid: bool
    measured: int
    usd_each: float | None


class Estimate(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """`attempts_at_most` counts retries, not what is made again after a refused rate.

    `longest_ms` is the time if each of them took all that it may, as few at a time as the narrowest limit lets. No
    bound: waits for a provider, pauses before retries, hooks and probes come on top.
    """

    campaign: str
    cells: tuple[CellId, ...]
    flows: tuple[FlowEstimate, ...]
    attempts_at_most: int
    longest_ms: int
    usd: float | None

    @property
    def is_paid(self) -> bool:
        return any(flow.is_paid for flow in self.flows)


def may_cost(loaded: LoadedSpec) -> bool:
    """Whether somebody may have to pay for a cell of it."""
    return any(_is_paid(resolve_flow(flow, spec=loaded.spec).model, loaded) for flow in loaded.spec.flows)


def estimate(loaded: LoadedSpec, *, root: RootPaths, only: Collection[CellId] | None = None) -> Estimate:
    """From the spec, and from what attempts of the same flows have cost under this root. Of all cells, or `only` these.

    Flows of which no cell is tried are left out.
    """
    spec = loaded.spec
    named = [(id_, flow.id) for id_, _, flow, _ in name_cells(spec, missions=loaded.missions)]
    cells = tuple(id_ for id_, _ in named if only is None or id_ in only)
    of_flow = Counter(flow for id_, flow in named if only is None or id_ in only)
    flows = [resolve_flow(flow, spec=spec) for flow in spec.flows if flow.id in of_flow]
    past = list(_past(root)) if any(not flow.model.is_scripted or loaded.prices for flow in flows) else []
    told = tuple(_of_flow(flow, loaded, past) for flow in flows)
    schedule, attempt_ms = resolve_schedule(spec), resolve_limits(spec.limits).attempt_ms
    cell_ms = (1 + schedule.retries) * attempt_ms
    cell_ms = cell_ms if schedule.mission_ms is None else min(cell_ms, schedule.mission_ms)
    attempts_at_most = len(cells) * (1 + schedule.retries)
    starts_ms = (attempts_at_most - 1) * schedule.start_interval_ms
    longest_ms = max(ceil(len(cells) / _at_a_time(flows, schedule)) * cell_ms, starts_ms + attempt_ms) if cells else 0
    each = [(flow.usd_each, of_flow[flow.flow_id]) for flow in told]
    return Estimate(
        campaign=spec.campaign,
        cells=cells,
        flows=told,
        attempts_at_most=attempts_at_most,
        longest_ms=longest_ms if schedule.campaign_ms is None else min(longest_ms, schedule.campaign_ms),
        usd=None if any(usd is None for usd, _ in each) else sum(usd * number for usd, number in each if usd),
    )


def _at_a_time(flows: Sequence[ResolvedFlow], schedule: Schedule) -> int:
    """As many attempts as the narrowest limit lets run. A spec that limits what no flow uses is refused before."""
    is_scripted = all(flow.model.is_scripted for flow in flows)
    each_login = schedule.parallel if is_scripted or schedule.per_credential is None else schedule.per_credential
    return min(schedule.parallel, each_login, *schedule.strategies.values(), *schedule.providers.values())


def _of_flow(flow: ResolvedFlow, loaded: LoadedSpec, past: list[tuple[CampaignPaths, ResolvedFlow]]) -> FlowEstimate:
    measured, usd = 0, 0.0
    for campaign, known in past:
        if known == flow:
            with suppress(MachineError):
                count, its_usd = read_costs(campaign.ledger, flow=flow.id)
                measured, usd = measured + count, usd + its_usd
    is_paid = _is_paid(flow.model, loaded)
    return FlowEstimate(
        flow_id=flow.id,
        model=price_key(flow.model.provider, flow.model.name),
        is_paid=is_paid,
        measured=measured,
        usd_each=usd / measured if measured else None if is_paid else 0.0,
    )


class _Plan(msgspec.Struct, frozen=True):
    flows: tuple[msgspec.Raw, ...]


class _PlanFile(msgspec.Struct, frozen=True):
    plan: _Plan


def _past(root: RootPaths) -> Iterator[tuple[CampaignPaths, ResolvedFlow]]:
    """The flows of the latest campaigns; those of another Proctor's making are not the same."""
    for campaign in campaigns_by_age(root)[-_MOST_CAMPAIGNS:]:
        with suppress(EvidenceError, msgspec.MsgspecError):
            for flow in read_artifact(campaign.plan, _PlanFile).plan.flows:
                yield campaign, msgspec.json.decode(flow, type=ResolvedFlow)


def _is_paid(model: ResolvedModel, loaded: LoadedSpec) -> bool:
    """Whether somebody may have to pay: not for the scripted one, nor for one that is priced at nought, nor for one on
    this machine that has no price.
    """
    if model.is_scripted:
        return False
    price = None if loaded.prices is None else loaded.prices.usd(price_key(model.provider, model.name), _SOME)
    return not _is_here(model.base_url) if price is None else price > 0


def _is_here(base_url: str | None) -> bool:
    host = None if base_url is None else urlsplit(base_url).hostname
    if host is None or host == "localhost":
        return host is not None
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False
