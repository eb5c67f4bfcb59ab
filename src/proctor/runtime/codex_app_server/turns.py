"""Which turn of a thread runs, as its frames tell it, in whatever order they come."""

import anyio


class Turns:
    """One turn at a time. A frame of an earlier turn may come late, or twice."""

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
        """The next one is asked for."""
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
        """It was not begun."""
        self.over.set()

    def cut_off(self) -> None:
        # A turn that had ended before is not cut off, though whoever waits for it may not have looked yet.
        self.is_cut_off = self.is_cut_off or self.is_running
        self.known.set()
        self.over.set()
