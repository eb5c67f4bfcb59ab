"""`make chaos SEEDS=…`: run campaigns under repeated random faults, and report the result of each seed."""

import argparse
import os
import shutil
import signal
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from statistics import median
from typing import Any

from chaos.cast import FAKE, REAL, Cast
from chaos.check import problems_of, results_of
from chaos.play import Played, Seed, open_stage
from chaos.seeds import seeds_in

DEFAULT = tuple(range(1, 13))
FAULTS = 24
"""About how many faults a seed gets: a round that has begun may add more."""
LEAST = 200
CLAIM_S = 1.0
"""The largest median time from the start of a resume to its first attempt, on an otherwise idle machine."""


def cast_of(seed: int) -> Cast:
    return REAL if seed % 3 == 0 else FAKE


def undisturbed(cast: Cast, folder: Path) -> dict[str, Any]:
    """Return the result of each trial in a run without faults."""
    with open_stage(cast, folder) as stage:
        played = Seed(0, stage, faults=0).play()
        assert not played.problems, played.problems
        results = results_of(stage)
        assert [*problems_of(stage, results=results)] == []
        return results


def play_seed(seed: int, cast: Cast, folder: Path, *, results: dict[str, Any], faults: int = FAULTS) -> Played:
    with open_stage(cast, folder) as stage:
        played = Seed(seed, stage, faults=faults).play()
        played.problems += problems_of(stage, results=results)
        if played.problems and stage.has_disk:
            # The small disk is unmounted with the stage.
            shutil.copytree(stage.root, folder / "kept", symlinks=True)
        return played


def main() -> int:
    parser = argparse.ArgumentParser(prog="chaos", description=__doc__)
    parser.add_argument("--seeds", default="", help="such as 1,2,30-40 (default: a fixed set)")
    parser.add_argument("--faults", type=int, default=FAULTS)
    # Not under /tmp: an agent's home there disables its sandboxed shell.
    parser.add_argument("--in", dest="place", default="/var/tmp")
    asked = parser.parse_args()
    # Exit through `finally`: a small disk may be mounted, and a Proctor may be running.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    folder = Path(tempfile.mkdtemp(prefix="proctor-chaos-", dir=asked.place))
    # An installed package is compiled. Without a place for bytecode, each resume would compile all its imports.
    os.environ["PYTHONPYCACHEPREFIX"] = str(folder / "bytecode")
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    known: dict[str, dict[str, Any]] = {}
    all_played = []
    try:
        for seed in seeds_in(asked.seeds) or DEFAULT:
            cast = cast_of(seed)
            if cast.name not in known:
                known[cast.name] = undisturbed(cast, folder / cast.name)
            played = play_seed(seed, cast, folder / str(seed), results=known[cast.name], faults=asked.faults)
            all_played.append(played)
            sys.stdout.write(_line(played, cast))
            sys.stdout.flush()
            if not played.problems:
                shutil.rmtree(folder / str(seed), ignore_errors=True)
    finally:
        if not any(played.problems for played in all_played):
            shutil.rmtree(folder, ignore_errors=True)
    sys.stdout.write(_total(all_played))
    has_too_few = not asked.seeds and sum(played.faults.total() for played in all_played) < LEAST
    return 1 if any(played.problems for played in all_played) or has_too_few else 0


def _line(played: Played, cast: Cast) -> str:
    faults = ", ".join(f"{count} {name}" for name, count in sorted(played.faults.items()))
    verdict = "passed" if not played.problems else "FAILED"
    figures = f"{played.rounds:>3} rounds  {played.faults.total():>3} faults"
    line = f"seed {played.seed:<4} {cast.name:<6} {figures}  {verdict}  ({faults})"
    return "\n".join([line, *(f"  {problem[:500]}" for problem in played.problems), ""])


def _total(all_played: Iterable[Played]) -> str:
    faults: Counter[str] = Counter()
    claims_s: list[float] = []
    broken = 0
    for played in all_played:
        faults += played.faults
        claims_s += played.claims_s
        broken += bool(played.problems)
    lines = [f"{name:<20} {count:>5}" for name, count in sorted(faults.items())]
    lines.append(f"{'total':<20} {faults.total():>5}")
    if claims_s:
        lines.append(
            f"start of a resume to its first attempt: median {median(claims_s):.2f} s, longest {max(claims_s):.2f} s "
            f"(target on an idle machine: median {CLAIM_S:g} s)"
        )
    lines.append("every seed passed" if not broken else f"{broken} seeds FAILED")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.exit(main())
