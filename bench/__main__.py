"""`make bench`: measure speed and memory side by side. `--quick` only checks that every benchmark runs."""

import argparse
import os
import platform
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import msgspec

from bench import codex
from bench.commands import IMPORT_JSON, LIST, LOOKS, VERSION, command_costs
from bench.cost import Cost
from bench.events import rates
from bench.files import files_cpu_s
from bench.runtimes import SHARED, SPAWNED, Kind, cost_of, kinds, write_fakes
from bench.table import Row, at_least, at_most, render

RESULTS = Path(__file__).parent / "results.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    rounds: int = 3
    attempts: int = 1000
    many_attempts: int = 10_000
    spawned_attempts: int = 100
    codex_attempts: int = 64
    turns: int = 2000
    starts: int = 15


QUICK = Sizes(rounds=1, attempts=4, many_attempts=8, spawned_attempts=2, codex_attempts=2, turns=20, starts=1)


class Results(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """bench/results.json: the results of the last run on this machine."""

    python: str
    cores: int
    load: tuple[float, float, float]
    rows: tuple[Row, ...]


@dataclass(slots=True)
class Bench:
    """Runs each measurement in a fresh folder: deleting the previous one would slow the file system for a while."""

    folder: Path
    sizes: Sizes
    number: int = 0

    def fresh(self) -> Path:
        self.number += 1
        return self.folder / str(self.number)

    def fake(self, kind: Kind, attempts: int) -> tuple[Path, Cost]:
        folder = self.fresh()
        return folder / "evidence", cost_of(kind, folder, attempts=attempts)

    def run(self, report: Callable[[str], None]) -> list[Row]:
        sizes = self.sizes
        write_fakes(self.folder)
        shared, events, files = [], [], []
        recorded, _ = self.fake(SHARED, 1)
        spawned: dict[Kind, list[Cost]] = {kind: [] for kind in (SPAWNED, *kinds(recorded))}
        driven: dict[str, list[Cost]] = {"proctor": [], "least": [], "same": [], "exec": []}
        with codex.open_model() as url:
            for round_ in range(sizes.rounds):
                report(f"round {round_ + 1} of {sizes.rounds}")
                files.append(files_cpu_s(self.fresh(), attempts=sizes.spawned_attempts))
                shared.append(self.fake(SHARED, sizes.attempts)[1])
                for kind, costs in spawned.items():
                    costs.append(self.fake(kind, sizes.spawned_attempts)[1])
                driven["proctor"].append(codex.by_proctor(self.fresh(), sizes.codex_attempts, url))
                for asks in ("least", "same"):
                    driven[asks].append(codex.by_bare_driver(self.fresh(), sizes.codex_attempts, url, asks=asks))
                driven["exec"].append(codex.by_exec(self.fresh(), sizes.codex_attempts, url))
                place = self.fresh()
                place.mkdir()
                events.append(rates(place, sizes.turns))
        report(f"{sizes.many_attempts} attempts")
        place = self.fresh()
        root, many = place / "evidence", cost_of(SHARED, place, attempts=sizes.many_attempts, with_growth=True)
        assert many.growth is not None
        report("commands")
        starts = command_costs(sizes.starts, VERSION, IMPORT_JSON)
        lists = command_costs(sizes.starts, LIST, *LOOKS, IMPORT_JSON, root=root)
        return [
            _cpu_row(SHARED, shared, sizes.attempts, note=f"its files made bare: {median(files) * 1000:.1f} ms"),
            *(_cpu_row(kind, costs, sizes.spawned_attempts) for kind, costs in spawned.items()),
            *_thousand_rows(shared, sizes),
            *_codex_rows(driven, sizes),
            at_least(
                "events recorded, redacted, chained",
                median(recorded / bare for recorded, bare in events),
                1 / 3,
                "x bare",
                note=f"{median(recorded for recorded, _ in events):,.0f} a second of CPU",
            ),
            *_list_rows(lists, sizes),
            at_most(
                f"CPU per attempt, the last of {sizes.many_attempts:,} by the first",
                many.growth.measured,
                1.1,
                "x",
                note=f"in work of one size; {many.growth.plain:.2f} in seconds; {many.peak_bytes / 1e6:.0f} MB at peak",
            ),
            at_most(
                "proctor --version",
                median(ours.wall_s / theirs.wall_s for ours, theirs in starts),
                1.5,
                "x",
                note=f"{median(ours.wall_s for ours, _ in starts) * 1000:.0f} ms, import json alone is 1",
            ),
        ]


def _cpu_row(kind: Kind, costs: Sequence[Cost], attempts: int, *, note: str = "Inspect 17 ms, Harbor 32 ms") -> Row:
    """Return the row for Proctor's own CPU. The CPU of children, such as containment wrappers, is in the note."""
    children = median(cost.children_cpu_s for cost in costs) / attempts * 1000
    return at_most(
        f"our CPU per attempt, {kind.name}",
        median(cost.cpu_s for cost in costs) / attempts * 1000,
        5,
        "ms",
        note=f"children waited for {children:.1f} ms; {note}",
    )


def _thousand_rows(shared: Sequence[Cost], sizes: Sizes) -> Iterable[Row]:
    name = f"{sizes.attempts:,} fake attempts"
    yield at_most(name, median(cost.wall_s for cost in shared), 10, "s")
    yield at_most(f"{name}, our memory", max(cost.peak_bytes for cost in shared) / 1e6, 80, "MB")


def _codex_rows(driven: dict[str, list[Cost]], sizes: Sizes) -> Iterable[Row]:
    rate = {name: median(sizes.codex_attempts / cost.wall_s for cost in costs) for name, costs in driven.items()}
    turns = "since the first turn was asked, start-up left out"
    for name, share, title, metered in (
        ("exec", 2.0, "codex exec -P16", f"ours {turns}; exec from its spawn: it starts up for each"),
        ("least", 0.9, "a bare driver", f"both {turns}"),
        ("same", 0.9, "a bare driver that asks for the same", f"both {turns}"),
    ):
        ratios = [theirs.wall_s / ours.wall_s for ours, theirs in zip(driven["proctor"], driven[name], strict=True)]
        yield at_least(
            f"Codex attempts a second, by {title}",
            median(ratios),
            share,
            "x",
            note=f"{rate['proctor']:.1f} by {rate[name]:.1f}; {metered}",
        )


def _list_rows(costs: Sequence[tuple[Cost, ...]], sizes: Sizes) -> Iterable[Row]:
    """Yield the wall time of the command, and its CPU time beyond the start-up of Python."""
    *asked, python_ms = (median(cost.children_cpu_s for cost in each) * 1000 for each in zip(*costs, strict=True))
    wall_ms = median(each[0].wall_s for each in costs) * 1000
    yield at_most(f"attempt list --json of {sizes.many_attempts:,}, wall", wall_ms, 300, "ms", note="start to end")
    for words, cpu_ms in zip((LIST, *LOOKS), asked, strict=True):
        name = f"{' '.join(words[1:])} of {sizes.many_attempts:,}"
        note = f"CPU {cpu_ms:.0f} ms in all; import json alone {python_ms:.0f} ms"
        yield at_most(f"{name}, CPU beyond start-up", cpu_ms - python_ms, 300, "ms", note=note)


def main() -> int:
    parser = argparse.ArgumentParser(prog="bench", description=__doc__)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--results", type=Path, default=RESULTS)
    # Not under /tmp: an agent's home there disables its sandboxed shell.
    parser.add_argument(
        "--in", dest="place", default="/var/tmp", help="the folder to measure in, for example on another disk"
    )
    asked = parser.parse_args()

    def report(words: str) -> None:
        sys.stderr.write(f"bench: {words}\n")

    folder = Path(tempfile.mkdtemp(prefix="proctor-bench-", dir=asked.place))
    os.environ.update(XDG_CACHE_HOME=str(folder / "cache"), XDG_STATE_HOME=str(folder / "state"))
    # An installed package is compiled. Without a place for bytecode, each start would compile all its imports.
    os.environ["PYTHONPYCACHEPREFIX"] = str(folder / "bytecode")
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    try:
        rows = Bench(folder, QUICK if asked.quick else Sizes()).run(report)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    results = Results(
        python=platform.python_version(), cores=os.cpu_count() or 1, load=os.getloadavg(), rows=tuple(rows)
    )
    asked.results.write_bytes(msgspec.json.format(msgspec.json.encode(results), indent=2) + b"\n")
    sys.stdout.write(f"{render(rows)}\n")
    return 0 if all(row.ok for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
