"""`proctor doctor` and `proctor runtimes list`: this machine, and what dead runs left."""

import json
import os
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import anyio
import pytest

from proctor.campaign.preflight import preflight
from proctor.campaign.scratch import SweepResult, open_scratch, scratch_of_runs, sweep
from proctor.clock import SYSTEM_CLOCK
from proctor.config.load import load_config
from proctor.contain.intent import take_lock
from proctor.event.outcome import Outcome
from proctor.evidence.health import ProgramEvent, ProgramKey, write_health
from proctor.evidence.layout import RootPaths
from proctor.ids import AttemptId, CampaignId, RunId, RuntimeId
from proctor.ledger.writer import open_ledger, seal_attempt
from proctor.runtime.registry import offers
from proctor.spec.load import load_spec
from proctor.surface.check_root import check_evidence_root
from proctor.surface.finding import DoctorFinding
from tests.lab import Lab, mission, say_done
from tests.locked import locked_codex_sha256
from tests.plugins import LIKE_CODEX, install
from tests.report.made import CAMPAIGN, campaign, summary, trial

CODEX = RuntimeId("codex_app_server")


def by_name(lab: Lab, **env: str) -> tuple[int, dict[str, dict[str, Any]]]:
    return checks_of(lab.proctor("doctor", "--json", **env))


def checks_of(said: "CompletedProcess[str]") -> tuple[int, dict[str, dict[str, Any]]]:
    assert said.stderr == ""
    return said.returncode, {check["name"]: check for check in json.loads(said.stdout)["checks"]}


def order(lab: Lab) -> dict[str, DoctorFinding]:
    return {each.name: each for each in check_evidence_root(RootPaths(lab.root), load_config(lab.folder))}


def runtimes_of(said: "CompletedProcess[str]") -> dict[str, dict[str, Any]]:
    return {each["id"]: each for each in json.loads(said.stdout)["runtimes"]}


@pytest.mark.requirement("ops.doctor")
def test_a_machine_that_can_do_everything_is_well_and_stale_scratch_is_gone(lab: Lab, tmp_path: Path) -> None:
    stale = tmp_path / "cache" / "proctor" / "runs" / "20200101-000000-abcdef"
    (stale / "attempts" / "a" / "workspace").mkdir(parents=True)
    own = {"XDG_CACHE_HOME": str(tmp_path / "cache"), "XDG_STATE_HOME": str(tmp_path / "state")}
    code, checks = by_name(lab, **own, SOME_API_KEY="sk-0123456789")
    assert code == 0
    not_needed = set(offers()) - {"codex_app_server"}
    assert {name: check["status"] for name, check in checks.items() if name not in not_needed} == dict.fromkeys(
        (
            *("proctor", "containment", "config", "codex_app_server", "scripted model", "logins", "evidence", "cache"),
            *("state", "disk", "leftovers", "scratch", "campaigns", "locks", "retention"),
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
def test_logins_are_told_by_name_with_what_to_do_where_there_are_none(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    tokens = ("CODEX_ACCESS_TOKEN", "CLAUDE_CODE_OAUTH_TOKEN")
    for name in [each for each in os.environ if each.endswith("_API_KEY") or each in tokens]:
        monkeypatch.delenv(name)
    home = lab.folder / "mine"
    home.mkdir()
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(home))
    code, checks = by_name(lab, CODEX_HOME=str(home))
    assert (code, checks["logins"]["status"]) == (0, "warn")
    assert checks["logins"]["more"] == [
        "api-key: no key: set the provider's variable, such as OPENAI_API_KEY",
        f"inherit: {home}/.credentials.json does not exist: run `claude auth login`",
        "token: CLAUDE_CODE_OAUTH_TOKEN is not set; `token:` may name any other variable, or a file",
        f"inherit: {home}/auth.json does not exist: run `codex login`",
        "token: CODEX_ACCESS_TOKEN is not set; `token:` may name any other variable, or a file",
    ]
    (home / "auth.json").write_text("{bad")
    assert by_name(lab, CODEX_HOME=str(home))[1]["logins"]["more"][3].startswith(
        f"inherit: {home}/auth.json cannot be read as a login: Expecting property name"
    )
    (home / "auth.json").write_text('{"OPENAI_API_KEY": "sk-in-a-file"}')
    held = {"MY_API_KEY": "sk-in-a-variable", "CODEX_ACCESS_TOKEN": "at-in-a-variable"}
    said = lab.proctor("doctor", "--json", CODEX_HOME=str(home), **held)
    [logins] = [check for check in json.loads(said.stdout)["checks"] if check["name"] == "logins"]
    assert [each["isThere"] for each in logins["facts"]["logins"]] == [True, False, False, True, True]
    assert "MY_API_KEY" in said.stdout
    assert [word for word in ("sk-in-a-file", "sk-in-a-variable", "at-in-a-variable") if word in said.stdout] == []


@pytest.mark.requirement("ops.doctor")
def test_a_missing_program_and_an_unwritable_root_exit_3_and_say_what_to_do(lab: Lab) -> None:
    said = lab.proctor("doctor", "--root", "/proc/nowhere", PROCTOR_CODEX="/nowhere/codex")
    assert said.returncode == 3
    assert "fail  codex_app_server  /nowhere/codex: No such file or directory; install" in said.stdout
    assert "fail  evidence          /proc cannot be written" in said.stdout
    assert said.stdout.endswith("Failed: codex_app_server, evidence, disk\n")


def test_a_file_in_the_place_of_a_folder_fails_and_no_path_is_broken(lab: Lab) -> None:
    lab.root.write_text("")
    deep = lab.folder / ("x" * 30) / ("y" * 100)
    deep.mkdir(parents=True)
    said = lab.proctor("doctor", XDG_CACHE_HOME=str(deep), XDG_STATE_HOME="/proc/nowhere")
    assert said.returncode == 3
    assert f"{lab.root} is a file, not a folder" in " ".join(said.stdout.split())
    assert f"{deep}/proctor\n" in said.stdout
    assert "choose another folder with XDG_STATE_HOME." in said.stdout
    assert "also available: warden (level 3)\n" in said.stdout


def test_runtimes_tell_their_claims_and_the_locked_program_or_what_to_install(lab: Lab) -> None:
    found = runtimes_of(lab.proctor("runtimes", "list", "--json"))["codex_app_server"]
    assert (found["id"], found["transports"], found["problem"]) == ("codex_app_server", ["stdio", "websocket"], None)
    assert (found["capabilities"]["interrupt"], found["capabilities"]["compaction"]) == (True, True)
    assert (found["program"]["sha256"], found["isLocked"]) == (locked_codex_sha256(), True)
    absent = lab.proctor("runtimes", "list", "--json", PROCTOR_CODEX="/nowhere")
    missing = runtimes_of(absent)["codex_app_server"]
    assert (missing["program"], missing["problem"]["code"]) == (None, "machine.binary-missing")
    assert "openai-codex-cli-bin" in missing["problem"]["what"]


@pytest.mark.requirement("ops.doctor")
def test_counts_of_starts_last_and_a_default_runtime_that_keeps_failing_exits_3(lab: Lab) -> None:
    program = ProgramKey(RuntimeId("codex_app_server"), locked_codex_sha256())
    now_ms = SYSTEM_CLOCK.wall_ms()
    write_health(lab.root / "health.db", [ProgramEvent(program=program, at_ms=now_ms, code=None)])
    code, checks = by_name(lab)
    assert (code, checks["codex_app_server"]["more"]) == (
        0,
        ["rollout: default (built in)", "health: 1 starts, 0 failed, 0 crashes"],
    )
    write_health(lab.root / "health.db", [ProgramEvent(program=program, at_ms=now_ms, code="peer.hangup")] * 3)
    code, checks = by_name(lab)
    found = checks["codex_app_server"]
    assert (code, found["status"], found["facts"]["health"]["failedStarts"]) == (3, "fail", 3)
    assert found["more"][1] == "health: 4 starts, 3 failed, 0 crashes, last error peer.hangup"
    (lab.folder / "proctor.toml").write_text('rollout.codex_app_server.state = "selectable"\n')
    code, checks = by_name(lab)
    assert (code, checks["codex_app_server"]["status"]) == (0, "warn"), "what is not the default can be done without"
    (lab.root / "health.db").write_text("no database, though it looks like one from afar")
    code, checks = by_name(lab)
    assert (code, checks["health"]["status"], checks["codex_app_server"]["status"]) == (0, "warn", "ok")


@pytest.mark.proctor_process
@pytest.mark.requirement("runtime.strategy.ids")
@pytest.mark.requirement("ops.doctor")
def test_plugins_are_listed_with_their_package_and_one_that_fails_hides_no_other(lab: Lab) -> None:
    site = lab.folder / "site"
    install(
        site, "tau-for-proctor", points={"tau": "tau_plugin:RUNTIME"}, modules={"tau_plugin": "raise OSError('no')"}
    )
    install(site, "twin", points={"twin": "twin_plugin:RUNTIME"}, modules={"twin_plugin": LIKE_CODEX.format(id="twin")})
    config = lab.folder / "proctor.toml"
    others = {
        "dialects": {"chalk": "no:X"},
        "probes": {"smell": "no:X"},
        "engines": {"glossary": "no:X"},
    }
    install(site, "others", points={}, modules={}, **others)
    config.write_text('plugins = ["tau", "gone", "chalk", "smell", "glossary"]\n[rollout.twin]\nenabled = false\n')
    listed = runtimes_of(lab.proctor_process("runtimes", "list", "--json", PYTHONPATH=str(site)))
    codex, tau, twin = (listed[name] for name in ("codex_app_server", "tau", "twin"))
    assert [(each["distributions"], each["isBuiltIn"], each["isNamed"]) for each in (codex, tau, twin)] == [
        (["proctor-harness"], True, False),
        (["tau-for-proctor"], False, True),
        (["twin"], False, False),
    ]
    assert (codex["problem"], codex["isLocked"]) == (None, True)
    assert (tau["problem"]["code"], tau["capabilities"]) == ("runtime.broken", None)
    assert (twin["problem"]["code"], twin["capabilities"]) == ("runtime.not-allowed", None)
    assert twin["rollout"] == {
        "isEnabled": False,
        "enabledBy": "proctor.toml:3",
        "state": "selectable",
        "stateBy": "built in",
        "requires": "declared",
    }
    shown = lab.proctor_process("runtimes", "list", PYTHONPATH=str(site)).stdout
    assert "twin: plugin, not named in any config" in shown
    code, checks = checks_of(lab.proctor_process("doctor", "--json", PYTHONPATH=str(site)))
    assert code == 0
    assert {name: checks[name]["status"] for name in ("config", "codex_app_server", "tau", "twin")} == {
        "config": "warn",
        "codex_app_server": "ok",
        "tau": "warn",
        "twin": "ok",
    }
    assert checks["config"]["more"] == ["gone is listed, but no installed package provides it"]
    named = '`plugins = ["tau", "gone", "chalk", "smell", "glossary", "twin"]`'
    assert checks["twin"]["more"][1] == f"Change line 1 of {config} to {named}."


def test_scratch_of_a_live_run_and_what_was_kept_on_purpose_stay(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    runs = scratch_of_runs()
    (runs / "dead" / "attempts").mkdir(parents=True)
    with open_scratch(RunId("kept"), is_kept=True):
        pass
    with open_scratch(RunId("live"), is_kept=False) as folder:
        assert sweep(runs) == SweepResult(removed=("dead",), kept=("kept",), busy=("live",))
        assert folder.is_dir()
    assert sweep(runs) == SweepResult(kept=("kept",))


def test_the_next_run_sweeps_what_a_killed_one_left() -> None:
    dead = scratch_of_runs() / "dead" / "attempts"
    dead.mkdir(parents=True)
    anyio.run(preflight, load_spec(Path(__file__).parents[2] / "examples" / "quickstart.yaml"))
    assert not dead.parent.exists()


@pytest.mark.requirement("ops.doctor")
def test_campaigns_that_stand_still_are_told_and_a_ledger_that_cannot_be_read_exits_3(lab: Lab) -> None:
    first = campaign(lab.root, "fix", untried=("later",))
    unmade = RootPaths(lab.root).campaign(CampaignId("unmade-20260101-110000-aaaaaa"))
    unmade.create()
    found = order(lab)["campaigns"]
    assert (found.status, found.todo) == ("warn", f"proctor campaign resume {CAMPAIGN}")
    assert found.what == "2 campaigns, 1 unfinished, 1 interrupted before anything ran"
    lock = take_lock(first.folder)
    assert lock is not None
    checks = order(lab)
    assert (checks["campaigns"].facts["running"], checks["campaigns"].facts["notDone"]) == ([CAMPAIGN], [])
    assert checks["locks"].facts["held"] == [str(first.folder)]
    os.close(lock)
    assert order(lab)["locks"].facts["held"] == []
    first.ledger.write_text("no ledger")
    code, told = by_name(lab)
    assert (code, told["campaigns"]["status"], told["campaigns"]["more"]) == (3, "fail", [CAMPAIGN])
    assert told["campaigns"]["todo"].endswith(f"validate {CAMPAIGN} --root {lab.root}")


_ENDINGS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("wrong", {}),
    ("late", {"outcome": Outcome.CRASHED, "code": "peer.hangup"}),
)


@pytest.mark.requirement("ops.doctor")
def test_how_attempts_of_a_runtime_ended_is_counted_over_all_campaigns(lab: Lab) -> None:
    made = campaign(lab.root, "fix", unsettled=("wrong", "late"))
    with open_ledger(made.ledger) as book:
        for mission, changes in _ENDINGS:
            attempt = AttemptId(f"{trial(mission).id}.1")
            book.apply([seal_attempt(attempt, summary(attempt, runtime=CODEX, **changes), at_ms=3)])
    found = by_name(lab)[1][CODEX]
    assert found["facts"]["outcomes"] == {"completed": 2, "crashed (peer.hangup)": 1}
    assert found["more"][-1] == "attempts: 2 completed, 1 crashed (peer.hangup)"


def write_prices(lab: Lab, *, since: str) -> None:
    """A price file, and the spec that names it."""
    spec = lab.write_spec([mission("one", say_done())], prices="prices.yaml")
    (lab.folder / "proctor.yaml").write_text(spec.read_text())
    models = "models: {openai/gpt-x: {input: 1, output: 2}}"
    (lab.folder / "prices.yaml").write_text(f"version: 1\nsince: {since}\n{models}\n")


@pytest.mark.requirement("ops.doctor")
def test_prices_that_no_campaign_would_take_hide_nothing_else(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(lab.folder)
    write_prices(lab, since="2026-01-01T00:00:00")
    assert list(order(lab)) == ["campaigns", "locks", "retention"]


@pytest.mark.requirement("ops.doctor")
def test_what_is_due_to_go_and_how_old_prices_are_is_told(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(lab.folder)
    made = campaign(lab.root, "fix")
    for path in (made.folder, *made.folder.iterdir()):
        os.utime(path, (0, 0))
    (lab.folder / "proctor.toml").write_text('[retention]\nolder_than = "30d"\n')
    write_prices(lab, since="2020-01-01")
    checks = order(lab)
    assert (checks["retention"].status, checks["retention"].facts["due"]) == ("warn", [CAMPAIGN])
    assert checks["retention"].todo == "proctor gc --dry-run"
    assert (checks["prices"].status, checks["prices"].facts["ageDays"] > 2000) == ("warn", True)
    assert made.folder.is_dir(), "the doctor takes no evidence away"
