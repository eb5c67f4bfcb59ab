"""A session that this process holds: its folder, its lock and its store. Opening it settles what a crash left open."""

import secrets
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from msgspec.structs import replace

from proctor import places
from proctor.canonical import digest
from proctor.clock import Clock
from proctor.contain.identity import ProcessIdentity
from proctor.context.model import Ancestor, RecordedTurn, SessionHeader, Sitting, SittingState, TurnState
from proctor.context.store import SessionStore, open_store, refuse_missing
from proctor.context.thread_fold import HeldChange, SittingFold
from proctor.errors import EvidenceError, InputError, MachineError, disk_error
from proctor.event.outcome import NOT_ENDED
from proctor.event.row import Row
from proctor.evidence.layout import AttemptPaths, RootPaths, SessionPaths, is_valid_name, write_artifact
from proctor.evidence.owner_lock import hold_folder
from proctor.evidence.reader import read_artifact, read_rows
from proctor.ids import SessionKey, TrialId
from proctor.runtime.base import Tool
from proctor.runtime.registry import runtime_by_id
from proctor.runtime.thread_normalizer import normalizer_of
from proctor.spec.suggest import suggest_nearest
from proctor.workspace.remove import remove

AGENT_HOMES: Final = "homes"
"""Folder, in the home of a session, that has one folder per runtime."""


def session_home(header: SessionHeader) -> Path:
    """Return the folder with the agents' homes and the workspace of a session, which may not exist."""
    return places.sessions_dir() / header.home


def tools_digest(tools: Sequence[Tool]) -> str:
    """Return the digest of a tool catalog, whatever its order."""
    return digest(sorted([tool.name, tool.description, digest(tool.schema)] for tool in tools))


class KeptSession:
    """A session that this process holds."""

    def __init__(self, root: RootPaths, paths: SessionPaths, header: SessionHeader, store: SessionStore) -> None:
        self.root = root
        self.paths = paths
        self.header = header
        self.store = store
        self.pool_workspaces: Path | None = None
        """Where the workspaces of a pool's sessions are, which no process outside the pool sees. Removed with it."""
        self.is_refused = False
        """Whether its opening was refused as bad input. Then nothing was said, and a new session is removed."""

    @property
    def home(self) -> Path:
        return session_home(self.header)

    @property
    def workspace(self) -> Path:
        """The folder in which the agent works if its caller names none. It may not exist."""
        return self.workspace_of(self.header)

    def workspace_of(self, header: SessionHeader) -> Path:
        """Return the workspace of this session or of one that is forked from it."""
        if self.pool_workspaces is not None:
            return self.pool_workspaces / header.home
        return session_home(header) / "workspace"

    @property
    def has_history(self) -> bool:
        """Whether something was said since the session was created or reset."""
        return self.store.has_history()

    def forget_thread(self) -> None:
        """Note that the session has no native thread."""
        _, revision = self.store.binding
        self.store.bind(None, revision=revision, changes=[HeldChange(do="clear")])

    def settle_open_sittings(self) -> None:
        """Settle every sitting whose holder was killed, from its recorded frames."""
        for sitting in self.store.sittings():
            if sitting.state is SittingState.OPEN:
                self._settle(sitting)

    def _settle(self, sitting: Sitting) -> None:
        fold = SittingFold(sitting, before=self.store.binding[0])
        for turn in recorded_turns(self.root, sitting, fold):
            self.store.settle(turn, sitting=sitting)
        self.store.note_recorded_commits(fold.commits.values())
        self.bind_thread(fold)
        if sitting.is_ephemeral:
            self.forget_thread()
        for stored in self.store.turns():
            if stored.sitting == sitting.n and stored.state is TurnState.ADMITTED:
                unrecorded = RecordedTurn(
                    id=stored.id,
                    kind=stored.kind,
                    asked_at_ms=stored.asked_at_ms,
                    ending=replace(NOT_ENDED, detail="its record does not exist any more"),
                    messages=(),
                    thread=None,
                )
                self.store.settle(unrecorded, sitting=sitting)
        self.store.close_sitting(sitting)

    def bind_thread(self, fold: SittingFold) -> None:
        """Note the native thread of a sitting and what it holds, as far as that is not noted yet."""
        binding, revision = self.store.binding
        changes, now = fold.changes, fold.binding
        if changes or now != binding:
            self.store.bind(now, revision=revision, changes=changes)
            fold.drop_changes(len(changes))


def attempt_paths(root: RootPaths, sitting: Sitting) -> AttemptPaths:
    """Return the folder with the evidence of a sitting, which may have been deleted."""
    trial, _, n = sitting.attempt_id.rpartition(".")
    return root.run(sitting.run_id).attempt(TrialId(trial), n=int(n))


def recorded_turns(root: RootPaths, sitting: Sitting, fold: SittingFold) -> Iterator[RecordedTurn]:
    """Yield the turns that the record of a sitting shows, as far as it can be read."""
    yield from turns_in(read_rows(attempt_paths(root, sitting).frames, Row), sitting, fold)


def turns_in(rows: Iterable[Row], sitting: Sitting, fold: SittingFold) -> Iterator[RecordedTurn]:
    """Fold the rows of a sitting's record into its turns."""
    normalizer = normalizer_of(runtime_by_id(sitting.runtime_id))
    for row in rows:
        for event in normalizer.feed(row):
            if (turn := fold.feed(event)) is not None:
                yield turn
    if (turn := fold.finish()) is not None:
        yield turn


def session_paths(root: RootPaths, key: str) -> SessionPaths:
    """Return the folder of a session, which may not exist.

    Raises InputError for an invalid id, and EvidenceError for a folder of another layout.
    """
    if not is_valid_name(key):
        what = f"{key!r} is not a valid id: it begins with a letter or digit, and has only these and . _ @ + = -"
        raise InputError("session.id", what, key="id")
    paths = root.session(SessionKey(key))
    if paths.has_old_layout:
        raise EvidenceError("session.layout", "a run of conversations, which is no session", file=str(paths.folder))
    return paths


def find_session(root: RootPaths, key: str) -> SessionPaths:
    """Return the folder of a session. Raises as `session_paths`, and InputError if there is no such session."""
    paths = session_paths(root, key)
    if not paths.header.is_file():
        suggestion = suggest_nearest(key, [each.folder.name for each in root.sessions()])
        what = f"there is no session {key!r} under {root.folder}"
        raise InputError("session.unknown", what, key="id", suggestion=suggestion)
    return paths


@contextmanager
def hold_session_folder(paths: SessionPaths) -> Iterator[None]:
    """Hold a session. Raises MachineError `session.held` at once if another process holds it."""
    with hold_folder(paths.folder, refusal=lambda owner: _held(paths.folder.name, owner)):
        yield


@contextmanager
def open_kept_session(root: RootPaths, key: str, *, clock: Clock, must_exist: bool = False) -> Iterator[KeptSession]:
    """Hold a session, create it if it does not exist, and settle what a killed holder left open.

    Raises MachineError `session.held` at once if another process holds it, InputError for an invalid id, EvidenceError
    if its files are damaged.
    """
    paths = find_session(root, key) if must_exist else session_paths(root, key)
    with open_session_at(paths, root, clock=clock) as kept:
        yield kept


@contextmanager
def open_session_at(paths: SessionPaths, root: RootPaths, *, clock: Clock) -> Iterator[KeptSession]:
    """Hold the session in a folder, which may be elsewhere than the sessions of `root`, where its evidence is.

    As `open_kept_session` otherwise. The id of a new session is the name of its folder. A new session is removed if
    its first opening is refused as bad input.
    """
    paths.create()
    with hold_session_folder(paths):
        is_new = not paths.header.is_file()
        if not is_new:
            refuse_missing(paths.store)
        with open_store(paths.store) as store:
            if not is_new:
                header = read_header(paths)
            elif store.sittings():
                # Its home is not known without the header.
                raise _no_header(paths)
            else:
                # New, or its creation was cut off: the header is written last.
                header = create_header(paths, clock=clock)
            kept = KeptSession(root, paths, header, store)
            kept.settle_open_sittings()
            try:
                yield kept
            except InputError:
                kept.is_refused = True
                raise
            finally:
                if is_new and kept.is_refused:
                    for folder in filter(Path.exists, (kept.home, paths.folder)):
                        remove(folder)


def remove_store(paths: SessionPaths) -> None:
    """Remove the store of a session, with the files that SQLite keeps beside it. Raises MachineError."""
    try:
        for file in paths.folder.glob(f"{paths.store.name}*"):
            file.unlink()
    except OSError as error:
        raise disk_error(error, path=paths.store) from error


def remove_unused_store(paths: SessionPaths) -> None:
    """Remove a store without a header, left by a creation that was cut off.

    Raises EvidenceError if it has sittings: the header of a session was lost, and with it the place of its home.
    """
    if not paths.store.exists():
        return
    with open_store(paths.store) as store:
        if store.sittings():
            raise _no_header(paths)
    remove_store(paths)


def _no_header(paths: SessionPaths) -> EvidenceError:
    return EvidenceError("evidence.missing-file", "it does not exist", file=str(paths.header))


def create_header(paths: SessionPaths, *, clock: Clock, ancestors: tuple[Ancestor, ...] = ()) -> SessionHeader:
    """Write the header of a new session, or of a fork."""
    key = SessionKey(paths.folder.name)
    header = SessionHeader(
        id=key,
        created_at_ms=clock.wall_ms(),
        home=f"{key}-{secrets.token_hex(6)}",
        ancestors=ancestors,
    )
    write_artifact(paths.header, header, redactor=None)
    return header


def read_header(paths: SessionPaths) -> SessionHeader:
    """Read the header of a session. Raises EvidenceError if it cannot be read."""
    try:
        return read_artifact(paths.header, SessionHeader)
    except EvidenceError as error:
        is_damage = error.code not in ("evidence.version", "evidence.missing-file")
        code = "session.header" if is_damage else error.code
        raise EvidenceError(code, error.what, file=str(paths.header)) from error


def _held(key: str, owner: ProcessIdentity | None) -> MachineError:
    by = "another process" if owner is None else f"process {owner.pid}"
    todo = "Wait until it is closed there, or use another id."
    return MachineError("session.held", f"the session {key} is open in {by}", suggestion=todo)
