"""A file that an agent keeps may be anything by the time we read it."""

import os
from pathlib import Path

import pytest

from proctor.errors import RefusedError
from proctor.event.history_item import HistoryItem
from proctor.runtime.claude_code.history import read_session

THREAD = "00000000-0000-4000-8000-000000000000"
LINE = b'{"type":"user","message":{"role":"user","content":"Go"}}\n'


@pytest.fixture
def kept(tmp_path: Path) -> Path:
    file = tmp_path / "projects" / "-w" / f"{THREAD}.jsonl"
    file.parent.mkdir(parents=True)
    return file


@pytest.mark.requirement("runtime.history")
@pytest.mark.parametrize("kind", ["a pipe", "a link", "a folder"])
def test_what_is_no_file_is_refused_at_once(kept: Path, tmp_path: Path, kind: str) -> None:
    if kind == "a pipe":
        os.mkfifo(kept)
    elif kind == "a folder":
        kept.mkdir()
    else:
        (tmp_path / "somebody-elses").write_bytes(LINE)
        kept.symlink_to(tmp_path / "somebody-elses")
    with pytest.raises(RefusedError):
        read_session(tmp_path, THREAD)


def test_a_line_that_is_too_deep_is_passed_over(kept: Path, tmp_path: Path) -> None:
    kept.write_bytes(b'{"message":' + b"[" * 100_000 + b"\n" + LINE)
    assert read_session(tmp_path, THREAD) == (HistoryItem(kind="prompt", text="Go"),)


@pytest.mark.parametrize("thread", ["**", "../x", "*"])
def test_an_id_that_is_a_pattern_leads_nowhere(kept: Path, tmp_path: Path, thread: str) -> None:
    kept.write_bytes(LINE)
    with pytest.raises(RefusedError):
        read_session(tmp_path, thread)
