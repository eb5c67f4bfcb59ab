"""Play the missions of examples/probes: their probes on the untouched workspace, on its solution and on each cheat."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import anyio

from proctor.attempt.probing import ProbeRunner
from proctor.contain.bundled import bundled_bwrap
from proctor.contain.intent import open_intents
from proctor.contain.ladder import choose, survey
from proctor.evidence.redact import Redactor
from proctor.probe.gate import decide
from proctor.probe.kind import UntouchedTree
from proctor.probe.model import Phase, ProbeRow, require
from proctor.spec.expect import ExpectedVerdict
from proctor.spec.load import load_spec
from proctor.workspace.copy import copy_tree
from proctor.workspace.git import git
from proctor.workspace.snapshot import snapshot
from proctor.workspace.walk import walk

EXAMPLES = Path(__file__).parents[2] / "examples" / "probes"


@dataclass(frozen=True, slots=True, kw_only=True)
class Play:
    """What the probes of a mission found on one tree."""

    verified: ExpectedVerdict
    rows: tuple[ProbeRow, ...]


def play_example(kind: str, folder: Path, *, patch: str | None) -> Play:
    """Run the probes of an example before and after a patch of its folder; without a patch, on an unchanged tree."""
    loaded = load_spec(EXAMPLES / f"{kind}.yaml")
    [mission] = loaded.missions
    base, subject, scratch = (folder / name for name in ("base", "subject", "scratch"))
    source = EXAMPLES / kind / "workspace"
    for each in (base, subject, scratch):
        each.mkdir()
    for each in (base, subject):
        copy_tree(source, [item for item in walk(source) if "__pycache__" not in item.path], into=each)
    if patch is not None:
        env = {"GIT_CEILING_DIRECTORIES": str(folder)}
        git("apply", "-", cwd=subject, env=env, stdin=(EXAMPLES / kind / patch).read_bytes())
    before, after = snapshot(base), snapshot(subject)

    async def rows() -> list[ProbeRow]:
        async with open_intents(folder / "spawns") as intents:
            runner = ProbeRunner(
                mission=mission,
                untouched=UntouchedTree(folder=base, tree=before),
                sources=loaded.sources,
                hidden_files=None,
                scratch=scratch,
                hidden=(),
                containment=choose(survey(bundled_bwrap=bundled_bwrap())),
                intents=intents,
                redactor=Redactor([]),
            )
            phases = ((Phase.BASELINE, base, before), (Phase.FINAL, subject, after))
            return [row for phase, place, tree in phases async for row in runner.run(phase, place, tree)]

    found = anyio.run(rows)
    decision = decide(
        require(mission.probes, files=loaded.sources),
        found,
        workspace_digest=after.digest,
        base_digest=before.digest,
    )
    return Play(verified=decision.verified, rows=tuple(found))


def cheats_of(kind: str) -> Iterator[str]:
    """Yield the cheats of an example, as paths in its folder."""
    yield from (f"cheats/{file.name}" for file in sorted((EXAMPLES / kind / "cheats").iterdir()))
