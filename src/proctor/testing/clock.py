"""A fake clock for tests, which moves only when it is advanced."""


class FakeClock:
    """A `proctor.clock.Clock` under manual control. Wall time and steady time move together.

    >>> clock = FakeClock()
    >>> clock.advance(1.5)
    >>> clock.steady_s(), clock.wall_ms()
    (1.5, 1700000001500)
    """

    def __init__(self, *, wall_ms: int = 1_700_000_000_000, steady_s: float = 0.0) -> None:
        self._wall_ms = wall_ms
        self._steady_s = steady_s

    def wall_ms(self) -> int:
        return self._wall_ms

    def steady_s(self) -> float:
        return self._steady_s

    def advance(self, seconds: float) -> None:
        self._steady_s += seconds
        self._wall_ms += round(seconds * 1000)
