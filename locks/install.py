"""Installs the agents that the locks beside this file pin into a folder that is either complete or not there."""

import fcntl
import os
import shutil
import subprocess
import sys
from pathlib import Path

LOCKS = Path(__file__).parent


def install(target: Path, *, uv: str) -> None:
    """Under a lock: of two installs at once the second finds the work done; what a killed one left goes first."""
    # Proctor's own cache folder, where homes and workspaces lie too: nobody else's to read.
    target.parent.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    target.parent.mkdir(exist_ok=True)
    with target.with_suffix(".lock").open("w") as lock:
        # Installers inherit it: one whose parent was killed is waited for, not run into.
        os.set_inheritable(lock.fileno(), True)
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not target.is_dir():
            partial = target.with_suffix(".partial")
            if partial.exists():
                shutil.rmtree(partial)
            _claude_code(partial / "python", uv=uv)
            _pi(partial / "node")
            partial.rename(target)
        _point_to(target)
    sys.stderr.write(f"Claude Code and pi are in {target}, where Proctor finds them\n")


def _point_to(target: Path) -> None:
    """Where Proctor looks by itself, outside of `make`."""
    draft = target.parent / f"current.{os.getpid()}"
    draft.symlink_to(target.name)
    draft.replace(target.parent / "current")


def _claude_code(folder: Path, *, uv: str) -> None:
    sys.stderr.write("installing Claude Code (a wheel of 160 MB)\n")
    # Only the package that carries the program: what its Python library needs is of no use here.
    pinned = ["--no-deps", "--require-hashes", "--only-binary", ":all:", "-r", str(LOCKS / "agents.lock")]
    _run([uv, "pip", "install", "--quiet", "--python", sys.executable, "--target", folder, *pinned])


def _pi(folder: Path) -> None:
    sys.stderr.write("installing pi (188 npm packages)\n")
    folder.mkdir()
    for name in ("package.json", "package-lock.json"):
        shutil.copy(LOCKS / "pi" / name, folder)
    # Install scripts fetch and build what pi does without.
    quiet = ["--ignore-scripts", "--no-audit", "--no-fund", "--loglevel", "error"]
    _run(["npm", "ci", "--prefix", folder, *quiet])


def _run(argv: list[str | Path]) -> None:
    subprocess.run(argv, check=True, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, close_fds=False)


if __name__ == "__main__":
    try:
        install(Path(sys.argv[1]), uv=sys.argv[2])
    except FileNotFoundError as error:
        sys.exit(f"not installed: {error.filename} is not on this machine")
    except subprocess.CalledProcessError as error:
        sys.exit(f"not installed: {error.cmd[0]} ended with {error.returncode}")
