"""Determine when a turn begins and ends, from the messages sent and their reported states. Pure.

A message sent while a turn runs joins the next request to the model. If no request follows, the program runs another
turn for it, with another result. Proctor's turn is over when all of its messages are processed.

A message that is given, not asked, runs no turn. It has states and, from the user, a result like any other.
"""

from typing import Final

OPEN_STATES: Final = frozenset({"queued", "started"})


class Turns:
    """The state of the turns of one session.

    >>> turns = Turns()
    >>> turns.said("a"), turns.said("b")
    (True, False)
    >>> turns.heard_state("b", "queued"), turns.heard_result()
    (False, False)
    >>> turns.heard_state("b", "started"), turns.heard_result(), turns.heard_state("b", "completed")
    (False, False, True)
    >>> turns.current is None
    True
    >>> turns.give("c"), turns.heard_state("c", "started"), turns.is_giving, turns.heard_result()
    (None, False, True, False)
    >>> turns.heard_state("c", "completed"), turns.is_giving
    (False, False)
    """

    def __init__(self) -> None:
        self.current: str | None = None
        self._added: set[str] = set()
        self._given: set[str] = set()
        self._being_given: str | None = None
        self._has_result = False
        self._are_states_reported = False

    def said(self, message: str) -> bool:
        """Note a message sent to the agent. Return True if a turn begins with it."""
        if self.current is None:
            self.current, self._has_result = message, False
            return True
        self._added.add(message)
        return False

    def give(self, message: str) -> None:
        """Note a message that is added to the thread without a turn."""
        self._given.add(message)

    @property
    def is_giving(self) -> bool:
        """Whether the agent is processing a given message, so that a result belongs to it."""
        return self._being_given is not None

    def heard_result(self) -> bool:
        """Note a result from the agent. Return True if the turn is over."""
        if self.is_giving:
            return False
        self._has_result = True
        return self._over()

    def heard_state(self, message: str, state: str) -> bool:
        """Note the reported state of a message sent to the agent. Return True if the turn is over."""
        if message in self._given:
            self._being_given = message if state == "started" else None
            if state not in OPEN_STATES:
                self._given.discard(message)
            return False
        self._are_states_reported = True
        if message in self._added:
            if state not in OPEN_STATES:
                self._added.discard(message)
            elif state == "started":
                self._has_result = False
        return self._over()

    def _over(self) -> bool:
        if self.current is None or not self._has_result or (self._added and self._are_states_reported):
            return False
        self.current = None
        self._added.clear()
        return True
