"""A spec file, read, checked, and joined with the files it names."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec
import yaml

from proctor.canonical import digest_bytes
from proctor.errors import CollectedInputError, InputError
from proctor.ids import Digest
from proctor.spec.check import faults, inline_missions
from proctor.spec.marked import Marked, decode_bytes, nearest, raise_collected, read_source
from proctor.spec.model import CampaignSpec, MissionSpec, SecretFile


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedSpec:
    """A spec that may be run. Scripts are keyed by their path as the spec spells it, workspaces by their key."""

    spec: CampaignSpec
    missions: tuple[MissionSpec, ...]
    file: str
    folder: Path
    source: bytes
    digest: Digest
    scripts: Mapping[str, Path]
    script_digests: Mapping[str, Digest]
    workspaces: Mapping[str, Path]
    secret_files: tuple[Path, ...]
    marked: Marked[CampaignSpec]
    is_built: bool = False

    @property
    def path(self) -> Path:
        """Where it lies, from wherever one looks."""
        return self.folder / Path(self.file).name

    def line_of(self, key_path: str) -> int | None:
        """None in a spec that was built, where nobody has seen lines."""
        return None if self.is_built else self.marked.line_of(key_path)


def load_spec(path: Path) -> LoadedSpec:
    """Reads a spec, or says all that is wrong with it: first its form and types, then what it means."""
    return _load(read_source(path), path)


def load_built(built: CampaignSpec | Mapping[str, Any], *, name: str, folder: Path, excused: str = "") -> LoadedSpec:
    """A spec that was built in Python, held to the same rules. Its paths start from `folder`.

    The key `excused` may be missing or wrong.
    """
    source = yaml.safe_dump(msgspec.to_builtins(built), sort_keys=False, allow_unicode=True).encode()
    try:
        return replace(_load(source, folder / name, excused=excused), file=name, is_built=True)
    except InputError as error:
        told = error.errors if isinstance(error, CollectedInputError) else (error,)
        raise_collected([_without_line(each, file=name) for each in told])


def _without_line(error: InputError, *, file: str) -> InputError:
    return InputError(error.code, error.what, file=file, key=error.key, suggestion=error.suggestion)


def _load(source: bytes, path: Path, *, excused: str = "") -> LoadedSpec:
    try:
        marked = decode_bytes(source, CampaignSpec, file=str(path))
    except InputError as error:
        _refuse_other_versions(error)
        raise
    files = _Files(marked, spec_path=path)
    problems = [each for each in (*faults(marked), *files.read()) if not excused or each.key != excused]
    if problems:
        raise_collected(problems)
    return LoadedSpec(
        spec=marked.value,
        missions=files.missions,
        file=str(path),
        folder=files.folder,
        source=source,
        digest=digest_bytes(source),
        scripts=files.scripts,
        script_digests=files.script_digests,
        workspaces=files.workspaces,
        secret_files=tuple(files.secret_files),
        marked=marked,
    )


def _refuse_other_versions(error: InputError) -> None:
    """In a spec of another version nothing else is worth telling: its other keys may well be right there."""
    each = error.errors if isinstance(error, CollectedInputError) else (error,)
    for problem in each:
        if problem.key == "version" and problem.code == "spec.type":
            raise InputError(
                "spec.version",
                "this Proctor reads version 1",
                file=problem.file,
                line=problem.line,
                key="version",
                suggestion="Write `version: 1`.",
            ) from error


class _Files:
    """What the spec names on disk, found and read once."""

    def __init__(self, marked: Marked[CampaignSpec], *, spec_path: Path) -> None:
        self.folder = spec_path.absolute().parent
        self.scripts: dict[str, Path] = {}
        self.script_digests: dict[str, Digest] = {}
        self.workspaces: dict[str, Path] = {}
        self.secret_files: list[Path] = []
        self.missions = inline_missions(marked.value)
        self._marked = marked
        self._spec_path = spec_path

    def read(self) -> Iterator[InputError]:
        for at, secret in enumerate(self._marked.value.secrets):
            if isinstance(secret, SecretFile):
                yield from self._secret_file(secret.file, key=f"secrets[{at}].file")
        spec = self._marked.value
        tokens = (("token", spec.token), *((f"flows[{at}].token", flow.token) for at, flow in enumerate(spec.flows)))
        for key, token in tokens:
            if isinstance(token, SecretFile):
                yield from self._secret_file(token.file, key=f"{key}.file")
        missions = self.missions
        for at, mission in enumerate(missions):
            if mission.script is not None:
                yield from self._script(mission.script, key=f"missions[{at}].script")
        for at, mission in enumerate(missions):
            workspace, key = mission.workspace, f"missions[{at}].workspace"
            if workspace.copy is not None:
                yield from self._workspace(workspace.copy, key=f"{key}.copy")
            elif workspace.git is not None:
                yield from self._repository(workspace.git, name=workspace.key, key=f"{key}.git")

    def _secret_file(self, written: str, *, key: str) -> Iterator[InputError]:
        """What it holds is read when a campaign begins."""
        try:
            path = self.folder / Path(written).expanduser()
        except RuntimeError as error:  # a user of that name there is not
            yield self._marked.problem("spec.missing-file", str(error), key=key)
            return
        if path.is_file():
            self.secret_files.append(path)
        else:
            yield self._missing(written, path, key=key)

    def _script(self, written: str, *, key: str) -> Iterator[InputError]:
        path = self.folder / written
        try:
            self.script_digests[written] = digest_bytes(read_source(path))
            self.scripts[written] = path
        except InputError as error:
            if isinstance(error.__cause__, FileNotFoundError | NotADirectoryError):
                yield self._missing(written, path, key=key)
            else:
                yield self._marked.problem("spec.unreadable", f"`{written}`: {error.what}", key=key)

    def _repository(self, written: str, *, name: str | None, key: str) -> Iterator[InputError]:
        """What it holds is for git to say, when the campaign is frozen."""
        path = self.folder / written
        if name is not None and path.is_dir():
            self.workspaces[name] = path
        else:
            yield self._missing(written, path, key=key)

    def _workspace(self, written: str, *, key: str) -> Iterator[InputError]:
        path = self.folder / written
        try:
            if not path.is_dir():
                yield self._missing(written, path, key=key)
                return
            real = path.resolve()
        except OSError as error:
            yield self._marked.problem("spec.unreadable", f"`{written}`: {error.strerror}", key=key)
            return
        self.workspaces[written] = path
        for hidden in (self._spec_path, *self.scripts.values()):
            if hidden.exists() and hidden.resolve().is_relative_to(real):
                what = f"the workspace holds {hidden.name}, which the agent must never see"
                suggestion = "Move the workspace into a folder of its own, beside the spec and the scripts."
                yield self._marked.problem("spec.unsupported", what, key=key, suggestion=suggestion)
                return

    def _missing(self, written: str, path: Path, *, key: str) -> InputError:
        what = f"`{written}` is a file, not a folder" if path.is_file() else f"there is no `{written}`"
        try:
            close = nearest(path.name, sorted(entry.name for entry in path.parent.iterdir()))
        except OSError:
            close = None
        if close is None or close == path.name:
            suggestion = f"Paths start from the spec's folder, {self.folder}."
        else:
            suggestion = f"Did you mean `{Path(written).with_name(close).as_posix()}`?"
        return self._marked.problem("spec.missing-file", what, key=key, suggestion=suggestion)
