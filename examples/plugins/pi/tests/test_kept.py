"""Stored sessions, which the agent can write: Proctor follows no link, waits for no pipe, and loses nothing."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from examples.plugins.pi.tests.real import open_pi, run

from proctor.errors import RefusedError
from proctor.event.history_item import HistoryItem
from proctor.event.model import HistoryRead, ToolEnded
from proctor.ids import ThreadId
from proctor.runtime.base import Executable
from proctor_pi import kept

THREAD = ThreadId("0198-a")
HEADER = b'{"type":"session","id":"0198-a","cwd":"/old"}\n'
PROMPT = b'{"type":"message","message":{"role":"user","content":"Hello."}}\n'
DEEP = b'{"type":"message","x":' + b"[" * 100_000 + b"]" * 100_000 + b"}\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return the registered folder of one session."""
    sessions = tmp_path / "sessions"
    sessions.mkdir()
    folder = kept.new_folder(sessions)
    kept.enter(sessions, THREAD, folder)
    return folder


def _file(folder: Path) -> Path:
    return folder / f"2026_{THREAD}.jsonl"


def test_draft_is_not_written_through_a_link(folder: Path, tmp_path: Path) -> None:
    file, foreign = _file(folder), tmp_path / "foreign"
    foreign.write_text("untouched")
    file.write_bytes(HEADER + PROMPT)
    for name in (file.with_suffix(".draft"), folder / f".{file.name}.tmp"):
        name.symlink_to(foreign)

    assert kept.move(file, Path("/new"))

    assert foreign.read_text() == "untouched"
    assert file.read_bytes() == HEADER.replace(b"/old", b"/new") + PROMPT
    assert not kept.move(file, Path("/new"))
    assert {path.name for path in folder.iterdir() if not path.is_symlink()} == {file.name}


def _link(file: Path) -> None:
    foreign = file.parents[2] / "foreign"
    foreign.write_bytes(HEADER + PROMPT)
    file.symlink_to(foreign)


def _huge(file: Path) -> None:
    file.write_bytes(HEADER)
    os.truncate(file, kept.MAX_BYTES + 1)


@pytest.mark.parametrize("leave", [os.mkfifo, _link, _huge, Path.mkdir], ids=["fifo", "link", "huge", "folder"])
def test_other_files_are_not_stored_sessions(folder: Path, leave: Callable[[Path], None]) -> None:
    leave(_file(folder))

    with pytest.raises(RefusedError, match="has no stored session"):
        kept.find(folder, THREAD)
    with pytest.raises(RefusedError, match="has no stored session"):
        kept.read(folder, THREAD)
    # As if it had been placed there after the check and before the file is opened.
    with pytest.raises(RefusedError):
        kept.move(_file(folder), Path("/new"))


def test_unreadable_lines_are_counted_and_the_others_read(folder: Path) -> None:
    _file(folder).write_bytes(HEADER + DEEP + PROMPT + b"\xff\n" + b"\n" * 3 + b'{"type":')

    assert kept.read(folder, THREAD) == (
        HistoryItem(kind="prompt", text="Hello."),
        HistoryItem(kind="other", text="lines that cannot be read: 6"),
    )


@pytest.mark.parametrize("header", [DEEP, b"\xff\n", b"[]\n", b""])
def test_session_with_unreadable_header_is_refused_unchanged(folder: Path, header: bytes) -> None:
    _file(folder).write_bytes(header + PROMPT if header else b"")

    with pytest.raises(RefusedError, match="cannot be read"):
        kept.move(_file(folder), Path("/new"))
    assert _file(folder).read_bytes() == (header + PROMPT if header else b"")


def test_thread_is_found_only_in_its_own_folder(folder: Path) -> None:
    sessions = folder.parent
    other = kept.new_folder(sessions)
    _file(other).write_bytes(HEADER)  # another agent's file under the same name

    assert kept.folder_of(sessions, THREAD) == folder
    with pytest.raises(RefusedError, match="has no stored session"):
        kept.find(folder, THREAD)
    with pytest.raises(RefusedError, match="another session"):
        kept.enter(sessions, THREAD, other)
    kept.enter(sessions, THREAD, folder)  # as on a resume
    for name in ("../foreign", "", ".", folder.name, "no-such"):
        with pytest.raises(RefusedError):
            kept.folder_of(sessions, ThreadId(name))


def test_session_cannot_write_the_stored_file_of_another(tmp_path: Path, program: Executable) -> None:
    """Run the real pi with a command that looks for every file it can write."""
    sessions = tmp_path / "home" / "sessions"
    attack = f"for file in {sessions}/*/*.jsonl; do echo >> $file && echo $file; done; ls {sessions} | wc -l"

    async def test() -> None:
        async with open_pi(tmp_path, program) as pi:
            async with pi.session({"say": "It is 4711."}, name="victim", is_persistent=True) as (session, _):
                await session.turn("Remember it.")
                victim = session.thread
            assert victim is not None
            file = kept.find(kept.folder_of(sessions, victim), victim)
            before = file.read_bytes()
            traps = f"cd {sessions}/* && for file in *.jsonl; do mkfifo 0_$file; ln -s /etc/passwd 1_$file; done"
            steps = ({"run": attack}, {"run": traps})
            async with pi.session(*steps, {"say": "-"}, name="attacker", is_persistent=True) as (session, tap):
                await session.turn("Go on.")
                attacker = session.thread
                assert attacker is not None
                own = kept.find(kept.folder_of(sessions, attacker), attacker)
                looked = tap.of(ToolEnded)[0].output
                assert looked is not None
                assert str(file) not in looked
                assert looked.splitlines()[-1] == "1"
                assert {path.name for path in own.parent.iterdir()} == {own.name, f"0_{own.name}", f"1_{own.name}"}
            assert file.read_bytes() == before
            # The attacker could damage only its own file.
            spoilt = (HistoryItem(kind="other", text="lines that cannot be read: 1"),)
            for thread, name, last in ((victim, "again", ()), (attacker, "attacker-again", spoilt)):
                async with pi.session({"say": "Yes."}, name=name, resume=thread) as (session, tap):
                    await session.turn("Which?")
                    assert session.thread == thread
                    await session.read_history()
                    [read] = tap.of(HistoryRead)
                    said = (HistoryItem(kind="prompt", text="Which?"), HistoryItem(kind="message", text="Yes."), *last)
                    assert read.items[-len(said) :] == said

    run(test)
