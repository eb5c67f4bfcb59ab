"""Runs the fast tests on every interpreter from 3.11 to 3.14 that is installed here: `make test-pythons`."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parent.parent
VERSIONS = ("3.11", "3.12", "3.13", "3.14")
FAST = ("-m", "fast and not long", "--hypothesis-profile", "fast")
# A venv's interpreter has the packages of the venv, so only others count.
QUESTION = "import sys, ensurepip; print('%d.%d' % sys.version_info[:2], sys.prefix == sys.base_prefix)"


def say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def places(uv: str) -> Iterator[Path]:
    """Yield the folders in which interpreters are installed: PATH, and where pyenv and uv put theirs."""
    yield from map(Path, os.get_exec_path())
    pyenv = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv")
    managed = subprocess.run([uv, "python", "dir"], capture_output=True, text=True).stdout.strip()
    for folder in (pyenv / "versions", Path(managed)):
        yield from sorted(folder.glob("*/bin"), reverse=True)


def find(version: str, *, uv: str) -> Path | None:
    """Return the first interpreter of that version that starts. Nothing is downloaded."""
    for python in (folder / f"python{version}" for folder in places(uv)):
        if os.access(python, os.X_OK):
            started = subprocess.run([python, "-c", QUESTION], capture_output=True, text=True)
            if started.stdout.split() == [version, "True"]:
                return python
    return None


def run_fast_tests(python: Path, version: str, *, uv: str, workers: str) -> bool:
    """Run the fast tests in an environment of that interpreter, and return whether they passed."""
    environment = ROOT / ".venv" / "pythons" / version
    own = environment / "bin" / "python"
    editable = ("--editable", ".", "--editable", "examples/plugins/notes", "--editable", "examples/plugins/pi")
    steps: tuple[list[str | Path], ...] = (
        [uv, "venv", "--quiet", "--clear", "--python", python, environment],
        [uv, "pip", "sync", "--quiet", "--python", own, "--require-hashes", "--only-binary", ":all:", "locks/dev.lock"],
        [uv, "pip", "install", "--quiet", "--python", own, "--no-deps", "--no-build-isolation", *editable],
        [own, "tests/offline.py", own, "-m", "pytest", "-n", workers, *FAST],
    )
    return all(subprocess.run(step, cwd=ROOT).returncode == 0 for step in steps)


def main(uv: str, workers: str) -> int:
    results: dict[str, str] = {}
    for version in VERSIONS:
        python = find(version, uv=uv)
        if python is None:
            results[version] = "not installed"
        else:
            say(f"Python {version}: {python}")
            results[version] = "passed" if run_fast_tests(python, version, uv=uv, workers=workers) else "FAILED"
    for version, result in results.items():
        say(f"Python {version}: {result}")
    return int("FAILED" in results.values() or "passed" not in results.values())


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
