"""`make bench`: measure speed and memory side by side. `--quick` only checks that every benchmark runs."""

import argparse
import os
import platform
import shutil
import sys
import tempfile
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from importlib import import_module
from pathlib import Path

import msgspec

from bench.context import QUICK, BenchContext, Sizes
from bench.table import Row, render

AREAS = {"attempts": "attempts", "probes": "probes", "scale": "scale", "context": "engines"}
"""The areas, each with the module of this package whose function `measure` measures it."""
RESULTS = Path(__file__).parent / "results.json"


class Results(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """bench/results.json: the results of the last run on this machine. It has no rows of areas that were not run."""

    ended_at: str
    """When the run ended: UTC, ISO 8601."""
    areas: tuple[str, ...]
    """The areas that were run."""
    python: str
    """The version of Python."""
    cores: int
    """How many cores the machine has."""
    load: tuple[float, float, float]
    """The load averages at the end, over 1, 5 and 15 minutes."""
    rows: tuple[Row, ...]
    """The table."""


def measure(areas: Sequence[str], context: BenchContext) -> list[Row]:
    # Imported here, so that an area does not load what only another one needs.
    return [row for area in areas for row in _area(area)(context)]


def _area(name: str) -> Callable[[BenchContext], list[Row]]:
    measured: Callable[[BenchContext], list[Row]] = import_module(f"bench.{AREAS[name]}").measure
    return measured


def main() -> int:
    parser = argparse.ArgumentParser(prog="bench", description=__doc__)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--only", choices=AREAS, metavar="AREA", help=f"run one area: {', '.join(AREAS)}")
    parser.add_argument("--results", type=Path, default=RESULTS)
    # Not under /tmp: an agent's home there disables its sandboxed shell.
    parser.add_argument(
        "--in", dest="place", default="/var/tmp", help="the folder to measure in, for example on another disk"
    )
    asked = parser.parse_args()
    areas = tuple(AREAS) if asked.only is None else (asked.only,)

    def report(words: str) -> None:
        sys.stderr.write(f"bench: {words}\n")

    folder = Path(tempfile.mkdtemp(prefix="proctor-bench-", dir=asked.place))
    os.environ.update(XDG_CACHE_HOME=str(folder / "cache"), XDG_STATE_HOME=str(folder / "state"))
    # An installed package is compiled. Without a place for bytecode, each start would compile all its imports.
    os.environ["PYTHONPYCACHEPREFIX"] = str(folder / "bytecode")
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    try:
        rows = measure(areas, BenchContext(folder=folder, sizes=QUICK if asked.quick else Sizes(), report=report))
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    results = Results(
        ended_at=datetime.now(UTC).isoformat(timespec="seconds"),
        areas=areas,
        python=platform.python_version(),
        cores=os.cpu_count() or 1,
        load=os.getloadavg(),
        rows=tuple(rows),
    )
    asked.results.write_bytes(msgspec.json.format(msgspec.json.encode(results), indent=2) + b"\n")
    sys.stdout.write(f"{render(rows)}\n")
    return 0 if all(row.ok for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
