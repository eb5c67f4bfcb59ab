"""Estimate a campaign before it runs: trials, attempts, longest duration, and cost where it was measured."""

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from ipaddress import ip_address
from math import ceil
from urllib.parse import urlsplit

import msgspec

from proctor import decoding
from proctor.errors import EvidenceError, MachineError
from proctor.event.model import Tokens
from proctor.evidence.layout import CampaignPaths, RootPaths
from proctor.evidence.reader import read_artifact
from proctor.ids import FlowId, TrialId
from proctor.ledger.reader import read_costs
from proctor.plan.expand import name_trials, resolve_flow, resolve_limits, resolve_schedule
from proctor.plan.model import ResolvedFlow, ResolvedModel, Schedule
from proctor.report.campaign_state import campaigns_by_age
from proctor.spec.load import LoadedSpec
from proctor.spec.prices import price_key

_MAX_CAMPAIGNS = 20
_SAMPLE_USAGE = Tokens(input=1_000_000, output=1_000_000, total=2_000_000, cached_input=0)


class FlowEstimate(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What an attempt of one flow costs, according to earlier campaigns."""

    flow_id: FlowId
    """Id of the flow."""
    model: str
    """Model of the flow, as the price list names it: provider and name."""
    is_paid: bool
    """Whether using the model may cost money."""
    measured: int
    """Earlier attempts of the same flow in this evidence root whose cost is known."""
    usd_each: float | None
    """Average cost of the measured attempts, in US dollars; 0 if the flow is free, null if unknown."""


class Estimate(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What a campaign, or a part of it, would run and cost."""

    campaign: str
    """Name of the campaign."""
    trials: tuple[TrialId, ...]
    """Ids of the trials that would run."""
    flows: tuple[FlowEstimate, ...]
    """Flows of these trials."""
    attempts_at_most: int
    """Attempts if every trial uses all its retries. Attempts repeated after a rate limit are not counted."""
    longest_ms: int
    """Duration in milliseconds if every attempt takes its time limit and the narrowest concurrency limit applies.
    Waits for a provider, pauses before retries, hooks and probes are not included.
    """
    usd: float | None
    """Cost in US dollars of one attempt per trial; null if unknown for any flow."""

    @property
    def is_paid(self) -> bool:
        return any(flow.is_paid for flow in self.flows)


def may_cost(loaded: LoadedSpec) -> bool:
    """Return whether any flow of a spec may cost money."""
    return any(_is_paid(resolve_flow(flow, spec=loaded.spec).model, loaded) for flow in loaded.spec.flows)


def estimate(loaded: LoadedSpec, *, root: RootPaths, only: Collection[TrialId] | None = None) -> Estimate:
    """Estimate all trials of a spec, or `only` these, from the cost of earlier attempts of the same flows in this root.

    Flows without a selected trial are left out.
    """
    spec = loaded.spec
    planned = name_trials(spec, missions=loaded.missions, only=frozenset(loaded.overrides.trials))
    selected = [(id_, flow.id) for id_, _, flow, _ in planned if only is None or id_ in only]
    trials = tuple(id_ for id_, _ in selected)
    trials_of_flow = Counter(flow for _, flow in selected)
    flows = [resolve_flow(flow, spec=spec) for flow in spec.flows if flow.id in trials_of_flow]
    past = list(_past_flows(root)) if any(not flow.model.is_scripted or loaded.prices for flow in flows) else []
    estimates = tuple(_estimate_flow(flow, loaded, past) for flow in flows)
    schedule, attempt_ms = resolve_schedule(spec), resolve_limits(spec.limits).attempt_ms
    trial_ms = (1 + schedule.retries) * attempt_ms
    trial_ms = trial_ms if schedule.mission_ms is None else min(trial_ms, schedule.mission_ms)
    attempts_at_most = len(trials) * (1 + schedule.retries)
    starts_ms = (attempts_at_most - 1) * schedule.start_interval_ms
    longest_ms = (
        max(ceil(len(trials) / _concurrency(flows, schedule)) * trial_ms, starts_ms + attempt_ms) if trials else 0
    )
    costs = [(flow.usd_each, trials_of_flow[flow.flow_id]) for flow in estimates]
    return Estimate(
        campaign=spec.campaign,
        trials=trials,
        flows=estimates,
        attempts_at_most=attempts_at_most,
        longest_ms=longest_ms if schedule.campaign_ms is None else min(longest_ms, schedule.campaign_ms),
        usd=None if any(usd is None for usd, _ in costs) else sum(usd * number for usd, number in costs if usd),
    )


def _concurrency(flows: Sequence[ResolvedFlow], schedule: Schedule) -> int:
    """Return how many attempts the narrowest limit allows at a time.

    Every limit applies: a spec with a limit on a runtime or provider that no flow uses is rejected earlier.
    """
    is_scripted = all(flow.model.is_scripted for flow in flows)
    per_login = schedule.parallel if is_scripted or schedule.per_credential is None else schedule.per_credential
    return min(schedule.parallel, per_login, *schedule.runtimes.values(), *schedule.providers.values())


def _estimate_flow(
    flow: ResolvedFlow, loaded: LoadedSpec, past: list[tuple[CampaignPaths, ResolvedFlow]]
) -> FlowEstimate:
    measured, usd = 0, 0.0
    for campaign, past_flow in past:
        if past_flow == flow:
            with suppress(MachineError):
                count, campaign_usd = read_costs(campaign.ledger, flow=flow.id)
                measured, usd = measured + count, usd + campaign_usd
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


def _past_flows(root: RootPaths) -> Iterator[tuple[CampaignPaths, ResolvedFlow]]:
    """Yield the flows of the latest campaigns. Plans that this version of Proctor cannot read are left out."""
    for campaign in campaigns_by_age(root)[-_MAX_CAMPAIGNS:]:
        with suppress(EvidenceError, msgspec.MsgspecError):
            for flow in read_artifact(campaign.plan, _PlanFile).plan.flows:
                yield campaign, decoding.decode(flow, ResolvedFlow)


def _is_paid(model: ResolvedModel, loaded: LoadedSpec) -> bool:
    """Return whether using a model may cost money.

    The scripted model, a model with a price of 0, and a model on this machine without a price are free.
    """
    if model.is_scripted:
        return False
    price = None if loaded.prices is None else loaded.prices.usd(price_key(model.provider, model.name), _SAMPLE_USAGE)
    return not _is_local(model.base_url) if price is None else price > 0


def _is_local(base_url: str | None) -> bool:
    host = None if base_url is None else urlsplit(base_url).hostname
    if host is None or host == "localhost":
        return host is not None
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False
