"""Rows of the area `context` about whole turns and about giving. Each is measured beside something else, in turns."""

import io
import os
import subprocess
import sys
import tarfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from operator import sub, truediv
from pathlib import Path
from statistics import median, quantiles

import msgspec

from bench import codex
from bench.campaign import KEY
from bench.context import BenchContext
from bench.cost import ROOT, Cost, in_own_process
from bench.runtimes import write_fake
from bench.table import Row, at_most, not_measured

BEFORE_SESSIONS = "4d371dd2b64949918824e099a45851d0fb8dbded"
"""The last commit before the first one about sessions that continue."""

_ENTRIES = 2
"""Entries of a turn of the fake agent: a prompt and an answer."""
_CLOSE_S = 30.0
_NO_KEY = {KEY: "none-needed-here"}


def turn_rows(context: BenchContext) -> Iterator[Row]:
    yield _giving_row(context)
    place = context.fresh()
    place.mkdir()
    fake = write_fake(place)
    yield _engine_row(context, fake)
    for evidence, where in (("off", "kept nowhere"), ("disk", "kept on disk")):
        yield _older_row(context, fake, evidence=evidence, where=where)


def _giving_row(context: BenchContext) -> Row:
    """Compare wall time: what the agent needs for the request is a part of it for both drivers."""
    sizes = context.sizes
    costs: dict[str, list[Cost]] = {"proctor": [], "bare": []}
    with codex.open_model() as url:
        for number in range(1, sizes.pairs + 1):
            context.report(f"context: giving, pair {number} of {sizes.pairs}")
            for driver, taken in costs.items():
                words = (driver, str(context.fresh()), str(sizes.projected_messages), url)
                taken.append(in_own_process("bench.giver", *words, env=_NO_KEY))
    ours, bare = ([cost.wall_s * 1000 for cost in taken] for taken in costs.values())
    ours_cpu, bare_cpu = (median(cost.cpu_s * 1000 for cost in taken) for taken in costs.values())
    ratios = list(map(truediv, ours, bare))
    return at_most(
        f"give {sizes.projected_messages:,} messages to the real Codex, by a bare JSON-RPC driver",
        median(ratios),
        1.5,
        "x",
        note=f"{_spread(ratios)} x in {len(ratios)} pairs, wall: {median(ours):.0f} by {median(bare):.0f} ms, of which"
        f" CPU of the driver {ours_cpu:.0f} by {bare_cpu:.0f} ms; the bare one sends the same items, made before",
    )


def _engine_row(context: BenchContext, fake: Path) -> Row:
    """Compare sessions with an id. Measured are the turns around the wanted number of entries."""
    sizes = context.sizes
    turns = sizes.pairs * sizes.batch_turns
    with ExitStack() as stack:
        talkers = [
            _Talker(context, fake, stack, id=engine, engine=engine, sources=ROOT / "src")
            for engine in ("lossless", "none")
        ]
        context.report(f"context: sessions of {sizes.few_messages:,} entries")
        for talker in talkers:
            talker.cpu_ms(max(1, sizes.few_messages // _ENTRIES - turns // 2))
        with_engine, without = _paired(context, talkers, turns=sizes.batch_turns, what="none")
    more = list(map(sub, with_engine, without))
    return at_most(
        f"a turn with lossless and {sizes.few_messages:,} entries, beyond one without an engine, our CPU",
        median(more),
        10,
        "ms",
        note=f"{_spread(more)} ms in {len(more)} pairs of {sizes.batch_turns} turns with a fake agent:"
        f" {median(with_engine):.1f} by {median(without):.1f} ms, both sessions with an id",
    )


def _older_row(context: BenchContext, fake: Path, *, evidence: str, where: str) -> Row:
    """Compare with the older commit. Each comparison has new processes: where their memory is makes a difference."""
    sizes = context.sizes
    what = f"a turn without an id, {where}, by the commit before sessions, our CPU"
    try:
        older = _checked_out(context.fresh())
    except OSError as error:
        return not_measured(what, 1.05, "x", why=str(error))
    costs: tuple[list[float], list[float]] = ([], [])
    for number in range(1, sizes.processes + 1):
        with ExitStack() as stack:
            talkers = [
                _Talker(context, fake, stack, evidence=evidence, sources=sources) for sources in (ROOT / "src", older)
            ]
            for talker in talkers:
                talker.cpu_ms(sizes.plain_turns)
            beside = f"the older commit, processes {number} of {sizes.processes}"
            taken = _paired(context, talkers, turns=sizes.plain_turns, what=beside)
            for all_costs, some in zip(costs, taken, strict=True):
                all_costs.extend(some)
    ratios = list(map(truediv, *costs))
    now, before = map(median, costs)
    return at_most(
        what,
        median(ratios),
        1.05,
        "x",
        note=f"{_spread(ratios)} x in {len(ratios)} pairs of {sizes.plain_turns} turns with a fake agent:"
        f" {now:.2f} by {before:.2f} ms; {BEFORE_SESSIONS[:8]}, from this repository's history",
    )


def _checked_out(folder: Path) -> Path:
    """Return the folder with the sources of the older commit. Raises OSError if this repository does not have it."""
    archive = ("git", "-C", str(ROOT), "archive", BEFORE_SESSIONS, "src")
    done = subprocess.run(archive, capture_output=True, check=False)
    if done.returncode != 0:
        raise OSError(f"git has no commit {BEFORE_SESSIONS[:8]} here: {done.stderr.decode().strip()}")
    with tarfile.open(fileobj=io.BytesIO(done.stdout)) as files:
        files.extractall(folder, filter="data")
    return folder / "src"


class _Talker:
    """A process that talks to a fake agent with the Proctor in a folder of sources."""

    def __init__(self, context: BenchContext, fake: Path, stack: ExitStack, *, sources: Path, **options: str) -> None:
        root = str(context.fresh())
        words = msgspec.json.encode({"sources": str(sources), "root": root, **options}).decode()
        env = {**os.environ, **_NO_KEY, "PROCTOR_CODEX": str(fake), "PYTHONPATH": str(sources)}
        self._process = stack.enter_context(_started((sys.executable, "-m", "bench.talker", words), env=env))

    def cpu_ms(self, turns: int) -> float:
        """Take turns, and return our CPU for one of them, without that of the agent."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(b"%d\n" % turns)
        self._process.stdin.flush()
        return msgspec.json.decode(self._process.stdout.readline(), type=Cost).cpu_s * 1000 / turns


@contextmanager
def _started(words: Sequence[str], *, env: Mapping[str, str]) -> Iterator["subprocess.Popen[bytes]"]:
    """Start a process that ends when its stdin does."""
    process = subprocess.Popen(words, cwd=ROOT, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        yield process
        process.communicate(timeout=_CLOSE_S)
    finally:
        process.kill()
        process.communicate()


def _paired(
    context: BenchContext, talkers: Sequence[_Talker], *, turns: int, what: str
) -> tuple[list[float], list[float]]:
    """Return the CPU of a turn with each of two talkers, which take turns and begin by turns."""
    costs: tuple[list[float], list[float]] = ([], [])
    context.report(f"context: turns beside {what}")
    for number in range(context.sizes.pairs):
        for at in (0, 1) if number % 2 else (1, 0):
            costs[at].append(talkers[at].cpu_ms(turns))
    return costs


def _spread(values: Sequence[float]) -> str:
    """Return the middle half and the extremes."""
    if len(values) < 4:
        return f"{min(values):.2f} to {max(values):.2f}"
    low, _, high = quantiles(values, n=4)
    return f"half of them {low:.2f} to {high:.2f}, all {min(values):.2f} to {max(values):.2f}"
