"""A spec file, read, checked, and joined with the files it names."""

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec
import yaml
from msgspec import structs

from proctor.canonical import digest_bytes
from proctor.errors import InputError
from proctor.ids import Digest, FlowId, MissionId
from proctor.spec.check import faults
from proctor.spec.collected import raise_collected
from proctor.spec.files import SpecFiles
from proctor.spec.marked import Marked, decode_bytes, read_source
from proctor.spec.missions import Written
from proctor.spec.model import CampaignSpec, FlowSpec, MissionSpec
from proctor.spec.prices import Prices, price_faults
from proctor.spec.running import SelectSpec
from proctor.spec.select import select as selected
from proctor.spec.struct import Spec
from proctor.spec.template import Prompts


class Given(Spec, frozen=True, kw_only=True):
    """What comes with the call and not from the file: a narrower selection, and flows instead of the file's.

    A campaign keeps it, so that resume can give it again.
    """

    select: SelectSpec = SelectSpec()
    flows: list[FlowSpec] | None = None


NOTHING = Given()

_NEWER = re.compile(rb"^[{\s]*[\"']?version[\"']?\s*:\s*(?:[2-9]|[1-9][0-9]+)\b", re.MULTILINE)


class _Suite(CampaignSpec, frozen=True, kw_only=True):
    """A spec whose flows are given: its own, if it has any, are not used."""

    flows: list[FlowSpec] = []


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedSpec:
    """A spec that may be run. Scripts and sources are keyed by their path as the spec spells it, workspaces by their
    key. Sources are the bytes of mission files, templates and the price file.

    `missions` are those that the spec's `select` and then `given.select` leave.
    """

    spec: CampaignSpec
    missions: tuple[MissionSpec, ...]
    given: Given
    file: str
    folder: Path
    source: bytes
    digest: Digest
    scripts: Mapping[str, Path]
    script_digests: Mapping[str, Digest]
    sources: Mapping[str, bytes]
    workspaces: Mapping[str, Path]
    secret_files: tuple[Path, ...]
    prompts: Prompts
    prices: Prices | None
    written: Mapping[MissionId, Written]
    marked: Marked[CampaignSpec]
    is_built: bool = False

    @property
    def path(self) -> Path:
        """Where it lies, from wherever one looks."""
        return self.folder / Path(self.file).name

    @property
    def cell_count(self) -> int:
        """Missions × flows × repeats."""
        return len(self.missions) * len(self.spec.flows) * self.spec.repeats

    @property
    def source_digests(self) -> dict[str, Digest]:
        return {written: digest_bytes(source) for written, source in self.sources.items()}

    def line_of(self, key_path: str) -> int | None:
        """None in a spec that was built, where nobody has seen lines."""
        return None if self.is_built else self.marked.line_of(key_path)

    def as_seen(self, error: InputError) -> InputError:
        """The same without a line, where that would be of a file that there is not."""
        is_unseen = self.is_built and error.file == self.marked.file
        return _without_line(error, file=self.file) if is_unseen else error

    def asked(self, mission: MissionSpec, flow: FlowId) -> MissionSpec:
        """The mission as an attempt of that flow gets it: its prompt through the template, hooks its own or all's."""
        return structs.replace(mission, prompt=self.prompts.of(mission, flow), hooks=mission.hooks or self.spec.hooks)


def load_spec(path: Path, *, given: Given = NOTHING) -> LoadedSpec:
    """Reads a spec, or says all that is wrong with it: first its form and types, then what it means."""
    return _load(read_source(path), path, given=given)


def load_built(
    built: CampaignSpec | Mapping[str, Any], *, name: str, folder: Path, given: Given = NOTHING, excused: str = ""
) -> LoadedSpec:
    """A spec that was built in Python, held to the same rules. Its paths start from `folder`.

    The key `excused` may be missing or wrong.
    """
    source = yaml.safe_dump(msgspec.to_builtins(built), sort_keys=False, allow_unicode=True).encode()
    path = folder / name
    try:
        return replace(_load(source, path, given=given, excused=excused), file=name, is_built=True)
    except InputError as error:
        raise_collected([_without_line(each, file=name) if each.file == str(path) else each for each in error.each])


def _without_line(error: InputError, *, file: str) -> InputError:
    return InputError(error.code, error.what, file=file, key=error.key, suggestion=error.suggestion)


def _load(source: bytes, path: Path, *, given: Given = NOTHING, excused: str = "") -> LoadedSpec:
    try:
        marked = _decode(source, path, flows=given.flows)
    except InputError as error:
        _refuse_other_versions(error, source)
        raise
    files = SpecFiles(marked, spec_path=path)
    own = faults(marked, written=files.written, has_own_flows=given.flows is None)
    found = (*own, *price_faults(marked, files.prices), *files.problems)
    if problems := [each for each in found if not excused or each.key != excused]:
        raise_collected(problems)
    missions = tuple(each.mission for each in files.written)
    places = {mission.id: place for place, mission in enumerate(missions, start=1)}
    with _blamed_on(marked):
        missions = selected(missions, marked.value.select)
    missions = selected(missions, given.select)
    return LoadedSpec(
        spec=marked.value,
        missions=missions,
        given=given,
        file=str(path),
        folder=files.folder,
        source=source,
        digest=digest_bytes(source),
        scripts=files.scripts,
        script_digests=files.script_digests,
        sources=files.sources,
        workspaces=files.workspaces,
        secret_files=tuple(files.secret_files),
        prompts=Prompts(campaign=marked.value.campaign, templates=files.templates, places=places),
        prices=files.prices,
        written={each.mission.id: each for each in files.written},
        marked=marked,
    )


def _decode(source: bytes, path: Path, *, flows: list[FlowSpec] | None) -> Marked[CampaignSpec]:
    if flows is None:
        return decode_bytes(source, CampaignSpec, file=str(path))
    suite = decode_bytes(source, _Suite, file=str(path))
    fields = {name: getattr(suite.value, name) for name in CampaignSpec.__struct_fields__}
    return Marked(value=CampaignSpec(**{**fields, "flows": flows}), file=suite.file, root=suite.root)


@contextmanager
def _blamed_on(marked: Marked[CampaignSpec]) -> Iterator[None]:
    """What is wrong with the spec's own selection has a line."""
    try:
        yield
    except InputError as error:
        raise_collected(
            [
                marked.problem(
                    one.code, one.what, key=f"select.{one.key}" if one.key else "select", suggestion=one.suggestion
                )
                for one in error.each
            ]
        )


def _refuse_other_versions(error: InputError, source: bytes) -> None:
    """In a spec of another version nothing else is worth telling: its other keys may well be right there."""
    for problem in error.each:
        if problem.key == "version" and problem.code == "spec.type":
            is_newer = _NEWER.search(source) is not None
            raise InputError(
                "spec.version",
                "this Proctor reads version 1",
                file=problem.file,
                line=problem.line,
                key="version",
                suggestion="Take a newer Proctor for it." if is_newer else "Write `version: 1`.",
            ) from error
