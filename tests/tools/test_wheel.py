"""What the wheel contains, and what its metadata says."""

import email
import email.message
import re
import subprocess
import sys
import zipfile
from collections.abc import Mapping
from pathlib import Path

import pytest

from proctor import __version__
from proctor.errors import DISTRIBUTION

ROOT = Path(__file__).parent.parent.parent


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, bytes]:
    """The files of the wheel, built offline as `make wheel` builds it."""
    folder = tmp_path_factory.mktemp("dist")
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)],
        cwd=ROOT,
        check=True,
        capture_output=True,
        timeout=60,
    )
    [wheel] = folder.iterdir()
    assert wheel.name == f"proctor_harness-{__version__}-py3-none-any.whl"
    with zipfile.ZipFile(wheel) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


@pytest.fixture
def metadata(files: Mapping[str, bytes]) -> email.message.Message:
    return email.message_from_bytes(files[f"proctor_harness-{__version__}.dist-info/METADATA"])


@pytest.mark.trust
@pytest.mark.requirement("surface.package")
def test_wheel_contains_the_package_and_neither_tests_nor_tools(files: Mapping[str, bytes]) -> None:
    package = ROOT / "src" / "proctor"
    sources = {path.relative_to(ROOT / "src").as_posix() for path in package.rglob("*") if path.is_file()}
    about = {name for name in files if name.startswith(f"proctor_harness-{__version__}.dist-info/")}

    assert set(files) - about == {name for name in sources if "__pycache__" not in name}
    assert {name.rpartition("/")[2] for name in about} == {"METADATA", "WHEEL", "entry_points.txt", "LICENSE", "RECORD"}
    named_like_tests = [name for name in files if re.search(r"(^|/)(test_|conftest|tools/|tests/)", name)]
    assert named_like_tests == ["proctor/probe/kinds/test_suite_parity.py"]


@pytest.mark.trust
@pytest.mark.requirement("surface.package")
def test_metadata_names_the_distribution_and_no_addresses(metadata: email.message.Message) -> None:
    assert (metadata["Name"], metadata["Version"], DISTRIBUTION) == ("proctor-harness", __version__, "proctor-harness")
    assert (metadata["License-Expression"], metadata["License-File"]) == ("Apache-2.0", "LICENSE")
    assert metadata["Requires-Python"] == ">=3.11"
    assert metadata.get_payload() == (ROOT / "README.md").read_text()
    assert metadata["Description-Content-Type"] == "text/markdown"
    assert set(metadata.get_all("Provides-Extra", [])) == {"browser", "codex", "model", "websocket"}
    python = "Programming Language :: Python :: 3."
    classifiers = metadata.get_all("Classifier", [])
    assert [each for each in classifiers if each.startswith(python)] == [f"{python}{minor}" for minor in range(11, 15)]
    assert (metadata.get_all("Project-URL"), metadata.get_all("Home-page")) == (None, None)


@pytest.mark.trust
@pytest.mark.requirement("surface.package")
def test_messages_and_docs_name_extras_of_the_distribution() -> None:
    texts = [ROOT / "README.md", *ROOT.glob("docs/**/*.md"), *ROOT.glob("src/**/*.py"), *ROOT.glob("examples/**/*.md")]
    wrong = re.compile(r"\bproctor\[|pip install '?proctor\b(?!-)")
    assert [path.name for path in texts if wrong.search(path.read_text())] == []
