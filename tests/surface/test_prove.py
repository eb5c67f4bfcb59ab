"""`proctor runtimes probe`: what is claimed, and what the real program shows of it."""

import json
from typing import Any

import msgspec
import pytest

from proctor import places
from proctor.errors import Exit
from proctor.ids import StrategyId
from proctor.runtime.capability import Claims
from proctor.surface import prove as prove_module
from proctor.surface.prove import Proof, prove
from proctor.testing.proofs import CASES, UnprovenError
from proctor.testing.trial import Trial
from tests.lab import Lab

CODEX = StrategyId("codex_app_server")


@pytest.mark.real_agent
@pytest.mark.requirement("runtime.capability.proven")
def test_every_claim_is_shown_by_the_locked_program_and_nothing_is_left(lab: Lab) -> None:
    done = lab.proctor("runtimes", "probe", CODEX, "--json")
    told = json.loads(done.stdout)
    [found] = told["runtimes"]
    every = json.loads(lab.proctor("runtimes", "list", "--json").stdout)["runtimes"]
    [listed] = [each for each in every if each["id"] == CODEX]
    assert (done.returncode, told["exit"], found["exit"], found["problem"]) == (0, 0, 0, None)
    assert found["program"] == listed["program"]
    shown = {proof["name"]: proof["isProven"] for proof in found["proofs"]}
    assert shown == {"handshake": True, **{name: is_claimed or None for name, is_claimed in listed["claims"].items()}}
    assert list(places.state_dir().glob("spawns/*/probe-*")) == [], "every process of it is known to be gone"
    assert list(places.cache_dir().glob("runs/probe-*")) == []
    assert "structured output" in lab.proctor("runtimes", "probe").stdout


def test_an_agent_that_cannot_be_started_is_told_and_an_unknown_one_is_a_mistake(lab: Lab) -> None:
    done = lab.proctor("runtimes", "probe", CODEX, "--json", PROCTOR_CODEX="/nowhere/codex")
    [found] = json.loads(done.stdout)["runtimes"]
    assert (done.returncode, found["problem"]["code"], found["proofs"]) == (3, "machine.binary-missing", [])
    wrong = lab.proctor("runtimes", "probe", "codex_app_sever", "--json")
    assert (wrong.returncode, json.loads(wrong.stdout)["error"]["code"]) == (2, "spec.unknown-runtime")


@pytest.mark.real_agent
@pytest.mark.requirement("runtime.capability.proven")
def test_a_claim_that_is_not_shown_or_cannot_be_tried_is_no_proof(monkeypatch: pytest.MonkeyPatch) -> None:
    async def passes(_: Trial) -> None:
        pass

    async def fails(_: Trial) -> None:
        raise UnprovenError("nothing was heard")

    async def breaks(_: Trial) -> None:
        raise ExceptionGroup("", [KeyError("thread")])

    def claims_of(found: Any) -> list[Proof]:
        return [proof for proof in found.proofs if proof.is_claimed]

    claims = Claims(thread_start=True, interrupt=True)
    monkeypatch.setattr("proctor.runtime.codex_app_server.CodexAppServer.claims", claims)
    monkeypatch.setattr(prove_module, "CASES", {"thread_start": passes, "interrupt": fails})
    found = prove(CODEX)
    assert found.exit is Exit.JUDGED_NO
    assert claims_of(found)[1:] == [
        Proof(name="threadStart", is_claimed=True, is_proven=True),
        Proof(name="interrupt", is_claimed=True, is_proven=False, what="nothing was heard"),
    ]
    monkeypatch.setattr(prove_module, "CASES", {"thread_start": breaks, "interrupt": passes})
    assert claims_of(prove(CODEX))[1].what == "KeyError: 'thread'"
    monkeypatch.setattr(prove_module, "CASES", {"thread_start": passes})
    found = prove(CODEX)
    assert found.exit is Exit.UNVERIFIED
    assert claims_of(found)[-1] == Proof(name="interrupt", is_claimed=True, what="nothing tries to prove it")


def test_there_is_a_case_for_everything_that_can_be_claimed() -> None:
    assert set(CASES) == {field.name for field in msgspec.structs.fields(Claims)}


def test_what_runs_only_what_a_flow_names_is_not_tried_and_not_disproved() -> None:
    found = prove(StrategyId("process"))
    assert (found.exit, found.program, found.problem) == (Exit.UNVERIFIED, None, None)
    claimed = [proof for proof in found.proofs if proof.is_claimed and proof.name != "handshake"]
    assert {proof.is_proven for proof in claimed} == {None}
    assert {proof.what for proof in claimed} == {
        "command: a process needs `command`: a list of words, or a line for bash"
    }
