"""Files in the user's cache are private, whatever the umask."""

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from proctor import places
from tests.lab import Lab, mission, say_done


@pytest.fixture
def _umask(request: pytest.FixtureRequest) -> Iterator[None]:
    before = os.umask(request.param)
    yield
    os.umask(before)


@pytest.mark.usefixtures("_umask")
@pytest.mark.parametrize("_umask", [0, 0o022, 0o777], indirect=True)
def test_cache_file_has_mode_0600_and_leaves_no_draft(tmp_path: Path) -> None:
    file = tmp_path / "known.json"
    for data in (b"{}", b'{"a": "b"}'):
        places.write_private(file, data)
        assert (stat.S_IMODE(file.stat().st_mode), file.read_bytes(), list(tmp_path.iterdir())) == (0o600, data, [file])


@pytest.mark.real_agent
@pytest.mark.proctor_process
@pytest.mark.requirement("evidence.redaction")
@pytest.mark.usefixtures("_umask")
@pytest.mark.parametrize("_umask", [0], indirect=True)
def test_run_without_umask_leaves_only_private_cache_files(lab: Lab, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    spec = lab.write_spec([mission("m", say_done())])
    done = lab.proctor_process("run", str(spec), XDG_CACHE_HOME=str(cache))
    assert "ended: completed" in done.stderr
    modes = {
        str(path.relative_to(cache)): stat.S_IMODE(path.stat().st_mode)
        for path in (cache / "proctor").rglob("*")
        if path.is_file()
    }
    assert {name: oct(mode) for name, mode in modes.items() if mode != 0o600} == {}
    assert {Path(name).parts[1] for name in modes} >= {"identities.json", "schemas"}
