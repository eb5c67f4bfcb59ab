"""Runs probes of any kind on files that a test writes, in the real fence."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import anyio
import pytest

from proctor.contain.bundled import bundled_bwrap
from proctor.contain.intent import open_intents
from proctor.contain.ladder import Containment, Variant, choose, survey
from proctor.errors import InputError
from proctor.evidence.redact import Redactor
from proctor.evidence.secrets import Secret
from proctor.probe.kind import ProbeReference
from proctor.probe.model import Phase, ProbeRow
from proctor.probe.run import run_probe
from proctor.probe.view import examine_subject
from proctor.spec.load import load_spec
from proctor.spec.probes import ProbeSpec
from proctor.workspace.snapshot import snapshot
from tests.spec.good import GOOD, write

EXAMPLES = Path(__file__).parents[2] / "examples" / "probes"

Files = Mapping[str, str | bytes]


def containment_of(variant: Variant) -> Containment:
    return choose(each for each in survey(bundled_bwrap=bundled_bwrap()) if each.variant is variant)


@dataclass
class CommandBench:
    """A workspace, the goldens of a spec, and what a probe kept."""

    folder: Path
    variant: Variant = Variant.BUNDLED_BWRAP
    secrets: Sequence[Secret] = ()
    kept: dict[str, bytes] = field(default_factory=dict)
    """The files that the last probe kept, by name without their prefix."""

    @property
    def subject(self) -> Path:
        return self.folder / "subject"

    def judge(self, spec: ProbeSpec, files: Files, *, goldens: Mapping[str, bytes] | None = None) -> ProbeRow:
        """Write files to the workspace and run a probe on it."""
        for name, content in files.items():
            place = self.subject / name
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(content if isinstance(content, bytes) else content.encode())
        return self.run(spec, goldens=goldens)

    def run(self, spec: ProbeSpec, *, goldens: Mapping[str, bytes] | None = None) -> ProbeRow:
        """Run a probe on the workspace as it is."""
        scratch, keep = self.folder / "scratch", self.folder / "kept"
        for each in (self.subject, scratch, keep):
            each.mkdir(exist_ok=True)
        before = snapshot(self.subject).digest

        async def main() -> ProbeRow:
            async with open_intents(self.folder / "spawns") as intents:
                return await run_probe(
                    spec,
                    index=0,
                    phase=Phase.FINAL,
                    subject=examine_subject(self.subject, before),
                    scratch=scratch,
                    containment=containment_of(self.variant),
                    intents=intents,
                    redactor=Redactor(self.secrets),
                    reference=ProbeReference(sources=goldens or {}),
                    keep=keep,
                )

        row = anyio.run(main)
        assert (list(scratch.iterdir()), snapshot(self.subject).digest) == ([], before)
        self.kept = {each.file: (keep / each.file).read_bytes() for each in row.artifacts}
        return row


def load_errors(folder: Path, probe: str) -> list[tuple[str, int | None, str | None, str]]:
    """Return the errors of a spec with this probe on line 8, each with code, line, key and text."""
    line = next(line for line in GOOD.splitlines() if "kind: headless_run" in line)
    path = write(folder, GOOD.replace(line, f"      - {{kind: {probe}}}"))
    (folder / "tree").mkdir()
    for name, text in {"tree/a.py": "", "ok.txt": "ok\n", "say.yaml": "version: 1\nsteps: [{say: x}]\n"}.items():
        (folder / name).write_text(text)
    with pytest.raises(InputError) as caught:
        load_spec(path)
    assert {error.file for error in caught.value.all_errors} == {str(path)}
    return [(error.code, error.line, error.key, error.what) for error in caught.value.all_errors]


def describe(row: ProbeRow) -> str:
    return f"{row.summary}\n{row.stdout_tail}{row.stderr_tail}"
