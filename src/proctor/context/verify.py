"""Compare a session with the record of its sittings, check its engines, and rebuild its store."""

import sys
from collections.abc import Callable, Iterable, Iterator
from itertools import zip_longest
from pathlib import Path
from typing import Final, get_args

import msgspec
from msgspec.structs import replace

from proctor.context.kept_session import (
    attempt_paths,
    find_session,
    hold_session_folder,
    read_header,
    turns_in,
)
from proctor.context.model import (
    RecordedTurn,
    SessionHeader,
    SessionSettings,
    SessionSetup,
    SessionTurn,
    SettingName,
    Sitting,
    SittingState,
    TurnState,
)
from proctor.context.store import SessionStore, open_store, read_store, turn_row
from proctor.context.store_check import check_store
from proctor.context.thread_fold import SittingFold
from proctor.errors import EvidenceError, Exit, MachineError, disk_error
from proctor.event.message import Message
from proctor.event.row import Row
from proctor.evidence.artifacts import AttemptRecord, RunnerRef, SittingRef
from proctor.evidence.disk import make_folder
from proctor.evidence.layout import AttemptPaths, RootPaths, SessionPaths
from proctor.evidence.reader import Finding, read_artifact, read_rows
from proctor.ids import ProcessId, SessionKey
from proctor.spec.choices import Isolation
from proctor.spec.context_settings import ContextSettings
from proctor.workspace.remove import remove

UNVERIFIABLE = "session.no-evidence"
DIFFERENT = "session.differs"

_FACTS: Final = ("profile", "credentialInput")

_UNUSABLE: Final = frozenset({"engine.damaged", "engine.newer"})
"""What helps against these problems of an engine's state is to make it again."""


class SessionVerification(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The comparison of a session with the record of its sittings."""

    id: SessionKey
    """Id of the session."""
    exit: int
    """Exit code: 0 if they agree, 5 if not, 4 if the record of a sitting was deleted."""
    sittings: int
    """Number of sittings."""
    turns: int
    """Number of turns that were compared."""
    entries: int
    """Number of entries that were compared."""
    findings: tuple[Finding, ...]
    """What differs, or cannot be compared."""
    is_rebuilt: bool = False
    """Whether the store was rebuilt from the record before the comparison."""
    set_aside: tuple[str, ...] = ()
    """Ids of the context engines whose state was set aside, so that they are given the history again."""
    kept_as: str | None = None
    """File that the old store is kept as. Null if there was none, or if the store was not rebuilt."""
    lost: tuple[SettingName, ...] = ()
    """Settings that were lost when the store was rebuilt. The next opening must name them."""


CheckEngine = Callable[[SessionPaths, str], Finding | None]
"""Returns what is wrong with the state of an engine, by its id. None if nothing is, or it cannot be checked."""


def verify_session(root: RootPaths, key: str, *, check_engine: CheckEngine | None = None) -> SessionVerification:
    """Fold the record of every sitting again, compare each turn and each entry, and check the state of the engines.

    Raises InputError if there is no such session, EvidenceError if its header or its store is damaged.
    """
    paths = find_session(root, key)
    read_header(paths)
    wrong_words = check_store(paths.store)
    findings: list[Finding] = []
    turns = entries = 0
    with read_store(paths.store) as store:
        sittings, stored = store.sittings(), store.turns()
        findings += (
            Finding(code=DIFFERENT, file=str(paths.store), detail=detail)
            for detail in _find_strays(sittings, stored, store)
        )
        for sitting in sittings:
            own = [turn for turn in stored if turn.sitting == sitting.n]
            frames = attempt_paths(root, sitting).frames
            where = f"{sitting.run_id}/{sitting.attempt_id}"
            if not frames.is_file():
                detail = f"the record of sitting {sitting.n} does not exist, so its turns cannot be compared"
                findings.append(Finding(code=UNVERIFIABLE, file=where, detail=detail))
                continue
            reading = read_rows(frames, Row)
            recorded = list(turns_in(reading, sitting, SittingFold(sitting, before=None)))
            # The last line of a killed sitting may be torn.
            findings += [each for each in reading.findings if each.code != "evidence.torn"]
            findings += (
                Finding(code=DIFFERENT, file=where, detail=detail)
                for detail in _compare_turns(own, recorded, store, sitting=sitting)
            )
            turns += len(own)
            entries += sum(turn.entries for turn in own)
    # The words of an entry that was edited are not those of the index either.
    if all(each.code == UNVERIFIABLE for each in findings):
        findings += (Finding(code=DIFFERENT, file=str(paths.store), detail=detail) for detail in wrong_words)
    if check_engine is not None:
        findings += (found for id_ in paths.engine_ids() if (found := check_engine(paths, id_)) is not None)
    return SessionVerification(
        id=SessionKey(key),
        exit=_exit(findings),
        sittings=len(sittings),
        turns=turns,
        entries=entries,
        findings=tuple(findings),
    )


def _exit(findings: Iterable[Finding]) -> int:
    codes = {each.code for each in findings}
    if codes - {UNVERIFIABLE}:
        return Exit.EVIDENCE
    return Exit.UNVERIFIED if codes else Exit.OK


def _find_strays(sittings: Iterable[Sitting], stored: Iterable[SessionTurn], store: SessionStore) -> Iterator[str]:
    """Yield the turns and entries that no record is compared with."""
    numbers = {each.n for each in sittings}
    for turn in stored:
        if turn.sitting not in numbers:
            yield f"turn {turn.n} belongs to no sitting"
    for n, entry in store.entries_without_turn():
        yield f"the entry {entry} belongs to turn {n}, which did not complete or does not exist"


def _compare_turns(
    stored: Iterable[SessionTurn], recorded: Iterable[RecordedTurn], store: SessionStore, *, sitting: Sitting
) -> Iterator[str]:
    # The holder stores a turn when it is over, and a killed one has not. A fork took over only the first turns.
    is_open = sitting.state is SittingState.OPEN or sitting.is_foreign
    for kept, shown in zip_longest(stored, recorded):
        if kept is None:
            if not is_open:
                yield f"the session lacks the turn {shown.id}"
        elif shown is None or kept.id != shown.id:
            yield f"turn {kept.n} ({kept.id}) is not in the record"
        elif kept.state is TurnState.ADMITTED:
            if not is_open:
                yield f"turn {kept.n} has no end, but its sitting is closed"
        else:
            # What the engine has of it became known later than the record.
            row = turn_row(shown, kept.n, shown.state, sitting)
            if kept.state.is_completed != row.state.is_completed or _as_recorded(kept) != _as_recorded(row):
                yield f"turn {kept.n} ended differently in the record"
            yield from _compare_messages(kept, shown, tuple(store.messages(turn=kept.n)))


def _as_recorded(turn: SessionTurn) -> SessionTurn:
    context = None if turn.context is None else replace(turn.context, commit="none", commit_detail=None)
    return replace(turn, state=TurnState.ADMITTED, context=context)


def _compare_messages(kept: SessionTurn, shown: RecordedTurn, messages: tuple[Message, ...]) -> Iterator[str]:
    expected = shown.messages if shown.state is TurnState.ACCEPTED else ()
    for mirrored, folded in zip_longest(messages, expected):
        if mirrored == folded:
            continue
        if mirrored is None:
            yield f"turn {kept.n} lacks the entry {folded.id}"
        elif folded is None:
            yield f"turn {kept.n} has the entry {mirrored.id}, which is not in the record"
        else:
            yield f"turn {kept.n}: the entry {mirrored.id} differs from the record"


# ── making the store and the state of engines again ──


def repair_session(root: RootPaths, key: str, *, check_engine: CheckEngine) -> SessionVerification:
    """Verify a session, and make again what is damaged or differs. Returns how it then agrees.

    The store is rebuilt from the record. The state of an engine is set aside, and the next turn gives the engine
    the whole history. Raises as `rebuild_session`.
    """
    paths = find_session(root, key)
    checked = {id_: check_engine(paths, id_) for id_ in paths.engine_ids()}
    damaged = [id_ for id_, problem in checked.items() if problem is not None and problem.code in _UNUSABLE]
    try:
        found = verify_session(root, key)
    except EvidenceError:
        found = None
    rebuilt = rebuild_session(root, key) if found is None or found.exit == Exit.EVIDENCE else None
    if damaged:
        with hold_session_folder(paths), open_store(paths.store) as store:
            for id_ in damaged:
                _set_aside(paths, id_)
                # It gets the whole history, so that it can take in what it refused.
                store.queue_blocked(id_)
    if found is None or rebuilt is not None or damaged:
        found = verify_session(root, key, check_engine=check_engine)
    if rebuilt is not None:
        found = replace(found, is_rebuilt=True, kept_as=rebuilt.kept_as, lost=rebuilt.lost)
    return replace(found, set_aside=tuple(damaged))


def _set_aside(paths: SessionPaths, engine: str) -> None:
    old = paths.old_engines / engine
    make_folder(paths.old_engines, exist_ok=True)
    try:
        remove(old)
        paths.engine(engine).rename(old)
    except OSError as error:
        raise disk_error(error, path=old) from error


def rebuild_session(root: RootPaths, key: str) -> SessionVerification:
    """Rebuild the store of a session from the record of its sittings, and verify it. The old one is kept.

    How the last sitting was opened is taken from the old store. If that cannot be read, the record shows a part of it,
    and the next opening must name the rest. A reset after the last sitting is in no record, and lost. Raises InputError
    if there is no such session, EvidenceError if its header is damaged, MachineError if another process holds it.
    """
    paths = find_session(root, key)
    header = read_header(paths)
    with hold_session_folder(paths):
        draft, kept = paths.store.with_name("session.db.new"), paths.store.with_name("session.db.old")
        draft.unlink(missing_ok=True)
        had_store = paths.store.exists()
        with open_store(draft) as store:
            _refill(store, root, header)
            # Without a store, an earlier rebuild may have been cut off after the old one was moved.
            old = _read_setup(paths.store if had_store else kept) or _setup_of_record(root, store.sittings())
            store.write_setup(replace(store.setup, settings=old.settings, lost=old.lost))
        # The log holds the last changes of a store whose holder was killed, and must not be applied to the new one.
        for suffix in ("-wal", "-shm", ""):
            file = paths.store.with_name(f"{paths.store.name}{suffix}")
            if file.exists():
                file.replace(kept.with_name(f"{kept.name}{suffix}"))
        draft.replace(paths.store)
    kept_as = str(kept) if had_store else None
    return replace(verify_session(root, key), is_rebuilt=True, kept_as=kept_as, lost=old.lost)


def _read_setup(file: Path) -> SessionSetup | None:
    try:
        with read_store(file) as store:
            return store.setup
    except (EvidenceError, MachineError):
        return None


def _setup_of_record(root: RootPaths, sittings: tuple[Sitting, ...]) -> SessionSetup:
    """Return how the last sitting was opened, as far as its record shows that."""
    if not sittings:
        return SessionSetup(lost=get_args(SettingName))
    paths = attempt_paths(root, sittings[-1])
    record = read_artifact(paths.attempt, AttemptRecord)
    lost: list[SettingName] = ["workspace", "model"]
    settings = SessionSettings(
        runtime=record.runtime_id, sandbox=record.sandbox.value, approvals=record.approvals.value
    )
    # The record has the name of the engine, and not its options.
    if record.context is not None:
        lost.append("engine")
    else:
        settings = replace(settings, context=ContextSettings(engine="none"))
    profile, login = _read_facts(paths)
    if profile is None:
        lost.append("profile")
    else:
        settings = replace(settings, profile=profile)
    if login is not None:
        settings = replace(settings, login=login)
    elif not record.is_scripted:
        lost.append("login")
    return SessionSetup(settings=settings, lost=tuple(lost))


def _read_facts(paths: AttemptPaths) -> tuple[str | None, str | None]:
    """Return the profile and the login; None for what the record of a killed sitting does not have."""
    try:
        facts = read_artifact(paths.runner_ref, RunnerRef).facts
    except EvidenceError:
        return None, None
    profile, credential = (None if (fact := facts.get(name)) is None else fact.value for name in _FACTS)
    login = credential.get("login") if isinstance(credential, dict) else None
    return (
        profile if isinstance(profile, str) else None,
        login if isinstance(login, str) else None,
    )


def _refill(store: SessionStore, root: RootPaths, header: SessionHeader) -> None:
    turns_of = _turns_by_session(header)
    for ref, sitting in _find_sittings(root, header):
        fold = SittingFold(sitting, before=store.binding[0])
        store.begin_sitting(sitting)
        for turn in turns_in(read_rows(attempt_paths(root, sitting).frames, Row), sitting, fold):
            if store.next_turn() <= turns_of[ref.session]:
                store.settle(turn, sitting=sitting)
        store.note_recorded_commits(fold.commits.values())
        store.close_sitting(sitting)
        store.write_setup(SessionSetup(history_after=ref.history_after))
        if not sitting.is_foreign:
            store.bind(fold.binding, revision=store.binding[1], changes=fold.changes)


def _turns_by_session(header: SessionHeader) -> dict[SessionKey, int]:
    """Return how many of the first turns come from this session and from each that it was forked from."""
    return {**{each.session: each.turns for each in header.ancestors}, header.id: sys.maxsize}


def _find_sittings(root: RootPaths, header: SessionHeader) -> list[tuple[SittingRef, Sitting]]:
    """Return the sittings of a session, and of those that it was forked from up to then, oldest first."""
    turns_of = _turns_by_session(header)
    found: dict[int, tuple[SittingRef, Sitting]] = {}
    for run in root.runs():
        for paths in run.attempts():
            try:
                record = read_artifact(paths.attempt, AttemptRecord)
            except EvidenceError:
                continue
            ref = record.sitting
            if ref is not None and ref.first_turn <= turns_of.get(ref.session, 0):
                found[ref.n] = ref, _sitting_of(record, ref, paths, is_foreign=ref.session != header.id)
    return [found[n] for n in sorted(found)]


def _sitting_of(record: AttemptRecord, ref: SittingRef, paths: AttemptPaths, *, is_foreign: bool) -> Sitting:
    return Sitting(
        n=ref.n,
        run_id=record.run_id,
        attempt_id=record.attempt_id,
        runtime_id=record.runtime_id,
        began_at_ms=record.created_at_ms,
        state=SittingState.OPEN,
        is_import=ref.is_import,
        tools=ref.tools,
        process=_process_of(paths) if record.isolation is Isolation.SHARED else None,
        is_ephemeral=ref.is_ephemeral,
        is_foreign=is_foreign,
    )


def _process_of(paths: AttemptPaths) -> ProcessId | None:
    """Return the process of a pool; None if the sitting was killed before that was written."""
    try:
        return read_artifact(paths.runner_ref, RunnerRef).process_id
    except EvidenceError:
        return None
