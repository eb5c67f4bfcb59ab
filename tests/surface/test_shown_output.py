"""Documents show what commands print: each shown output is compared with a real one."""

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import pytest

from proctor.event.model import Tokens
from proctor.ids import CampaignId
from tests.lab import Lab
from tests.report.made import FIRST, INFRA, NO, NOT_STATED, STATED, YES, report, tried
from tests.surface.conftest import Quickstart
from tests.test_docs import README, ROOT, TUTORIAL, lay_out

REPORTS = ROOT / "docs/howto/reports.md"
_VARYING = (
    (r"(?s)\n  spec  .*?sha256:\w+", "\n  spec  FILE"),
    (r"\S+/evidence/", ".proctor/"),
    (r" --root \S+", ""),
    (r"(?:\S+ -m |\S*/)?proctor (?=attempt|campaign|retry|validate)", "proctor "),
    (r"\d{8}-\d{6}-[0-9a-f]{6}", "ID"),
    (r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC", "TIME"),
    (r"\d+ ms|\d+\.\d s", "DURATION"),
    (r"[\d,]+ tokens", "TOKENS"),
    (r"frame \d+", "FRAME"),
    (r" {2,}", "  "),
)


def comparable(text: str) -> list[str]:
    """Return the lines of an output without what differs from run to run: ids, times, paths, widths of columns."""
    for pattern, word in _VARYING:
        text = re.sub(pattern, word, text)
    return [line.rstrip() for line in text.splitlines()]


def has_excerpt(lines: list[str], excerpt: list[str]) -> bool:
    return any(lines[at : at + len(excerpt)] == excerpt for at in range(len(lines)))


@dataclass(slots=True)
class Shell:
    """Runs the `proctor` commands of a page in a laboratory. Other commands print what `outputs` says."""

    lab: Lab
    outputs: dict[str, str] = field(default_factory=dict)
    last: str = ""
    code: int = 0

    def run(self, command: str) -> str:
        words = shlex.split(command, comments=True)
        if words == ["echo", "$?"]:
            return f"{self.code}\n"
        if words[0] == "proctor":
            said = self.lab.proctor(*words[1:])
            self.last, self.code = said.stdout, said.returncode
            assert "error" not in said.stderr, said.stderr
        else:
            self.last, self.code = self.outputs.get(command, self.last), 0
        return self.last


def steps(page: Path) -> Iterator[tuple[str, str]]:
    """Yield the commands of a page, each with the output shown below it, and the excerpts as `("", lines)`."""
    for language, block in re.findall(r"^```(console|text)\n(.*?)^```", page.read_text(), re.DOTALL | re.MULTILINE):
        if language == "text":
            yield "", block
            continue
        yield from re.findall(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", block, re.MULTILINE)


def check(page: list[tuple[str, str]], shell: Shell) -> None:
    for command, shown in page:
        if not command:
            assert has_excerpt(comparable(shell.last), comparable(shown)), shell.last
            continue
        printed = shell.run(command)
        if shown:
            assert comparable(printed) == comparable(shown), command


@pytest.mark.requirement("surface.docs")
@pytest.mark.real_agent
def test_readme_shows_what_the_demo_prints(quickstart: Quickstart) -> None:
    [shown] = [output for command, output in steps(README) if command == "make demo" and output]
    called, *lines = comparable(shown)
    assert called == ".venv/bin/proctor run examples/quickstart.yaml"
    assert lines == comparable(quickstart.said.stdout)
    assert lines[-1].endswith("claim.codex.r1.1: claimed yes, verified NO")


@pytest.mark.requirement("surface.docs")
@pytest.mark.real_agent
def test_tutorial_shows_what_its_commands_print(quickstart: Quickstart, tmp_path: Path) -> None:
    folder = tmp_path / "proctor-tutorial"
    folder.mkdir()
    lay_out(TUTORIAL, folder)
    page = list(steps(TUTORIAL))
    check(page, Shell(Lab(folder), outputs={"make demo": quickstart.said.stdout}))
    assert sum(command.startswith("proctor ") for command, _ in page) == 6


NIGHT = CampaignId("nightly-20260101-220000-a1b2c3")
_LETTERS = {"y": YES, "n": NO, "i": INFRA, "s": STATED, "x": NOT_STATED}
_REPEATS = {
    "codex": {"parser": "yyyy", "login": "ynyy", "cache": "nnyn", "search": "yyyy", "ask": "ss"},
    "claude": {"parser": "yyyy", "login": "nnny", "cache": "nnin", "search": "nnny", "ask": "sx"},
}


def nightly(root: Path) -> None:
    """Make the campaign of docs/howto/reports.md: two flows, five missions, one letter for each repeat."""
    metrics = report(FIRST).metrics
    assert metrics.usage is not None
    usage = msgspec.structs.replace(metrics.usage, tokens=Tokens(input=48_200, output=1_900, total=50_100))
    metrics = msgspec.structs.replace(metrics, usage=usage)
    costs: dict[str, Any] = {
        "codex": {"duration_ms": 41_000, "usd": 0.21},
        "claude": {"duration_ms": 37_000, "usd": 0.18},
    }
    tries = {
        f"{mission}.{flow}.r{at}": [{**_LETTERS[letter], **costs[flow], "metrics": metrics}]
        for flow, missions in _REPEATS.items()
        for mission, letters in missions.items()
        for at, letter in enumerate(letters, 1)
    }
    tried(root, tries, campaign_id=NIGHT)


@pytest.mark.requirement("surface.docs")
def test_reports_page_shows_what_its_commands_print(lab: Lab) -> None:
    nightly(lab.root)
    page = list(steps(REPORTS))
    shown = [
        (command, output)
        for (command, output), (after, _) in zip(page, [*page[1:], ("$", "")], strict=True)
        if not command or output or not after
    ]
    check(shown, Shell(lab))
    assert len(shown) >= 4
