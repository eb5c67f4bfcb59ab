"""The frozen spec of a campaign: copies and digests of the spec and its files, compared again on resume."""

import difflib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import msgspec

from proctor.canonical import digest_bytes
from proctor.errors import EvidenceError, InputError
from proctor.evidence.artifacts import PlanFile
from proctor.evidence.disk import make_folder
from proctor.evidence.layout import CampaignPaths, write_artifact, write_text_artifact
from proctor.evidence.reader import read_artifact, read_bytes
from proctor.evidence.redact import Redactor
from proctor.ids import Digest
from proctor.plan.expand import Contents, expand
from proctor.plan.model import Plan
from proctor.probe.kind import HiddenFiles
from proctor.spec.load import NO_OVERRIDES, LoadedSpec, SpecOverrides
from proctor.spec.missions import MissionSource
from proctor.spec.model import MissionSpec
from proctor.workspace.clone import clone
from proctor.workspace.name import quoted
from proctor.workspace.prepare import is_excluded, prepare
from proctor.workspace.snapshot import snapshot
from proctor.workspace.walk import EntryKind, walk

_MAX_LISTED = 5


class FrozenFiles(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """index.json of the snapshot: digests of the original files, by their path as written in the spec."""

    schema_version: Literal[1] = 1
    """Version of this file's format."""
    spec: Digest
    """Digest of the spec file."""
    scripts: dict[str, Digest]
    """Digest of each script."""
    workspaces: dict[str, Digest]
    """Digest of the content of each workspace."""
    overlays: dict[str, Digest]
    """Digest of the content of each folder with hidden files."""
    files: dict[str, Digest]
    """Digest of each mission file, template, file of a probe, patch and price file."""
    names: dict[str, str]
    """Name of each script and file in the snapshot folder, by its path as written in the spec."""
    given: SpecOverrides
    """Overrides from the command that started the campaign."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FolderCopies:
    """Copies of the folders that a spec names, and the digests of their content."""

    workspaces: Mapping[str, Path]
    workspace_digests: Mapping[str, Digest]
    overlays: Mapping[str, Path]
    overlay_digests: Mapping[str, Digest]

    def overlay_of(self, mission: MissionSpec) -> HiddenFiles | None:
        """Return the copied hidden files of a mission; None if it has none."""
        if mission.overlay is None:
            return None
        return HiddenFiles(folder=self.overlays[mission.overlay], digest=self.overlay_digests[mission.overlay])


@dataclass(frozen=True, slots=True, kw_only=True)
class FrozenSpec(FolderCopies):
    """Everything attempts start from. The user's files are not read again after this."""

    plan: Plan
    snapshot: Mapping[str, Digest]


def freeze(
    loaded: LoadedSpec, *, paths: CampaignPaths, workspaces: Path, redactor: Redactor, is_canary: bool = False
) -> FrozenSpec:
    """Copy and digest the spec, its files and its workspaces.

    A workspace may hold anything, so its copy goes to the cache folder, not into the evidence.
    """
    copies = copy_folders(loaded, into=workspaces)
    plan = _plan(loaded, copies, is_canary=is_canary)
    make_folder(paths.spec_snapshot)
    written = {
        name: write_text_artifact(paths.spec_snapshot / name, text, redactor=redactor)
        for name, text in _texts(loaded).items()
    }
    index = _index(loaded, copies)
    written[paths.snapshot_index.name] = write_artifact(paths.snapshot_index, index, redactor=redactor)
    return FrozenSpec(
        plan=plan,
        snapshot={name: digest_bytes(data) for name, data in written.items()},
        workspaces=copies.workspaces,
        workspace_digests=copies.workspace_digests,
        overlays=copies.overlays,
        overlay_digests=copies.overlay_digests,
    )


def thaw(loaded: LoadedSpec, *, paths: CampaignPaths, workspaces: Path, redactor: Redactor) -> FrozenSpec:
    """Copy the spec's files again for a resume. Raises InputError with a diff if they have changed since the start."""
    try:
        kept = read_artifact(paths.plan, PlanFile)
        before = read_artifact(paths.snapshot_index, FrozenFiles)
    except EvidenceError as error:
        if error.code == "evidence.missing-file":
            raise InputError("campaign.not-begun", f"{paths.folder.name} has no {error.file}") from error
        raise
    if kept.plan.is_canary:
        raise InputError("campaign.canary", f"{paths.folder.name} is a canary, which cannot be resumed")
    copies = copy_folders(loaded, into=workspaces)
    now = _index(loaded, copies)
    if now != before:
        raise _changed_error(loaded, paths, before=before, now=now, redactor=redactor)
    plan = _plan(loaded, copies, is_canary=False)
    if plan.digest != kept.plan.digest:
        what = "this version of Proctor makes another plan from the same spec than the one that started the campaign"
        raise InputError("campaign.changed", what, file=loaded.file)
    return FrozenSpec(
        plan=plan,
        snapshot=kept.snapshot,
        workspaces=copies.workspaces,
        workspace_digests=copies.workspace_digests,
        overlays=copies.overlays,
        overlay_digests=copies.overlay_digests,
    )


def read_given(campaign: CampaignPaths) -> SpecOverrides:
    """Return the overrides of the command that started a campaign; none if the snapshot cannot be read."""
    try:
        return read_artifact(campaign.snapshot_index, FrozenFiles).given
    except EvidenceError:  # reported by `thaw` on resume
        return NO_OVERRIDES


def _plan(loaded: LoadedSpec, copies: FolderCopies, *, is_canary: bool) -> Plan:
    contents = Contents(
        scripts=loaded.script_digests,
        sources=loaded.source_digests,
        workspaces=copies.workspace_digests,
        overlays=copies.overlay_digests,
    )
    return expand(
        loaded.spec,
        missions=loaded.missions,
        digests=contents,
        prompts=loaded.prompts,
        only=frozenset(loaded.overrides.trials),
        is_canary=is_canary,
    )


def _index(loaded: LoadedSpec, copies: FolderCopies) -> FrozenFiles:
    return FrozenFiles(
        spec=loaded.digest,
        scripts=dict(loaded.script_digests),
        workspaces=dict(copies.workspace_digests),
        overlays=dict(copies.overlay_digests),
        files=loaded.source_digests,
        names=_names(loaded),
        given=loaded.overrides,
    )


def _names(loaded: LoadedSpec) -> dict[str, str]:
    """Return the names of scripts and other files in the snapshot, by their path as written in the spec."""
    scripts = {spelled: f"script-{number}.yaml" for number, spelled in enumerate(sorted(loaded.scripts))}
    files = {spelled: f"file-{number}{Path(spelled).suffix}" for number, spelled in enumerate(sorted(loaded.sources))}
    return scripts | files


def _texts(loaded: LoadedSpec) -> dict[str, str]:
    """Return the text files of the snapshot by name."""
    names = _names(loaded)
    return {
        "spec.yaml": loaded.source.decode("utf-8", "replace"),
        **{names[spelled]: path.read_text(encoding="utf-8") for spelled, path in loaded.scripts.items()},
        **{names[spelled]: source.decode("utf-8", "replace") for spelled, source in loaded.sources.items()},
    }


def _changed_error(
    loaded: LoadedSpec, paths: CampaignPaths, *, before: FrozenFiles, now: FrozenFiles, redactor: Redactor
) -> InputError:
    folders = [
        f"workspace {key}: its files have changed since the campaign began{_written_since(loaded, paths, key)}"
        for key in sorted(before.workspaces.keys() | now.workspaces.keys())
        if before.workspaces.get(key) != now.workspaces.get(key)
    ]
    folders += [
        f"overlay {key}: its files have changed since the campaign began"
        for key in sorted(before.overlays.keys() | now.overlays.keys())
        if before.overlays.get(key) != now.overlays.get(key)
    ]
    texts = _texts(loaded)
    lines: list[str] = []
    # By path, not by snapshot name: adding or removing a file renumbers the names of the others.
    pairs = [(each, before.names.get(each), now.names.get(each)) for each in sorted(before.names.keys() | now.names)]
    for spelled, then, here in (("spec.yaml", "spec.yaml", "spec.yaml"), *pairs):
        kept = "" if then is None else _read_kept(paths, then)
        # The kept text is masked, so the current text must be masked too before they are compared.
        masked = "" if here is None else redactor.text(texts[here]).text
        names = f"{spelled} (at the start)", f"{spelled} (now)"
        lines += difflib.unified_diff(kept.splitlines(), masked.splitlines(), *names, n=1, lineterm="")
    what = "\n".join([f"the files of {paths.folder.name} have changed since it began:", *folders, *lines])
    return InputError("campaign.changed", what, file=loaded.file)


def _written_since(loaded: LoadedSpec, paths: CampaignPaths, key: str) -> str:
    """Describe a few files of a copied workspace that were modified after the campaign began, by their mtime."""
    copied = {each.workspace.key: each.workspace for each in loaded.missions if each.workspace.ref is None}
    if key not in copied:
        return ""
    began_ns = paths.plan.stat().st_mtime_ns
    found = [each for each in walk(loaded.workspaces[key]) if not is_excluded(each.path, copied[key].exclude)]
    late = [each.path for each in found if each.kind is EntryKind.FILE and each.modified_ns > began_ns]
    more = f" and {len(late) - _MAX_LISTED} more" if len(late) > _MAX_LISTED else ""
    return f"; written since: {', '.join(map(quoted, late[:_MAX_LISTED]))}{more}" if late else ""


def _read_kept(paths: CampaignPaths, name: str) -> str:
    try:
        return read_bytes(paths.spec_snapshot / name).decode("utf-8", "replace")
    except EvidenceError:
        return ""


def copy_folders(loaded: LoadedSpec, *, into: Path) -> FolderCopies:
    """Copy and digest the workspaces and the hidden files of a spec. Raises InputError, located at the mission."""
    workspaces = copy_workspaces(loaded, into=into)
    overlays = _copy_overlays(loaded, into=into)
    return FolderCopies(
        workspaces=workspaces,
        workspace_digests={key: snapshot(copy).digest for key, copy in workspaces.items()},
        overlays=overlays,
        overlay_digests={key: snapshot(copy).digest for key, copy in overlays.items()},
    )


def _copy_overlays(loaded: LoadedSpec, *, into: Path) -> dict[str, Path]:
    """Copy each folder with hidden files once. Raises InputError, located at the mission, for one that cannot be."""
    copies: dict[str, Path] = {}
    for mission in loaded.missions:
        name = mission.overlay
        if name is None or name in copies:
            continue
        into.mkdir(mode=0o700, parents=True, exist_ok=True)
        copies[name] = into / f"hidden-{len(copies)}"
        with _locate_errors(loaded, loaded.mission_sources[mission.id], key="overlay"):
            prepare(loaded.overlays[name], into=copies[name])
    return copies


def copy_workspaces(loaded: LoadedSpec, *, into: Path) -> dict[str, Path]:
    """Copy or clone each workspace once, by its key.

    Raises InputError, located at the mission, for the first that cannot be copied.
    """
    copies: dict[str, Path] = {}
    sources = (loaded.folder / spelled for spelled in loaded.sources)
    unseen = (Path(loaded.file), *loaded.scripts.values(), *sources)
    for mission in loaded.missions:
        workspace, key = mission.workspace, mission.workspace.key
        if key is None or key in copies:
            continue
        into.mkdir(mode=0o700, parents=True, exist_ok=True)
        copies[key] = into / str(len(copies))
        with _locate_errors(
            loaded, loaded.mission_sources[mission.id], key=f"workspace.{'copy' if workspace.ref is None else 'git'}"
        ):
            if workspace.ref is None:
                prepare(loaded.workspaces[key], into=copies[key], exclude=workspace.exclude)
            else:
                clone(loaded.workspaces[key], workspace.ref, into=copies[key], forbidden=unseen)
    return copies


@contextmanager
def _locate_errors(loaded: LoadedSpec, written: MissionSource, *, key: str) -> Iterator[None]:
    """Add the line of the mission to an input error raised inside."""
    try:
        yield
    except InputError as error:
        at = key.replace(".git", ".ref") if error.code == "workspace.ref" else key
        located = written.error(error.code, error.what, key=at, suggestion=error.suggestion)
        raise loaded.without_line_if_built(located) from error
