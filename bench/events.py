"""The rate of recording, redacting and chaining frames, compared with only `json.loads` and a write."""

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from bench.fake_agent import answered, thread_of
from proctor.clock import SYSTEM_CLOCK
from proctor.event.row import Direction
from proctor.evidence import tripwire
from proctor.evidence.recorder import FrameLog
from proctor.evidence.redact import Redactor
from proctor.evidence.secrets import Secret
from proctor.protocol.lines import MAX_LINE_BYTES, LineSplitter
from proctor.runtime.codex_app_server.route import open_envelope
from proctor.runtime.codex_app_server.vocabulary import PRIVATE

# The most that one read of a pipe returns.
_CHUNK_BYTES = 64 * 1024
_SECRETS = (Secret(name="BENCH_API_KEY", value="none-needed-here"), tripwire.plant())


def rates(folder: Path, turns: int) -> tuple[float, float]:
    """Return events per second of CPU time: recorded as a connection records them, and with the bare loop."""
    said = "".join(f"{line}\n" for number in range(turns) for line in answered(number, thread_of(number))).encode()
    chunks = [said[start : start + _CHUNK_BYTES] for start in range(0, len(said), _CHUNK_BYTES)]
    events = said.count(b"\n")
    recorded_s = _cpu_s(lambda: _record(folder / "frames.jsonl", chunks))
    bare_s = _cpu_s(lambda: _bare(folder / "bare.jsonl", chunks))
    return events / recorded_s, events / bare_s


def _record(path: Path, chunks: list[bytes]) -> None:
    with FrameLog(path, redactor=Redactor(_SECRETS, private=PRIVATE), clock=SYSTEM_CLOCK) as log:
        for lines in _lines(chunks):
            for line in lines:
                envelope = open_envelope(line)
                if envelope.ended_streams is not None:
                    log.release(envelope.ended_streams)
                log.stage(Direction.IN, line, stream=envelope.text_stream)
            log.commit()


def _bare(path: Path, chunks: list[bytes]) -> None:
    with path.open("xb") as file:
        for lines in _lines(chunks):
            for line in lines:
                json.loads(line)
                file.write(line + b"\n")


def _lines(chunks: list[bytes]) -> Iterator[list[bytes]]:
    splitter = LineSplitter(limit_bytes=MAX_LINE_BYTES)
    yield from map(splitter.feed, chunks)


def _cpu_s(work: Callable[[], None]) -> float:
    began_s = time.process_time()
    work()
    return time.process_time() - began_s
