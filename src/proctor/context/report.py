"""What a reader sees of the sessions under an evidence root, also while another process holds them."""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path

import msgspec

from proctor.contain.identity import is_alive
from proctor.contain.intent import LOCK
from proctor.context.kept_session import attempt_paths, find_session, read_header, session_home
from proctor.context.model import (
    Binding,
    SessionHeader,
    SessionSettings,
    SessionSetup,
    SessionTurn,
    SettingName,
    Sitting,
    TurnState,
)
from proctor.context.store import SessionStore, read_store
from proctor.errors import EvidenceError, MachineError
from proctor.event.message import Message
from proctor.event.row import Direction, Row, TurnWanted
from proctor.event.supervisor_events import decode_supervisor_row
from proctor.evidence.artifacts import AttemptRecord
from proctor.evidence.layout import RootPaths, SessionPaths
from proctor.evidence.owner_lock import owner_of
from proctor.evidence.reader import read_artifact, read_rows
from proctor.ids import AttemptId, EntryId, RunId, RuntimeId, SessionKey


class SessionSummary(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One session in a list."""

    id: SessionKey
    """Id of the session."""
    created_at_ms: int | None = None
    """Wall-clock time when it was created, in milliseconds since the epoch. Null if its header cannot be read."""
    forked_from: SessionKey | None = None
    """Id of the session that it was forked from."""
    runtime_id: RuntimeId | None = None
    """Runtime of the last sitting. Null before the first."""
    sittings: int = 0
    """Number of sittings."""
    turns: int = 0
    """Number of turns that completed."""
    discarded: int = 0
    """Number of turns that did not complete."""
    unsettled: int = 0
    """Number of turns whose end is not known yet. The next opening settles them from the record."""
    degraded: int = 0
    """Number of completed turns to which the context engine did not apply, or not in full."""
    uncommitted: int = 0
    """Number of completed turns that the context engine does not have."""
    last_asked_at_ms: int | None = None
    """Wall-clock time of the last request, in milliseconds since the epoch. Null before the first."""
    held_by: int | None = None
    """Process that has it open. Null if none has."""
    problem: str | None = None
    """Why it cannot be read. Null if it can."""

    @property
    def is_sound(self) -> bool:
        """Whether every completed turn had its context and is committed, and no turn was cut off."""
        is_cut_off = self.unsettled > 0 and self.held_by is None
        return not (is_cut_off or self.degraded or self.uncommitted)


class ShownTurn(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One turn with its entries."""

    turn: SessionTurn
    """The turn."""
    messages: tuple[Message, ...]
    """Its entries, oldest first. Empty for a turn that did not complete."""
    asked: str | None = None
    """The prompt of a turn without entries, from the record. Null for others, and if the record is gone."""


class SessionReport(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A session with its turns."""

    summary: SessionSummary
    """The session as in a list."""
    header: SessionHeader
    """What it is from its creation on."""
    history_after: int
    """Number of the last turn before the last reset. The turns after it are the session's history."""
    settings: SessionSettings | None
    """How the last sitting was opened. Null before the first."""
    lost: tuple[SettingName, ...]
    """Settings that were lost when the store was rebuilt. The next opening must name them."""
    binding: Binding | None
    """The native thread. Null if it has no thread."""
    home: str
    """Folder with the agents' homes and the workspace of the session. It is not evidence, and not redacted."""
    has_home: bool
    """Whether that folder exists."""
    sittings: tuple[Sitting, ...]
    """Its sittings, oldest first."""
    turns: tuple[ShownTurn, ...]
    """Its turns, oldest first."""


class FoundEntry(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """An entry that a search found."""

    turn: int
    """Number of the turn."""
    message: Message
    """The entry."""


def list_sessions(root: RootPaths) -> tuple[SessionSummary, ...]:
    """Return all sessions, the one that was asked last first. One that cannot be read has a `problem`."""
    found = [_summarize(paths) for paths in root.sessions()]
    found.sort(key=lambda each: (each.last_asked_at_ms or each.created_at_ms or 0, each.id), reverse=True)
    return tuple(found)


def report_session(root: RootPaths, key: str) -> SessionReport:
    """Return a session with its turns. Raises InputError if it does not exist, EvidenceError if it is damaged."""
    paths = find_session(root, key)
    header = read_header(paths)
    home = session_home(header)
    with read_store(paths.store) as store:
        setup, sittings, turns = store.setup, store.sittings(), store.turns()
        asked = _recorded_prompts(root, sittings, turns)
        return SessionReport(
            summary=_read_summary(paths, header, store),
            header=header,
            history_after=setup.history_after,
            settings=setup.settings,
            lost=setup.lost,
            binding=store.binding[0],
            home=str(home),
            has_home=home.is_dir(),
            sittings=sittings,
            turns=tuple(
                ShownTurn(
                    turn=turn,
                    messages=tuple(store.messages(turn=turn.n)) if turn.entries else (),
                    asked=asked.get(turn.id),
                )
                for turn in turns
            ),
        )


def _recorded_prompts(
    root: RootPaths, sittings: Iterable[Sitting], turns: Iterable[SessionTurn]
) -> Mapping[EntryId, str]:
    """Return the prompts of the turns that did not complete: the store has no entries of them."""
    sought: dict[int, dict[int, EntryId]] = {}
    for turn in turns:
        if turn.kind == "prompt" and not turn.state.is_completed:
            sought.setdefault(turn.sitting, {})[int(turn.id.rpartition("#")[2])] = turn.id
    found: dict[EntryId, str] = {}
    for sitting in sittings:
        frames = sought.get(sitting.n, {})
        for row in read_rows(attempt_paths(root, sitting).frames, Row) if frames else ():
            wanted = decode_supervisor_row(row) if row.seq in frames and row.dir is Direction.SELF else None
            if isinstance(wanted, TurnWanted) and wanted.text is not None:
                found[frames[row.seq]] = wanted.text
    return found


def setup_of(root: RootPaths, key: str) -> SessionSetup:
    """Return how a session was opened last. Raises as `report_session`."""
    with read_store(find_session(root, key).store) as store:
        return store.setup


def search_session(root: RootPaths, key: str, query: str, *, most: int) -> tuple[FoundEntry, ...]:
    """Return the entries that have every word of the query, newest first. Raises as `report_session`."""
    with read_store(find_session(root, key).store) as store:
        return tuple(FoundEntry(turn=turn, message=message) for turn, message in store.search(query, most=most))


def sessions_by_run(root: RootPaths) -> dict[RunId, SessionKey]:
    """Return the runs in which the sessions under an evidence root have their record, each with one of its sessions."""
    return {run_id: key for (run_id, _), key in sessions_by_sitting(root).items()}


def sessions_by_sitting(
    root: RootPaths, *, other_than: SessionKey | None = None
) -> dict[tuple[RunId, AttemptId], SessionKey]:
    """Return the sittings of the sessions under an evidence root, each with one of its sessions."""
    found: dict[tuple[RunId, AttemptId], SessionKey] = {}
    for paths in root.sessions():
        key = SessionKey(paths.folder.name)
        if key != other_than:
            found |= dict.fromkeys(_sittings_of(root, paths, key), key)
    return found


def _sittings_of(root: RootPaths, paths: SessionPaths, key: SessionKey) -> Iterable[tuple[RunId, AttemptId]]:
    try:
        with read_store(paths.store) as store:
            return [(sitting.run_id, sitting.attempt_id) for sitting in store.sittings()]
    except (EvidenceError, MachineError):
        return _sittings_that_name(root, paths, key)


def _sittings_that_name(root: RootPaths, paths: SessionPaths, key: SessionKey) -> Iterator[tuple[RunId, AttemptId]]:
    """Yield the sittings from which a damaged store would be rebuilt."""
    keys = {key}
    with suppress(EvidenceError):
        keys |= {each.session for each in read_header(paths).ancestors}
    for run in root.runs():
        for attempt in run.attempts():
            with suppress(EvidenceError):
                record = read_artifact(attempt.attempt, AttemptRecord)
                if record.sitting is not None and record.sitting.session in keys:
                    yield record.run_id, record.attempt_id


def _summarize(paths: SessionPaths) -> SessionSummary:
    key = SessionKey(paths.folder.name)
    if paths.has_old_layout:
        return SessionSummary(id=key, problem="a run of conversations, which is no session")
    try:
        header = read_header(paths)
        with read_store(paths.store) as store:
            return _read_summary(paths, header, store)
    except (EvidenceError, MachineError) as error:
        return SessionSummary(id=key, problem=error.what)


def _read_summary(paths: SessionPaths, header: SessionHeader, store: SessionStore) -> SessionSummary:
    sittings, turns = store.sittings(), store.turns()
    states = [turn.state for turn in turns]
    return SessionSummary(
        id=header.id,
        created_at_ms=header.created_at_ms,
        forked_from=header.forked_from,
        runtime_id=sittings[-1].runtime_id if sittings else None,
        sittings=len(sittings),
        turns=sum(state.is_completed for state in states),
        discarded=states.count(TurnState.DISCARDED),
        unsettled=states.count(TurnState.ADMITTED),
        degraded=sum(turn.is_degraded for turn in turns),
        uncommitted=sum(turn.is_uncommitted for turn in turns),
        last_asked_at_ms=turns[-1].asked_at_ms if turns else None,
        held_by=holder_of(paths.folder),
    )


def holder_of(folder: Path) -> int | None:
    """Return the process that has a session open; None if none has."""
    owner = owner_of(folder) if (folder / LOCK).is_file() else None
    return owner.pid if owner is not None and is_alive(owner) else None
