"""Real evidence altered in any way is invalid with a code, and nothing that may lie in its place raises."""

import os
import random
import shutil
import socket
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from proctor.errors import CODES
from proctor.evidence.layout import (
    FEEDBACK,
    FRAMES,
    PROMPT,
    REPORT,
    RUNNER_REF,
    SEAL,
    SEALED,
    TOOL_CALLS,
    TRANSCRIPT,
    WORKSPACE_DIFF,
    AttemptPaths,
)
from proctor.evidence.reader import MAX_FINDINGS
from tests.attempt.forge import alter_json
from tests.attempt.recorded import CLAIM, codes, examined, rechecked, strictly

pytestmark = pytest.mark.real_agent

FILES = (*SEALED, SEAL)
SMALL = (FEEDBACK, WORKSPACE_DIFF)


def places(data: bytes, *, is_swept: bool) -> Iterable[int]:
    """Every place of a small file; of another its ends and some between."""
    if is_swept:
        return range(len(data))
    return {0, len(data) - 1, *random.Random(len(data)).sample(range(len(data)), 20)}


@pytest.mark.requirement("evidence.seal")
@pytest.mark.requirement("evidence.validate")
@pytest.mark.parametrize("name", FILES)
def test_one_flipped_byte_anywhere_is_found(fix: AttemptPaths, name: str) -> None:
    path = fix.folder / name
    whole = path.read_bytes()
    chance = random.Random(name)
    assert whole, "an empty file would prove nothing"
    for place in places(whole, is_swept=name in SMALL):
        flipped = bytearray(whole)
        flipped[place] ^= 1 << chance.randrange(8)
        path.write_bytes(flipped)
        found = strictly(fix)
        assert found.status == "invalid", f"byte {place}"
        expected = "evidence.seal" if name == SEAL else "evidence.digest"
        assert (expected, name) in codes(found), f"byte {place}"
    path.write_bytes(whole)
    assert strictly(fix).status == "valid"


@pytest.mark.requirement("evidence.integrity")
@pytest.mark.parametrize("is_strict", [True, False])
@pytest.mark.parametrize("name", FILES)
def test_a_file_that_was_shortened_lengthened_or_emptied_is_found(
    fix: AttemptPaths, name: str, is_strict: bool
) -> None:
    path = fix.folder / name
    whole = path.read_bytes()
    for data in (whole[:-1], whole[: len(whole) // 2], b"", whole + b"\n", whole + whole):
        path.write_bytes(data)
        found = examined(fix, is_strict=is_strict)
        assert found.status == "invalid"
        assert name in {finding.file for finding in found.findings}


@pytest.mark.requirement("evidence.integrity")
@pytest.mark.parametrize("name", SEALED)
def test_a_file_that_is_gone_is_named(fix: AttemptPaths, name: str) -> None:
    (fix.folder / name).unlink()
    found = strictly(fix)

    assert found.status == "invalid"
    assert ("evidence.missing-file", name) in codes(found)


def extra_file(folder: Path) -> str:
    (folder / "notes.txt").write_text("mine")
    return "evidence.extra-file"


def extra_folder(folder: Path) -> str:
    (folder / "notes.txt").mkdir()
    return "evidence.containment"


def extra_name_that_is_no_text(folder: Path) -> str:
    (folder / os.fsdecode(b"\xff\x1b[2J")).write_text("mine")
    return "evidence.extra-file"


def folder_for_file(folder: Path) -> str:
    (folder / FRAMES).unlink()
    (folder / FRAMES).mkdir()
    return "evidence.containment"


def link_for_file(folder: Path) -> str:
    shutil.copy(folder / PROMPT, folder.parent / "prompt")
    (folder / PROMPT).unlink()
    (folder / PROMPT).symlink_to(folder.parent / "prompt")
    return "evidence.containment"


def loop_for_file(folder: Path) -> str:
    (folder / REPORT).unlink()
    (folder / REPORT).symlink_to(REPORT)
    return "evidence.containment"


def pipe_for_file(folder: Path) -> str:
    (folder / TRANSCRIPT).unlink()
    os.mkfifo(folder / TRANSCRIPT)
    return "evidence.containment"


def pipe_for_seal(folder: Path) -> str:
    (folder / SEAL).unlink()
    os.mkfifo(folder / SEAL)
    return "evidence.containment"


def socket_for_file(folder: Path) -> str:
    (folder / FEEDBACK).unlink()
    here = os.open(folder, os.O_RDONLY)
    try:
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(f"/proc/self/fd/{here}/{FEEDBACK}")  # the path itself may be too long for a socket
    finally:
        os.close(here)
    return "evidence.containment"


def sparse_file(folder: Path) -> str:
    os.truncate(folder / FRAMES, 1 << 40)
    return "evidence.bounds"


def deep_file(folder: Path) -> str:
    (folder / RUNNER_REF).write_bytes(b'{"facts":' + b"[" * 200_000)
    return "evidence.schema"


def deep_row(folder: Path) -> str:
    (folder / TOOL_CALLS).write_bytes(b'{"seq":1,"prev":"","input":' + b"[" * 200_000 + b"]" * 200_000 + b"}\n")
    return "evidence.schema"


def newer_schema(folder: Path) -> str:
    alter_json(folder / FEEDBACK, schemaVersion=2)
    return "evidence.version"


def newer_seal(folder: Path) -> str:
    alter_json(folder / SEAL, schemaVersion=2)
    return "evidence.version"


def other_seal(folder: Path) -> str:
    shutil.copy(folder.parent / CLAIM / SEAL, folder / SEAL)
    return "evidence.ids"


def other_attempt(folder: Path) -> str:
    for file in (folder.parent / CLAIM).iterdir():
        shutil.copy(file, folder / file.name)
    return "evidence.ids"


def many_bad_lines(folder: Path) -> str:
    (folder / FRAMES).write_bytes(b"\n" * 3_000_000)
    return "evidence.syntax"


@pytest.mark.requirement("evidence.validate")
@pytest.mark.parametrize(
    "spoil",
    [
        extra_file,
        extra_folder,
        extra_name_that_is_no_text,
        folder_for_file,
        link_for_file,
        loop_for_file,
        pipe_for_file,
        pipe_for_seal,
        socket_for_file,
        sparse_file,
        deep_file,
        deep_row,
        newer_schema,
        newer_seal,
        other_seal,
        other_attempt,
        many_bad_lines,
    ],
)
def test_whatever_lies_there_gets_its_code(fix: AttemptPaths, spoil: Callable[[Path], str]) -> None:
    code = spoil(fix.folder)
    found = strictly(fix)

    assert found.status == "invalid"
    assert code in {finding.code for finding in found.findings}
    assert all(finding.file.isprintable() and finding.detail.isprintable() for finding in found.findings)
    assert len(found.findings) <= MAX_FINDINGS + 10, "a stream that is none is not told line by line"


@pytest.mark.requirement("evidence.validate")
@pytest.mark.parametrize("name", [TOOL_CALLS, FRAMES])
def test_a_row_nested_as_deep_as_can_be_read_does_not_raise(fix: AttemptPaths, name: str) -> None:
    """Whatever handles a row has less room on the stack than what read it, or more."""
    first = msgspec.json.decode(fix.folder.joinpath(name).read_bytes().splitlines()[0])
    first.pop("frame", None)
    for depth in range(850, 1000):
        nest = msgspec.Raw(b"[" * depth + b"]" * depth)
        deep = {**first, "input": nest} if name == TOOL_CALLS else {**first, "frame": nest}
        fix.folder.joinpath(name).write_bytes(msgspec.json.encode(deep) + b"\n")
        assert strictly(fix).status == "invalid"
        assert {finding.code for finding in rechecked(fix)} <= set(CODES)


@pytest.mark.requirement("evidence.validate")
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(name=st.sampled_from(FILES), data=st.binary(max_size=200), keep=st.floats(0, 1), is_sealed=st.booleans())
def test_arbitrary_bytes_in_any_one_file_never_raise(
    fix: AttemptPaths, name: str, data: bytes, keep: float, is_sealed: bool
) -> None:
    whole = {file: (fix.folder / file).read_bytes() for file in (name, SEAL)}
    try:
        if not is_sealed:
            fix.seal.unlink()
        (fix.folder / name).write_bytes(whole[name][: round(len(whole[name]) * keep)] + data)
        assert strictly(fix).status in ("valid", "partial", "invalid")
    finally:
        for file, before in whole.items():
            (fix.folder / file).write_bytes(before)


@pytest.mark.requirement("evidence.validate")
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    files=st.dictionaries(
        st.sampled_from(FILES) | st.text("abc.", min_size=1, max_size=3).filter(lambda name: set(name) != {"."}),
        st.binary(max_size=50) | st.recursive(st.none() | st.booleans() | st.text(max_size=3), st.lists).map(repr),
        max_size=6,
    )
)
def test_a_folder_of_anything_is_not_valid_and_does_not_raise(tmp_path: Path, files: Mapping[str, Any]) -> None:
    folder = tmp_path / "anything"
    folder.mkdir()
    for name, data in files.items():
        (folder / name).write_bytes(data if isinstance(data, bytes) else data.encode(errors="replace"))
    try:
        assert strictly(AttemptPaths(folder)).status != "valid"
    finally:
        shutil.rmtree(folder)


@pytest.mark.requirement("evidence.validate")
def test_a_folder_that_is_none_gets_a_code(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / "link").symlink_to(tmp_path)
    found = [strictly(AttemptPaths(tmp_path / name)) for name in ("nowhere", "file", "link", "file/under")]

    assert [(each.status, [finding.code for finding in each.findings]) for each in found] == [
        ("invalid", ["evidence.not-found"]),
        ("invalid", ["evidence.containment"]),
        ("invalid", ["evidence.containment"]),
        ("invalid", ["evidence.missing-file"]),
    ]
