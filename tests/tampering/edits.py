"""Edits of evidence, made of bytes, JSON and SQL alone: nothing of Proctor's own helps with them."""

import hashlib
import os
import shutil
import socket
import sqlite3
from collections.abc import Callable, Iterable, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec

from tests.tampering.evidence import Evidence
from tests.tampering.names import FRAMES, LEDGER, PROCESS, SEAL, Field

Edit = Callable[[Evidence], object]
Row = dict[str, Any]


def steps(*edits: Edit) -> Edit:
    """One after the other."""

    def edit(evidence: Evidence) -> None:
        for each in edits:
            each(evidence)

    return edit


# ── bytes ──


def rewrite(place: str, change: Callable[[bytes], bytes]) -> Edit:
    def edit(evidence: Evidence) -> None:
        path = evidence.path(place)
        path.write_bytes(change(path.read_bytes()))

    return edit


def flip(place: str) -> Edit:
    """One bit in the middle of a file."""

    def change(data: bytes) -> bytes:
        at = len(data) // 2
        return data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]

    return rewrite(place, change)


def tear(place: str, *, by: int = 5) -> Edit:
    return rewrite(place, lambda data: data[:-by])


def append(place: str, text: str) -> Edit:
    return rewrite(place, lambda data: data + text.encode())


def replace(place: str, old: str, new: str) -> Edit:
    def change(data: bytes) -> bytes:
        assert old.encode() in data, old
        return data.replace(old.encode(), new.encode())

    return rewrite(place, change)


def write(place: str, data: bytes = b"") -> Edit:
    return lambda evidence: evidence.path(place).write_bytes(data)


# ── files and folders ──


def remove(*places: str) -> Edit:
    def edit(evidence: Evidence) -> None:
        for path in map(evidence.path, places):
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink()

    return edit


def make_folder(place: str) -> Edit:
    return lambda evidence: evidence.path(place).mkdir(parents=True)


def copy(place: str, to: str) -> Edit:
    """A file, or each file of a folder, written over what is there."""

    def edit(evidence: Evidence) -> None:
        source, target = evidence.path(place), evidence.path(to)
        if source.is_dir():
            shutil.copytree(source, target, dirs_exist_ok=True)
        else:
            shutil.copy(source, target)

    return edit


def move(place: str, to: str) -> Edit:
    def edit(evidence: Evidence) -> None:
        evidence.path(to).parent.mkdir(parents=True, exist_ok=True)
        evidence.path(place).rename(evidence.path(to))

    return edit


def link(place: str) -> Edit:
    """What is there moves out of the root, and a symbolic link leads to it."""

    def edit(evidence: Evidence) -> None:
        path = evidence.path(place)
        path.symlink_to(path.rename(evidence.root.parent / "aside"))

    return edit


def link_to_itself(place: str) -> Edit:
    return lambda evidence: evidence.path(place).symlink_to(evidence.path(place).name)


def make_pipe(place: str) -> Edit:
    return lambda evidence: os.mkfifo(evidence.path(place))


def make_socket(place: str) -> Edit:
    def edit(evidence: Evidence) -> None:
        path = evidence.path(place)
        here = os.open(path.parent, os.O_RDONLY)
        try:
            with socket.socket(socket.AF_UNIX) as listener:
                listener.bind(f"/proc/self/fd/{here}/{path.name}")  # the path itself may be too long for a socket
        finally:
            os.close(here)

    return edit


def grow(place: str, *, to_bytes: int) -> Edit:
    """With a hole at its end that takes no room on the disk."""
    return lambda evidence: os.truncate(evidence.path(place), to_bytes)


# ── JSON ──


def read_json(path: Path) -> Row:
    value: Row = msgspec.json.decode(path.read_bytes())
    return value


def write_json(path: Path, value: Mapping[str, Any]) -> None:
    path.write_bytes(msgspec.json.format(msgspec.json.encode(value), indent=2) + b"\n")


def alter(place: str, changes: Mapping[str, Any] | Callable[[Row], Mapping[str, Any]]) -> Edit:
    """Top-level fields of a JSON file get other values."""

    def edit(evidence: Evidence) -> None:
        path = evidence.path(place)
        value = read_json(path)
        write_json(path, {**value, **(changes(value) if callable(changes) else changes)})

    return edit


def alter_rows(place: str, change: Callable[[list[Row]], Iterable[Row]]) -> Edit:
    """The rows of a stream become others, chained again."""

    def edit(evidence: Evidence) -> None:
        path = evidence.path(place)
        rows = [msgspec.json.decode(line) for line in path.read_bytes().splitlines()]
        bare = [{key: value for key, value in row.items() if key not in (Field.SEQ, Field.PREVIOUS)} for row in rows]
        lines, prev = [], GENESIS
        for at, row in enumerate(change(bare), 1):
            lines.append(msgspec.json.encode({Field.SEQ: at, Field.PREVIOUS: prev, **row}))
            prev = _link(lines[-1])
        path.write_bytes(b"".join(line + b"\n" for line in lines))

    return edit


def alter_each_row(place: str, changes: Mapping[str, Any]) -> Edit:
    return alter_rows(place, lambda rows: [{**row, **changes} for row in rows])


# ── seals ──

GENESIS = "0" * 32
"""What the first row of a stream names as the one before it."""


def reseal(attempt: str) -> Edit:
    """The seal becomes that of the files as they are now."""

    return lambda evidence: reseal_folder(evidence.path(attempt))


def reseal_folder(folder: Path) -> None:
    """The seal of an attempt becomes that of its files as they are now."""
    seal = read_json(folder / SEAL)
    files = {name: _measure((folder / name).read_bytes()) for name in seal[Field.FILES]}
    streams = {name: _head((folder / name).read_bytes()) for name in seal[Field.STREAMS]}
    _stamp(folder / SEAL, {**seal, Field.FILES: files, Field.STREAMS: streams})


def reseal_process(changes: Mapping[str, Any] | None = None) -> Edit:
    """The record of the runtime process becomes that of its frames as they are now, with these changes."""

    def edit(evidence: Evidence) -> None:
        folder = evidence.path("{process}")
        data = (folder / FRAMES).read_bytes()
        directions = [msgspec.json.decode(line)[Field.DIRECTION] for line in data.splitlines()]
        counted = {name: directions.count(name) for name in sorted(set(directions))}
        _stamp(
            folder / PROCESS,
            {**read_json(folder / PROCESS), Field.ROWS: counted, Field.STREAM: _head(data), **(changes or {})},
        )

    return edit


def _stamp(path: Path, record: Row) -> None:
    """With its own digest in it: of the rest, spelled with sorted keys."""
    rest = {key: value for key, value in record.items() if key != Field.SHA256}
    digest = hashlib.sha256(msgspec.json.encode(rest, order="sorted")).hexdigest()
    write_json(path, {**record, Field.SHA256: digest})


def _measure(data: bytes) -> Row:
    return {Field.SHA256: hashlib.sha256(data).hexdigest(), Field.BYTES: len(data)}


def _head(stream: bytes) -> Row:
    lines = stream.splitlines()
    return {Field.ROWS: len(lines), Field.HEAD: _link(lines[-1]) if lines else GENESIS}


def _link(line: bytes) -> str:
    return hashlib.sha256(line).hexdigest()[:32]


def digest_of(path: Path) -> str:
    """As the plan names a file of its snapshot."""
    return f"sha256:{hashlib.sha256(path.read_bytes()).hexdigest()}"


# ── the ledger ──


def sql(*statements: str) -> Edit:
    def edit(evidence: Evidence) -> None:
        with closing(sqlite3.connect(evidence.path("{campaign}/" + LEDGER))) as connection, connection:
            connection.execute("pragma foreign_keys = off")
            for each in statements:
                connection.execute(each)

    return edit


def loose_sql(*statements: str) -> Edit:
    """In a ledger made again without `strict`, where a column takes anything."""

    def edit(evidence: Evidence) -> None:
        path = evidence.path("{campaign}/" + LEDGER)
        with closing(sqlite3.connect(path)) as connection:
            kept = {
                name: connection.execute(f"pragma {name}").fetchone()[0] for name in ("application_id", "user_version")
            }
            tables = connection.execute("select name, sql from sqlite_master where type = 'table'").fetchall()
            rows = {name: connection.execute(f"select * from {name}").fetchall() for name, _ in tables}
        path.unlink()
        with closing(sqlite3.connect(path)) as connection:
            for name, made in tables:
                connection.execute(made.replace("strict", "").rstrip())
                for row in rows[name]:
                    connection.execute(f"insert into {name} values ({', '.join('?' * len(row))})", row)
            for name, value in kept.items():
                connection.execute(f"pragma {name} = {value}")
            connection.commit()
        sql(*statements)(evidence)

    return edit
