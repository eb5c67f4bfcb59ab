"""`proctor doctor` and `proctor runtimes list`: this machine, and what dead runs left."""

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from proctor.surface.scratch import Swept, keep, sweep
from tests.lab import Lab
from tests.locked import locked_codex_sha256


def by_name(lab: Lab, **env: str) -> tuple[int, dict[str, dict[str, Any]]]:
    said = lab.proctor("doctor", "--json", **env)
    assert said.stderr == ""
    return said.returncode, {check["name"]: check for check in json.loads(said.stdout)["checks"]}


@pytest.mark.requirement("ops.doctor")
def test_a_machine_that_can_do_everything_is_well_and_stale_scratch_is_gone(lab: Lab, tmp_path: Path) -> None:
    stale = tmp_path / "cache" / "proctor" / "runs" / "20200101-000000-abcdef"
    (stale / "attempts" / "a" / "workspace").mkdir(parents=True)
    code, checks = by_name(lab, XDG_CACHE_HOME=str(tmp_path / "cache"), XDG_STATE_HOME=str(tmp_path / "state"))
    assert code == 0
    assert {name: check["status"] for name, check in checks.items()} == dict.fromkeys(
        (
            *("proctor", "containment", "codex_app_server", "scripted model", "evidence", "cache", "state"),
            *("disk", "leftovers", "scratch"),
        ),
        "ok",
    )
    assert (checks["scratch"]["facts"]["removed"], stale.exists()) == ([stale.name], False)
    assert checks["containment"]["facts"]["rung"] == 1
    assert [each["variant"] for each in checks["containment"]["facts"]["survey"]] == [
        *("bwrap", "bundled-bwrap", "unshare", "cgroup", "warden")
    ]
    assert not lab.root.exists(), "looking at the evidence root does not make it"


@pytest.mark.requirement("ops.doctor")
def test_a_missing_program_and_an_unwritable_root_exit_3_and_say_what_to_do(lab: Lab) -> None:
    said = lab.proctor("doctor", "--root", "/proc/nowhere", PROCTOR_CODEX="/nowhere/codex")
    assert said.returncode == 3
    assert "fail  codex_app_server  /nowhere/codex: No such file or directory; install" in said.stdout
    assert "fail  evidence          /proc cannot be written" in said.stdout
    assert said.stdout.endswith("Wrong: codex_app_server, evidence.\n")


def test_runtimes_tell_their_claims_and_the_locked_program_or_what_to_install(lab: Lab) -> None:
    [found] = json.loads(lab.proctor("runtimes", "list", "--json").stdout)["runtimes"]
    assert (found["id"], found["transport"], found["problem"]) == ("codex_app_server", "stdio", None)
    assert (found["claims"]["interrupt"], found["claims"]["compaction"]) == (True, False)
    assert (found["program"]["sha256"], found["isLocked"]) == (locked_codex_sha256(), True)
    [missing] = json.loads(lab.proctor("runtimes", "list", "--json", PROCTOR_CODEX="/nowhere").stdout)["runtimes"]
    assert (missing["program"], missing["problem"]["code"]) == (None, "machine.binary-missing")
    assert "openai-codex-cli-bin" in missing["problem"]["what"]


@contextmanager
def live_campaign(root: Path, *, stamp: str) -> Iterator[None]:
    folder = root / "campaigns" / f"other-{stamp}-abcdef"
    folder.mkdir(parents=True)
    handle = os.open(folder / "lock", os.O_RDWR | os.O_CREAT)
    try:
        yield
    finally:
        os.close(handle)


def test_scratch_of_a_live_run_and_what_was_kept_on_purpose_stay(tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    names = ["19700101-000000-aaaaaa", "19710101-000000-bbbbbb", "19720101-000000-cccccc"]
    for name in names:
        (runs / name / "attempts").mkdir(parents=True)
    keep(runs / names[1])
    with live_campaign(tmp_path, stamp="19711231-235959"):
        assert sweep(runs) == Swept(removed=(names[0],), kept=(names[1],), busy=(names[2],))
    # Others that run while this does may be live too, and no older than that.
    assert names[2] in sweep(runs).removed
    assert sorted(each.name for each in runs.iterdir()) == [names[1]]
