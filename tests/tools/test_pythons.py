"""`make test-pythons`: which interpreters it finds, and when it fails."""

from pathlib import Path

import pytest

from tests import pythons

pytestmark = [pytest.mark.trust, pytest.mark.requirement("surface.package")]


def write_program(path: Path, script: str) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return str(path)


@pytest.fixture
def uv(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A uv that installs nothing and has one interpreter of its own; no other interpreter can be found."""
    monkeypatch.setenv("PATH", str(tmp_path / "path"))
    monkeypatch.setenv("PYENV_ROOT", str(tmp_path / "pyenv"))
    return write_program(tmp_path / "uv", f'[ "$1 $2" = "python dir" ] && echo {tmp_path}/managed')


def test_interpreters_are_found_on_path_and_where_pyenv_and_uv_put_them(tmp_path: Path, uv: str) -> None:
    # A shim of pyenv fails if its version is not selected, and the interpreter of a venv is not a new one.
    write_program(tmp_path / "path/python3.12", "exit 127")
    write_program(tmp_path / "path/python3.13", "echo 3.13 False")
    on_path = write_program(tmp_path / "path/python3.11", "echo 3.11 True")
    of_pyenv = write_program(tmp_path / "pyenv/versions/3.12.9/bin/python3.12", "echo 3.12 True")
    of_uv = write_program(tmp_path / "managed/cpython-3.14/bin/python3.14", "echo 3.14 True")

    found = {version: pythons.find(version, uv=uv) for version in pythons.VERSIONS}
    assert found == {"3.11": Path(on_path), "3.12": Path(of_pyenv), "3.13": None, "3.14": Path(of_uv)}


def test_run_fails_without_any_interpreter(uv: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert pythons.main(uv, "1") == 1
    assert capsys.readouterr().out.splitlines() == [f"Python {version}: not installed" for version in pythons.VERSIONS]


def test_run_fails_if_the_tests_fail_on_one_interpreter(
    tmp_path: Path, uv: str, capsys: pytest.CaptureFixture[str]
) -> None:
    write_program(tmp_path / "path/python3.13", "echo 3.13 True")

    assert pythons.main(uv, "1") == 1
    assert "Python 3.13: FAILED" in capsys.readouterr().out
