"""Reads the missions of a campaign, and the files of their probes, back from its frozen spec."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from proctor.campaign.freeze import FrozenFiles
from proctor.canonical import digest_bytes
from proctor.config.project import find_extensions
from proctor.errors import EvidenceError, InputError
from proctor.evidence.artifacts import PlanFile
from proctor.evidence.layout import CampaignPaths
from proctor.evidence.reader import decode_artifact, read_artifact, read_bytes
from proctor.ids import Digest, MissionId
from proctor.ledger.reader import read_origin
from proctor.spec.campaign_options import MissionsFolder, SecretFile
from proctor.spec.collect_errors import raise_collected
from proctor.spec.load import decode_spec
from proctor.spec.missions import SUFFIX, MissionSource, inline_mission_sources, parse_mission
from proctor.spec.model import CampaignSpec, MissionSpec
from proctor.spec.source_file import FindKind, read_source
from proctor.spec.task_classes import expand_classes


@dataclass(frozen=True, slots=True, kw_only=True)
class FrozenMissions:
    """The missions of a campaign, as they were when it began."""

    spec: CampaignSpec
    digest: Digest
    """Digest of the spec file."""
    plan_file_digest: Digest
    """Digest of plan.json, which the seal of every attempt covers."""
    missions: Mapping[MissionId, MissionSpec]
    sources: Mapping[str, bytes]
    """Files that the spec names, by their path as it writes them. Without those that cannot be restored."""
    overlays: Mapping[str, Digest]
    """Digest of each folder with hidden files, by its path. The evidence does not contain their content."""
    folder: Path | None
    """The spec's folder, in which workspaces and hidden files were; None if the campaign did not record it."""

    @property
    def judging_paths(self) -> tuple[Path, ...]:
        """What no probe may see: the spec's folder, and the files and folders that the spec names elsewhere."""
        if self.folder is None:
            return ()
        named = (self.folder / path for path in (*self.sources, *self.overlays))
        return (self.folder, *(path for path in named if path.exists()))

    @property
    def secret_files(self) -> tuple[Path, ...]:
        """The files with secrets that the spec names and that still exist."""
        if self.folder is None:
            return ()
        named = [
            self.folder / Path(each.file).expanduser() for each in self.spec.secrets if isinstance(each, SecretFile)
        ]
        return tuple(path for path in named if path.is_file())


def read_frozen_missions(campaign: CampaignPaths) -> FrozenMissions:
    """Read the missions of a campaign.

    The snapshot is redacted, and its files are text. If that changed a file, the original is read, provided that it is
    still the same. Raises EvidenceError if the snapshot was changed, and InputError if the spec cannot be restored.
    """
    plan_bytes = read_bytes(campaign.plan)
    plan = decode_artifact(plan_bytes, PlanFile, file=campaign.plan.name)
    for name, digest in plan.snapshot.items():
        if digest_bytes(read_bytes(campaign.spec_snapshot / name)) != digest:
            raise EvidenceError("evidence.digest", "not the file that the campaign was started with", file=name)
    index = read_artifact(campaign.snapshot_index, FrozenFiles)
    origin = read_origin(campaign.ledger)
    file = Path(origin.file) if origin is not None and origin.file else None
    source = _restore(campaign.spec_snapshot / "spec.yaml", index.spec, original=file)
    if source is None:
        what = f"the spec of {campaign.folder.name} cannot be restored: its snapshot is redacted, and the file changed"
        raise InputError("campaign.no-spec", what)
    folder = None if file is None else file.parent
    sources = {
        spelled: content
        for spelled, digest in index.files.items()
        if (
            content := _restore(
                campaign.spec_snapshot / index.names[spelled],
                digest,
                original=None if folder is None else folder / spelled,
            )
        )
        is not None
    }
    find_kind = find_extensions(folder or Path()).find_kind
    source_file = decode_spec(source, Path("spec.yaml"), flows=index.given.flows, find_kind=find_kind)
    spec = source_file.value
    written = inline_mission_sources(source_file)
    if isinstance(spec.missions, MissionsFolder):
        written = tuple(_read_files(spec.missions.folder, sources, find_kind))
    expanded, errors = expand_classes(written, classes=lambda: index.given.task_classes, find_kind=find_kind)
    if errors:
        raise_collected(errors)
    return FrozenMissions(
        spec=spec,
        digest=index.spec,
        plan_file_digest=digest_bytes(plan_bytes),
        missions={each.mission.id: each.mission for each in expanded},
        sources=sources,
        overlays=index.overlays,
        folder=folder,
    )


def _restore(kept: Path, digest: Digest, *, original: Path | None) -> bytes | None:
    """Return the content with this digest from the snapshot or the original file; None if neither has it."""
    content = read_bytes(kept)
    if digest_bytes(content) == digest:
        return content
    try:
        content = b"" if original is None else read_source(original)
    except InputError:
        return None
    return content if digest_bytes(content) == digest else None


def _read_files(folder: str, sources: Mapping[str, bytes], find_kind: FindKind) -> Iterator[MissionSource]:
    beginning = f"{folder.rstrip('/')}/"
    for path, source in sources.items():
        if path.startswith(beginning) and path.endswith(SUFFIX):
            source_file = parse_mission(source, id_=Path(path).stem, file=path, find_kind=find_kind)
            yield MissionSource(mission=source_file.value, source_file=source_file)
