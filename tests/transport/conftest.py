import os
import secrets
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

import pytest

from proctor.contain.bundled import CODEX_WHEEL, bundled_file
from proctor.contain.identity import identify, is_alive
from proctor.contain.ladder import FORCE_VARIABLE, Containment, Variant, choose, survey
from proctor.contain.launch import LaunchPlan, new_marker, wrap

WAIT_S = 20.0


class Plan(Protocol):
    def __call__(self, line: str) -> LaunchPlan: ...


@pytest.fixture
def containment(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Containment:
    """The way to contain that the test asks for, also for the Proctors it starts; else one that every checkout has."""
    bundled = bundled_file(CODEX_WHEEL, "codex-resources/bwrap")
    assert bundled is not None
    folder = tmp_path / "bin"
    folder.mkdir()
    (folder / "bwrap").symlink_to(bundled)
    monkeypatch.setenv("PATH", str(folder), prepend=os.pathsep)
    monkeypatch.setenv(FORCE_VARIABLE, getattr(request, "param", Variant.BUNDLED_BWRAP))
    return choose(survey(bundled_bwrap=bundled))


@pytest.fixture
def shell(containment: Containment, tmp_path: Path) -> Plan:
    """A plan that runs a shell line."""

    def plan(line: str) -> LaunchPlan:
        env = {"PATH": os.environ["PATH"]}
        return wrap(containment, ["sh", "-c", line], env=env, cwd=tmp_path, marker=new_marker())

    return plan


@pytest.fixture
def nap() -> str:
    """A `sleep` argument that no other process on this machine has."""
    return f"300.{secrets.randbelow(10**12):012}"


def alive_with(word: str) -> list[int]:
    """Pids of live processes that have `word` as an argument; zombies have none."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            is_one = entry.name.isdigit() and word.encode() in (entry / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        identity = identify(int(entry.name)) if is_one else None
        if identity is not None and is_alive(identity):
            found.append(identity.pid)
    return found


@pytest.fixture
def settle_at(nap: str) -> Callable[[int], Sequence[int]]:
    """Wait until `count` processes sleep this test's nap, and return their pids."""

    def settle(count: int) -> Sequence[int]:
        until = time.monotonic() + WAIT_S
        before: list[int] = []
        # Seen twice: a process is invisible for a moment while it executes another program.
        while len(found := alive_with(nap)) != count or found != before:
            assert time.monotonic() < until, f"{len(found)} of {count} are alive: {found}"
            before = found
            time.sleep(0.005)
        return found

    return settle
