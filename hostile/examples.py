"""The missions of `examples/probes` as plays: each solution and each cheat is a patch that the agent applies."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import yaml

from hostile.catalogue import Play, Task

FOLDER: Final = Path(__file__).parent.parent / "examples" / "probes"
FLAW_OF: Final[dict[str, int]] = {}
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
