import json
import os
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings

from proctor.canonical import digest_bytes
from proctor.workspace.diff import diff
from proctor.workspace.snapshot import EMPTY, Entry, Snapshot, remove_leftovers, snapshot
from proctor.workspace.walk import EntryKind

from .trees import Tree, trees, write


def test_a_snapshot_names_every_path_once_in_order(tmp_path: Path) -> None:
    root = write(tmp_path / "w", {"b/run*": b"#!", "a": b"x", "b.c": b"", "link": "b/run", "empty": None})
    assert snapshot(root) == Snapshot(
        entries=(
            Entry(path="a", kind=EntryKind.FILE, size_bytes=1, sha256=digest_bytes(b"x")),
            Entry(path="b", kind=EntryKind.DIR),
            Entry(path="b.c", kind=EntryKind.FILE, sha256=digest_bytes(b"")),
            Entry(path="b/run", kind=EntryKind.FILE, executable=True, size_bytes=2, sha256=digest_bytes(b"#!")),
            Entry(path="empty", kind=EntryKind.DIR),
            Entry(path="link", kind=EntryKind.LINK, target="b/run"),
        )
    )


@given(one=trees(), other=trees())
@settings(max_examples=30, deadline=None)
@pytest.mark.requirement("attempt.workspace")
def test_digests_are_equal_exactly_when_trees_are(one: Tree, other: Tree) -> None:
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        first, again = snapshot(write(root / "1", one)), snapshot(write(root / "elsewhere" / "1", one))
        second = snapshot(write(root / "2", other))
        assert first.digest == again.digest
        assert (first.digest == second.digest) == (first.entries == second.entries)


def test_the_executable_bit_and_an_empty_folder_change_the_digest_and_a_time_does_not(tmp_path: Path) -> None:
    root = write(tmp_path / "w", {"f": b"x"})
    before = snapshot(root).digest
    os.utime(root / "f", (1, 1))
    assert snapshot(root).digest == before
    (root / "f").chmod(0o755)
    executable = snapshot(root).digest
    (root / "d").mkdir()
    assert len({before, executable, snapshot(root).digest}) == 3


def test_pipes_sockets_loops_and_strange_names_are_recorded_and_nothing_blocks(tmp_path: Path) -> None:
    root = write(tmp_path / "w", {"loop": "loop", "out": "/etc", os.fsdecode(b"bad\xff\n"): b"x"})
    os.mkfifo(root / "pipe")
    here = os.open(root, os.O_RDONLY)
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(f"/proc/self/fd/{here}/socket")
    os.close(here)
    assert snapshot(root).entries == (
        Entry(path=os.fsdecode(b"bad\xff\n"), kind=EntryKind.FILE, size_bytes=1, sha256=digest_bytes(b"x")),
        Entry(path="loop", kind=EntryKind.LINK, target="loop"),
        Entry(path="out", kind=EntryKind.LINK, target="/etc"),
        Entry(path="pipe", kind=EntryKind.FIFO),
        Entry(path="socket", kind=EntryKind.SOCKET),
    )
    told = diff(None, root).decode().splitlines()
    assert told[-2:] == ["# new fifo pipe", "# new socket socket"]


def test_a_huge_sparse_file_is_recorded_by_size_and_not_read(tmp_path: Path) -> None:
    root = write(tmp_path / "w", {"a": b"x", "z": b"y"})
    with (root / "huge").open("wb") as file:
        file.truncate(2**42)
    taken = snapshot(root)
    assert taken.by_path["huge"] == Entry(path="huge", kind=EntryKind.FILE, size_bytes=2**42, unread="too large")
    assert taken.by_path["z"].sha256 == digest_bytes(b"y")
    assert "# b/huge: 4398046511104 bytes, no digest, too large" in diff(None, root).decode()


# What an agent may leave: a file, a folder and a folder's inside that its owner cannot read.
_TAKE_AND_REMOVE = """
import json, sys
from pathlib import Path
from proctor.workspace.diff import diff
from proctor.workspace.remove import remove
from proctor.workspace.snapshot import snapshot
root = Path(sys.argv[1])
(root / "file").chmod(0)
(root / "folder").chmod(0)
(root / "listed").chmod(0o400)
rows = [(e.path, e.kind, e.unread) for e in snapshot(root).entries]
text = diff(None, root).decode()
remove(root)
print(json.dumps([rows, text, root.exists()]))
"""


@pytest.mark.proctor_process
def test_what_its_owner_cannot_read_is_recorded_told_and_removed_all_the_same(tmp_path: Path) -> None:
    root = write(tmp_path / "w", {"file": b"secret", "folder/inner": b"x", "listed/inner": b"x"})
    # Root reads everything unless it lays down two capabilities.
    less = ["setpriv", "--bounding-set=-dac_override,-dac_read_search", "--"] if os.geteuid() == 0 else []
    command = [*less, sys.executable, "-c", _TAKE_AND_REMOVE, str(root)]
    done = subprocess.run(command, capture_output=True, timeout=60)
    assert done.stderr == b""
    denied = "Permission denied"
    told = (
        "diff --git a/file b/file\nnew file mode 100644\nBinary files /dev/null and b/file differ\n"
        f"# b/file: 6 bytes, no digest, {denied}\n"
        f"# new folder folder ({denied})\n# new unknown listed/inner ({denied})\n"
    )
    assert json.loads(done.stdout) == [
        [
            ["file", "file", denied],
            ["folder", "dir", denied],
            ["listed", "dir", None],
            ["listed/inner", "unknown", denied],
        ],
        told,
        False,
    ]


def test_a_workspace_that_is_gone_or_became_a_link_is_not_the_empty_one(tmp_path: Path) -> None:
    gone = snapshot(tmp_path / "gone")
    (tmp_path / "link").symlink_to("/")
    link = snapshot(tmp_path / "link")
    assert [(e.path, e.kind) for e in (*gone.entries, *link.entries)] == [(".", EntryKind.UNKNOWN)] * 2
    assert gone.digest != EMPTY.digest


def test_only_the_agents_own_empty_leftovers_are_removed(tmp_path: Path) -> None:
    base = write(tmp_path / "base", {".aws": None})
    root = write(tmp_path / "w", {".aws": None, ".agents": None, ".git": b"", ".codex/mine": b"x", "else": None})
    assert remove_leftovers(root, snapshot(base)) == (".agents", ".git")
    assert [entry.path for entry in snapshot(root).entries] == [".aws", ".codex", ".codex/mine", "else"]
    assert remove_leftovers(root, snapshot(base)) == ()
