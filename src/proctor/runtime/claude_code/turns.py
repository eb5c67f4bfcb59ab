"""Determine when a turn begins and ends, from the messages sent and their reported states. Pure.

A message sent while a turn runs joins the next request to the model. If no request follows, the program runs another
turn for it, with another result. Proctor's turn is over when all of its messages are processed.
"""

from typing import Final

_OPEN_STATES: Final = frozenset({"queued", "started"})


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
    """

    def __init__(self) -> None:
        self.current: str | None = None
        self._added: set[str] = set()
        self._has_result = False
        self._are_states_reported = False

    def said(self, message: str) -> bool:
        """Note a message sent to the agent. Return True if a turn begins with it."""
        if self.current is None:
            self.current, self._has_result = message, False
            return True
        self._added.add(message)
        return False

    def heard_result(self) -> bool:
        """Note a result from the agent. Return True if the turn is over."""
        self._has_result = True
        return self._over()

    def heard_state(self, message: str, state: str) -> bool:
        """Note the reported state of a message sent to the agent. Return True if the turn is over."""
        self._are_states_reported = True
        if message in self._added:
            if state not in _OPEN_STATES:
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
