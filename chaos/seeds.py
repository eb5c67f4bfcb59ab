"""Seeds as written on a command line."""

from collections.abc import Sequence


def seeds_in(text: str) -> Sequence[int]:
    """Return the seeds that a text lists.

    >>> seeds_in("1,30-32")
    [1, 30, 31, 32]
    """
    seeds: list[int] = []
    for part in filter(None, text.split(",")):
        first, _, last = part.partition("-")
        seeds += range(int(first), int(last or first) + 1)
    return seeds
