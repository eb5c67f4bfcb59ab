"""Proofs belong to the user, and a rollout can require them before a flow may use a runtime."""

import json
from pathlib import Path
from typing import Any

import pytest

from proctor import __version__, places
from proctor.evidence.proofs import ProofRow, add_proofs, read_proofs
from proctor.ids import RuntimeId
from proctor.runtime.proof import PROVING_CASES
from tests.lab import Lab, mission, runner_ref_of, say_done
from tests.locked import locked_codex_sha256

CODEX = "codex_app_server"
REQUIRES = f'[rollout.{CODEX}]\nstate = "default"\nrequires = "proven"\n'


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No proofs of other tests."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


def proofs(*, subject: str, result: str = "passed", transport: str = "stdio") -> list[ProofRow]:
    """The results of a whole run of the suite."""
    return [
        ProofRow(
            runtime_id=RuntimeId(CODEX),
            transport=transport,
            isolation="shared",
            subject=subject,
            version="0.163.0",
            case=case,
            result=result,
            what=None,
            at_ms=1,
            proctor=__version__,
        )
        for cases in PROVING_CASES.values()
        for case in cases
    ]


def required(lab: Lab, *runtimes: str, **options: Any) -> str:
    spec = lab.write_spec([mission("m", say_done())], flow={"runtime": list(runtimes), "options": {CODEX: options}})
    (spec.parent / "proctor.toml").write_text(REQUIRES)
    return str(spec)


def lint(lab: Lab, spec: str) -> tuple[int, list[dict[str, Any]]]:
    done = lab.proctor("campaign", "lint", spec, "--json")
    return done.returncode, json.loads(done.stdout)["findings"]


@pytest.mark.trust
@pytest.mark.requirement("runtime.capability.proven")
def test_rollout_that_requires_proof_refuses_an_unproven_runtime(lab: Lab) -> None:
    spec = required(lab, CODEX)
    code, [finding] = lint(lab, spec)
    assert (code, finding["code"]) == (3, "runtime.unproven")
    assert "must be proven (proctor.toml:3), but with its program threadStart is declared" in finding["what"]
    assert finding["suggestion"] == f"Run `proctor runtimes conformance {CODEX} --transport stdio`."
    done = lab.proctor("run", spec, "--json")
    assert (done.returncode, json.loads(done.stdout)["error"]["code"]) == (3, "runtime.unproven")


@pytest.mark.trust
@pytest.mark.requirement("runtime.capability.proven")
def test_rollout_that_requires_proof_counts_only_proofs_of_this_program_and_transport(lab: Lab) -> None:
    spec = required(lab, CODEX)
    add_proofs(places.state_dir(), proofs(subject="another program"))
    code, [finding] = lint(lab, spec)
    assert (code, "threadStart is stale" in finding["what"]) == (3, True)
    add_proofs(places.state_dir(), proofs(subject=locked_codex_sha256(), transport="websocket"))
    assert lint(lab, spec)[0] == 3
    assert lint(lab, required(lab, CODEX, transport="websocket")) == (0, [])
    add_proofs(places.state_dir(), proofs(subject=locked_codex_sha256()))
    assert lint(lab, required(lab, CODEX)) == (0, [])
    add_proofs(places.state_dir(), proofs(subject=locked_codex_sha256(), result="failed"))
    code, [finding] = lint(lab, spec)
    assert (code, "threadStart is FAILED" in finding["what"]) == (3, True)


@pytest.mark.trust
@pytest.mark.real_agent
@pytest.mark.requirement("runtime.capability.proven")
def test_runtime_that_must_be_proven_can_be_proven_and_then_runs(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    spec = required(lab, "auto")
    # The suite runs campaigns on the runtime, in a project that allows only proven ones.
    monkeypatch.chdir(Path(spec).parent)
    rows = [row for row in proofs(subject=locked_codex_sha256()) if row.case != "one-turn"]
    add_proofs(places.state_dir(), rows)
    assert lint(lab, spec)[0] == 3
    done = lab.proctor("runtimes", "conformance", CODEX, "--case", "one-turn")
    assert done.returncode == 0, done.stdout + done.stderr
    done = lab.proctor("runtimes", "conformance", CODEX, "--case", "rederive")
    assert done.returncode == 0, done.stdout + done.stderr
    lab.run(Path(spec))
    [paths] = lab.attempts().values()
    rollout = runner_ref_of(paths).facts["rollout"]
    assert rollout.value == {"state": "default", "autoResolves": True, "requires": "proven"}


@pytest.mark.trust
def test_proofs_are_shared_by_all_evidence_roots_of_a_user(lab: Lab) -> None:
    add_proofs(places.state_dir(), proofs(subject=locked_codex_sha256()))
    for root in ("one", "two"):
        done = lab.proctor("runtimes", "matrix", "--json", PROCTOR_ROOT=str(lab.folder / root))
        [column] = [
            each for each in json.loads(done.stdout)["columns"] if (each["id"], each["transport"]) == (CODEX, "stdio")
        ]
        assert set(column["capabilities"].values()) == {"proven"}
    assert len(read_proofs(places.state_dir())) == len(proofs(subject=""))


@pytest.mark.requirement("runtime.capability.proven")
def test_contract_shows_what_is_proven_beside_what_is_declared(lab: Lab) -> None:
    add_proofs(places.state_dir(), proofs(subject=locked_codex_sha256())[1:])
    runtimes = {each["id"]: each for each in json.loads(lab.proctor("contract", "--json").stdout)["runtimes"]}
    codex = runtimes[CODEX]
    assert codex["capabilities"]["threadStart"] is codex["capabilities"]["turnSteer"] is True
    assert (codex["proven"]["stdio"]["threadStart"], codex["proven"]["stdio"]["turnSteer"]) == ("declared", "proven")
    assert set(codex["proven"]["websocket"].values()) == {"declared"}
    assert runtimes["codex_exec"]["proven"]["stdio"]["approvals"] == "not declared"
    (places.state_dir() / "proofs.db").write_text("not a database")
    done = lab.proctor("contract", "--json")
    assert done.returncode == 0
    damaged = {each["id"]: each for each in json.loads(done.stdout)["runtimes"]}[CODEX]
    assert (damaged["proven"], damaged["problem"].partition(":")[0]) == (None, "machine.proofs")


@pytest.mark.real_agent
@pytest.mark.requirement("runtime.capability.proven")
@pytest.mark.requirement("runtime.identity")
def test_attempts_of_every_runtime_have_profile_proofs_and_schema_as_facts(lab: Lab) -> None:
    lab.is_other_agent_allowed = True
    add_proofs(places.state_dir(), proofs(subject=locked_codex_sha256()))
    command: dict[str, Any] = {"contain": "none", "options": {"process": {"command": "cat"}}}
    flows: list[dict[str, Any]] = [
        *({"id": each.replace("_", "-"), "runtime": [each]} for each in (CODEX, "codex_exec")),
        {"id": "process", "runtime": ["process"], **command},
    ]
    lab.run(lab.write_spec([mission("m", say_done())], flows=[{**flow, "isolation": "process"} for flow in flows]))
    facts = {name.split(".")[1]: runner_ref_of(paths).facts for name, paths in lab.attempts().items()}
    profiles = {name: each["capabilityProfile"].value for name, each in facts.items()}
    assert profiles == {
        "codex-app-server": "full-app-server",
        "codex-exec": "headless-limited",
        "process": "headless-limited",
    }
    proven = {name: each["provenCapabilities"].value["threadStart"] for name, each in facts.items()}
    assert proven == {"codex-app-server": "proven", "codex-exec": "declared", "process": "declared"}
    app_server, exec_ = (facts[name]["schemaDigest"] for name in ("codex-app-server", "codex-exec"))
    assert app_server == exec_
    assert (app_server.value, app_server.authority) == (facts["codex-app-server"]["schema"].value["digest"], "observed")
    assert (facts["process"]["schemaDigest"].value, facts["process"]["schemaDigest"].authority) == (None, "unknown")


@pytest.mark.trust
def test_damaged_proofs_stop_only_flows_that_require_proof(lab: Lab) -> None:
    (places.state_dir() / "proofs.db").write_text("not a database")
    code, [finding] = lint(lab, required(lab, CODEX))
    assert (code, finding["code"]) == (3, "machine.proofs")
    (lab.folder / "spec" / "proctor.toml").unlink()
    assert lint(lab, str(lab.folder / "spec" / "spec.yaml")) == (0, [])
