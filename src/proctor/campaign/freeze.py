"""A campaign is a snapshot: what the spec and its files were when it began."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import msgspec

from proctor.evidence.disk import make_folder
from proctor.evidence.layout import CampaignPaths, write_artifact, write_text_artifact
from proctor.evidence.redact import Redactor
from proctor.ids import Digest
from proctor.plan.expand import expand
from proctor.plan.model import Contents, Plan
from proctor.spec.load import LoadedSpec
from proctor.workspace.prepare import prepare
from proctor.workspace.snapshot import snapshot


class FrozenFiles(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """index.json of the snapshot: digests of the originals, keyed by path as the spec spells it."""

    schema_version: int = 1
    spec: Digest
    scripts: dict[str, Digest]
    workspaces: dict[str, Digest]


class PlanFile(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """plan.json."""

    schema_version: int = 1
    plan: Plan


@dataclass(frozen=True, slots=True, kw_only=True)
class Frozen:
    """Everything attempts start from; nothing is read from the user's files after this."""

    plan: Plan
    workspaces: Mapping[str, Path]
    workspace_digests: Mapping[str, Digest]


def freeze(loaded: LoadedSpec, *, paths: CampaignPaths, workspaces: Path, redactor: Redactor) -> Frozen:
    """Copy and digest. Workspaces may hold anything, so their copies go to the cache and not into the evidence."""
    copies: dict[str, Path] = {}
    digests: dict[str, Digest] = {}
    for number, (written, source) in enumerate(sorted(loaded.workspaces.items())):
        copies[written] = workspaces / str(number)
        workspaces.mkdir(mode=0o700, parents=True, exist_ok=True)
        prepare(source, into=copies[written])
        digests[written] = snapshot(copies[written]).digest
    plan = expand(loaded.spec, digests=Contents(scripts=loaded.script_digests, workspaces=digests))
    make_folder(paths.spec_snapshot)
    source_text = loaded.source.decode("utf-8", "replace")
    write_text_artifact(paths.spec_snapshot / "spec.yaml", redactor.text(source_text).text)
    for number, (_, path) in enumerate(sorted(loaded.scripts.items())):
        text = redactor.text(path.read_text(encoding="utf-8")).text
        write_text_artifact(paths.spec_snapshot / f"script-{number}.yaml", text)
    index = FrozenFiles(spec=loaded.digest, scripts=dict(loaded.script_digests), workspaces=digests)
    write_artifact(paths.spec_snapshot / "index.json", redactor.value(index))
    return Frozen(plan=plan, workspaces=copies, workspace_digests=digests)
