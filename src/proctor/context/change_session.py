"""Reset, fork and delete a session that is not open."""

import fnmatch
import shutil
import sqlite3
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path

import msgspec
from msgspec.structs import replace

from proctor.clock import Clock
from proctor.context.kept_session import (
    AGENT_HOMES,
    KeptSession,
    create_header,
    find_session,
    hold_session_folder,
    open_kept_session,
    read_header,
    remove_store,
    remove_unused_store,
    session_home,
    session_paths,
)
from proctor.context.model import Ancestor, SessionSettings, Sitting
from proctor.context.report import sessions_by_sitting
from proctor.context.store import SessionStore, open_store, read_store, refusing_damage
from proctor.errors import EvidenceError, InputError, MachineError, disk_error
from proctor.evidence.layout import RootPaths, SessionPaths
from proctor.ids import AttemptId, RunId, RuntimeId, SessionKey
from proctor.runtime.registry import runtime_by_id
from proctor.workspace.remove import remove


class SessionRemoval(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What the deletion of a session removed, and what it could not remove."""

    id: SessionKey
    """Id of the session."""
    removed: tuple[str, ...]
    """Folders that were removed."""
    left: tuple[str, ...]
    """What is left, and why."""
    failed: tuple[str, ...] = ()
    """Folders that could not be removed, and what a context engine may keep outside of them, and why."""


def create_session(root: RootPaths, key: str, *, settings: SessionSettings, clock: Clock) -> None:
    """Create a session in which nothing was said yet. `settings` say how it is opened.

    Raises InputError if the id is taken or invalid.
    """
    paths = session_paths(root, key)
    if paths.header.exists():
        raise _exists(key)
    paths.create()
    with hold_session_folder(paths):
        # Checked again under the lock: another process may have created it meanwhile.
        if paths.header.exists():
            raise _exists(key)
        remove_unused_store(paths)
        with open_store(paths.store) as store:
            store.write_setup(replace(store.setup, settings=settings))
        create_header(paths, clock=clock)


def _exists(key: str) -> InputError:
    return InputError("session.exists", f"there is a session {key!r} already", key="id")


Forget = Callable[[SessionPaths, SessionKey, SessionSettings | None], list[str]]
"""Has the engines of a session forget it. Returns what could not be forgotten, and why."""


def reset_session(root: RootPaths, key: str, *, clock: Clock, forget: Forget | None = None) -> list[str]:
    """Begin a new history: earlier turns stay in the mirror, and the native thread is forgotten in the same change.

    What context engines know is removed. Returns what `forget` could not remove.
    """
    with open_kept_session(root, key, clock=clock, must_exist=True) as kept:
        problems = [] if forget is None else forget(kept.paths, kept.header.id, kept.store.setup.settings)
        kept.store.reset()
        remove(kept.paths.engines)
        remove(kept.paths.old_engines)
        return problems


def fork_session(root: RootPaths, key: str, new_key: str, *, clock: Clock) -> None:
    """Copy a session under another id. Each then continues without the other.

    Raises InputError if the new id is taken or invalid, MachineError if the session is open elsewhere.
    """
    with open_kept_session(root, key, clock=clock, must_exist=True) as kept:
        fork_kept(kept, new_key, clock=clock)


def fork_kept(kept: KeptSession, new_key: str, *, clock: Clock) -> None:
    """Copy a session that this process holds. No turn may be running. Raises as `fork_session`."""
    paths = session_paths(kept.root, new_key)
    if paths.header.exists():
        raise _exists(new_key)
    paths.create()
    with hold_session_folder(paths):
        # Checked again under the lock: another process may have created it meanwhile.
        if paths.header.exists():
            raise _exists(new_key)
        created = [paths.folder]
        try:
            remove_unused_store(paths)
            draft = paths.store.with_name("session.db.new")
            draft.unlink(missing_ok=True)
            with refusing_damage(draft):
                kept.store.copy_to(draft)
            # Before the session exists: a deletion of it must not remove the evidence of the other one.
            with open_store(draft) as store:
                store.take_over_sittings()
                binding, revision = store.binding
                # A thread that is not in the copied home is copied by the agent itself.
                if binding is not None and (binding.process is not None or _is_in_users_home(store)):
                    store.bind(replace(binding, is_fork=True), revision=revision)
            source = Ancestor(session=kept.header.id, turns=kept.store.next_turn() - 1)
            header = create_header(paths, clock=clock, ancestors=(*kept.header.ancestors, source))
            created.append(session_home(header))
            # After the header: a store with sittings and without a header is that of a session whose header was lost.
            draft.replace(paths.store)
            _copy_home(kept.home, session_home(header))
            if kept.pool_workspaces is not None:
                created.append(kept.workspace_of(header))
                _copy_folder(kept.workspace, kept.workspace_of(header))
        except BaseException:
            for folder in filter(Path.exists, created):
                remove(folder)
            raise


def _copy_home(source: Path, target: Path) -> None:
    """Copy the agents' homes and the workspace, without what `home_indexes` of a runtime names."""

    def left_out(folder: str, names: list[str]) -> set[str]:
        # Of the homes only: a file of the workspace may have any name.
        inside = Path(folder).relative_to(source).parts
        if len(inside) < 2 or inside[0] != AGENT_HOMES:
            return set()
        patterns: tuple[str, ...] = getattr(runtime_by_id(RuntimeId(inside[1])), "home_indexes", ())
        return {name for pattern in patterns for name in fnmatch.filter(names, pattern)}

    _copy_folder(source, target, left_out=left_out)


def _copy_folder(source: Path, target: Path, *, left_out: Callable[[str, list[str]], set[str]] | None = None) -> None:
    """Copy a folder, if it exists. Links stay links; sockets and pipes of a running agent are left out."""
    if not source.is_dir():
        return

    def copy(file: str, copied: str) -> None:
        try:
            if Path(file).is_symlink() or Path(file).is_file():
                shutil.copy2(file, copied, follow_symlinks=False)
        except OSError as error:
            # Raised as another exception, because copytree collects an OSError and continues.
            raise disk_error(error, path=copied) from error

    try:
        shutil.copytree(source, target, symlinks=True, copy_function=copy, ignore=left_out)
        target.chmod(0o700)
    except OSError as error:  # shutil.Error is one
        raise disk_error(error, path=target) from error


def delete_session(root: RootPaths, key: str, *, has_evidence: bool, forget: Forget | None = None) -> SessionRemoval:
    """Remove a session: its mirror, engine state, agents' homes and native threads, and on request its evidence.

    A session whose store is damaged can be deleted too, but then its evidence is not known. Raises InputError if there
    is no such session, MachineError if another process holds it.
    """
    paths = find_session(root, key)
    removed: list[str] = []
    left: list[str] = []
    failed: list[str] = []
    with ExitStack() as stack:
        stack.enter_context(hold_session_folder(paths))
        header = read_header(paths)
        sittings: tuple[Sitting, ...] = ()
        settings: SessionSettings | None = None
        try:
            with read_store(paths.store) as store:
                settings = store.setup.settings
                sittings, (binding, _) = store.sittings(), store.binding
                is_in_users_home = _is_in_users_home(store)
            if binding is not None and binding.process is not None:
                left.append(f"the thread {binding.thread} on {binding.runtime_id}, until the pool with it is closed")
            elif binding is not None and not (session_home(header) / AGENT_HOMES / binding.runtime_id).is_dir():
                left.append(f"the thread {binding.thread} on {binding.runtime_id}, which is not in the session's home")
            elif binding is not None and is_in_users_home:
                left.append(f"the thread {binding.thread} on {binding.runtime_id}, which is in the user's own home")
        except (EvidenceError, MachineError, sqlite3.Error) as error:
            left.append(f"what the store named, because it cannot be read: {error}")
        if forget is not None:
            failed += forget(paths, header.id, settings)
        own = tuple(each for each in sittings if not each.is_foreign)
        folders = [session_home(header)]
        if has_evidence:
            kept_runs, notes = _evidence_of(root, own, needed=sessions_by_sitting(root, other_than=header.id))
            folders += kept_runs
            left += notes
        # The session's folder is last, and in it the header, so that a deletion that is cut off can be repeated.
        for folder in (*folders, paths.folder):
            if not folder.exists():
                continue
            try:
                if folder == paths.folder:
                    remove_store(paths)
                remove(folder)
                removed.append(str(folder))
            except (OSError, MachineError) as error:
                failed.append(f"{folder}: {error.what if isinstance(error, MachineError) else error.strerror}")
    if not has_evidence and own:
        count = "1 sitting" if len(own) == 1 else f"{len(own)} sittings"
        left.append(f"the evidence of {count}, which --evidence removes")
    return SessionRemoval(id=header.id, removed=tuple(removed), left=tuple(left), failed=tuple(failed))


def _is_in_users_home(store: SessionStore) -> bool:
    """Return whether the last sitting left the native thread in the home of the agent's user."""
    settings = store.setup.settings
    return settings is not None and settings.is_users_home


def _evidence_of(
    root: RootPaths, sittings: tuple[Sitting, ...], *, needed: Mapping[tuple[RunId, AttemptId], SessionKey]
) -> tuple[list[Path], list[str]]:
    """Return the folders with the evidence of these sittings, and what must stay because other sessions need it."""
    names = {(each.run_id, each.attempt_id) for each in sittings}
    folders: list[Path] = []
    notes: list[str] = []
    for run_id in dict.fromkeys(each.run_id for each in sittings):
        run = root.run(run_id)
        if not run.folder.is_dir():
            continue
        attempts = [(each.folder, (run_id, AttemptId(each.folder.name))) for each in run.attempts()]
        own = [folder for folder, name in attempts if name in names and name not in needed]
        notes += (
            f"the evidence in {folder}, which the session {needed[name]} needs"
            for folder, name in attempts
            if name in names and name in needed
        )
        if len(own) == len(attempts):
            folders.append(run.folder)
            continue
        folders += own
        if any(name not in names for _, name in attempts):
            notes.append(f"the record of the agent process in {run.folder}, which other sessions share")
    return folders, notes
