"""`proctor runtimes conformance` and `matrix`: what is claimed, what the real program shows of it, and what is kept."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import anyio
import msgspec
import pytest

from proctor import __version__, places
from proctor.errors import Exit
from proctor.evidence.layout import render_artifact
from proctor.evidence.proofs import ProofRow, add_proofs, read_proofs
from proctor.ids import RuntimeId
from proctor.runtime.capability import Capabilities
from proctor.runtime.proof import ProofState
from proctor.runtime.registry import built_in_ids, runtime_by_id
from proctor.surface.matrix import Matrix, matrix, render_markdown
from proctor.surface.prove import prove
from proctor.testing.conformance import Case, CaseVerdict, Result, Subject, UnprovenError, cases, open_subject, run_case
from tests.lab import Lab
from tests.locked import locked_codex_sha256
from tests.surface.conftest import ask
from tests.test_docs import blocks
from tools.matrix import FIGURES, PAGE

CODEX = "codex_app_server"
CHECKOUT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No proofs of other tests."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


async def passes(_: Subject) -> None:
    """Shows nothing."""


async def fails(_: Subject) -> None:
    raise UnprovenError("nothing was heard")


async def breaks(_: Subject) -> None:
    raise ExceptionGroup("", [KeyError("thread")])


async def waits(_: Subject) -> None:
    await anyio.sleep_forever()


def case(id_: str, run: Any = passes, **more: Any) -> Case:
    return Case(id=id_, sentence="It is so.", run=run, **more)


# ── the suite ──


def test_there_is_a_case_for_everything_that_can_be_claimed_and_every_id_is_one() -> None:
    capabilities = {field.name for field in msgspec.structs.fields(Capabilities)}
    assert {each.proves for each in cases()} - {None} == capabilities
    assert all(set(each.needs) <= capabilities for each in cases())
    assert len({each.id for each in cases()}) == len(cases())


def test_whatever_a_case_does_there_is_a_verdict(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("proctor.testing.conformance.suite.CASE_S", 0.1)

    async def tried() -> list[CaseVerdict]:
        async with open_subject(CODEX) as subject:
            return [await run_case(case("any", run), subject) for run in (passes, fails, breaks, waits)]

    told = [(each.result, each.what) for each in anyio.run(tried)]
    assert told == [
        (Result.PASSED, None),
        (Result.FAILED, "nothing was heard"),
        (Result.FAILED, "KeyError: 'thread'"),
        (Result.FAILED, "no end within 0.1 s"),
    ]


# ── the commands ──


@pytest.mark.real_agent
@pytest.mark.requirement("runtime.capability.proven")
def test_a_case_that_passes_makes_its_claim_proven_for_that_program(lab: Lab) -> None:
    done = ask(lab, "runtimes", "conformance", CODEX, "--case", "structured-output", "--json")
    assert (done.code, done.json["subject"]) == (0, locked_codex_sha256())
    assert [(each["case"], each["result"]) for each in done.json["verdicts"]] == [("structured-output", "passed")]
    assert "passed         structured-output" in done.stderr, "it is told as it happens"
    [row] = read_proofs(places.state_dir())
    assert (row.subject, row.version, row.case, row.result, row.proctor) == (
        locked_codex_sha256(),
        "0.163.0",
        "structured-output",
        "passed",
        __version__,
    )
    [stdio, websocket] = [
        column for column in ask(lab, "runtimes", "matrix", "--json").json["columns"] if column["id"] == CODEX
    ]
    others = {name for name in stdio["capabilities"] if name != "structuredOutput"}
    assert stdio["capabilities"] == {"structuredOutput": "proven", **dict.fromkeys(others, "declared")}
    assert set(websocket["capabilities"].values()) == {"declared"}, "over another transport nothing was shown"
    [shown] = [
        line.split()
        for line in ask(lab, "runtimes", "matrix").stdout.splitlines()
        if line.startswith("structuredOutput")
    ]
    assert shown.count("proven") == 1


def test_what_cannot_be_asked_for_is_a_mistake_and_no_agent_is_infrastructure(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    wrong = {
        ("codex_app_sever",): "spec.unknown-runtime",
        (CODEX, "--transport", "pigeon"): "usage",
        (CODEX, "--case", "levitate"): "usage",
        (CODEX, "--isolation", "none"): "usage",
        ("replay", "--isolation", "shared"): "usage",
    }
    for words, code in wrong.items():
        said = ask(lab, "runtimes", "conformance", *words, "--json")
        assert (said.code, said.json["error"]["code"]) == (2, code)
    monkeypatch.setenv("PROCTOR_CODEX", "/nowhere/codex")
    absent = ask(lab, "runtimes", "conformance", CODEX, "--json")
    assert (absent.code, absent.json["problem"]["code"], absent.json["verdicts"]) == (3, "machine.binary-missing", [])
    assert read_proofs(places.state_dir()) == ()


def test_one_case_that_fails_is_a_no(tmp_path: Path) -> None:
    told = prove(CODEX, folder=tmp_path, isolation="process", only=[case("good"), case("bad", fails)])
    assert (told.exit, [each.result for each in told.verdicts]) == (Exit.JUDGED_NO, [Result.PASSED, Result.FAILED])
    assert [(row.case, row.result, row.what) for row in read_proofs(tmp_path)] == [
        ("good", "passed", None),
        ("bad", "failed", "nothing was heard"),
    ]


# ── the matrix ──


def proof(case_: str, result: str = "passed", **more: Any) -> ProofRow:
    whole: dict[str, Any] = {
        "runtime_id": RuntimeId(CODEX),
        "transport": "stdio",
        "isolation": "shared",
        "subject": locked_codex_sha256(),
        "version": "0.163.0",
        "what": None,
        "at_ms": 0,
        "proctor": __version__,
    }
    return ProofRow(case=case_, result=result, **{**whole, **more})


APPROVALS = {
    "one of two cases is no proof": ([proof("approval-accepted")], ProofState.DECLARED),
    "both are": ([proof("approval-accepted"), proof("approval-denied")], ProofState.PROVEN),
    "a later failure counts": (
        [proof("approval-accepted"), proof("approval-denied"), proof("approval-denied", "failed")],
        ProofState.FAILED,
    ),
    "a later pass makes it good": (
        [proof("approval-denied", "failed"), proof("approval-accepted"), proof("approval-denied")],
        ProofState.PROVEN,
    ),
    "a failure in the other isolation is not made good": (
        [proof("approval-denied", "failed", isolation="process"), proof("approval-accepted"), proof("approval-denied")],
        ProofState.FAILED,
    ),
    "another program": (
        [proof("approval-accepted", subject="00"), proof("approval-denied", subject="00")],
        ProofState.STALE,
    ),
    "another Proctor": (
        [proof("approval-accepted", proctor="0"), proof("approval-denied", proctor="0")],
        ProofState.STALE,
    ),
    "what could not be tried": (
        [proof("approval-accepted"), proof("approval-denied", "not applicable")],
        ProofState.DECLARED,
    ),
    "another transport": (
        [proof("approval-accepted", transport="websocket"), proof("approval-denied", transport="websocket")],
        ProofState.DECLARED,
    ),
}


@pytest.mark.requirement("runtime.capability.proven")
@pytest.mark.parametrize("name", APPROVALS)
def test_declared_is_never_shown_as_proven(tmp_path: Path, name: str) -> None:
    rows, standing = APPROVALS[name]
    add_proofs(tmp_path, rows)
    [column] = [column for column in matrix(tmp_path).columns if (column.id, column.transport) == (CODEX, "stdio")]
    assert column.capabilities["approvals"] is standing


@pytest.mark.requirement("runtime.capability.proven")
def test_the_page_says_what_was_measured_on_the_locked_program() -> None:
    figures = (CHECKOUT / FIGURES).read_bytes()
    told = msgspec.json.decode(figures, type=Matrix)
    assert render_artifact(told) == figures
    assert (CHECKOUT / PAGE).read_text() == render_markdown(told), "run `make matrix`"
    codex = [column for column in told.columns if column.id == CODEX]
    assert {(column.transport, column.subject, column.isolations) for column in codex} == {
        (transport, locked_codex_sha256(), ("process", "shared")) for transport in ("stdio", "websocket")
    }
    assert {standing for column in codex for standing in (*column.capabilities.values(), *column.cases.values())} == {
        ProofState.PROVEN
    }
    assert set(codex[0].cases) == {each.id for each in cases() if each.proves is None}
    shown = {(column.id, column.transport) for column in told.columns}
    assert shown >= {(each, over) for each in built_in_ids() for over in runtime_by_id(each).transports}
    assert "pi" in {column.id for column in told.columns}, "a plugin is shown beside our own"
    assert [
        column.id for column in told.columns if column.subject is None or column.problem or not column.isolations
    ] == []
    standings = {
        standing for column in told.columns for standing in (*column.capabilities.values(), *column.cases.values())
    }
    assert standings == {ProofState.PROVEN, ProofState.NOT_DECLARED, ProofState.NOT_APPLICABLE}
    [exec_column] = [column for column in told.columns if column.id == "codex_exec"]
    assert exec_column.subject == locked_codex_sha256()


@pytest.mark.agent("claude_code")
@pytest.mark.requirement("runtime.capability.proven")
def test_the_page_was_measured_on_the_locked_claude_code() -> None:
    told = msgspec.json.decode((CHECKOUT / FIGURES).read_bytes(), type=Matrix)
    [column] = [column for column in told.columns if column.id == "claude_code"]
    program = runtime_by_id(RuntimeId("claude_code")).locate({})
    assert program is not None
    assert program.is_locked, "what is installed is what its wheel records"
    pinned = "{}=={} ".format(*(program.package or "").split())
    assert pinned in (CHECKOUT / "locks/agents.lock").read_text()
    assert (column.subject, column.is_locked, column.version) == (program.sha256, True, "2.1.325")


# ── for other people's runtimes ──


@pytest.mark.real_agent
@pytest.mark.requirement("surface.docs")
def test_the_example_for_other_peoples_tests_runs(lab: Lab) -> None:
    [example] = blocks("python", CHECKOUT / "docs/howto/onboard-a-runtime.md")
    file = lab.folder / "test_mine.py"
    file.write_text(example.replace('"my_runtime"', f'"{CODEX}"').replace("cases()", "cases()[:1]"))
    words = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(file)]
    done = subprocess.run(words, cwd=lab.folder, capture_output=True, text=True, timeout=100)
    assert (done.returncode, "1 passed" in done.stdout) == (0, True), done.stdout
