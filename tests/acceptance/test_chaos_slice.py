"""A slice of the chaos: a campaign that is hit again and again comes out as if nothing had been. More: `make chaos`."""

from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from chaos.__main__ import play_seed, undisturbed
from chaos.cast import FAKE, REAL, Cast

pytestmark = [pytest.mark.real_agent, pytest.mark.long]


@pytest.mark.timeout(300)
@pytest.mark.requirement("campaign.resume")
@pytest.mark.requirement("evidence.crash-safe")
@pytest.mark.requirement("attempt.no-orphans")
@pytest.mark.parametrize(
    ("cast", "seed", "faults"), [(replace(FAKE, missions=8), 2, 10), (replace(REAL, missions=3), 3, 6)]
)
def test_nothing_is_lost_or_doubled_and_nobody_is_left_whatever_happens(
    tmp_path: Path, cast: Cast, seed: int, faults: int
) -> None:
    results = undisturbed(cast, tmp_path / "undisturbed")
    played = play_seed(seed, cast, tmp_path / "played", results=results, faults=faults)
    assert played.problems == []
    assert played.faults.total() >= faults // 2, "a campaign may be done before it was hit as often as planned"
    assert played.faults - Counter({"stream delayed": faults}) != Counter()
