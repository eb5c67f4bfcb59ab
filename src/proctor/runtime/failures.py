"""The failure table: what is seen when something goes wrong, and the code it comes to. Each runtime adds its rows."""

import re
from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """One way to fail. `fault` is what happened; the rest is how the agent tells of it, as patterns.

    `final` is the class of the error that ends a turn, `retrying` that of the errors reported while it still tries; no
    such error fits where that is None. `says` is found in the text of either, whatever it is where that is None. A row
    without `final` and `retrying` speaks of what the supervisor sees itself. `is_seen` is False where no real agent was
    brought to do it, so that the tests put it into what a real one says.
    """

    id: str
    fault: str
    code: str
    final: str | None = None
    retrying: str | None = None
    says: str | None = None
    is_seen: bool = True

    def fits(self, error_class: str | None, text: str, *, will_retry: bool) -> bool:
        """
        >>> row = Failure(id="cut", fault="", code="", final="other", retrying="lost", says="closed early")
        >>> row.fits("other", "the stream closed early", will_retry=False)
        True
        >>> row.fits("other", "the stream closed early", will_retry=True), row.fits("other", "", will_retry=False)
        (False, False)
        """
        wanted = self.retrying if will_retry else self.final
        return (
            wanted is not None
            and re.fullmatch(wanted, error_class or "") is not None
            and (self.says is None or re.search(self.says, text) is not None)
        )


def diagnose(
    table: Iterable[Failure], error_class: str | None, text: str, *, will_retry: bool = False
) -> Failure | None:
    """The first row that fits an error."""
    return next((row for row in table if row.fits(error_class, text, will_retry=will_retry)), None)


EVERYWHERE = (
    Failure(id="killed", fault="the agent's process is killed (SIGKILL)", code="peer.killed"),
    Failure(
        id="ended", fault="the agent's process ends in the middle of a turn, by itself or asked to", code="peer.hangup"
    ),
    Failure(id="silent", fault="the agent falls silent, and the stall clock fires", code="limit.stall"),
    Failure(id="long-turn", fault="the turn's clock fires while the agent works", code="limit.turn"),
    Failure(id="long-attempt", fault="the attempt's clock fires", code="limit.attempt"),
    Failure(id="refused", fault="the agent will not open a session", code="peer.refused"),
    Failure(id="busy", fault="the agent keeps saying that it is overloaded", code="peer.overloaded", is_seen=False),
    Failure(id="no-protocol", fault="a reply of the agent's is not of its protocol", code="peer.wire", is_seen=False),
    Failure(
        id="too-old", fault="the agent says that it is an older version", code="machine.binary-too-old", is_seen=False
    ),
    Failure(id="cancelled", fault="somebody asks Proctor to stop", code="run.cancelled"),
)
"""What the supervisor sees by itself, whatever the agent. A clock that fires while the agent still struggles with an
error that has a code gives that code."""
