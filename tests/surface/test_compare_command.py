"""`proctor compare`: which two sides words mean, and what the exit code says."""

from pathlib import Path

import pytest

from proctor.ids import CampaignId
from tests.lab import Lab
from tests.report.made import CAMPAIGN, NO, YES, tried
from tests.surface.conftest import ask

LATER = CampaignId("later-20260102-120000-aaaaaa")
SINGLE = CampaignId("single-20251231-120000-aaaaaa")


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    lab = Lab(tmp_path)
    good = {f"m{n}.good.r1": [YES] for n in range(6)}
    bad = {f"m{n}.bad.r1": [NO] for n in range(6)}
    tried(lab.root, {**good, **bad})
    tried(lab.root, {**good, **{name: [YES] for name in bad}}, campaign_id=LATER, digest="sha256:9")
    tried(lab.root, good, campaign_id=SINGLE)
    return lab


@pytest.mark.requirement("surface.stats")
@pytest.mark.parametrize(
    ("words", "code", "sides", "results"),
    [
        (("good", "bad", "--in", CAMPAIGN), 1, (f"{CAMPAIGN}:good", f"{CAMPAIGN}:bad"), 6),
        (("bad", "good", "--in", "made"), 0, (f"{CAMPAIGN}:bad", f"{CAMPAIGN}:good"), 6),
        (("good", "bad"), 0, (f"{LATER}:good", f"{LATER}:bad"), 6),  # the latest campaign
        (("later", "made"), 1, (LATER, CAMPAIGN), 12),  # all flows of both
        (("later:bad", "made:bad"), 1, (f"{LATER}:bad", f"{CAMPAIGN}:bad"), 6),
        (("single", "made:bad"), 1, (f"{SINGLE}:good", f"{CAMPAIGN}:bad"), 6),  # it has but one flow
    ],
)
def test_words_name_flows_of_a_campaign_or_campaigns(
    lab: Lab, words: tuple[str, ...], code: int, sides: tuple[str, str], results: int
) -> None:
    said = ask(lab, "compare", *words, "--json")
    found = said.json
    assert (said.code, found["exit"], found["verified"]["resultsA"]) == (code, code, results)
    assert (found["a"]["name"], found["b"]["name"]) == sides
    assert found["notSameWork"] == (
        0 if "--in" in words or words == ("good", "bad") else results - results * ("single" in words)
    )


@pytest.mark.parametrize(
    ("words", "what"),
    [
        (("good", "best"), f"{LATER} has no flow 'best'"),
        (("good", "best", "--in", "made"), f"{CAMPAIGN} has no flow 'best'"),
        (("made:good", "later:best"), f"{LATER} has no flow 'best'"),
        (("made:good", "later"), f"{LATER} has several flows"),
        (("nobody", "made"), "is called 'nobody'"),
        (("codex", "claude"), f"{LATER} has no flow 'codex', and no campaign or attempt"),
        (("codex", "claude"), "Name one of its flows: bad, good"),
    ],
)
def test_words_that_name_nothing_are_refused(lab: Lab, words: tuple[str, ...], what: str) -> None:
    said = ask(lab, "compare", *words)
    assert (said.code, what in said.stderr) == (2, True)


def test_nothing_to_compare_is_not_the_same_as_no_difference(lab: Lab) -> None:
    tried(lab.root, {"other.good.r1": [YES]}, campaign_id=CampaignId("other-20260103-120000-aaaaaa"))
    said = ask(lab, "compare", "single", "other", "--format", "md")
    assert (said.code, "Not comparable: no mission was scored on both sides." in said.stdout) == (4, True)
