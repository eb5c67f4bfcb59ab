"""Run a probe on a small workspace, for tests of the kinds that look at pages and images."""

import io
import os
import random
from collections.abc import Mapping
from pathlib import Path

import anyio
from PIL import Image

from proctor.contain.bundled import bundled_bwrap
from proctor.contain.intent import open_intents
from proctor.contain.ladder import choose, survey
from proctor.evidence.redact import Redactor
from proctor.probe.kind import ProbeReference
from proctor.probe.model import Phase, ProbeRow
from proctor.probe.run import run_probe
from proctor.probe.view import examine_subject
from proctor.spec.probes import ProbeSpec
from proctor.workspace.snapshot import snapshot


class PageBench:
    """A workspace, and the folder that receives what probes keep."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.subject, self.kept = folder / "subject", folder / "kept"
        for each in (self.subject, self.kept, folder / "scratch"):
            each.mkdir()

    def write(self, files: Mapping[str, str | bytes]) -> None:
        for name, content in files.items():
            (self.subject / name).parent.mkdir(parents=True, exist_ok=True)
            (self.subject / name).write_bytes(content.encode() if isinstance(content, str) else content)

    async def judge(
        self, spec: ProbeSpec, sources: Mapping[str, bytes] | None = None, search_path: str | None = None
    ) -> ProbeRow:
        async with open_intents(self.folder / "spawns") as intents:
            row = await run_probe(
                spec,
                index=0,
                phase=Phase.FINAL,
                subject=examine_subject(self.subject, snapshot(self.subject).digest),
                scratch=self.folder / "scratch",
                containment=choose(survey(bundled_bwrap=bundled_bwrap())),
                intents=intents,
                redactor=Redactor([]),
                reference=ProbeReference(sources=sources or {}),
                search_path=search_path,
                keep=self.kept,
            )
            assert list(intents.folder.glob("*.json")) == []
            return row

    def run(
        self, spec: ProbeSpec, *, sources: Mapping[str, bytes] | None = None, search_path: str | None = None
    ) -> ProbeRow:
        row = anyio.run(self.judge, spec, sources, search_path)
        assert list((self.folder / "scratch").iterdir()) == []
        assert processes_below(self.folder) == []
        return row

    def kept_file(self, row: ProbeRow, name: str) -> bytes:
        """Return a file that the probe kept."""
        [found] = [each.file for each in row.artifacts if each.file.endswith(f"-{name}")]
        return (self.kept / found).read_bytes()


def processes_below(folder: Path) -> list[str]:
    """Return the processes whose folder, or one of whose arguments, is below a folder."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            arguments = os.fsdecode((process / "cmdline").read_bytes())
            if str((process / "cwd").readlink()).startswith(str(folder)) or str(folder) in arguments:
                found.append(arguments.replace("\0", " "))
        except OSError:
            continue
    return found


def path_without_chromium(folder: Path) -> str:
    """Return a PATH with links to all programs of this machine apart from Chromium."""
    links = folder / "bin"
    links.mkdir()
    for entry in os.environ["PATH"].split(os.pathsep):
        if Path(entry).is_absolute() and Path(entry).is_dir():
            for program in Path(entry).iterdir():
                if "chrom" not in program.name and not (links / program.name).is_symlink():
                    (links / program.name).symlink_to(program)
    return str(links)


def png(image: Image.Image) -> bytes:
    data = io.BytesIO()
    image.save(data, "PNG")
    return data.getvalue()


def picture(*, seed: int = 0, size: tuple[int, int] = (90, 80), noise: int = 0) -> Image.Image:
    """Return grey blocks, which are others for each seed."""
    chance = random.Random(seed)
    blocks = Image.frombytes("L", (9, 8), bytes(chance.randrange(10, 245) for _ in range(72)))
    image = blocks.resize(size, Image.Resampling.NEAREST).convert("RGB")
    for _ in range(noise):
        image.putpixel((chance.randrange(size[0]), chance.randrange(size[1])), (255, 0, 0))
    return image
