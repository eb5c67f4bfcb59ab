"""The programs behind a probe's command."""

import hashlib
import os
from pathlib import Path

import pytest

from proctor.probe.program import identify_programs


def make(place: Path, text: str) -> Path:
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text(text)
    place.chmod(0o755)
    return place


@pytest.fixture
def bin_(tmp_path: Path) -> Path:
    make(tmp_path / "bin" / "python9", "binary")
    make(tmp_path / "bin" / "pytest", "#!/usr/bin/env -S FOO=1 python9 -u\n")
    make(tmp_path / "bin" / "direct", f"#!{tmp_path}/bin/python9\n")
    make(tmp_path / "work" / "check", "#!/no/such/shell\n")
    (tmp_path / "bin" / "linked").symlink_to("python9")
    return tmp_path / "bin"


def names(argv: list[str], bin_: Path) -> list[str]:
    found = identify_programs(argv, workspace=bin_.parent / "work", search_path=f"{bin_}:/usr/bin:/bin")
    return [Path(each.path).name if each.path.startswith(str(bin_)) else each.path for each in found]


@pytest.mark.requirement("probe.gate")
def test_program_is_writable_for_a_confined_agent_only_in_its_own_folders(bin_: Path) -> None:
    def is_writable(*folders: Path) -> bool:
        [program] = identify_programs(
            ["linked"], workspace=bin_.parent / "work", search_path=str(bin_), agent_folders=folders
        )
        return program.is_writable

    assert is_writable(bin_)
    assert not is_writable(bin_.parent / "work")
    # A link in a folder of the agent can be replaced, wherever it leads to.
    own = bin_.parent / "own"
    own.mkdir()
    (own / "mine").symlink_to(bin_ / "python9")
    [mine] = identify_programs(["mine"], workspace=bin_, search_path=str(own), agent_folders=[own])
    assert mine.is_writable


ENV, BASH = os.path.realpath("/usr/bin/env"), os.path.realpath("/bin/bash")


@pytest.mark.requirement("probe.gate")
def test_programs_of_a_probe_are_its_first_word_and_the_interpreters_of_scripts(bin_: Path) -> None:
    assert names(["python9", "x"], bin_) == ["python9"]
    assert names(["linked"], bin_) == ["python9"]
    assert names(["direct"], bin_) == ["direct", "python9"]
    assert names(["pytest", "-q"], bin_) == ["pytest", ENV, "python9"]
    assert names(["./check"], bin_) == ["check"]
    assert names(["bash", "-c", "cd sub && FOO=1 pytest -q | direct; ./check"], bin_) == [
        BASH, "pytest", ENV, "python9", "direct",
    ]  # fmt: skip
    assert names(["absent"], bin_) == ["absent"]


@pytest.mark.requirement("probe.gate")
def test_program_is_hashed_again_after_any_change(bin_: Path) -> None:
    def sha256() -> str | None:
        [program] = identify_programs(["python9"], workspace=bin_.parent / "work", search_path=str(bin_))
        assert program.is_writable
        return program.sha256

    assert sha256() == f"sha256:{hashlib.sha256(b'binary').hexdigest()}"
    before = (bin_ / "python9").stat()
    make(bin_ / "python9", "BINARY")
    # A change of the same size, with the old time: the time of the last change of the inode gives it away.
    os.utime(bin_ / "python9", ns=(before.st_atime_ns, before.st_mtime_ns))
    assert sha256() == f"sha256:{hashlib.sha256(b'BINARY').hexdigest()}"
