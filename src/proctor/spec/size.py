"""Parse the sizes of a spec and of the config."""

import re
from typing import Final

_SIZE: Final = re.compile(r"([0-9]+(?:\.[0-9]+)?) ?(?:([kKMGT])(i?))?B")
_POWER: Final = {None: 0, "k": 1, "K": 1, "M": 2, "G": 3, "T": 4}
_LEAST_EVIDENCE_BYTES: Final = 1000**2
# Readers refuse a file of more than 4 GiB, and what the agent sends until it is stopped is recorded beyond the limit.
_MOST_EVIDENCE_BYTES: Final = 2 * 1024**3


def parse_size_bytes(size: str) -> int:
    """Parse a size with a unit (B, kB, MB, GB, TB, KiB, …). Returns bytes. Raises ValueError if it is invalid.

    >>> parse_size_bytes("5GB"), parse_size_bytes("1.5 GiB"), parse_size_bytes("0B")
    (5000000000, 1610612736, 0)
    >>> parse_size_bytes("much")
    Traceback (most recent call last):
    ValueError: `much` is not a size: write it like 5GB, 500MB or 2GiB
    """
    match = _SIZE.fullmatch(size.strip())
    if match is None:
        raise ValueError(f"`{size[:60]}` is not a size: write it like 5GB, 500MB or 2GiB")
    scale: int = (1024 if match[3] else 1000) ** _POWER[match[2]]
    return round(float(match[1]) * scale)


def parse_evidence_limit_bytes(size: str) -> int:
    """Parse the limit for the evidence of an attempt. Raises ValueError unless it is between 1 MB and 2 GiB.

    >>> parse_evidence_limit_bytes("5GiB")
    Traceback (most recent call last):
    ValueError: `5GiB` is out of range: write a size from 1MB to 2GiB
    """
    size_bytes = parse_size_bytes(size)
    if not _LEAST_EVIDENCE_BYTES <= size_bytes <= _MOST_EVIDENCE_BYTES:
        raise ValueError(f"`{size[:60]}` is out of range: write a size from 1MB to 2GiB")
    return size_bytes
