"""One sync for a whole file system, where the kernel can be trusted with it."""

import os
from pathlib import Path
from types import SimpleNamespace

import pytest

from proctor.errors import MachineError
from proctor.evidence.sync import open_sync


def test_a_sync_returns_and_may_be_asked_for_again(tmp_path: Path) -> None:
    with open_sync(tmp_path) as sync:
        assert sync is not None
        for number in range(2):
            (tmp_path / str(number)).write_text("said")
            sync()


def test_a_sync_that_fails_is_an_error(tmp_path: Path) -> None:
    with open_sync(tmp_path) as sync:
        assert sync is not None
        [held] = [int(fd.name) for fd in Path("/proc/self/fd").iterdir() if _is(int(fd.name), tmp_path)]
        nothing = os.open("/dev/null", os.O_PATH)  # which cannot be synced through
        os.dup2(nothing, held)
        os.close(nothing)
        with pytest.raises(MachineError) as refused:
            sync()
    assert refused.value.code == "machine.unwritable"


@pytest.mark.parametrize("release", ["5.7.19-generic", "4.18.0-553.el8.x86_64", "odd"])
def test_a_kernel_that_hides_what_failed_is_not_asked(
    release: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "uname", lambda: SimpleNamespace(release=release))
    with open_sync(tmp_path) as sync:
        assert sync is None


def _is(fd: int, place: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(fd), place.stat())
    except OSError:
        return False
