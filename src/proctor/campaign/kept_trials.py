"""Where a campaign keeps trials that may be continued: home, workspace and session, for this user only."""

import sqlite3
from collections.abc import Collection, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec

from proctor import canonical, places
from proctor.attempt.workspace_layout import WORKSPACE
from proctor.campaign.agents import KeptFolders
from proctor.campaign.session_engine import forget_engines
from proctor.context.engine_use import log
from proctor.context.store import read_store
from proctor.errors import EvidenceError, MachineError, disk_error
from proctor.evidence.layout import RootPaths, SessionPaths, write_artifact
from proctor.evidence.reader import read_artifact
from proctor.ids import CampaignId, RuntimeId, SessionKey, TrialId
from proctor.workspace.remove import remove

_OWNER: Final = "campaign.json"
_REMOVED: Final = ".removed-"


class KeepingCampaign(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """campaign.json: the campaign that keeps trials in a folder of the user's state folder."""

    root: str
    """Path of its evidence root, without symbolic links."""
    campaign_id: CampaignId
    """Id of the campaign."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptTrial:
    """What is kept of one trial. Its folders may not exist."""

    agent: Path
    """The scratch folder of its attempts, which the agent sees: workspace, TMPDIR and, if it is kept, home."""
    sessions: Path
    """Folder for the session of a context engine, which the agent does not see."""
    has_home: bool
    """Whether the agent's home is kept. In a shared process it is the home of the process."""

    @property
    def workspace(self) -> Path:
        return self.agent / WORKSPACE

    @property
    def session(self) -> Path | None:
        """The folder of the session. None without one."""
        return next(iter(_folders(self.sessions)), None)

    def home(self, runtime_id: RuntimeId) -> Path:
        """Return the agent's home. Each runtime has its own."""
        return self.agent / "homes" / runtime_id

    def folders(self, runtime_id: RuntimeId) -> KeptFolders | None:
        """Return the folders for a process of the agent; None for a shared one."""
        return KeptFolders(folder=self.agent, home=self.home(runtime_id)) if self.has_home else None

    def create(self, runtime_id: RuntimeId) -> None:
        """Create the folders, with a new home, and without a workspace or a session. Raises OSError."""
        self.remove()
        folders = [self.agent, self.sessions]
        folders += [self.home(runtime_id).parent, self.home(runtime_id)] if self.has_home else []
        for folder in folders:
            folder.mkdir(mode=0o700, parents=True)

    def remove(self) -> None:
        """Remove the folders, if they exist, and have the engine of the session forget it. Raises OSError.

        Not to be called in the thread of an event loop.
        """
        for session in _folders(self.sessions):
            _forget_session(session)
        for folder in (self.agent, self.sessions):
            if folder.is_dir():
                # A removal that is cut off must not leave a part that could still be continued.
                removed = folder.with_name(f"{_REMOVED}{folder.name}")
                if removed.is_dir():
                    remove(removed)
                folder.rename(removed)
                remove(removed)
        if self.has_home and self.agent.parent.is_dir():
            remove(self.agent.parent)


def _forget_session(folder: Path) -> None:
    """Have the engines of a session forget it, which may keep something outside of its folder. Never raises."""
    paths, settings = SessionPaths(folder), None
    with suppress(EvidenceError, MachineError, sqlite3.Error), read_store(paths.store) as store:
        settings = store.setup.settings
    for problem in forget_engines(paths, SessionKey(folder.name), settings, "delete"):
        log.warning("forget failed", extra={"reason": problem})


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptTrials:
    """The trials that one campaign keeps, below a folder that is named after its evidence root and its id.

    The campaign's lock protects it: only its holder may change anything here.
    """

    folder: Path
    owner: KeepingCampaign

    @classmethod
    def of(cls, root: RootPaths, campaign_id: CampaignId) -> "KeptTrials":
        """Return the place of a campaign. Creates nothing."""
        owner = KeepingCampaign(root=str(root.folder.resolve()), campaign_id=campaign_id)
        name = f"{campaign_id}-{canonical.digest(owner).removeprefix('sha256:')[:12]}"
        return cls(folder=places.trials_dir() / name, owner=owner)

    def trial(self, trial: TrialId) -> KeptTrial:
        """Return the place of a trial whose agent has its own process."""
        folder = self.folder / trial
        return KeptTrial(agent=folder / "agent", sessions=folder / "sessions", has_home=True)

    def open(self) -> None:
        """Create the folder, with the note of whose it is. Raises MachineError if the disk refuses."""
        try:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise disk_error(error, path=self.folder) from error
        write_artifact(self.folder / _OWNER, self.owner, redactor=None)

    def remove_except(self, trials: Collection[TrialId]) -> None:
        """Remove what is kept of other trials, and the folder if nothing is left. What the disk refuses stays.

        Not to be called in the thread of an event loop.
        """
        with suppress(OSError):
            for folder in _folders(self.folder):
                if folder.name not in trials:
                    self.trial(TrialId(folder.name)).remove()
            if self.folder.is_dir() and not list(_folders(self.folder)):
                remove(self.folder)

    def remove(self) -> None:
        """Remove everything. Raises OSError. Not to be called in the thread of an event loop."""
        for folder in _folders(self.folder):
            self.trial(TrialId(folder.name)).remove()
        if self.folder.is_dir():
            remove(self.folder)


def find_kept() -> Iterator[tuple[Path, KeepingCampaign | None]]:
    """Yield the folder of each campaign that keeps trials, and whose it is, if that can be read.

    Raises MachineError if the folder with all of them cannot be read.
    """
    for folder in _folders(places.trials_dir()):
        owner: KeepingCampaign | None = None
        with suppress(EvidenceError):
            owner = read_artifact(folder / _OWNER, KeepingCampaign)
        yield folder, owner


def _folders(folder: Path) -> list[Path]:
    """Return the folders in a folder, which may not exist. Raises MachineError if it cannot be read."""
    try:
        if not folder.is_dir():
            return []
        return sorted(each for each in folder.iterdir() if each.is_dir() and not each.is_symlink())
    except OSError as error:
        raise disk_error(error, path=folder) from error
