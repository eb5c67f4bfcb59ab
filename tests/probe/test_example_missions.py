"""The missions of examples/probes are verified by their solution, and by none of their cheats."""

from pathlib import Path

import pytest

from proctor.spec.expect import ExpectedVerdict
from tests.probe.example_missions import cheats_of, play_example

KINDS = ("sim_trace", "test_suite_parity")


@pytest.mark.long
@pytest.mark.requirement("probe.kinds")
@pytest.mark.parametrize("kind", KINDS)
def test_example_mission_is_verified_by_its_solution(tmp_path: Path, kind: str) -> None:
    played = play_example(kind, tmp_path, patch="solution.patch")
    assert played.verified is ExpectedVerdict.YES, played.rows


@pytest.mark.long
@pytest.mark.requirement("probe.kinds")
@pytest.mark.parametrize(("kind", "patch"), [(kind, patch) for kind in KINDS for patch in (None, *cheats_of(kind))])
def test_example_mission_is_not_verified_by_an_unchanged_tree_or_a_cheat(
    tmp_path: Path, kind: str, patch: str | None
) -> None:
    played = play_example(kind, tmp_path, patch=patch)
    assert played.verified is ExpectedVerdict.NO, played.rows
