"""What a running attempt has cost so far, as it will be settled."""

from proctor.campaign.live import Price
from proctor.campaign.spending import prices_of
from proctor.event.model import Tokens
from proctor.ids import AttemptId, FlowId
from proctor.spec.load import LoadedSpec


def price_of(loaded: LoadedSpec) -> Price:
    """By the prices of the spec."""
    usd_of = prices_of(loaded)

    def price(attempt: AttemptId, tokens: Tokens) -> float | None:
        # An attempt is called MISSION.FLOW.REPEAT.NUMBER, and no id has a dot.
        return usd_of(FlowId(attempt.split(".")[1]), tokens)

    return price
