"""Area `scale`: many attempts in one campaign, the commands that list them, and start-up."""

from collections.abc import Iterable, Sequence
from statistics import median

from bench.commands import IMPORT_JSON, LIST, LOOKS, VERSION, command_costs
from bench.context import BenchContext, Sizes
from bench.cost import Cost
from bench.runtimes import SHARED, cost_of, write_fakes
from bench.table import Row, at_most


def measure(context: BenchContext) -> list[Row]:
    sizes = context.sizes
    place = context.fresh()
    place.mkdir()
    write_fakes(place)
    context.report(f"scale: {sizes.many_attempts} attempts")
    many = cost_of(SHARED, place / "campaign", attempts=sizes.many_attempts, with_growth=True)
    assert many.growth is not None
    context.report("scale: commands")
    starts = command_costs(sizes.starts, VERSION, IMPORT_JSON)
    lists = command_costs(sizes.starts, LIST, *LOOKS, IMPORT_JSON, root=place / "campaign" / "evidence")
    return [
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


def _list_rows(costs: Sequence[tuple[Cost, ...]], sizes: Sizes) -> Iterable[Row]:
    """Yield the wall time of the command, and its CPU time beyond the start-up of Python."""
    *asked, python_ms = (median(cost.children_cpu_s for cost in each) * 1000 for each in zip(*costs, strict=True))
    wall_ms = median(each[0].wall_s for each in costs) * 1000
    yield at_most(f"attempt list --json of {sizes.many_attempts:,}, wall", wall_ms, 300, "ms", note="start to end")
    for words, cpu_ms in zip((LIST, *LOOKS), asked, strict=True):
        name = f"{' '.join(words[1:])} of {sizes.many_attempts:,}"
        note = f"CPU {cpu_ms:.0f} ms in all; import json alone {python_ms:.0f} ms"
        yield at_most(f"{name}, CPU beyond start-up", cpu_ms - python_ms, 300, "ms", note=note)
