"""Forgeries: evidence that was altered and then made whole again, so that only what it says is wrong."""

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from proctor.attempt.rederive import rederive
from proctor.clock import SYSTEM_CLOCK
from proctor.evidence.artifacts import ProcessRecord
from proctor.evidence.attempt_files import AttemptFiles
from proctor.evidence.chain import ChainHead, chain_rows
from proctor.evidence.layout import STREAMS, AttemptPaths, RuntimePaths
from proctor.evidence.reader import read_rows
from proctor.evidence.redact import Redactor
from proctor.evidence.seal import seal_process
from proctor.ids import AttemptId
from tests.sealed import seal

Row = dict[str, Any]


def alter_json(path: Path, **changes: Any) -> None:
    """Top-level fields of a JSON file get other values."""
    value = msgspec.json.decode(path.read_bytes())
    path.write_bytes(msgspec.json.format(msgspec.json.encode({**value, **changes}), indent=2) + b"\n")


def alter_rows(path: Path, alter: Callable[[list[Row]], Iterable[Mapping[str, Any]]]) -> None:
    """The rows of a stream become others, chained anew."""
    rows = [msgspec.json.decode(line) for line in path.read_bytes().splitlines()]
    bare = [{key: value for key, value in row.items() if key not in ("seq", "prev")} for row in rows]
    path.write_bytes(chain_rows(alter(bare), head=ChainHead()))


def derive_anew(paths: AttemptPaths) -> None:
    """The derived files become what the frames now give."""
    with AttemptFiles(paths) as files:
        derived = rederive(files).files
    for name, data in derived.items():
        (paths.folder / name).write_bytes(data)


def reseal(paths: AttemptPaths) -> None:
    """The seal becomes that of the files as they are now."""
    paths.seal.unlink(missing_ok=True)
    heads = {}
    for name in STREAMS:
        reading = read_rows(paths.folder / name, dict)
        list(reading)
        heads[name] = reading.head
    seal(paths, attempt_id=AttemptId(paths.folder.name), clock=SYSTEM_CLOCK, streams=heads)


def reseal_process(paths: RuntimePaths, **changes: Any) -> None:
    """The process's record becomes that of its frames as they are now, with these fields changed."""
    reading = read_rows(paths.frames, dict)
    rows: dict[str, int] = {}
    for row in reading:
        rows[row["dir"]] = rows.get(row["dir"], 0) + 1
    record = msgspec.json.decode(paths.record.read_bytes(), type=ProcessRecord)
    changed = msgspec.structs.replace(record, **{"stream": reading.head, "rows": rows, **changes})
    seal_process(paths, changed, redactor=Redactor([]))
