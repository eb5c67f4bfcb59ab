"""What the documents show is true: specs load, commands exist, links lead somewhere."""

import re
from pathlib import Path

import pytest

from proctor.spec.marked import decode_bytes
from proctor.spec.model import CampaignSpec
from proctor.surface.cli.app import COMMANDS

ROOT = Path(__file__).parent.parent
DOCUMENTS = [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")]


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)


@pytest.mark.requirement("surface.docs")
def test_the_spec_in_the_readme_is_one() -> None:
    [shown] = blocks("yaml")
    assert decode_bytes(shown.encode(), CampaignSpec, file="README.md").value.campaign == "hello"


def test_every_command_in_the_readme_exists() -> None:
    shown = re.findall(r"^\$ proctor ([a-z]+(?: [a-z]+)?)", "".join(blocks("console")), re.MULTILINE)
    assert len(shown) >= 4
    assert [words for words in shown if words not in COMMANDS and words.split()[0] not in COMMANDS] == []


def test_every_make_target_named_in_a_document_exists() -> None:
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    named = {word for file in DOCUMENTS for word in re.findall(r"`make ([a-z]+)", file.read_text())}
    assert named <= targets


def test_every_link_leads_somewhere() -> None:
    for file in DOCUMENTS:
        for target in re.findall(r"\]\((?!https?:)([^)#]+)", file.read_text()):
            assert (file.parent / target).exists(), f"{file.name}: {target}"


def test_what_agents_must_read_stays_short() -> None:
    assert len((ROOT / "AGENTS.md").read_text().splitlines()) <= 120
