import os
from pathlib import Path

import anyio
import pytest

from proctor.contain.identity import ProcessIdentity, boot_id, identify
from proctor.contain.intent import Intent, open_intents, owner_folders, read_intents, take_lock
from proctor.errors import MachineError


def us() -> ProcessIdentity:
    identity = identify(os.getpid())
    assert identity is not None
    return identity


def test_an_intent_is_on_disk_before_the_spawn_learns_its_pids_after_and_is_gone_when_settled(tmp_path: Path) -> None:
    async def main() -> None:
        async with open_intents(tmp_path / "a/spawns") as book:
            intent = book.declare("m", argv=["cat", "-u"])
            declared = Intent(marker="m", argv=("cat", "-u"), boot_id=boot_id())
            assert read_intents(book.folder) == [declared]

            book.identify(intent, wrapper=us(), agent=None)
            assert read_intents(book.folder) == [
                Intent(marker="m", argv=("cat", "-u"), boot_id=boot_id(), wrapper=us())
            ]

            book.settle("m")
            assert read_intents(book.folder) == []

    anyio.run(main)
    assert owner_folders(tmp_path / "a/spawns") == []


def test_what_is_unsettled_when_its_owner_ends_stays_for_a_reaper_and_is_free(tmp_path: Path) -> None:
    async def main() -> None:
        async with open_intents(tmp_path) as book:
            book.declare("m", argv=["cat"])

    anyio.run(main)
    [folder] = owner_folders(tmp_path)
    assert [each.marker for each in read_intents(folder)] == ["m"]
    lock = take_lock(folder)
    assert lock is not None
    os.close(lock)


def test_a_link_to_a_folder_with_a_lock_is_no_owner(tmp_path: Path) -> None:
    spawns, elsewhere = tmp_path / "spawns", tmp_path / "elsewhere"
    spawns.mkdir()
    elsewhere.mkdir()
    (elsewhere / "lock").touch()
    (spawns / "1-a").symlink_to(elsewhere)
    assert owner_folders(spawns) == []


def test_a_live_owners_folder_is_locked_and_private(tmp_path: Path) -> None:
    async def main() -> None:
        async with open_intents(tmp_path / "spawns"), open_intents(tmp_path / "spawns"):
            folders = owner_folders(tmp_path / "spawns")
            assert len(folders) == 2
            assert [take_lock(each) for each in folders] == [None, None]
            assert {each.stat().st_mode & 0o777 for each in folders} == {0o700}

    anyio.run(main)


def test_an_error_inside_the_block_comes_out_as_it_is(tmp_path: Path) -> None:
    async def main() -> None:
        async with open_intents(tmp_path):
            raise OSError("the caller's own")

    with pytest.raises(OSError, match="the caller's own"):
        anyio.run(main)


def test_an_argv_that_is_no_text_is_kept_legibly(tmp_path: Path) -> None:
    async def main() -> None:
        async with open_intents(tmp_path) as book:
            assert book.declare("m", argv=[os.fsdecode(b"a\xff")]).argv == ("a\N{REPLACEMENT CHARACTER}",)
            book.settle("m")

    anyio.run(main)


def test_of_a_torn_intent_the_marker_is_known_by_the_files_name(tmp_path: Path) -> None:
    (tmp_path / "m.json").write_bytes(b'{"marker":"m"')

    assert read_intents(tmp_path) == [Intent(marker="m", argv=(), boot_id="")]


def test_a_marker_is_declared_once(tmp_path: Path) -> None:
    async def main() -> None:
        async with open_intents(tmp_path) as book:
            book.declare("m", argv=["cat"])
            with pytest.raises(MachineError):
                book.declare("m", argv=["cat"])
            assert [each.marker for each in read_intents(book.folder)] == ["m"]

    anyio.run(main)


def test_a_folder_that_cannot_be_had_is_told_with_its_path(tmp_path: Path) -> None:
    async def main() -> None:
        async with open_intents(tmp_path / "file/spawns"):
            pass

    (tmp_path / "file").write_text("")
    with pytest.raises(MachineError) as refused:
        anyio.run(main)
    assert (refused.value.code, refused.value.file) == ("machine.unwritable", str(tmp_path / "file/spawns"))


def test_a_folder_taken_away_meanwhile_is_told_before_anything_is_spawned(tmp_path: Path) -> None:
    async def main() -> None:
        async with open_intents(tmp_path) as book:
            (book.folder / "lock").unlink()
            book.folder.rmdir()
            with pytest.raises(MachineError) as refused:
                book.declare("m", argv=["cat"])
            assert refused.value.code == "machine.unwritable"

    anyio.run(main)
