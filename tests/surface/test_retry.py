"""Which trials `proctor retry` means by a word."""

from pathlib import Path
from typing import Any

import pytest

from proctor.errors import InputError
from proctor.event.outcome import Outcome
from proctor.surface.cli.retry import choose
from tests.report.made import CANCELLED, CUT, INFRA, NO, UNSURE, YES, tried


def ended(outcome: Outcome, code: str) -> dict[str, Any]:
    return {**UNSURE, "outcome": outcome, "code": code}


SCORED = {
    "yes.codex.r1": [YES],
    "no.codex.r1": [NO],
    "turn.codex.r1": [ended(Outcome.TIMED_OUT, "limit.turn")],
    "tokens.codex.r1": [ended(Outcome.TIMED_OUT, "limit.tokens")],
    "mission.codex.r1": [ended(Outcome.TIMED_OUT, "limit.mission")],
    "stall.codex.r1": [ended(Outcome.STALLED, "limit.stall")],
    "hangup.codex.r1": [ended(Outcome.CRASHED, "peer.hangup")],
    # What was cut off after it takes nothing from a result.
    "kept.codex.r1": [NO, CANCELLED],
}
OTHERS = {
    "provider.codex.r1": [INFRA],
    "login.codex.r1": [ended(Outcome.REFUSED, "provider.unauthorized")],
    "cut.codex.r1": [CUT],
    "untried.codex.r1": [],
    "unjudged.codex.r1": [UNSURE],
}


def test_retry_chooses_scored_results_only_to_replace_them(tmp_path: Path) -> None:
    paths = tried(tmp_path, SCORED | OTHERS)
    assert list(choose(paths, ["infra"])) == ["provider.codex.r1", "login.codex.r1", "cut.codex.r1"]
    assert list(choose(paths, ["unscored"])) == list(OTHERS)
    words = ["stall", "hangup.codex.r1", "no.codex.r1.1"]
    for word in words:
        with pytest.raises(InputError) as caught:
            list(choose(paths, [word]))
        assert caught.value.code == "campaign.scored-result"
    assert list(choose(paths, words, is_replacing=True)) == [
        "stall.codex.r1",
        "hangup.codex.r1",
        "no.codex.r1",
    ]


def test_retry_of_failed_trials_names_the_command_that_does_it(tmp_path: Path) -> None:
    with pytest.raises(InputError) as caught:
        list(choose(tried(tmp_path, SCORED), ["failed"]))
    assert caught.value.suggestion == (
        "`--only` takes infra, unscored or an id. To run failed trials again: `proctor run SPEC --failed`."
    )
