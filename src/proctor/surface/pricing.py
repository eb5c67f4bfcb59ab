"""What a running attempt has cost so far, by the price file of its spec."""

from proctor.campaign.live import Price
from proctor.event.model import Tokens
from proctor.ids import AttemptId
from proctor.spec.load import LoadedSpec
from proctor.spec.prices import price_key


def price_of(loaded: LoadedSpec) -> Price | None:
    """None where the spec names no prices."""
    prices, spec = loaded.prices, loaded.spec
    if prices is None:
        return None
    models = {flow.id: flow.model or spec.model for flow in spec.flows}
    keys = {str(flow): price_key(model.provider, model.name) for flow, model in models.items()}

    def price(attempt: AttemptId, tokens: Tokens) -> float | None:
        # An attempt is called MISSION.FLOW.REPEAT.NUMBER, and no id has a dot.
        key = keys.get(attempt.split(".")[1])
        return None if key is None else prices.usd(key, tokens)

    return price
