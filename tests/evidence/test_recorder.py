"""The recorder: rows stand on disk, whole and in order, before anybody reads them."""

import json
import os
import signal
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proctor.errors import MachineError
from proctor.event.row import GENESIS, ChannelClosed, Direction, Row, SessionRefusal, StepTaken, TailReleased
from proctor.evidence.artifacts import StreamHead
from proctor.evidence.chain import link
from proctor.evidence.reader import read_rows
from proctor.evidence.recorder import ChainedLog, FrameLog
from proctor.evidence.redact import Redactor, TextStream
from proctor.evidence.secrets import Secret

SECRET = "sk-live-0123456789"
SECRETS = [Secret(name="API_KEY", value=SECRET)]


class Ticking:
    """A clock that moves a millisecond each time it is asked."""

    def __init__(self) -> None:
        self._ticks = count(1_000)

    def wall_ms(self) -> int:
        return next(self._ticks)

    def steady_s(self) -> float:
        return 0.0


def open_log(path: Path) -> FrameLog:
    return FrameLog(path, redactor=Redactor(SECRETS), clock=Ticking())


@contextmanager
def scratch() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as folder:
        yield Path(folder) / "frames.jsonl"


def recorded(data: bytes) -> Row:
    """What becomes of one line, on disk and in the caller's hand alike."""
    with scratch() as path, open_log(path) as log:
        log.stage(Direction.IN, data)
        (row,) = log.commit()
        assert path.read_bytes().count(b"\n") == 1
        assert list(read_rows(path, Row)) == [row]
    return row


def row(seq: int, dir_: Direction, prev: bytes | str, **said: Any) -> Row:
    prev = link(prev) if isinstance(prev, bytes) else prev
    return Row(seq=seq, at_ms=999 + seq, dir=dir_, prev=prev, **said)


def frame_of(row: Row) -> Any:
    assert isinstance(row.frame, msgspec.Raw)
    return msgspec.json.decode(row.frame)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=6), inner, max_size=4),
    max_leaves=12,
)
FRAMES = st.builds(lambda value, ascii_: json.dumps(value, ensure_ascii=ascii_).encode(), JSON, st.booleans())
LINES = (
    FRAMES
    | st.binary(max_size=60).filter(lambda data: b"\n" not in data)
    | st.sampled_from(
        [b"", b" ", b"\r", b'{"a":1}\r', b"\t[1] ", b"NaN", b"1e999", b'"\\ud800"', b"[" * 2_000, b'{"a":"\xff"}']
    )
)


@pytest.mark.requirement("evidence.crash-safe")
@settings(deadline=None)
@given(st.lists(st.lists(st.tuples(st.sampled_from(Direction), LINES), max_size=5), max_size=4))
def test_what_is_given_back_is_what_stands_on_disk(batches: list[list[tuple[Direction, bytes]]]) -> None:
    with scratch() as path, open_log(path) as log:
        given_back: list[Row] = []
        for batch in batches:
            for dir_, data in batch:
                log.stage(dir_, data)
            given_back += log.commit()
            assert [msgspec.json.decode(line, type=Row) for line in path.read_bytes().splitlines()] == given_back
        reading = read_rows(path, Row)
        assert list(reading) == given_back
        assert (reading.findings, reading.head) == ((), log.head)

    assert [row.seq for row in given_back] == list(range(1, 1 + sum(map(len, batches))))
    assert dict(log.counts) == {
        dir_: spoken for dir_ in Direction if (spoken := sum(row.dir is dir_ for row in given_back))
    }


@settings(deadline=None)
@given(FRAMES)
def test_a_json_frame_is_kept_byte_for_byte(data: bytes) -> None:
    assert recorded(data) == row(1, Direction.IN, GENESIS, frame=msgspec.Raw(data))


def test_rows_have_the_shape_of_the_layout(tmp_path: Path) -> None:
    with open_log(tmp_path / "frames.jsonl") as log:
        log.stage(Direction.OUT, b'{"id": 1}')
        log.stage(Direction.ERR, b"warning: \xff")
        log.commit()

    first = b'{"seq":1,"atMs":1000,"dir":"out","prev":"%b","frame":{"id": 1}}' % GENESIS.encode()
    second = b'{"seq":2,"atMs":1001,"dir":"err","prev":"%b","text":"warning: \xef\xbf\xbd"}' % link(first).encode()
    assert (tmp_path / "frames.jsonl").read_bytes() == first + b"\n" + second + b"\n"


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"plain words", "plain words"),
        (b"", ""),
        (b"words\r", "words"),
        (b'{"a":1', '{"a":1'),
        (b'{"a":1} {"b":2}', '{"a":1} {"b":2}'),
        (b'{"a":"\xff"}', '{"a":"\ufffd"}'),
        (b'{"a":"\x01"}', '{"a":"\x01"}'),
        (b'{"a":"\\ud800"}', '{"a":"\\ud800"}'),
        (b'{"a":1e999}', '{"a":1e999}'),
        (b"\xef\xbb\xbf{}", "\ufeff{}"),
        (b"[" * 129 + b"]" * 129, "[" * 129 + "]" * 129),
        (b"[" * 200_000, "[" * 200_000),
        (b'{"a":"x\ny"}', '{"a":"x\ny"}'),
    ],
)
def test_what_no_reader_can_take_for_json_is_kept_as_text(data: bytes, text: str) -> None:
    assert recorded(data) == row(1, Direction.IN, GENESIS, text=text)


@pytest.mark.parametrize(
    ("data", "frame"),
    [
        (b'{"a":1}\r', b'{"a":1}'),
        (b' {"a":1} ', b'{"a":1}'),
        (b'{\n  "a":1\n}', b'{   "a":1 }'),
        (b'{"a":\t1}', b'{"a":\t1}'),
        (b'{"a":\r1}', b'{"a": 1}'),
        (b"17", b"17"),
        (b"[" * 128 + b"]" * 128, b"[" * 128 + b"]" * 128),
        (b"[" + b"{}," * 500 + b"{}]", b"[" + b"{}," * 500 + b"{}]"),
    ],
)
def test_white_space_around_json_never_breaks_a_line(data: bytes, frame: bytes) -> None:
    assert recorded(data) == row(1, Direction.IN, GENESIS, frame=msgspec.Raw(frame))


def test_all_staged_rows_go_out_in_one_write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[int] = []
    write = os.write

    def counted(fd: int, data: bytes) -> int:
        sizes.append(write(fd, data))
        return sizes[-1]

    monkeypatch.setattr(os, "write", counted)
    with open_log(tmp_path / "frames.jsonl") as log:
        for number in range(30):
            log.stage(Direction.IN, b"%d" % number)
        assert (sizes, log.head) == ([], StreamHead(rows=0, head=GENESIS))
        log.commit()
        assert log.commit() == ()

    assert sizes == [(tmp_path / "frames.jsonl").stat().st_size]


def test_a_self_row_stands_after_what_was_staged_which_the_next_commit_gives_out(tmp_path: Path) -> None:
    with open_log(tmp_path / "frames.jsonl") as log:
        log.stage(Direction.IN, b"1")
        said = log.say(ChannelClosed(cause="eof"))
        lines = (tmp_path / "frames.jsonl").read_bytes().splitlines()
        assert log.commit() == (row(1, Direction.IN, GENESIS, frame=msgspec.Raw(b"1")),)

    assert said == row(2, Direction.SELF, lines[0], frame=msgspec.Raw(b'{"saw":"stream.ended","cause":"eof"}'))
    assert len(lines) == 2


def test_what_was_staged_is_not_lost_when_the_log_is_closed(tmp_path: Path) -> None:
    with open_log(tmp_path / "frames.jsonl") as log:
        log.stage(Direction.IN, b"1")

    assert [row.frame for row in read_rows(tmp_path / "frames.jsonl", Row)] == [msgspec.Raw(b"1")]


@pytest.mark.requirement("evidence.redaction")
def test_a_secret_is_out_before_it_reaches_the_disk_wherever_it_was_said(tmp_path: Path) -> None:
    path = tmp_path / "frames.jsonl"
    with open_log(path) as log:
        log.stage(Direction.IN, json.dumps({"out": f"key={SECRET}"}).encode())
        log.stage(Direction.ERR, f"panic: {SECRET} \udcff".encode(errors="surrogateescape"))
        rows = log.commit()
        refused = log.say(SessionRefusal(code="peer.refused", detail=f"401 for {SECRET}"))

    assert SECRET.encode() not in path.read_bytes()
    lines = path.read_bytes().splitlines()
    masked = "[redacted:API_KEY]"
    assert (*rows, refused) == (
        row(1, Direction.IN, GENESIS, frame=msgspec.Raw(b'{"out": "key=%b"}' % masked.encode()), redacted=("API_KEY",)),
        row(2, Direction.ERR, lines[0], text=f"panic: {masked} \ufffd", redacted=("API_KEY",)),
        row(
            3,
            Direction.SELF,
            lines[1],
            frame=msgspec.Raw(msgspec.json.encode(SessionRefusal(code="peer.refused", detail=f"401 for {masked}"))),
            redacted=("API_KEY",),
        ),
    )
    assert list(read_rows(path, Row)) == [*rows, refused]


@pytest.mark.parametrize("cut", range(1, len(SECRET)))
def test_a_secret_streamed_in_pieces_is_out_and_its_tail_is_released(tmp_path: Path, cut: int) -> None:
    path = tmp_path / "frames.jsonl"
    stream = TextStream(key="t1/i1/text", path=("delta",))
    other = TextStream(key="t2/i1/text", path=("delta",))
    with open_log(path) as log:
        for piece in (f"my {SECRET[:cut]}", SECRET[cut:], ", yes sk-l"):
            log.stage(Direction.IN, json.dumps({"delta": piece}).encode(), stream=stream)
        log.stage(Direction.IN, b'{"delta":"sk"}', stream=other)
        rows = log.commit()
        released = log.release("t1/")
        assert log.release("t1/") == ()
        assert len(log.release()) == 1

    assert SECRET.encode() not in path.read_bytes()
    assert rows[0].carried
    assert "".join(frame_of(row)["delta"] for row in rows[:3]) == "my [redacted:API_KEY], yes "
    tail = TailReleased(stream="t1/i1/text", text="sk-l")
    assert [frame_of(row) for row in released] == [msgspec.to_builtins(tail)]
    reading = read_rows(path, Row)
    assert list(reading)[:5] == [*rows, *released]
    assert reading.findings == ()


def test_a_tail_that_tells_too_much_of_a_secret_is_released_masked_and_says_whose_it_was(tmp_path: Path) -> None:
    with open_log(tmp_path / "frames.jsonl") as log:
        log.stage(Direction.IN, b'{"delta":"sk-live-01"}', stream=TextStream(key="t1/i1/text", path=("delta",)))
        _, released = log.release()

    assert released.redacted == ("API_KEY",)
    tail = TailReleased(stream="t1/i1/text", text="[redacted:API_KEY]")
    assert frame_of(released) == msgspec.to_builtins(tail)


def test_a_log_is_a_new_private_file(tmp_path: Path) -> None:
    path = tmp_path / "frames.jsonl"
    with open_log(path) as log:
        log.sync()
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        with pytest.raises(MachineError) as refused:
            open_log(path)

    assert (refused.value.code, refused.value.what) == ("machine.unwritable", "File exists")


@pytest.mark.requirement("evidence.crash-safe")
def test_a_full_disk_is_a_typed_error_and_the_log_takes_nothing_more(tmp_path: Path) -> None:
    path = tmp_path / "frames.jsonl"
    with open_log(path) as log:
        log.stage(Direction.IN, b"1")
        log.commit()
        before, good = log.head, os.dup(log._file._fd)
        full = os.open("/dev/full", os.O_WRONLY)
        os.dup2(full, log._file._fd)
        log.stage(Direction.IN, b"2")
        with pytest.raises(MachineError) as refused:
            log.commit()
        assert (refused.value.code, refused.value.file) == ("machine.disk-full", str(path))
        os.dup2(good, log._file._fd)
        os.close(full)
        os.close(good)
        with pytest.raises(MachineError) as refused:
            log.say(StepTaken(step="on we go"))
        assert refused.value.code == "machine.disk-full"
        assert (log.head, dict(log.counts)) == (before, {Direction.IN: 1})

    assert [row.seq for row in read_rows(path, Row)] == [1]


WRITES_OVER_ITS_LIMIT = """
import resource, sys
from pathlib import Path
from proctor.clock import SYSTEM_CLOCK
from proctor.errors import MachineError
from proctor.event.row import Direction
from proctor.evidence.recorder import FrameLog
from proctor.evidence.redact import Redactor

log = FrameLog(Path(sys.argv[1]), redactor=Redactor([]), clock=SYSTEM_CLOCK)
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
for _ in range(2):
    try:
        for number in range(30):
            log.stage(Direction.IN, b"%d" % number)
        log.commit()
    except MachineError as error:
        print(error.code, log.head.rows)
log.close()
"""


@pytest.mark.proctor_process
@pytest.mark.requirement("evidence.integrity")
def test_a_write_cut_short_leaves_a_torn_tail_and_never_a_row_after_it(tmp_path: Path) -> None:
    path = tmp_path / "frames.jsonl"
    told = subprocess.run(
        [sys.executable, "-c", WRITES_OVER_ITS_LIMIT, path], capture_output=True, text=True, timeout=60, check=True
    )

    assert told.stdout == "machine.unwritable 0\n" * 2
    assert path.stat().st_size == 1000
    reading = read_rows(path, Row)
    assert [row.frame for row in reading] == [msgspec.Raw(b"%d" % number) for number in range(reading.head.rows)]
    assert reading.head.rows > 5
    assert [finding.code for finding in reading.findings] == ["evidence.torn"]


DIES = """
import os, signal, sys
from pathlib import Path
from proctor.clock import SYSTEM_CLOCK
from proctor.event.row import Direction
from proctor.evidence.recorder import FrameLog
from proctor.evidence.redact import Redactor

log = FrameLog(Path(sys.argv[1]), redactor=Redactor([]), clock=SYSTEM_CLOCK)
for number in range(100):
    log.stage(Direction.IN, b"%d" % number)
    if number % 7 == 0:
        log.commit()
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.proctor_process
@pytest.mark.requirement("evidence.crash-safe")
def test_every_row_that_was_committed_outlives_a_kill(tmp_path: Path) -> None:
    path = tmp_path / "frames.jsonl"
    died = subprocess.run([sys.executable, "-c", DIES, path], timeout=60)

    assert died.returncode == -signal.SIGKILL
    reading = read_rows(path, Row)
    assert [row.frame for row in reading] == [msgspec.Raw(b"%d" % number) for number in range(99)]
    assert reading.findings == ()


def test_our_own_rows_are_chained_batch_by_batch_and_read_back(tmp_path: Path) -> None:
    path = tmp_path / "probes.jsonl"
    rows = [{"probe": number, "passed": number > 2} for number in range(5)]
    with ChainedLog(path) as log:
        log.append(rows[:2])
        log.append([])
        log.append(rows[2:])
        log.sync()

    reading = read_rows(path, dict)
    assert list(reading) == rows
    assert (reading.findings, reading.head) == ((), log.head)


def test_a_stream_without_rows_is_an_empty_file_at_genesis(tmp_path: Path) -> None:
    with ChainedLog(tmp_path / "probes.jsonl") as log:
        pass

    assert (tmp_path / "probes.jsonl").read_bytes() == b""
    assert log.head == StreamHead(rows=0, head=GENESIS)
