"""What every area of the benchmark is given: its sizes, fresh folders and a way to report progress."""

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    rounds: int = 3
    attempts: int = 1000
    many_attempts: int = 10_000
    spawned_attempts: int = 100
    codex_attempts: int = 64
    turns: int = 2000
    starts: int = 15
    files: int = 5000
    probes: int = 15
    few_messages: int = 1000
    some_messages: int = 10_000
    many_messages: int = 100_000
    projected_messages: int = 2000
    pairs: int = 11
    batch_turns: int = 10
    """How many turns with an id are measured at once."""
    plain_turns: int = 100
    """How many turns without an id are measured at once."""
    processes: int = 5
    """How many pairs of processes take turns without an id."""
    cheats: int | None = None
    """How many cheats are played; None for all."""


QUICK = Sizes(
    rounds=1,
    attempts=4,
    many_attempts=8,
    spawned_attempts=2,
    codex_attempts=2,
    turns=20,
    starts=1,
    files=20,
    probes=1,
    few_messages=20,
    some_messages=40,
    many_messages=80,
    projected_messages=20,
    pairs=1,
    batch_turns=2,
    plain_turns=2,
    processes=1,
    cheats=1,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchContext:
    folder: Path
    sizes: Sizes
    report: Callable[[str], None]
    _numbers: "count[int]" = field(default_factory=lambda: count(1))

    def fresh(self) -> Path:
        """Return the path of a folder that does not exist: deleting an old one would slow the file system."""
        return self.folder / str(next(self._numbers))
