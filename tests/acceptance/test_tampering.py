"""Genuine evidence that is damaged or forged is refused by the commands, each with its exit code and what is wrong.

The cases are in `tests/tampering`. They know the command line, the files on disk and the ledger's columns, and nothing
of Proctor's own code; what they touch by name is in `tests/tampering/names.py`.
"""

import os
from collections.abc import Callable
from itertools import chain
from pathlib import Path
from typing import get_args

import pytest

from tests.tampering import (
    attempt_files,
    attempt_forgeries,
    campaign_files,
    ledger_edits,
    ledgers,
    resumed,
    runs,
    signatures,
)
from tests.tampering.case import PUBLISH, VALIDATE, Case, Expected, says, says_only
from tests.tampering.edits import alter_rows, loose_sql, reseal, reseal_process, steps
from tests.tampering.evidence import Evidence, copy_evidence
from tests.tampering.names import FRAMES, PROBES, TOOL_CALLS, TRANSCRIPT
from tests.tampering.roots import Base, Roots

pytestmark = pytest.mark.real_agent

CASES: list[Case] = [
    *attempt_files.CASES,
    *attempt_forgeries.CASES,
    *runs.CASES,
    *campaign_files.CASES,
    *ledgers.CASES,
    *ledger_edits.CASES,
    *resumed.CASES,
    *signatures.CASES,
]

UNTOUCHED: dict[tuple[Base, str], Expected] = {
    ("whole", "campaign cancel {campaign}"): says(2, "campaign.not-running"),
    ("killed", VALIDATE): says(4, "evidence.partial"),
    ("killed", PUBLISH): says(4, "publish.incomplete"),
}
"""What a command answers about untouched evidence, where it is not just 0."""


@pytest.fixture(scope="session")
def roots(tmp_path_factory: pytest.TempPathFactory) -> Roots:
    """One for all workers of pytest-xdist, whose own folders are all in that of the session."""
    here = tmp_path_factory.getbasetemp()
    folder = (here.parent if "PYTEST_XDIST_WORKER" in os.environ else here) / "tampering"
    folder.mkdir(exist_ok=True)
    return Roots(folder)


@pytest.fixture
def copied(roots: Roots, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[Base], Evidence]:
    """A copy of genuine evidence that may be damaged."""

    def copied(base: Base) -> Evidence:
        genuine = roots.genuine(base)
        for name, value in roots.env(base).items():
            monkeypatch.setenv(name, value)
        return copy_evidence(genuine, tmp_path / "root", keys=roots.keys)

    return copied


def check(evidence: Evidence, command: str, expected: Expected) -> None:
    answer = evidence.ask(command)
    assert "run.harness" not in answer.output, f"{command}: {answer.output}"
    assert expected.matches(answer), f"{command}: {answer.exit} {sorted(answer.named)}, but {expected}"


@pytest.mark.requirement("evidence.integrity")
@pytest.mark.requirement("evidence.seal")
@pytest.mark.requirement("evidence.signed")
@pytest.mark.requirement("evidence.validate")
@pytest.mark.requirement("evidence.claimed-vs-verified")
@pytest.mark.requirement("campaign.publish-check")
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_tampering_is_answered_by_each_command(case: Case, copied: Callable[[Base], Evidence]) -> None:
    evidence = copied(case.base)
    case.edit(evidence)
    for command, expected in case.commands:
        check(evidence, command, expected)


def test_every_case_has_a_name_and_is_refused_by_some_command() -> None:
    assert len({case.name for case in CASES}) == len(CASES)
    refused = [any(0 not in expected.exits for _, expected in case.commands) for case in CASES]
    assert [case.name for case, is_refused in zip(CASES, refused, strict=True) if not is_refused] == []


@pytest.mark.parametrize("base", get_args(Base))
def test_untouched_evidence_passes_every_command_of_the_cases(base: Base, copied: Callable[[Base], Evidence]) -> None:
    evidence = copied(base)
    used = chain.from_iterable(case.commands for case in CASES if case.base == base)
    for command in dict.fromkeys(command for command, _ in used):
        check(evidence, command, UNTOUCHED.get((base, command), says_only(0)))


def test_evidence_that_is_sealed_again_as_it_was_is_valid(copied: Callable[[Base], Evidence]) -> None:
    """So what a forgery is refused for is what it says, and not how the tests seal it."""
    evidence = copied("whole")
    attempts = ("{fix}", "{claim}", "{ask}")
    streams = [f"{attempt}/{name}" for attempt in attempts for name in (FRAMES, TOOL_CALLS, TRANSCRIPT, PROBES)]
    steps(
        *(alter_rows(stream, list) for stream in (*streams, "{process}/" + FRAMES)),
        *map(reseal, attempts),
        reseal_process(),
        loose_sql(),
    )(evidence)
    check(evidence, VALIDATE, says_only(0))
    check(evidence, PUBLISH, says_only(0))
