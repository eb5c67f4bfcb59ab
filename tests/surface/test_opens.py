"""How often commands open the ledger and the files of evidence."""

import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.surface.conftest import Quickstart, ask

pytestmark = pytest.mark.real_agent

NOT_EVIDENCE = ("lock", "live.json")
OPENS: list[Counter[str]] = []
"""The counters that are active. An audit hook cannot be removed, so the hook only counts while there is one."""


def _count(event: str, args: tuple[object, ...]) -> None:
    if OPENS and event in ("open", "sqlite3.connect") and isinstance(args[0], str | bytes | Path):
        name = args[0].decode() if isinstance(args[0], bytes) else str(args[0])
        for counter in OPENS:
            counter[name.removeprefix("file:").partition("?")[0]] += 1


sys.addaudithook(_count)


@contextmanager
def opens_below(root: Path) -> Iterator[Counter[str]]:
    """Count how often each file below `root` is opened, by its path there."""
    counter: Counter[str] = Counter()
    found: Counter[str] = Counter()
    OPENS.append(counter)
    try:
        yield found
    finally:
        OPENS.remove(counter)
        for name, number in counter.items():
            path = Path(name)
            if path.is_relative_to(root) and path.name not in NOT_EVIDENCE:
                found[str(path.relative_to(root))] += number


def opens(quickstart: Quickstart, *words: str) -> tuple[int, dict[str, int]]:
    """Return how often a command opened the ledger, and how often each file of evidence."""
    with opens_below(quickstart.lab.root) as found:
        assert ask(quickstart.lab, *words).code == 0
    ledgers = [found.pop(name) for name in list(found) if name.endswith("ledger.db")]
    return sum(ledgers), dict(found)


@pytest.mark.requirement("campaign.report")
@pytest.mark.parametrize(
    "command",
    [
        "campaign status",
        "campaign list",
        "attempt list",
        "report",
        "report --strict",
        "campaign report",
        "campaign report --strict",
        "compare codex codex",
        "validate --strict",
        "validate --strict quickstart",
        "campaign publish-check",
    ],
)
def test_command_opens_the_ledger_once(quickstart: Quickstart, command: str) -> None:
    ledgers, _ = opens(quickstart, *command.split())
    assert ledgers == 1


def evidence_files(root: Path) -> set[str]:
    """Return the files of attempts and runtime processes."""
    return {str(path.relative_to(root)) for path in (root / "runs").rglob("*") if path.is_file()}


@pytest.mark.requirement("campaign.report")
@pytest.mark.parametrize("command", ["report --strict", "campaign report --strict"])
def test_strict_report_opens_each_evidence_file_once(quickstart: Quickstart, command: str) -> None:
    _, found = opens(quickstart, *command.split())
    assert {name: number for name, number in found.items() if number != 1} == {}
    attempts = {name for name in evidence_files(quickstart.lab.root) if "/attempts/" in name}
    assert attempts <= set(found)


@pytest.mark.requirement("evidence.validate")
@pytest.mark.parametrize(
    "command",
    ["validate", "validate --strict", "validate quickstart", "validate --strict quickstart", "campaign publish-check"],
)
def test_validation_opens_each_evidence_file_at_most_twice(quickstart: Quickstart, command: str) -> None:
    _, found = opens(quickstart, *command.split())
    assert {name: number for name, number in found.items() if number > 2} == {}
    if "--strict" in command or "publish" in command:
        assert evidence_files(quickstart.lab.root) <= set(found)


@pytest.mark.requirement("campaign.report")
@pytest.mark.parametrize("command", ["campaign status", "campaign list", "attempt list", "campaign report"])
def test_command_that_reads_the_ledger_opens_no_attempt(quickstart: Quickstart, command: str) -> None:
    _, found = opens(quickstart, *command.split())
    assert [name for name in found if name.startswith("runs/")] == []
