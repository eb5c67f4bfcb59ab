"""A campaign is a snapshot: what the spec and its files were when it began."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import msgspec

from proctor.canonical import digest_bytes
from proctor.errors import InputError
from proctor.evidence.disk import make_folder
from proctor.evidence.layout import CampaignPaths, write_artifact, write_text_artifact
from proctor.evidence.redact import Redactor
from proctor.ids import Digest
from proctor.plan.expand import expand
from proctor.plan.model import Contents, Plan
from proctor.spec.load import NOTHING, Given, LoadedSpec
from proctor.spec.missions import Written
from proctor.workspace.clone import clone
from proctor.workspace.prepare import prepare
from proctor.workspace.snapshot import snapshot


class FrozenFiles(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """index.json of the snapshot: digests of the originals, keyed as the spec spells them.

    `files` are mission files, templates and the price file; `names` is what scripts and files are called here.
    `given` came with the command.
    """

    schema_version: int = 1
    spec: Digest
    scripts: dict[str, Digest]
    workspaces: dict[str, Digest]
    files: dict[str, Digest] = {}
    names: dict[str, str] = {}
    given: Given = NOTHING


@dataclass(frozen=True, slots=True, kw_only=True)
class Frozen:
    """Everything attempts start from; nothing is read from the user's files after this."""

    plan: Plan
    snapshot: Mapping[str, Digest]
    workspaces: Mapping[str, Path]
    workspace_digests: Mapping[str, Digest]


def freeze(loaded: LoadedSpec, *, paths: CampaignPaths, workspaces: Path, redactor: Redactor) -> Frozen:
    """Copy, clone and digest. A workspace may hold anything, so its copy goes to the cache, not into the evidence."""
    copies = copy_workspaces(loaded, into=workspaces)
    digests = {key: snapshot(copy).digest for key, copy in copies.items()}
    plan = expand(
        loaded.spec,
        missions=loaded.missions,
        digests=Contents(scripts=loaded.script_digests, workspaces=digests),
        prompts=loaded.prompts,
    )
    make_folder(paths.spec_snapshot)
    source_text = loaded.source.decode("utf-8", "replace")
    written = {"spec.yaml": write_text_artifact(paths.spec_snapshot / "spec.yaml", source_text, redactor=redactor)}
    names: dict[str, str] = {}
    for number, (spelled, path) in enumerate(sorted(loaded.scripts.items())):
        text, name = path.read_text(encoding="utf-8"), f"script-{number}.yaml"
        names[spelled] = name
        written[name] = write_text_artifact(paths.spec_snapshot / name, text, redactor=redactor)
    for number, (spelled, source) in enumerate(sorted(loaded.sources.items())):
        name = names[spelled] = f"file-{number}{Path(spelled).suffix}"
        text = source.decode("utf-8", "replace")
        written[name] = write_text_artifact(paths.spec_snapshot / name, text, redactor=redactor)
    index = FrozenFiles(
        spec=loaded.digest,
        scripts=dict(loaded.script_digests),
        workspaces=digests,
        files=loaded.source_digests,
        names=names,
        given=loaded.given,
    )
    written["index.json"] = write_artifact(paths.spec_snapshot / "index.json", index, redactor=redactor)
    return Frozen(
        plan=plan,
        snapshot={name: digest_bytes(data) for name, data in written.items()},
        workspaces=copies,
        workspace_digests=digests,
    )


def copy_workspaces(loaded: LoadedSpec, *, into: Path) -> dict[str, Path]:
    """Each once, by its key. InputError, at its mission, for the first that cannot be had."""
    copies: dict[str, Path] = {}
    sources = (loaded.folder / spelled for spelled in loaded.sources)
    unseen = (Path(loaded.file), *loaded.scripts.values(), *sources)
    for mission in loaded.missions:
        workspace, key = mission.workspace, mission.workspace.key
        if key is None or key in copies:
            continue
        into.mkdir(mode=0o700, parents=True, exist_ok=True)
        copies[key] = into / str(len(copies))
        with _blamed(loaded, loaded.written[mission.id], key=f"workspace.{'copy' if workspace.ref is None else 'git'}"):
            if workspace.ref is None:
                prepare(loaded.workspaces[key], into=copies[key])
            else:
                clone(loaded.workspaces[key], workspace.ref, into=copies[key], unseen=unseen)
    return copies


@contextmanager
def _blamed(loaded: LoadedSpec, written: Written, *, key: str) -> Iterator[None]:
    """Says which line of the mission an input error comes from."""
    try:
        yield
    except InputError as error:
        at = key.replace(".git", ".ref") if error.code == "workspace.ref" else key
        told = written.problem(error.code, error.what, key=at, suggestion=error.suggestion)
        raise loaded.as_seen(told) from error
