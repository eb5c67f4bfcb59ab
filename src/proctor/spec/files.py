"""Find and read, once, the files that a spec names, and collect every error in them."""

import os
import stat
from collections.abc import Callable, Mapping
from functools import cache, cached_property
from pathlib import Path
from typing import Any

from proctor.canonical import digest_bytes
from proctor.errors import InputError
from proctor.ids import Digest, FlowId
from proctor.spec.campaign_options import MissionsFolder, SecretFile
from proctor.spec.missions import (
    SUFFIX,
    MissionSource,
    decode_text,
    find_mission_files,
    inline_mission_sources,
    read_mission,
)
from proctor.spec.model import CampaignSpec
from proctor.spec.prices import Prices, decode_prices
from proctor.spec.probe_options import CONTROL_TOKEN
from proctor.spec.source_file import FindKind, SourceFile, read_source, similar_name
from proctor.spec.task_classes import TaskClass, expand_classes
from proctor.spec.template import Template, parse_template


class SpecFiles:
    """The files that a spec names. `errors` lists every one that is missing or wrong.

    Scripts and sources are keyed by their path as the spec writes it, workspaces by `WorkspaceSpec.key`. Sources are
    the bytes of mission files, templates, files of probes, patches and the price file.
    """

    def __init__(
        self,
        source_file: SourceFile[CampaignSpec],
        *,
        spec_path: Path,
        task_classes: Callable[[], Mapping[str, TaskClass]],
        find_kind: FindKind,
    ) -> None:
        self.folder = spec_path.absolute().parent
        self.mission_sources: tuple[MissionSource, ...] = inline_mission_sources(source_file)
        self.scripts: dict[str, Path] = {}
        self.script_digests: dict[str, Digest] = {}
        self.workspaces: dict[str, Path] = {}
        self.secret_files: list[Path] = []
        self.overlays: dict[str, Path] = {}
        self.sources: dict[str, bytes] = {}
        self.templates: dict[FlowId, Template] = {}
        self.prices: Prices | None = None
        self.errors: list[InputError] = []
        self._source_file = source_file
        self._spec_path = spec_path
        self._find_kind = find_kind
        self._find_classes = cache(task_classes)
        self._read(source_file.value)

    def _read(self, spec: CampaignSpec) -> None:
        if isinstance(spec.missions, MissionsFolder):
            self._read_missions(spec.missions.folder)
        self.mission_sources, errors = expand_classes(
            self.mission_sources, classes=self._find_classes, find_kind=self._find_kind
        )
        self.errors += errors
        for at, secret in enumerate(spec.secrets):
            self._read_secret(secret, key=f"secrets[{at}]")
        self._read_secret(spec.token, key="token")
        for at, flow in enumerate(spec.flows):
            self._read_secret(flow.token, key=f"flows[{at}].token")
        self._read_templates(spec)
        if spec.prices is not None:
            self.prices = self._read_source(spec.prices, decode_prices, key="prices")
        for each in self.mission_sources:
            if each.mission.script is not None:
                self._read_script(each.mission.script, each)
            self._read_judging_files(each)
        for each in self.mission_sources:
            workspace = each.mission.workspace
            if workspace.copy is not None:
                self._find_folder(workspace.copy, each)
            elif workspace.git is not None:
                self._find_repository(workspace.git, each)

    @property
    def used_classes(self) -> dict[str, TaskClass]:
        """The task classes that missions name. An unknown one is left out, and is in `errors`."""
        names = {each.mission.task_class for each in self.mission_sources} - {None}
        if not names or self.errors:
            return {}
        return {name: each for name, each in self._find_classes().items() if name in names}

    def _read_missions(self, path_text: str) -> None:
        key, folder = "missions.folder", self.folder / path_text
        try:
            names = find_mission_files(folder)
        except (FileNotFoundError, NotADirectoryError):
            self._report_missing(path_text, folder, key=key, make_error=self._source_file.error)
            return
        except (OSError, ValueError) as error:  # a NUL in the path
            reason = getattr(error, "strerror", None) or str(error)
            self._add_error(
                self._source_file.error("spec.unreadable", f"`{path_text}` cannot be read: {reason}", key=key)
            )
            return
        if not names:
            what = f"the folder `{path_text}` contains no mission: no file name ends in {SUFFIX}"
            self._add_error(self._source_file.error("spec.missing-file", what, key=key))
        missions = []
        for name in names:
            mission_path = f"{path_text.rstrip('/')}/{name}"
            try:
                mission, self.sources[mission_path] = read_mission(
                    folder / name, file=self._display_path(mission_path), find_kind=self._find_kind
                )
                missions.append(mission)
            except InputError as error:
                self._add_error(error)
        self.mission_sources = tuple(missions)

    def _read_templates(self, spec: CampaignSpec) -> None:
        known: dict[str, Template | None] = {}
        for at, flow in enumerate(spec.flows):
            path_text = flow.template or spec.template
            if path_text is None:
                continue
            if path_text not in known:
                key = "template" if flow.template is None else f"flows[{at}].template"
                known[path_text] = self._read_source(path_text, _decode_template, key=key)
            if (template := known[path_text]) is not None:
                self.templates[flow.id] = template

    def _read_source(self, path_text: str, decode: Callable[..., Any], *, key: str) -> Any:
        """Read and decode a file. Returns None after an error, which is added to `errors`."""
        path = self.folder / path_text
        try:
            self.sources[path_text] = read_source(path)
        except InputError as error:
            self._report_unreadable(error, path_text, path, key=key, make_error=self._source_file.error)
            return None
        try:
            return decode(self.sources[path_text], file=self._display_path(path_text))
        except InputError as error:
            self._add_error(error)
            return None

    def _read_secret(self, secret: str | SecretFile | None, *, key: str) -> None:
        """Check that a secret file exists. Its content is read when a campaign begins."""
        if not isinstance(secret, SecretFile):
            return
        key = f"{key}.file"
        try:
            path = self.folder / Path(secret.file).expanduser()
        except RuntimeError as error:  # `~name` names an unknown user
            self._add_error(self._source_file.error("spec.missing-file", str(error), key=key))
            return
        if self._exists(secret.file, path, stat.S_ISREG, key=key, make_error=self._source_file.error):
            self.secret_files.append(path)

    def _read_script(self, path_text: str, source: MissionSource) -> None:
        if path_text in self.scripts:
            return
        path = self.folder / path_text
        try:
            self.script_digests[path_text] = digest_bytes(read_source(path))
            self.scripts[path_text] = path
        except InputError as error:
            self._report_unreadable(error, path_text, path, key="script", make_error=source.error)

    def _read_judging_files(self, source: MissionSource) -> None:
        """Read the files of a mission's probes, its solution and its cheats, and find its hidden files.

        Whether a patch applies is known once the workspace is frozen.
        """
        mission = source.mission
        named = {
            f"probes[{at}].{key}": path for at, probe in enumerate(mission.probes) for key, path in probe.files.items()
        }
        if mission.solution is not None:
            named["solution"] = mission.solution
        named |= {f"cheats[{at}]": path for at, path in enumerate(mission.cheats)}
        for key, path_text in named.items():
            self._read_judging_file(path_text, source, key=key)
        if mission.overlay is not None:
            path = self.folder / mission.overlay
            if self._exists(mission.overlay, path, stat.S_ISDIR, key="overlay", make_error=source.error):
                self.overlays[mission.overlay] = path

    def _read_judging_file(self, path_text: str, source: MissionSource, *, key: str) -> None:
        path = self.folder / path_text
        try:
            data = self.sources[path_text] = read_source(path)
        except InputError as error:
            self._report_unreadable(error, path_text, path, key=key, make_error=source.error)
            return
        if ".controls." in key and CONTROL_TOKEN.encode() not in data:
            what = f"`{path_text}` does not contain the word {CONTROL_TOKEN}"
            suggestion = "Use it in the name of the test: it is replaced by a random word."
            self._add_error(source.error("spec.unsupported", what, key=key, suggestion=suggestion))

    def _find_repository(self, path_text: str, source: MissionSource) -> None:
        """Check that a repository's folder exists. git checks its content when the campaign is frozen."""
        path, name = self.folder / path_text, source.mission.workspace.key
        assert name is not None, "a workspace with a repository has a key"
        if self._exists(path_text, path, stat.S_ISDIR, key="workspace.git", make_error=source.error):
            self.workspaces[name] = path

    def _find_folder(self, path_text: str, source: MissionSource) -> None:
        workspace, name = source.mission.workspace, source.mission.workspace.key
        assert name is not None, "a workspace with a folder has a key"
        if name in self.workspaces:
            return
        path, key = self.folder / path_text, "workspace.copy"
        if not self._exists(path_text, path, stat.S_ISDIR, key=key, make_error=source.error):
            return
        real = path.resolve()
        self.workspaces[name] = path
        for hidden in self._hidden_paths:
            if hidden.is_relative_to(real) and not any(
                hidden.is_relative_to(real / each) for each in workspace.exclude
            ):
                what = f"the workspace `{path_text}` contains {hidden.name}, which the agent must not see"
                suggestion = "Move the workspace to a separate folder, or name the file in `exclude`."
                self._add_error(source.error("spec.unsupported", what, key=key, suggestion=suggestion))
                return

    @cached_property
    def _hidden_paths(self) -> tuple[Path, ...]:
        """The resolved paths of the files that no agent may see."""
        named = (*self.scripts.values(), *self.overlays.values(), *(self.folder / each for each in self.sources))
        paths = (self._spec_path, *named)
        return tuple(path.resolve() for path in paths if os.path.exists(path))  # noqa: PTH110

    def _display_path(self, path_text: str) -> str:
        """Return the path of a file for messages, relative to the same folder as the spec's path."""
        return str(self._spec_path.parent / path_text)

    def _add_error(self, error: InputError) -> None:
        self.errors += error.all_errors

    def _report_unreadable(
        self, error: InputError, path_text: str, path: Path, *, key: str, make_error: Callable[..., InputError]
    ) -> None:
        if isinstance(error.__cause__, FileNotFoundError | NotADirectoryError):
            self._report_missing(path_text, path, key=key, make_error=make_error)
        else:
            cause = error.__cause__
            reason = cause.strerror if isinstance(cause, OSError) else error.what
            self._add_error(make_error("spec.unreadable", f"`{path_text}` cannot be read: {reason}", key=key))

    def _exists(
        self,
        path_text: str,
        path: Path,
        is_kind: Callable[[int], bool],
        *,
        key: str,
        make_error: Callable[..., InputError],
    ) -> bool:
        """Return whether `path` exists and is of the given kind; if not, add an error."""
        try:
            if is_kind(path.stat().st_mode):
                return True
        except (FileNotFoundError, NotADirectoryError, ValueError):  # a NUL in the path
            pass
        except OSError as error:
            self._add_error(make_error("spec.unreadable", f"`{path_text}` cannot be read: {error.strerror}", key=key))
            return False
        self._report_missing(path_text, path, key=key, make_error=make_error)
        return False

    def _report_missing(self, path_text: str, path: Path, *, key: str, make_error: Callable[..., InputError]) -> None:
        is_file = os.path.isfile(path)  # noqa: PTH113 - unlike Path.is_file, False if access is denied
        what = f"`{path_text}` is a file, not a folder" if is_file else f"`{path_text}` does not exist"
        close = similar_name(path)
        if close is None:
            suggestion = f"Paths are relative to the spec's folder, {self.folder}."
        else:
            suggestion = f"Did you mean `{Path(path_text).with_name(close).as_posix()}`?"
        self._add_error(make_error("spec.missing-file", what, key=key, suggestion=suggestion))


def _decode_template(source: bytes, *, file: str) -> Template:
    return parse_template(decode_text(source, file=file), file=file)
