"""Compute the cost of a running attempt from the price file of its spec."""

from proctor.campaign.live import Price
from proctor.campaign.spending import prices_of
from proctor.event.model import Tokens
from proctor.ids import AttemptId, TrialId
from proctor.plan.expand import name_trials
from proctor.spec.load import LoadedSpec


def price_of(loaded: LoadedSpec) -> Price:
    """Return a function that returns the cost of an attempt's tokens, in US dollars; None if unknown."""
    usd_of = prices_of(loaded)
    flows = {id_: flow.id for id_, _, flow, _ in name_trials(loaded.spec, missions=loaded.missions)}

    def price(attempt: AttemptId, tokens: Tokens) -> float | None:
        # The id of an attempt is that of its trial, a dot and a number.
        flow = flows.get(TrialId(attempt.rpartition(".")[0]))
        return None if flow is None else usd_of(flow, tokens)

    return price
