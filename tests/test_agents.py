"""The other agents are installed from locks that pin every byte, whole or not at all."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

LOCKS = Path(__file__).parent.parent / "locks"


def test_the_locks_pin_every_byte_and_name_no_address() -> None:
    packages = json.loads((LOCKS / "pi" / "package-lock.json").read_text())["packages"]
    wanted = json.loads((LOCKS / "pi" / "package.json").read_text())["dependencies"]
    texts = [path.read_text() for path in (LOCKS / "agents.lock", *(LOCKS / "pi").iterdir())]

    assert [name for name, package in packages.items() if name and "sha512-" not in package.get("integrity", "")] == []
    assert {name: packages[f"node_modules/{name}"]["version"] for name in wanted} == wanted
    assert re.findall(r"^(\S+)==\S+ \\\n(?:    --hash=sha256:[0-9a-f]{64}(?: \\)?\n)+", texts[0], re.MULTILINE) == [
        "claude-agent-sdk"
    ]
    assert [text for text in texts if "://" in text] == []


@pytest.fixture
def tools(tmp_path: Path) -> Path:
    """In the place of uv and npm: each leaves a file where it is told to install, and a line that it was run."""
    folder = tmp_path / "tools"
    folder.mkdir()
    for name, option in (("uv", "--target"), ("npm", "--prefix")):
        tool = folder / name
        lines = (
            "#!/bin/sh",
            f'echo {name} >> "{tmp_path}/ran"',
            f'while [ "$1" != {option} ]; do shift; done',
            f'/bin/mkdir -p "$2"; /bin/touch "$2/{name}"',
            f'test ! -e "{tmp_path}/broken"',
        )
        tool.write_text("\n".join(lines) + "\n")
        tool.chmod(0o755)
    return folder


def install(target: Path, tools: Path) -> tuple[int, str]:
    done = subprocess.run(
        [sys.executable, LOCKS / "install.py", target, tools / "uv"],
        env={"PATH": str(tools)},
        capture_output=True,
        text=True,
        timeout=30,
    )
    return done.returncode, done.stderr


def test_an_install_is_whole_or_not_there_and_is_made_once(tmp_path: Path, tools: Path) -> None:
    target = tmp_path / "cache" / "proctor" / "agents" / "0123456789abcdef"
    (tmp_path / "broken").touch()
    assert install(target, tools) == (
        1,
        f"installing Claude Code (a wheel of 160 MB)\nnot installed: {tools / 'uv'} ended with 1\n",
    )
    assert not target.exists()

    (tmp_path / "broken").unlink()
    assert install(target, tools)[0] == 0
    assert install(target, tools) == (0, f"Claude Code and pi are in {target}, where Proctor finds them\n")
    assert (target.parent / "current").resolve() == target.resolve()
    assert (tmp_path / "ran").read_text().split() == ["uv", "uv", "npm"]
    found = sorted(str(path.relative_to(target.parent)) for path in target.parent.rglob("*") if path.is_file())
    assert found == [
        f"{target.name}.lock",
        *(f"{target.name}/{name}" for name in ("node/npm", "node/package-lock.json", "node/package.json", "python/uv")),
    ]


def test_a_tool_that_is_missing_is_named(tmp_path: Path, tools: Path) -> None:
    (tools / "npm").unlink()

    assert install(tmp_path / "a" / "b" / "c", tools)[1].endswith("not installed: npm is not on this machine\n")
