"""The failure table: how each kind of failure shows itself, and its error code. Each runtime adds rows."""

import re
from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """One kind of failure and how an agent reports it.

    A row without `final` and `retrying` describes what the supervisor observes itself.
    """

    id: str
    """Unique within its table."""
    cause: str
    """What happened, as a sentence for the reference page."""
    code: str
    """The error code of an attempt that ends this way."""
    final: str | None = None
    """Pattern for the whole class of the error that ends a turn. None matches no such error."""
    retrying: str | None = None
    """Pattern for the whole class of an error reported while the agent retries. None matches no such error."""
    says: str | None = None
    """Pattern to find in the text of the error. None matches any text."""
    is_seen: bool = True
    """False if no real agent could be made to report it. The tests then inject it into a real agent's output."""

    def fits(self, error_class: str | None, text: str, *, will_retry: bool) -> bool:
        """Return whether the row describes an error.

        >>> row = Failure(id="cut", cause="", code="", final="other", retrying="lost", says="closed early")
        >>> row.fits("other", "the stream closed early", will_retry=False)
        True
        >>> row.fits("other", "the stream closed early", will_retry=True), row.fits("other", "", will_retry=False)
        (False, False)
        """
        class_pattern = self.retrying if will_retry else self.final
        return (
            class_pattern is not None
            and re.fullmatch(class_pattern, error_class or "") is not None
            and (self.says is None or re.search(self.says, text) is not None)
        )


def diagnose(
    table: Iterable[Failure], error_class: str | None, text: str, *, will_retry: bool = False
) -> Failure | None:
    """Return the first row that fits an error, or None."""
    return next((row for row in table if row.fits(error_class, text, will_retry=will_retry)), None)


EVERYWHERE = (
    Failure(
        id="killed",
        cause="The agent process is killed (SIGKILL), and its own commands could not have done it, or memory ran out.",
        code="peer.killed",
    ),
    Failure(
        id="killed-itself",
        cause="The agent process is killed by a signal, and only its own commands could send it.",
        code="agent.killed",
    ),
    Failure(
        id="ended",
        cause="The agent process exits in the middle of a turn, by itself or because it was asked to.",
        code="peer.hangup",
    ),
    Failure(
        id="lost",
        cause="The agent's channel closes while its process lives, or a process that several attempts share ends.",
        code="peer.lost",
        is_seen=False,
    ),
    Failure(id="silent", cause="The agent produces no output until the stall clock fires.", code="limit.stall"),
    Failure(id="long-turn", cause="The turn clock fires while the agent works.", code="limit.turn"),
    Failure(id="long-attempt", cause="The attempt clock fires.", code="limit.attempt"),
    Failure(id="refused", cause="The agent refuses to open a session.", code="peer.refused"),
    Failure(
        id="busy",
        cause="The agent repeatedly refuses a request because it is overloaded.",
        code="peer.overloaded",
        is_seen=False,
    ),
    Failure(
        id="no-protocol",
        cause="A reply from the agent does not conform to its protocol.",
        code="peer.wire",
        is_seen=False,
    ),
    Failure(
        id="too-old",
        cause="The agent reports a version older than the minimum.",
        code="machine.binary-too-old",
        is_seen=False,
    ),
    Failure(
        id="unfit",
        cause="When the turn ends, the scripted model cannot play a step with the tools that the agent offers.",
        code="script.unfit",
    ),
    Failure(
        id="spoiled",
        cause="The agent leaves a workspace that cannot be read or copied.",
        code="agent.workspace",
    ),
    Failure(
        id="endless",
        cause="The agent prints more than `limits.evidence` allows.",
        code="limit.evidence",
    ),
    Failure(id="disk-used-up", cause="The agent fills the scratch disk.", code="agent.disk"),
    Failure(id="disk-full", cause="Others fill the scratch disk.", code="machine.disk-full"),
    Failure(id="cancelled", cause="The user stops Proctor.", code="run.cancelled"),
    Failure(id="operator-cancel", cause="An operator cancels this attempt.", code="run.operator-cancel"),
)
"""Failures that the supervisor observes itself, for every agent.

If a clock fires while the agent retries after an error that has a code, the attempt gets the code of that error.
"""
