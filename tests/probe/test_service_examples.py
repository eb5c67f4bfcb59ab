"""The example missions of kinds that run a service or compare side effects: only the solution passes."""

import shutil
import subprocess
from pathlib import Path

import anyio
import pytest

from proctor.contain.bundled import bundled_bwrap
from proctor.contain.intent import open_intents
from proctor.contain.ladder import choose, survey
from proctor.evidence.redact import Redactor
from proctor.probe.kind import ProbeReference
from proctor.probe.model import Phase, ProbeRow, Verdict
from proctor.probe.run import run_probe
from proctor.probe.view import examine_subject
from proctor.spec.load import load_spec
from proctor.workspace.snapshot import snapshot

EXAMPLES = Path(__file__).parents[2] / "examples/probes"
KINDS = ("api_smoke", "side_effect")
CASES = [
    *((kind, None) for kind in KINDS),
    *((kind, "solution.patch") for kind in KINDS),
    *((kind, f"cheats/{file.name}") for kind in KINDS for file in sorted((EXAMPLES / kind / "cheats").iterdir())),
]


def run_example(kind: str, patch: str | None, folder: Path) -> ProbeRow:
    loaded = load_spec(EXAMPLES / f"{kind}.yaml")
    [probe] = loaded.missions[0].probes
    subject, scratch = folder / "subject", folder / "scratch"
    shutil.copytree(EXAMPLES / kind / "workspace", subject)
    scratch.mkdir()
    if patch is not None:
        subprocess.run(["git", "apply", EXAMPLES / kind / patch], cwd=subject, check=True)
    sources = {path: (EXAMPLES / path).read_bytes() for path in probe.files.values()}

    async def main() -> ProbeRow:
        async with open_intents(folder / "spawns") as intents:
            return await run_probe(
                probe,
                index=0,
                phase=Phase.FINAL,
                subject=examine_subject(subject, snapshot(subject).digest),
                scratch=scratch,
                containment=choose(survey(bundled_bwrap=bundled_bwrap())),
                intents=intents,
                redactor=Redactor([]),
                reference=ProbeReference(sources=sources),
            )

    return anyio.run(main)


@pytest.mark.long
@pytest.mark.parametrize(("kind", "patch"), CASES, ids=lambda value: str(value).replace("/", "-"))
def test_example_passes_with_its_solution_only(kind: str, patch: str | None, tmp_path: Path) -> None:
    row = run_example(kind, patch, tmp_path)
    assert row.verdict is (Verdict.PASS if patch == "solution.patch" else Verdict.FAIL), row
