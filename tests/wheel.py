"""Installs the wheel in dist/ into an empty environment, from hash locks only, and runs its demo: `make test-wheel`."""

import json
import os
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).parent.parent
LOCK = ROOT / "locks" / "demo.lock"
DEADLINE_S = 300
# What pip, uv and the test's own environment would otherwise lend to the installed Proctor.
KEPT_VARIABLES = ("LANG", "LC_ALL", "TERM", "SSL_CERT_FILE", "SSL_CERT_DIR")


def one(pattern: str) -> Path:
    found = list((ROOT / "dist").glob(pattern))
    if len(found) != 1:
        sys.exit(f"dist/ must have one file {pattern}, and has {len(found)}: run `make wheel` first")
    return found[0]


def say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def run(*argv: str | Path, cwd: Path | None = None, env: Mapping[str, str] | None = None) -> str:
    done = subprocess.run(argv, cwd=cwd, env=env, stdout=subprocess.PIPE, text=True, timeout=DEADLINE_S)
    if done.returncode != 0:
        sys.exit(f"{done.stdout}\n{' '.join(map(str, argv))} exited with {done.returncode}")
    return done.stdout


@contextmanager
def empty_environment(wheel: Path, folder: Path, *, uv: str) -> Iterator[Path]:
    """Yield the scripts folder of a virtual environment that has the wheel, the packages of the lock and no more."""
    environment = folder / "environment"
    python = environment / "bin" / "python"
    run(uv, "venv", "--quiet", "--python", sys.executable, environment)
    locked = ("--require-hashes", "--only-binary", ":all:", str(LOCK))
    run(uv, "pip", "sync", "--quiet", "--python", python, *locked)
    # Without an index: the lock must have everything that the wheel needs.
    run(uv, "pip", "install", "--quiet", "--offline", "--no-index", "--python", python, f"{wheel}[codex,model]")
    run(uv, "pip", "check", "--quiet", "--python", python)
    yield environment / "bin"


def check_demo(scripts: Path, folder: Path) -> None:
    """Run the demo as a new user would: in an empty folder and with an empty home."""
    home, work = folder / "home", folder / "work"
    home.mkdir()
    work.mkdir()
    kept = {name: os.environ[name] for name in KEPT_VARIABLES if name in os.environ}
    env = {**kept, "HOME": str(home), "PATH": f"{scripts}:{os.defpath}"}
    proctor = scripts / "proctor"
    say(run(proctor, "--version", cwd=work, env=env).strip())
    report = json.loads(run(proctor, "demo", "--json", cwd=work, env=env))
    verified = {row["missionId"]: row["summary"]["verified"] for row in report["attempts"]}
    if verified != {"ask": None, "shell": None, "fix": True, "claim": False}:
        sys.exit(f"the demo verified {verified}")
    run(proctor, "validate", "--strict", cwd=work, env=env)
    say("proctor demo: fix is verified, claim is not, and the evidence is valid")


def check_sdist(wheel: Path, sdist: Path, folder: Path) -> None:
    """Check that the sdist builds the same wheel: it lacks nothing and has no broken link."""
    with tarfile.open(sdist) as archive:
        archive.extractall(folder / "sdist", filter="data")
    [source] = (folder / "sdist").iterdir()
    run(sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", folder / "rebuilt", cwd=source)
    [rebuilt] = (folder / "rebuilt").iterdir()
    if contents(rebuilt) != contents(wheel):
        sys.exit("the sdist builds another wheel")
    say(f"{sdist.name}: builds the same wheel")


def contents(wheel: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(wheel) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


if __name__ == "__main__":
    wheel_file, sdist_file = one("*.whl"), one("*.tar.gz")
    with tempfile.TemporaryDirectory(prefix="proctor-wheel-") as name:
        with empty_environment(wheel_file, Path(name), uv=sys.argv[1]) as scripts_folder:
            check_demo(scripts_folder, Path(name))
        check_sdist(wheel_file, sdist_file, Path(name))
