"""What a running attempt has cost so far, by the price file of its spec."""

from proctor.campaign.live import Price
from proctor.campaign.spending import prices_of
from proctor.event.model import Tokens
from proctor.ids import AttemptId, CellId
from proctor.plan.expand import name_cells
from proctor.spec.load import LoadedSpec


def price_of(loaded: LoadedSpec) -> Price:
    """By the prices of the spec."""
    usd_of = prices_of(loaded)
    flows = {id_: flow.id for id_, _, flow, _ in name_cells(loaded.spec, missions=loaded.missions)}

    def price(attempt: AttemptId, tokens: Tokens) -> float | None:
        # An attempt is called after its cell, and numbered.
        flow = flows.get(CellId(attempt.rpartition(".")[0]))
        return None if flow is None else usd_of(flow, tokens)

    return price
