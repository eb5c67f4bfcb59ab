"""rounds.jsonl: rows are chained and on disk, and what was edited is refused."""

import resource
from pathlib import Path

import pytest

from proctor.auto.model import AnyAutoRow
from proctor.auto.rounds_log import RoundsLog, read_rounds
from proctor.errors import EvidenceError, MachineError
from tests.auto.rows import Story


def written(path: Path) -> Story:
    story = Story()
    story.round()
    story.round(True)
    log = RoundsLog(path)
    append_all(log, story.rows)
    log.close()
    return story


def append_all(log: RoundsLog, rows: list[AnyAutoRow]) -> None:
    for row in rows:
        log.append(row)


def test_log_is_read_as_it_was_written(tmp_path: Path) -> None:
    path = tmp_path / "rounds.jsonl"
    assert list(read_rounds(path)) == []
    story = written(path)
    assert list(read_rounds(path)) == story.rows
    assert path.stat().st_mode & 0o777 == 0o600


def test_log_is_continued_by_another_process(tmp_path: Path) -> None:
    path = tmp_path / "rounds.jsonl"
    story = written(path)
    log = RoundsLog(path)
    assert list(log.rows) == story.rows
    story.start()
    log.append(story.rows[-1])
    log.close()
    assert list(read_rounds(path)) == story.rows


@pytest.mark.parametrize("cut", [1, 30])
def test_half_a_row_is_cut_off(tmp_path: Path, cut: int) -> None:
    path = tmp_path / "rounds.jsonl"
    story = written(path)
    path.write_bytes(path.read_bytes()[:-cut])
    assert list(read_rounds(path)) == story.rows[:-1]
    log = RoundsLog(path)
    log.append(story.rows[-1])
    log.close()
    assert list(read_rounds(path)) == story.rows


def test_edited_removed_or_added_row_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "rounds.jsonl"
    written(path)
    lines = path.read_bytes().splitlines(keepends=True)
    edits = [
        [*lines[:2], lines[2].replace(b'"tokens":10', b'"tokens":11'), *lines[3:]],
        [*lines[:3], *lines[4:]],
        [*lines, b'{"row":"started"}\n'],
        [*lines, b"{\n"],
        [*lines[:1], b"\xff\n", *lines[1:]],
    ]
    for edit in edits:
        path.write_bytes(b"".join(edit))
        with pytest.raises(EvidenceError):
            read_rounds(path)
        with pytest.raises(EvidenceError):
            RoundsLog(path)


def test_log_takes_no_row_after_one_that_the_disk_refused(tmp_path: Path) -> None:
    story = Story()
    story.round()
    log = RoundsLog(tmp_path / "rounds.jsonl")
    log.append(story.rows[0])
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, limits[1]))
    try:
        with pytest.raises(MachineError):
            append_all(log, story.rows[1:] * 10)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    with pytest.raises(MachineError):
        log.append(story.rows[1])
    log.close()
    assert read_rounds(tmp_path / "rounds.jsonl") == log.rows
