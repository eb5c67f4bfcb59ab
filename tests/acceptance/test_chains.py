"""Chains of runtimes on the real Codex: whoever cannot run is passed over, and the evidence says why."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from proctor.campaign.run import CampaignResult
from proctor.event.outcome import Outcome
from proctor.evidence.health import read_health
from proctor.evidence.layout import RootPaths
from proctor.runtime.registry import built_in_ids
from tests.lab import Lab, mission, runner_ref_of, say_done
from tests.plugins import LIKE_CODEX, install

BROKEN = (
    LIKE_CODEX.format(id="broken")
    + """
from pathlib import Path
from proctor.runtime.codex.program import CODEX
from proctor.runtime.executable import identify

Like.locate = lambda self, options: identify(Path({program!r}), source="override", install="nothing")
"""
)


@pytest.fixture
def broken(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The Codex app-server under the id `broken`, with a program that leaves at once; named in the spec's folder."""
    program = lab.folder / "leaves-at-once"
    program.write_text("#!/bin/sh\nexit 3\n")
    program.chmod(0o755)
    site = lab.folder / "site"
    modules = {"broken_codex": BROKEN.format(program=str(program))}
    install(site, "proctor-broken", points={"broken": "broken_codex:RUNTIME"}, modules=modules)
    monkeypatch.syspath_prepend(site)
    (lab.folder / "proctor.toml").write_text('plugins = ["broken"]\n')
    return program


def resolution(lab: Lab, attempt: str = "hello.codex.r1.1") -> dict[str, Any]:
    value: dict[str, Any] = runner_ref_of(lab.attempts()[attempt]).facts["resolution"].value
    return value


def outcomes(result: CampaignResult) -> list[Outcome]:
    return [each.summary.outcome for each in result.attempts if each.summary is not None]


@pytest.mark.real_agent
@pytest.mark.requirement("runtime.strategy.fallback")
def test_an_unknown_and_an_absent_agent_are_passed_over_and_the_evidence_says_why(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    absent = (
        LIKE_CODEX.format(id="absent")
        + "from proctor.errors import MachineError\n"
        + "def locate(self, options):\n"
        + "    raise MachineError('machine.binary-missing', 'no Absent: install absent==1.0')\n"
        + "Like.locate = locate\n"
    )
    install(lab.folder / "site", "absent", points={"absent": "absent_codex:RUNTIME"}, modules={"absent_codex": absent})
    monkeypatch.syspath_prepend(lab.folder / "site")
    (lab.folder / "proctor.toml").write_text('plugins = ["absent"]\n')
    monkeypatch.setenv("PROCTOR_CLAUDE", "/nowhere/claude")
    chain = ["nonsense", "absent", "claude_code", "codex_app_server"]
    spec = lab.write_spec([mission("hello", say_done("hi"))], flow={"runtime": chain})
    assert outcomes(lab.run(spec)) == [Outcome.COMPLETED]
    ref = runner_ref_of(lab.attempts()["hello.codex.r1.1"])
    found = resolution(lab)
    assert (ref.runtime_id, found["chosen"]) == ("codex_app_server", "codex_app_server")
    assert [(each["runtime"], each["code"]) for each in found["refused"]] == [
        ("nonsense", "spec.unknown-runtime"),
        ("absent", "machine.binary-missing"),
        ("claude_code", "machine.binary-missing" if "claude_code" in built_in_ids() else "spec.unknown-runtime"),
    ]
    assert found["refused"][1]["what"] == "no Absent: install absent==1.0"
    assert (ref.facts["runtimeFlag"].value, ref.facts["rollout"].value["state"]) == (True, "default")
    assert ref.facts["runtimeBinary"].value == ref.facts["identity"].value["sha256"]
    lab.assert_all_evidence_is_valid()


@pytest.mark.real_agent
@pytest.mark.requirement("runtime.strategy.fallback")
@pytest.mark.parametrize("isolation", ["shared", "process"])
def test_an_agent_that_fails_to_start_is_passed_over_once_for_all_attempts(
    lab: Lab, broken: Path, isolation: str
) -> None:
    chain = {"runtime": ["broken", "codex_app_server"], "isolation": isolation}
    spec = lab.write_spec([mission("hello", say_done("hi"))], flow=chain, repeats=3, schedule={"parallel": 3})
    assert outcomes(lab.run(spec)) == [Outcome.COMPLETED] * 3
    for attempt in lab.attempts():
        found = resolution(lab, attempt)
        assert found["chosen"] == "codex_app_server"
        [refused] = found["refused"]
        assert (refused["runtime"], refused["code"]) == ("broken", "peer.hangup")
    lab.assert_all_evidence_is_valid()
    health = read_health(lab.root / "health.db")
    counts = {key.runtime_id: (its.starts, its.failed_starts) for key, its in health.items()}
    assert counts == {"broken": (1, 1), "codex_app_server": (1 if isolation == "shared" else 3, 0)}


@pytest.mark.real_agent
@pytest.mark.requirement("runtime.strategy.fallback")
@pytest.mark.parametrize(("isolation", "processes"), [("shared", 1), ("process", 3)])
def test_a_first_one_that_starts_is_kept_and_whoever_is_behind_it_never_runs(
    lab: Lab, broken: Path, isolation: str, processes: int
) -> None:
    chain = {"runtime": ["codex_app_server", "broken"], "isolation": isolation}
    spec = lab.write_spec([mission("hello", say_done("hi"))], flow=chain, repeats=2, schedule={"parallel": 2})
    assert outcomes(lab.run(spec)) == [Outcome.COMPLETED] * 2
    assert [resolution(lab, attempt)["refused"] for attempt in lab.attempts()] == [[], []]
    [run] = RootPaths(lab.root).runs()
    assert len(list(run.runtimes())) == processes, "shared, the one that was tried is the one that is used"
    assert {key.runtime_id: its.starts for key, its in read_health(lab.root / "health.db").items()} == {
        "codex_app_server": processes
    }
    lab.assert_all_evidence_is_valid()


@pytest.mark.real_agent
@pytest.mark.requirement("runtime.strategy.fallback")
def test_an_agent_that_fails_to_start_alone_is_degraded_in_the_end_and_then_passed_over_unstarted(
    lab: Lab, broken: Path
) -> None:
    alone = lab.write_spec(
        [mission("hello", say_done("hi"))], flow={"runtime": ["broken"], "isolation": "process"}, repeats=3
    )
    lab.is_other_agent_allowed = True
    first = lab.run(alone)
    assert (outcomes(first), first.warnings) == ([Outcome.REFUSED] * 3, ())
    [(key, its)] = read_health(RootPaths(lab.root).health).items()
    assert (key.runtime_id, its.starts, its.failed_starts, its.last_code) == ("broken", 3, 3, "peer.hangup")
    again = lab.run(lab.write_spec([mission("hello", say_done("hi"))], flow={"runtime": ["broken"]}))
    assert outcomes(again) == [Outcome.REFUSED], "alone it is tried all the same"
    assert again.warnings == ("broken failed to start several times in a row, last with peer.hangup",)
    spec = lab.write_spec([mission("other", say_done("hi"))], flow={"runtime": ["broken", "codex_app_server"]})
    assert outcomes(lab.run(spec)) == [Outcome.COMPLETED]
    [refused] = resolution(lab, "other.codex.r1.1")["refused"]
    assert (refused["runtime"], refused["code"]) == ("broken", "runtime.degraded")


@pytest.mark.requirement("ops.doctor")
@pytest.mark.real_agent
def test_an_agent_that_several_attempts_wait_for_has_failed_to_start_once(lab: Lab, broken: Path) -> None:
    spec = lab.write_spec(
        [mission("hello", say_done("hi"))], flow={"runtime": ["broken"]}, repeats=3, schedule={"parallel": 3}
    )
    lab.is_other_agent_allowed = True
    assert outcomes(lab.run(spec)) == [Outcome.REFUSED] * 3
    [run] = RootPaths(lab.root).runs()
    [its] = read_health(lab.root / "health.db").values()
    assert (its.starts, its.failed_starts) == (len(list(run.runtimes())),) * 2


@pytest.mark.real_agent
def test_a_chain_of_which_none_is_left_tells_every_reason_and_what_to_do(lab: Lab, broken: Path) -> None:
    (lab.folder / "proctor.toml").write_text('[rollout.codex_app_server]\nstate = "locked"\n')
    spec = lab.write_spec(
        [mission("hello", say_done("hi"))], flow={"runtime": ["nonsense", "broken", "codex_app_server", "auto"]}
    )
    said = lab.proctor_process("run", str(spec), "--json", PYTHONPATH=str(lab.folder / "site"))
    assert said.returncode == 2
    error = json.loads(said.stdout)["error"]
    assert (error["code"], error["key"], error["file"]) == ("runtime.none", "flows[0].runtime", str(spec))
    assert error["line"] == spec.read_text().splitlines().index("  runtime:") + 1
    invitation = f'Add `plugins = ["broken"]` as the first line of {lab.folder / "proctor.toml"}.'
    for part in (
        "nonsense: unknown runtime 'nonsense'",
        f"broken: broken is a plugin from proctor-broken that no config names (runtime.not-allowed: {invitation})",
        "codex_app_server: codex_app_server is locked by proctor.toml:2",
        "auto: `auto` finds no runtime for scripted",
    ):
        assert part in error["what"]
    assert not lab.root.exists()


def test_a_config_that_is_wrong_is_told_with_its_line_before_anything_runs(lab: Lab) -> None:
    (lab.folder / "proctor.toml").write_text("[rollout.codex_app_server]\nenable = false\n")
    spec = lab.write_spec([mission("hello", say_done("hi"))])
    for words in (("run", str(spec)), ("runtimes", "list")):
        said = lab.proctor(*words, "--json")
        error = json.loads(said.stdout)["error"]
        assert (said.returncode, error["code"], error["line"]) == (2, "spec.unknown-key", 2)
    said = lab.proctor("doctor", "--json")
    [config] = [each for each in json.loads(said.stdout)["checks"] if each["name"] == "config"]
    assert (said.returncode, config["status"], config["todo"]) == (3, "fail", "Did you mean `enabled`?")
    assert os.fspath(lab.folder / "proctor.toml") in config["what"]
