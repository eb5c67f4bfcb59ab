"""What a spec names on disk, found and read once, with every fault of it."""

import os
import stat
from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import Any

from proctor.canonical import digest_bytes
from proctor.errors import InputError
from proctor.ids import Digest, FlowId
from proctor.spec.marked import Marked, read_source
from proctor.spec.missions import SUFFIX, Written, decode_text, find_files, read_mission, written_inline
from proctor.spec.model import CampaignSpec, SecretFile
from proctor.spec.near import nearest
from proctor.spec.prices import Prices, decode_prices
from proctor.spec.running import MissionsFolder
from proctor.spec.template import Template, parse_template


class SpecFiles:
    """Scripts and sources are keyed by their path as the spec spells it, workspaces by their key.

    Sources are the bytes of mission files, templates and the price file.
    """

    def __init__(self, marked: Marked[CampaignSpec], *, spec_path: Path) -> None:
        self.folder = spec_path.absolute().parent
        self.written: tuple[Written, ...] = written_inline(marked)
        self.scripts: dict[str, Path] = {}
        self.script_digests: dict[str, Digest] = {}
        self.workspaces: dict[str, Path] = {}
        self.secret_files: list[Path] = []
        self.sources: dict[str, bytes] = {}
        self.templates: dict[FlowId, Template] = {}
        self.prices: Prices | None = None
        self.problems: list[InputError] = []
        self._marked = marked
        self._spec_path = spec_path
        self._read(marked.value)

    def _read(self, spec: CampaignSpec) -> None:
        if isinstance(spec.missions, MissionsFolder):
            self._read_missions(spec.missions.folder)
        for at, secret in enumerate(spec.secrets):
            self._read_secret(secret, key=f"secrets[{at}]")
        self._read_secret(spec.token, key="token")
        for at, flow in enumerate(spec.flows):
            self._read_secret(flow.token, key=f"flows[{at}].token")
        self._read_templates(spec)
        if spec.prices is not None:
            self.prices = self._read_source(spec.prices, decode_prices, key="prices")
        for each in self.written:
            if each.mission.script is not None:
                self._read_script(each.mission.script, each)
        for each in self.written:
            workspace = each.mission.workspace
            if workspace.copy is not None:
                self._find_folder(workspace.copy, each)
            elif workspace.git is not None:
                self._find_repository(workspace.git, each)

    def _read_missions(self, written: str) -> None:
        key, folder = "missions.folder", self.folder / written
        try:
            names = find_files(folder)
        except (FileNotFoundError, NotADirectoryError):
            self._miss(written, folder, key=key, problem=self._marked.problem)
            return
        except (OSError, ValueError) as error:  # a NUL in the path
            why = getattr(error, "strerror", None) or str(error)
            self._refuse(self._marked.problem("spec.unreadable", f"`{written}`: {why}", key=key))
            return
        if not names:
            what = f"`{written}` holds no mission: no file whose name ends in {SUFFIX}"
            self._refuse(self._marked.problem("spec.missing-file", what, key=key))
        missions = []
        for name in names:
            spelled = f"{written.rstrip('/')}/{name}"
            try:
                mission, self.sources[spelled] = read_mission(folder / name, file=self._named(spelled))
                missions.append(mission)
            except InputError as error:
                self._refuse(error)
        self.written = tuple(missions)

    def _read_templates(self, spec: CampaignSpec) -> None:
        known: dict[str, Template | None] = {}
        for at, flow in enumerate(spec.flows):
            written = flow.template or spec.template
            if written is None:
                continue
            if written not in known:
                key = "template" if flow.template is None else f"flows[{at}].template"
                known[written] = self._read_source(written, _decode_template, key=key)
            if (template := known[written]) is not None:
                self.templates[flow.id] = template

    def _read_source(self, written: str, decode: Callable[..., Any], *, key: str) -> Any:
        """What the file says; None where it is not to be had, which is then among the problems."""
        path = self.folder / written
        try:
            self.sources[written] = read_source(path)
        except InputError as error:
            self._unread(error, written, path, key=key, problem=self._marked.problem)
            return None
        try:
            return decode(self.sources[written], file=self._named(written))
        except InputError as error:
            self._refuse(error)
            return None

    def _read_secret(self, secret: str | SecretFile | None, *, key: str) -> None:
        """What it holds is read when a campaign begins."""
        if not isinstance(secret, SecretFile):
            return
        key = f"{key}.file"
        try:
            path = self.folder / Path(secret.file).expanduser()
        except RuntimeError as error:  # a user of that name there is not
            self._refuse(self._marked.problem("spec.missing-file", str(error), key=key))
            return
        if self._is_there(secret.file, path, stat.S_ISREG, key=key, problem=self._marked.problem):
            self.secret_files.append(path)

    def _read_script(self, written: str, mission: Written) -> None:
        if written in self.scripts:
            return
        path = self.folder / written
        try:
            self.script_digests[written] = digest_bytes(read_source(path))
            self.scripts[written] = path
        except InputError as error:
            self._unread(error, written, path, key="script", problem=mission.problem)

    def _find_repository(self, written: str, mission: Written) -> None:
        """What it holds is for git to say, when the campaign is frozen."""
        path, name = self.folder / written, mission.mission.workspace.key
        assert name is not None, "a repository has one"
        if self._is_there(written, path, stat.S_ISDIR, key="workspace.git", problem=mission.problem):
            self.workspaces[name] = path

    def _find_folder(self, written: str, mission: Written) -> None:
        if written in self.workspaces:
            return
        path, key = self.folder / written, "workspace.copy"
        if not self._is_there(written, path, stat.S_ISDIR, key=key, problem=mission.problem):
            return
        real = path.resolve()
        self.workspaces[written] = path
        for hidden in self._hidden:
            if hidden.is_relative_to(real):
                what = f"the workspace holds {hidden.name}, which the agent must never see"
                suggestion = "Move the workspace into a folder of its own, beside the spec and the scripts."
                self._refuse(mission.problem("spec.unsupported", what, key=key, suggestion=suggestion))
                return

    @cached_property
    def _hidden(self) -> tuple[Path, ...]:
        """What no agent must see, where it really lies."""
        places = (self._spec_path, *self.scripts.values(), *(self.folder / each for each in self.sources))
        return tuple(place.resolve() for place in places if os.path.exists(place))  # noqa: PTH110

    def _named(self, written: str) -> str:
        """How a file beside the spec is called: from where the spec is called from."""
        return str(self._spec_path.parent / written)

    def _refuse(self, error: InputError) -> None:
        self.problems += error.each

    def _unread(
        self, error: InputError, written: str, path: Path, *, key: str, problem: Callable[..., InputError]
    ) -> None:
        if isinstance(error.__cause__, FileNotFoundError | NotADirectoryError):
            self._miss(written, path, key=key, problem=problem)
        else:
            self._refuse(problem("spec.unreadable", f"`{written}`: {error.what}", key=key))

    def _is_there(
        self,
        written: str,
        path: Path,
        is_kind: Callable[[int], bool],
        *,
        key: str,
        problem: Callable[..., InputError],
    ) -> bool:
        """Whether that kind of thing is there; where not, why not is among the problems."""
        try:
            if is_kind(path.stat().st_mode):
                return True
        except (FileNotFoundError, NotADirectoryError, ValueError):  # a NUL in the path
            pass
        except OSError as error:
            self._refuse(problem("spec.unreadable", f"`{written}`: {error.strerror}", key=key))
            return False
        self._miss(written, path, key=key, problem=problem)
        return False

    def _miss(self, written: str, path: Path, *, key: str, problem: Callable[..., InputError]) -> None:
        is_file = os.path.isfile(path)  # noqa: PTH113  one that is denied is none
        what = f"`{written}` is a file, not a folder" if is_file else f"there is no `{written}`"
        try:
            close = nearest(path.name, sorted(entry.name for entry in path.parent.iterdir()))
        except OSError:
            close = None
        if close is None or close == path.name:
            suggestion = f"Paths start from the spec's folder, {self.folder}."
        else:
            suggestion = f"Did you mean `{Path(written).with_name(close).as_posix()}`?"
        self._refuse(problem("spec.missing-file", what, key=key, suggestion=suggestion))


def _decode_template(source: bytes, *, file: str) -> Template:
    return parse_template(decode_text(source, file=file), file=file)
