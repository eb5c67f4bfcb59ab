"""Load a spec: read and check it, and the files that it names."""

import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import msgspec
import yaml
from msgspec import structs

from proctor.canonical import digest_bytes
from proctor.errors import InputError
from proctor.ids import CampaignId, Digest, FlowId, MissionId, TrialId
from proctor.spec.campaign_options import Requirement, SelectSpec
from proctor.spec.check import find_errors
from proctor.spec.choices import SCRIPTED
from proctor.spec.collect_errors import raise_collected
from proctor.spec.files import SpecFiles
from proctor.spec.missions import MissionSource
from proctor.spec.model import MAX_REPEATS, CampaignSpec, FlowSpec, MissionSpec
from proctor.spec.prices import Prices, price_errors
from proctor.spec.select import select as select_missions
from proctor.spec.source_file import FindKind, SourceFile, decode_bytes, find_no_kind, read_source
from proctor.spec.struct import Spec
from proctor.spec.suggest import suggest_nearest
from proctor.spec.task_classes import BUILT_IN_CLASSES, TaskClass
from proctor.spec.template import Prompts
from proctor.spec.tree import Node

_CAMPAIGN: Final = re.compile(rb"^campaign\s*:", re.MULTILINE)
_MAX_SPECS: Final = 8
_MAX_LOOKED_AT: Final = 50


class SpecOverrides(Spec, frozen=True, kw_only=True):
    """Settings of the caller that narrow or replace those of the file. A campaign stores them for `resume`."""

    select: SelectSpec = SelectSpec()
    """A selection among the missions that the spec's own `select` leaves. Default: all."""

    flows: list[FlowSpec] | None = None
    """Flows in place of the file's. Default: the file's."""

    flow_ids: list[FlowId] = []
    """Only these flows. Default: all."""

    repeats: int | None = None
    """Repeats in place of the file's. Default: the file's."""

    model: str | None = None
    """Name of the model in place of that of each flow. Default: the file's."""

    require: Requirement | None = None
    """The gate `require` in place of the file's. Default: the file's."""

    failed_in: CampaignId | None = None
    """The campaign whose failed trials are the only ones to run. Default: none."""

    trials: list[TrialId] = []
    """The only trials to run, if `failed_in` is set."""

    task_classes: dict[str, TaskClass] = {}
    """The task classes of the missions as they were when the campaign began, in place of those of proctor.toml.
    Default: those of proctor.toml, and the built-in ones."""


NO_OVERRIDES = SpecOverrides()


@dataclass(frozen=True, slots=True, kw_only=True)
class Extensions:
    """What a spec can use beside what is built in. Each is called only if the spec needs it."""

    task_classes: Callable[[], Mapping[str, TaskClass]]
    """Returns all task classes by name. Raises InputError if the file that defines them is wrong."""
    find_kind: FindKind
    """Returns the struct of a kind of probe that is not built in."""


BUILT_IN: Final = Extensions(task_classes=lambda: BUILT_IN_CLASSES, find_kind=find_no_kind)


class _Suite(CampaignSpec, frozen=True, kw_only=True):
    """A spec whose flows are overridden, so that `flows` is optional and ignored."""

    flows: list[FlowSpec] = []


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedSpec:
    """A spec without errors, and the files that it names.

    Scripts and sources are keyed by their path as the spec writes it, workspaces by `WorkspaceSpec.key`. Sources are
    the bytes of mission files, templates, files of probes, patches and the price file. Overlays are the folders with
    hidden files. `missions` are the selected ones.
    `is_built` says that the spec was built in Python, so that its lines mean nothing to the user.
    """

    spec: CampaignSpec
    missions: tuple[MissionSpec, ...]
    overrides: SpecOverrides
    file: str
    folder: Path
    source: bytes
    digest: Digest
    scripts: Mapping[str, Path]
    script_digests: Mapping[str, Digest]
    sources: Mapping[str, bytes]
    workspaces: Mapping[str, Path]
    overlays: Mapping[str, Path]
    secret_files: tuple[Path, ...]
    prompts: Prompts
    prices: Prices | None
    mission_sources: Mapping[MissionId, MissionSource]
    source_file: SourceFile[CampaignSpec]
    is_built: bool = False

    @property
    def path(self) -> Path:
        """The absolute path of the spec file."""
        return self.folder / Path(self.file).name

    @property
    def trial_count(self) -> int:
        """The number of trials: missions × flows × repeats, or of those that failed in another campaign."""
        if self.overrides.trials:
            return len(self.overrides.trials)
        return len(self.missions) * len(self.spec.flows) * self.spec.repeats

    @property
    def source_digests(self) -> dict[str, Digest]:
        """The digest of each source file."""
        return {path: digest_bytes(source) for path, source in self.sources.items()}

    def line_of(self, key_path: str) -> int | None:
        """Return the line of a key; None if the spec was built in Python."""
        return None if self.is_built else self.source_file.line_of(key_path)

    def without_line_if_built(self, error: InputError) -> InputError:
        """Return the error without its line if it is in a spec that was built in Python."""
        has_no_lines = self.is_built and error.file == self.source_file.file
        return _without_line(error, file=self.file) if has_no_lines else error

    def mission_for(self, mission: MissionSpec, flow: FlowId) -> MissionSpec:
        """Return the mission with the prompt and hooks that an attempt of this flow uses."""
        return structs.replace(mission, prompt=self.prompts.of(mission, flow), hooks=mission.hooks or self.spec.hooks)


def load_spec(path: Path, *, overrides: SpecOverrides = NO_OVERRIDES, extensions: Extensions = BUILT_IN) -> LoadedSpec:
    """Load a spec file, for which `config.project.load_project_spec` finds the extensions.

    Raises InputError with all errors of syntax and type or, if there are none, all others.
    """
    try:
        source = read_source(path)
    except InputError as error:
        if error.suggestion is None and (specs := _specs_beside(path)):
            listed = f"Specs in that folder: {', '.join(specs)}."
            raise InputError(error.code, error.what, file=error.file, suggestion=listed) from error
        raise
    if not source.strip():
        what = "the file is empty"
        raise InputError("spec.type", what, file=str(path), suggestion="`proctor init` writes a first spec.")
    return _load(source, path, overrides=overrides, extensions=extensions)


def find_specs(folder: Path) -> list[Path]:
    """Return the specs directly in a folder: every *.yaml with a key `campaign`. Raises InputError."""
    try:
        files = sorted(folder.glob("*.yaml"))
    except OSError as error:
        raise InputError("spec.unreadable", f"{folder}: {error.strerror}") from error
    return [file for file in files if _CAMPAIGN.search(read_source(file))]


def _specs_beside(path: Path) -> list[str]:
    """Return the names of some specs in the folder of a file that does not exist."""
    if os.path.lexists(path):
        return []
    found = []
    with suppress(OSError):
        for each in sorted((*path.parent.glob("*.yaml"), *path.parent.glob("*.yml")))[:_MAX_LOOKED_AT]:
            with suppress(InputError):
                if _CAMPAIGN.search(read_source(each)):
                    found.append(each.name)
    return found[:_MAX_SPECS]


def load_built(
    built: CampaignSpec | Mapping[str, Any],
    *,
    name: str,
    folder: Path,
    overrides: SpecOverrides = NO_OVERRIDES,
    ignored_key: str = "",
    extensions: Extensions = BUILT_IN,
) -> LoadedSpec:
    """Load a spec that was built in Python. Its paths are relative to `folder`.

    Raises InputError as `load_spec` does, but ignores errors at the key `ignored_key`.
    """
    source = yaml.safe_dump(msgspec.to_builtins(built), sort_keys=False, allow_unicode=True).encode()
    path = folder / name
    try:
        loaded = _load(source, path, overrides=overrides, ignored_key=ignored_key, extensions=extensions)
        return replace(loaded, file=name, is_built=True)
    except InputError as error:
        raise_collected(
            [_without_line(each, file=name) if each.file == str(path) else each for each in error.all_errors]
        )


def _without_line(error: InputError, *, file: str) -> InputError:
    return InputError(error.code, error.what, file=file, key=error.key, suggestion=error.suggestion)


def _load(
    source: bytes, path: Path, *, overrides: SpecOverrides, ignored_key: str = "", extensions: Extensions
) -> LoadedSpec:
    source_file = decode_spec(source, path, flows=overrides.flows, find_kind=extensions.find_kind)
    source_file = replace(source_file, value=_with_settings(source_file.value, overrides))
    frozen = overrides.task_classes
    files = SpecFiles(
        source_file,
        spec_path=path,
        task_classes=(lambda: frozen) if frozen else extensions.task_classes,
        find_kind=extensions.find_kind,
    )
    # A resume must have the same probes, whatever proctor.toml says by then.
    overrides = structs.replace(overrides, task_classes=files.used_classes)
    spec_errors = find_errors(source_file, mission_sources=files.mission_sources, has_own_flows=overrides.flows is None)
    all_errors = (*spec_errors, *price_errors(source_file, files.prices), *files.errors)
    if errors := [each for each in all_errors if not ignored_key or each.key != ignored_key]:
        raise_collected(errors)
    missions = tuple(each.mission for each in files.mission_sources)
    positions = {mission.id: position for position, mission in enumerate(missions, start=1)}
    with _located_in(source_file):
        missions = select_missions(missions, source_file.value.select)
    missions = select_missions(missions, overrides.select)
    source_file = _with_flows(source_file, overrides.flow_ids)
    return LoadedSpec(
        spec=source_file.value,
        missions=missions,
        overrides=overrides,
        file=str(path),
        folder=files.folder,
        source=source,
        digest=digest_bytes(source),
        scripts=files.scripts,
        script_digests=files.script_digests,
        sources=files.sources,
        workspaces=files.workspaces,
        overlays=files.overlays,
        secret_files=tuple(files.secret_files),
        prompts=Prompts(campaign=source_file.value.campaign, templates=files.templates, positions=positions),
        prices=files.prices,
        mission_sources={each.mission.id: each for each in files.mission_sources},
        source_file=source_file,
    )


def _with_settings(spec: CampaignSpec, overrides: SpecOverrides) -> CampaignSpec:
    """Return the spec with other repeats and another model. Raises InputError if they make no sense."""
    if overrides.repeats is not None:
        if not 1 <= overrides.repeats <= MAX_REPEATS:
            what = f"{overrides.repeats} repeats: the number is between 1 and {MAX_REPEATS}"
            raise InputError("spec.selection", what, key="repeats", suggestion=f"Pass 1 to {MAX_REPEATS}.")
        spec = structs.replace(spec, repeats=overrides.repeats)
    if overrides.require is not None:
        spec = structs.replace(spec, gates=structs.replace(spec.gates, require=overrides.require))
    if overrides.model is None:
        return spec
    flows = []
    for flow in spec.flows:
        model = flow.model or spec.model
        is_selected = not overrides.flow_ids or flow.id in overrides.flow_ids
        if is_selected and model.provider == SCRIPTED:
            what = f"flow `{flow.id}` uses the scripted model, which has no name"
            raise InputError("spec.selection", what, key="model", suggestion="Select other flows with --flow.")
        flows.append(structs.replace(flow, model=structs.replace(model, name=overrides.model)) if is_selected else flow)
    return structs.replace(spec, flows=flows)


def _with_flows(source_file: SourceFile[CampaignSpec], ids: Sequence[FlowId]) -> SourceFile[CampaignSpec]:
    """Return the spec with only these flows; all if there is no id. Raises InputError for an unknown id."""
    if not ids:
        return source_file
    spec, root = source_file.value, source_file.root
    known = [flow.id for flow in spec.flows]
    for at, id_ in enumerate(ids):
        if id_ not in known:
            what = f"no flow has the id `{id_}`; the flows are: {', '.join(known)}"
            raise InputError("spec.selection", what, key=f"flow_ids[{at}]", suggestion=suggest_nearest(id_, known))
    kept = [at for at, flow in enumerate(spec.flows) if flow.id in ids]
    # The tree has the lines of errors, which name a flow by its position.
    if isinstance(root.value, dict) and isinstance((listed := root.value.get("flows")), Node):
        nodes = listed.value
        if isinstance(nodes, list) and len(nodes) == len(known):
            root = replace(root, value={**root.value, "flows": replace(listed, value=[nodes[at] for at in kept])})
    return replace(source_file, value=structs.replace(spec, flows=[spec.flows[at] for at in kept]), root=root)


def decode_spec(
    source: bytes, path: Path, *, flows: list[FlowSpec] | None, find_kind: FindKind
) -> SourceFile[CampaignSpec]:
    """Decode a spec file. `flows` replace those in the file if given. Reads no other file. Raises InputError."""
    if flows is None:
        return decode_bytes(source, CampaignSpec, file=str(path), find_kind=find_kind)
    suite = decode_bytes(source, _Suite, file=str(path), find_kind=find_kind)
    fields = {name: getattr(suite.value, name) for name in CampaignSpec.__struct_fields__}
    return SourceFile(value=CampaignSpec(**{**fields, "flows": flows}), file=suite.file, root=suite.root)


@contextmanager
def _located_in(source_file: SourceFile[CampaignSpec]) -> Iterator[None]:
    """Add file, line and key to errors in the spec's own selection."""
    try:
        yield
    except InputError as error:
        raise_collected(
            [
                source_file.error(
                    one.code, one.what, key=f"select.{one.key}" if one.key else "select", suggestion=one.suggestion
                )
                for one in error.all_errors
            ]
        )
