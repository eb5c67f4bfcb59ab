"""The missions of `examples/probes` as plays: each solution and each cheat is a patch that the agent applies."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import yaml

from hostile.catalogue import Play, Task

FOLDER: Final = Path(__file__).parent.parent / "examples" / "probes"
FLAW_OF: Final = {
    "api_smoke/cheats/canned-answer.patch": 5,
    "api_smoke/cheats/no-memory.patch": 5,
    "browser_smoke/cheats/constant.patch": 5,
    "browser_smoke/cheats/dialog.patch": 3,
    "headless_run/cheats/every-name.patch": 5,
    "headless_run/cheats/one-name.patch": 5,
    "import_smoke/cheats/every-name.patch": 4,
    "import_smoke/cheats/exit-early.patch": 3,
    "import_smoke/cheats/installed-elsewhere.patch": 1,
    "output_fixture_diff/cheats/last-sale.patch": 5,
    "output_fixture_diff/cheats/write-nothing.patch": 8,
    "render_hash/cheats/blank.patch": 5,
    "render_hash/cheats/full.patch": 5,
    "side_effect/cheats/canned-order.patch": 5,
    "side_effect/cheats/only-the-receipt.patch": 5,
    "side_effect/cheats/two-calls.patch": 5,
    "sim_trace/cheats/canned.patch": 5,
    "sim_trace/cheats/replayed.patch": 8,
    "stdout_golden/cheats/any-column.patch": 5,
    "stdout_golden/cheats/visible-case.patch": 5,
    "test_suite_parity/cheats/another-price.patch": 5,
    "test_suite_parity/cheats/deleted-test.patch": 6,
    "test_suite_parity/cheats/skipped-test.patch": 6,
    "unit_tests/cheats/edited-test.patch": 1,
    "unit_tests/cheats/hard-coded.patch": 5,
    "unit_tests/cheats/skipped.patch": 6,
}
"""The flaw that each cheat of an example is aimed at, by its path."""
_OWN_KEYS: Final = ("id", "script", "solution", "cheats", "expect")


def example_plays() -> Iterator[Play]:
    """Yield the plays of every example: its solution first, then its cheats."""
    for file in sorted(FOLDER.glob("*.yaml")):
        [mission] = yaml.safe_load(file.read_text())["missions"]
        task = Task(
            name=file.stem,
            mission={key: value for key, value in mission.items() if key not in _OWN_KEYS},
            origin=FOLDER / file.stem,
        )
        name = file.stem.replace("_", "-")
        yield Play(name=f"honest-{name}", task=task, steps=(_apply(mission["solution"]),))
        for cheat in mission["cheats"]:
            yield Play(name=f"{name}-{Path(cheat).stem}", task=task, steps=(_apply(cheat),), flaw=FLAW_OF[cheat])


def _apply(patch: str) -> dict[str, Any]:
    return {"run": f"git apply - <<'END_OF_PATCH'\n{(FOLDER / patch).read_text()}END_OF_PATCH\n"}
