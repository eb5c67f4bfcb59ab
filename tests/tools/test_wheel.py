"""What the wheel contains."""

import subprocess
import sys
import zipfile
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent


def test_wheel_contains_the_package_and_no_tools(tmp_path: Path) -> None:
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)],
        cwd=ROOT,
        check=True,
        capture_output=True,
        timeout=60,
    )
    [wheel] = tmp_path.iterdir()
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()

    sources = {path.relative_to(ROOT / "src").as_posix() for path in ROOT.glob("src/proctor/**/*.py")}
    assert sources <= set(names)
    assert {name.partition("/")[0].partition("-")[0] for name in names} == {"proctor"}
