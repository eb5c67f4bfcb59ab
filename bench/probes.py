"""Area `probes`: what one fenced probe costs Proctor, beside a copy and a bare bwrap, and what cheats achieve."""

import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import median

import anyio

from bench.context import BenchContext
from bench.cost import Cost, Meter
from bench.table import Row, at_most, exactly
from hostile.__main__ import all_plays, play_all
from hostile.catalogue import CHEATS, HONEST
from proctor.__main__ import relax_gc
from proctor.contain.bundled import bundled_bwrap
from proctor.contain.intent import open_intents
from proctor.contain.ladder import Containment, choose, survey
from proctor.evidence.redact import Redactor
from proctor.probe.model import Phase, Verdict
from proctor.probe.run import run_probe
from proctor.probe.view import Subject, examine_subject
from proctor.spec.command_probes import HeadlessRun
from proctor.workspace.snapshot import snapshot

FEW = 10
PROBE = HeadlessRun(command=["true"])


def measure(context: BenchContext) -> list[Row]:
    relax_gc()
    return [*anyio.run(_cost_rows, context), *_cheat_rows(context)]


async def _cost_rows(context: BenchContext) -> list[Row]:
    sizes, containment = context.sizes, choose(survey(bundled_bwrap=bundled_bwrap()))
    assert containment.has_overlays, "this machine cannot mount overlays, so there is nothing to measure"
    few, many = (_tree(context, files) for files in (FEW, sizes.files))
    digests, on_few, on_many, copies, bare = list[Cost](), list[Cost](), list[Cost](), list[Cost](), list[Cost]()
    for number in range(sizes.probes + 1):
        context.report(f"probes: round {number} of {sizes.probes}")
        meter = Meter()
        subject = _examine(many)
        digests.append(meter.read())
        on_many.append(await _probe_cost(subject, containment, context))
        on_few.append(await _probe_cost(_examine(few), containment, context))
        bare.append(_bare_cost(containment, many))
        if number < 2:
            copies.append(await _probe_cost(subject, replace(containment, has_overlays=False), context))
    # The first round compiles and fills caches.
    digests, on_few, on_many, bare, copies = (each[1:] for each in (digests, on_few, on_many, bare, copies))
    name = f"our CPU for one fenced probe on {sizes.files:,} files"
    ratios = [many.cpu_s / few.cpu_s for many, few in zip(on_many, on_few, strict=True)]
    walls = [ours.wall_s / theirs.wall_s for ours, theirs in zip(on_many, bare, strict=True)]
    return [
        at_most(
            name,
            median(cost.cpu_s for cost in on_many) * 1000,
            25,
            "ms",
            note=f"{_spread(on_many)}; with a copy instead of an overlay {_ms(copies)} ms",
        ),
        at_most(f"{name}, by one on {FEW} files", median(ratios), 1.25, "x", note=f"{_ms(on_few)} ms; does it grow?"),
        at_most(
            "wall time of a fenced `true`, by a bare bwrap",
            median(walls),
            3,
            "x",
            note=f"{median(cost.wall_s for cost in on_many) * 1000:.0f} by "
            f"{median(cost.wall_s for cost in bare) * 1000:.0f} ms; quartiles {_quartiles(walls)}",
        ),
        at_most(
            f"digest of {sizes.files:,} files, once per phase, our CPU",
            median(cost.cpu_s for cost in digests) * 1000,
            median(cost.cpu_s for cost in copies) * 1000,
            "ms",
            note=f"{_spread(digests)}; to beat: one copy of the workspace",
        ),
    ]


def _tree(context: BenchContext, files: int) -> Path:
    folder = context.fresh()
    for number in range(files):
        place = folder / f"package_{number // 100}"
        place.mkdir(parents=True, exist_ok=True)
        (place / f"module_{number}.py").write_text(f"VALUE = {number}\n" * 20)
    return folder


def _examine(folder: Path) -> Subject:
    tree = snapshot(folder)
    return examine_subject(folder, tree.digest, tree=tree)


async def _probe_cost(subject: Subject, containment: Containment, context: BenchContext) -> Cost:
    scratch = context.fresh()
    scratch.mkdir()
    async with open_intents(scratch / "spawns") as intents:
        meter = Meter()
        row = await run_probe(
            PROBE,
            index=0,
            phase=Phase.FINAL,
            subject=subject,
            scratch=scratch,
            containment=containment,
            intents=intents,
            redactor=Redactor([]),
        )
        cost = meter.read()
    assert row.verdict is Verdict.PASS, row
    return cost


def _bare_cost(containment: Containment, folder: Path) -> Cost:
    meter = Meter()
    argv = [containment.program or "", "--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc", "--unshare-all"]
    subprocess.run([*argv, "--chdir", str(folder), "true"], check=True, timeout=60)
    return meter.read()


def _cheat_rows(context: BenchContext) -> Iterator[Row]:
    context.report("probes: the catalogue of cheats")
    plays = all_plays() if context.sizes.cheats is None else [*HONEST[:1], *CHEATS[: context.sizes.cheats]]
    results = play_all(plays)
    cheats, honest = (
        [each.verified is True for each in results if (each.play.flaw is None) is is_honest]
        for is_honest in (False, True)
    )
    yield exactly(f"cheats verified, of {len(cheats)}", sum(cheats), 0, "", note="real Codex")
    yield exactly("honest twins verified", sum(honest), len(honest), "", note="real Codex")


def _ms(costs: Sequence[Cost]) -> str:
    return f"{median(cost.cpu_s for cost in costs) * 1000:.0f}"


def _spread(costs: Sequence[Cost]) -> str:
    values = sorted(cost.cpu_s * 1000 for cost in costs)
    return f"{values[0]:.1f} to {values[-1]:.1f} ms"


def _quartiles(values: Sequence[float]) -> str:
    ordered = sorted(values)
    return f"{ordered[len(ordered) // 4]:.2f} to {ordered[3 * len(ordered) // 4]:.2f}"
