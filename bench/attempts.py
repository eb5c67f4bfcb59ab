"""Area `attempts`: CPU per attempt with each runtime, throughput of the real Codex, and the recording of events."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from statistics import median

from bench import codex
from bench.context import BenchContext, Sizes
from bench.cost import Cost
from bench.events import rates
from bench.files import files_cpu_s
from bench.runtimes import SHARED, SPAWNED, Kind, cost_of, kinds, write_fakes
from bench.table import Row, at_least, at_most


def measure(context: BenchContext) -> list[Row]:
    sizes = context.sizes
    write_fakes(context.folder)
    shared, events, files = [], [], []
    recorded, _ = _fake(context, SHARED, 1)
    spawned: dict[Kind, list[Cost]] = {kind: [] for kind in (SPAWNED, *kinds(recorded))}
    driven: dict[str, list[Cost]] = {"proctor": [], "least": [], "same": [], "exec": []}
    with codex.open_model() as url:
        for round_ in range(sizes.rounds):
            context.report(f"attempts: round {round_ + 1} of {sizes.rounds}")
            files.append(files_cpu_s(context.fresh(), attempts=sizes.spawned_attempts))
            shared.append(_fake(context, SHARED, sizes.attempts)[1])
            for kind, costs in spawned.items():
                costs.append(_fake(context, kind, sizes.spawned_attempts)[1])
            driven["proctor"].append(codex.by_proctor(context.fresh(), sizes.codex_attempts, url))
            for asks in ("least", "same"):
                driven[asks].append(codex.by_bare_driver(context.fresh(), sizes.codex_attempts, url, asks=asks))
            driven["exec"].append(codex.by_exec(context.fresh(), sizes.codex_attempts, url))
            place = context.fresh()
            place.mkdir()
            events.append(rates(place, sizes.turns))
    return [
        cpu_row(SHARED, shared, sizes.attempts, note=f"its files made bare: {median(files) * 1000:.1f} ms"),
        *(cpu_row(kind, costs, sizes.spawned_attempts) for kind, costs in spawned.items()),
        *thousand_rows(shared, sizes),
        *_codex_rows(driven, sizes),
        at_least(
            "events recorded, redacted, chained",
            median(recorded / bare for recorded, bare in events),
            1 / 3,
            "x bare",
            note=f"{median(recorded for recorded, _ in events):,.0f} a second of CPU",
        ),
    ]


def _fake(context: BenchContext, kind: Kind, attempts: int) -> tuple[Path, Cost]:
    folder = context.fresh()
    return folder / "evidence", cost_of(kind, folder, attempts=attempts)


def cpu_row(kind: Kind, costs: Sequence[Cost], attempts: int, *, note: str = "Inspect 17 ms, Harbor 32 ms") -> Row:
    """Return the row for Proctor's own CPU. The CPU of children, such as containment wrappers, is in the note."""
    children = median(cost.children_cpu_s for cost in costs) / attempts * 1000
    return at_most(
        f"our CPU per attempt, {kind.name}",
        median(cost.cpu_s for cost in costs) / attempts * 1000,
        5,
        "ms",
        note=f"children waited for {children:.1f} ms; {note}",
    )


def thousand_rows(shared: Sequence[Cost], sizes: Sizes) -> Iterable[Row]:
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
