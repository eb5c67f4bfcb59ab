"""The seal: what it is of, what it finds, what it refuses."""

import hashlib
import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proctor.errors import EvidenceError
from proctor.evidence.artifacts import Seal, SealedFile, StreamHead
from proctor.evidence.attempt_files import AttemptFiles
from proctor.evidence.chain import ChainHead, chain_rows
from proctor.evidence.digests import stamp
from proctor.evidence.layout import SEAL, SEALED, STREAMS, AttemptPaths, render_artifact
from proctor.evidence.reader import Finding, read_rows
from proctor.evidence.recorder import ChainedLog
from proctor.evidence.seal import check_seal
from proctor.ids import AttemptId
from tests.sealed import seal

A1 = AttemptId("fix.native.1.1")
EMPTY = StreamHead(rows=0, head="0" * 32)


class At:
    """A clock that stands still."""

    def wall_ms(self) -> int:
        return 1_700_000_000_000

    def steady_s(self) -> float:
        return 0.0


def fill(folder: Path) -> dict[str, StreamHead]:
    """Every file of an attempt but the seal, and the heads of its streams."""
    heads: dict[str, StreamHead] = {}
    for name in SEALED:
        if name in STREAMS:
            with ChainedLog(folder / name) as log:
                log.append({"said": f"{name} {number}"} for number in range(3))
                heads[name] = log.head
        else:
            (folder / name).write_text(f'{{"file": "{name}"}}\n')
    return heads


def sealed_in(folder: Path) -> AttemptPaths:
    paths = AttemptPaths(folder)
    seal(paths, attempt_id=A1, clock=At(), streams=fill(folder))
    return paths


def measured(path: Path) -> SealedFile:
    data = path.read_bytes()
    return SealedFile(sha256=hashlib.sha256(data).hexdigest(), bytes=len(data))


@pytest.fixture
def sealed(tmp_path: Path) -> AttemptPaths:
    return sealed_in(tmp_path)


@pytest.fixture(scope="module")
def kept() -> Iterator[AttemptPaths]:
    """A sealed attempt for properties, which put back what they change."""
    with tempfile.TemporaryDirectory() as folder:
        yield sealed_in(Path(folder))


def read_seal(paths: AttemptPaths) -> Seal:
    with AttemptFiles(paths) as files:
        return files.seal


def differences(paths: AttemptPaths) -> tuple[Finding, ...]:
    with AttemptFiles(paths) as files:
        return check_seal(files)


def verdict(paths: AttemptPaths) -> str:
    try:
        read_seal(paths)
    except EvidenceError as error:
        return error.code
    return "whole"


def codes(paths: AttemptPaths) -> list[tuple[str, str]]:
    return [(finding.code, finding.file) for finding in differences(paths)]


@pytest.mark.requirement("evidence.seal")
def test_a_seal_names_every_file_and_every_chain_and_says_what_it_is_worth(tmp_path: Path) -> None:
    heads = fill(tmp_path)
    written = seal(AttemptPaths(tmp_path), attempt_id=A1, clock=At(), streams=heads)

    assert written == Seal(
        attempt_id=A1,
        sealed_at_ms=1_700_000_000_000,
        statement="integrity only: shows damage, not forgery",
        files={name: measured(tmp_path / name) for name in SEALED},
        streams=heads,
        sha256=written.sha256,
    )
    assert read_seal(AttemptPaths(tmp_path)) == written
    assert differences(AttemptPaths(tmp_path)) == ()


@pytest.mark.requirement("evidence.seal")
@settings(deadline=None)
@given(data=st.data())
def test_a_flipped_byte_of_any_file_is_found_and_named(kept: AttemptPaths, data: st.DataObject) -> None:
    name = data.draw(st.sampled_from((*SEALED, SEAL)))
    path = kept.folder / name
    whole = path.read_bytes()
    at = data.draw(st.integers(0, len(whole) - 1))
    path.write_bytes(whole[:at] + bytes([whole[at] ^ data.draw(st.integers(1, 255))]) + whole[at + 1 :])
    try:
        found = codes(kept)
    finally:
        path.write_bytes(whole)

    assert found == [("evidence.seal" if name == SEAL else "evidence.digest", name)]


@pytest.mark.long
def test_every_single_byte_of_the_seal_counts(sealed: AttemptPaths) -> None:
    whole = sealed.seal.read_bytes()
    verdicts = set()
    for at in range(len(whole)):
        sealed.seal.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
        verdicts.add(verdict(sealed))

    assert verdicts == {"evidence.seal", "evidence.version"}


@pytest.mark.parametrize(
    ("old", "new"), [(b"  ", b"\t "), (b'  "sha256"', b'  "sha256": "",\n  "sha256"'), (b"}\n", b"}")]
)
@pytest.mark.requirement("evidence.seal")
def test_a_seal_that_means_the_same_but_is_spelled_otherwise_is_found(
    sealed: AttemptPaths, old: bytes, new: bytes
) -> None:
    head, _, tail = sealed.seal.read_bytes().rpartition(old)
    sealed.seal.write_bytes(head + new + tail)

    assert codes(sealed) == [("evidence.seal", SEAL)]


@pytest.mark.parametrize("name", SEALED)
def test_a_file_that_is_gone_is_named(sealed: AttemptPaths, name: str) -> None:
    (sealed.folder / name).unlink()

    assert differences(sealed) == (Finding(code="evidence.missing-file", file=name, detail="absent"),)


@pytest.mark.parametrize("name", ["notes.txt", ".attempt.json.tmp"])
def test_a_file_too_many_is_named(sealed: AttemptPaths, name: str) -> None:
    (sealed.folder / name).touch()

    assert codes(sealed) == [("evidence.extra-file", name)]


def test_a_file_that_grew_says_by_how_much(sealed: AttemptPaths) -> None:
    with sealed.prompt.open("a") as file:
        file.write("!")

    assert differences(sealed) == (
        Finding(code="evidence.digest", file="prompt.txt", detail="24 bytes, but 23 were sealed"),
    )


def link_to_copy(path: Path) -> None:
    copy = path.parent.parent / "copy"
    path.rename(copy)
    path.symlink_to(copy)


def make_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def make_fifo(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


@pytest.mark.parametrize("name", ["frames.jsonl", SEAL])
@pytest.mark.parametrize("spoil", [link_to_copy, make_folder, make_fifo])
def test_what_is_no_regular_file_is_never_followed(tmp_path: Path, spoil: Callable[[Path], None], name: str) -> None:
    (tmp_path / "a.1").mkdir()
    paths = sealed_in(tmp_path / "a.1")
    spoil(paths.folder / name)

    assert codes(paths) == [("evidence.containment", name)]


def test_a_link_too_many_is_named(sealed: AttemptPaths) -> None:
    (sealed.folder / "notes.txt").symlink_to(sealed.prompt)

    assert codes(sealed) == [("evidence.containment", "notes.txt")]


def test_a_folder_that_is_a_link_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "a.1").mkdir()
    sealed_in(tmp_path / "a.1")
    (tmp_path / "a.2").symlink_to(tmp_path / "a.1")

    assert codes(AttemptPaths(tmp_path / "a.2")) == [("evidence.containment", "a.2")]


def test_a_folder_that_is_not_there_has_no_evidence(tmp_path: Path) -> None:
    assert codes(AttemptPaths(tmp_path / "a.1")) == [("evidence.not-found", "a.1")]


@pytest.mark.requirement("evidence.crash-safe")
def test_an_attempt_cut_off_before_its_seal_is_partial_and_nothing_else(tmp_path: Path) -> None:
    fill(tmp_path)
    paths = AttemptPaths(tmp_path)
    paths.report.rename(tmp_path / f".{paths.report.name}.tmp")

    assert differences(paths) == (Finding(code="evidence.partial", file=SEAL, detail="no seal"),)
    reading = read_rows(paths.frames, dict)
    assert list(reading) == [{"said": f"frames.jsonl {number}"} for number in range(3)]
    assert reading.findings == ()


def test_a_stream_rewritten_before_the_seal_does_not_end_where_the_recorder_stood(tmp_path: Path) -> None:
    heads = fill(tmp_path)
    forged = chain_rows([{"said": "nothing happened"}] * 3, head=ChainHead())
    (tmp_path / "frames.jsonl").write_bytes(forged)
    written = seal(AttemptPaths(tmp_path), attempt_id=A1, clock=At(), streams=heads)

    reading = read_rows(tmp_path / "frames.jsonl", dict)
    assert len(list(reading)) == 3
    assert reading.findings == ()
    assert reading.head != written.streams["frames.jsonl"]


@pytest.mark.parametrize("name", SEALED)
def test_an_attempt_with_a_file_missing_is_not_sealed(tmp_path: Path, name: str) -> None:
    heads = fill(tmp_path)
    (tmp_path / name).unlink()

    with pytest.raises(EvidenceError) as refused:
        seal(AttemptPaths(tmp_path), attempt_id=A1, clock=At(), streams=heads)

    assert (refused.value.code, refused.value.file) == ("evidence.missing-file", name)
    assert not (tmp_path / SEAL).exists()


def test_an_attempt_is_sealed_once(sealed: AttemptPaths) -> None:
    before = sealed.seal.read_bytes()

    with pytest.raises(EvidenceError) as refused:
        seal(sealed, attempt_id=A1, clock=At(), streams=dict.fromkeys(STREAMS, EMPTY))

    assert (refused.value.code, sealed.seal.read_bytes()) == ("evidence.seal", before)


def test_a_file_nobody_knows_is_not_sealed_in(tmp_path: Path) -> None:
    heads = fill(tmp_path)
    (tmp_path / ".prompt.txt.tmp").touch()

    with pytest.raises(EvidenceError) as refused:
        seal(AttemptPaths(tmp_path), attempt_id=A1, clock=At(), streams=heads)

    assert (refused.value.code, refused.value.file) == ("evidence.extra-file", ".prompt.txt.tmp")


def test_a_stream_without_a_head_is_not_sealed(tmp_path: Path) -> None:
    heads = fill(tmp_path)
    del heads["frames.jsonl"]

    with pytest.raises(EvidenceError) as refused:
        seal(AttemptPaths(tmp_path), attempt_id=A1, clock=At(), streams=heads)

    assert refused.value.code == "evidence.chain"


def test_a_seal_of_other_files_is_no_seal_of_an_attempt(sealed: AttemptPaths) -> None:
    """Whoever can write may compute a digest: names in a seal are never used as paths."""
    honest = read_seal(sealed)
    files = {**honest.files, "../outside": honest.files["prompt.txt"]}
    forged = msgspec.structs.replace(honest, files=files, sha256="")
    sealed.seal.write_bytes(render_artifact(stamp(forged)))

    assert codes(sealed) == [("evidence.seal", SEAL)]


@settings(deadline=None)
@given(data=st.binary(max_size=80) | st.just(b"[" * 99_999))
def test_a_seal_of_any_bytes_whatever_gives_a_code(kept: AttemptPaths, data: bytes) -> None:
    whole = kept.seal.read_bytes()
    kept.seal.write_bytes(data)
    try:
        found = codes(kept)
    finally:
        kept.seal.write_bytes(whole)

    assert found == [("evidence.seal", SEAL)]
