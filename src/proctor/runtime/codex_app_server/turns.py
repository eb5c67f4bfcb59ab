"""Track which turn of a thread runs. Its frames may arrive in any order."""

import anyio


class Turns:
    """Tracks one turn at a time. A frame of an earlier turn may arrive late or twice."""

    def __init__(self) -> None:
        self.current: str | None = None
        self.known = anyio.Event()
        self.over = anyio.Event()
        self.over.set()
        self.is_halted = False
        self.is_cut_off = False
        self._past: set[str] = set()

    @property
    def is_running(self) -> bool:
        return not self.over.is_set()

    def expect(self) -> None:
        """Prepare for the next turn, before it is requested."""
        if self.current is not None:
            self._past.add(self.current)
        self.current, self.known, self.over, self.is_halted = None, anyio.Event(), anyio.Event(), False

    def began(self, turn: str) -> None:
        if self.current is None and turn not in self._past:
            self.current = turn
            self.known.set()

    def ended(self, turn: str) -> None:
        self.began(turn)
        if turn == self.current:
            self.over.set()

    def give_up(self) -> None:
        """End the wait for a turn that the server did not start."""
        self.over.set()

    def cut_off(self) -> None:
        # A turn that ended before the hangup was not cut off, even if its waiter has not run yet.
        self.is_cut_off = self.is_cut_off or self.is_running
        self.known.set()
        self.over.set()
