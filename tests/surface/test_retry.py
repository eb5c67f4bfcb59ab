"""Which trials `proctor retry` means by a word."""

from pathlib import Path
from typing import Any

from proctor.event.outcome import Outcome
from proctor.surface.cli.retry import choose
from tests.report.made import CANCELLED, CUT, INFRA, NO, UNSURE, YES, tried


def ended(outcome: Outcome, code: str) -> dict[str, Any]:
    return {**UNSURE, "outcome": outcome, "code": code}


SCORED = {
    "yes.codex.r1": [YES],
    "no.codex.r1": [NO],
    "nobody-looked.codex.r1": [UNSURE],
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
}


def test_what_the_report_scores_is_tried_again_only_by_its_name(tmp_path: Path) -> None:
    paths = tried(tmp_path, SCORED | OTHERS)
    assert list(choose(paths, ["infra"])) == ["provider.codex.r1", "login.codex.r1", "cut.codex.r1"]
    assert list(choose(paths, ["unscored"])) == list(OTHERS)
    assert list(choose(paths, ["stall", "hangup.codex.r1", "no.codex.r1.1"])) == [
        "stall.codex.r1",
        "hangup.codex.r1",
        "no.codex.r1",
    ]
