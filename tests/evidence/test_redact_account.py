"""Account data is masked where the runtime says that it stands, and never dropped."""

import json
from pathlib import Path
from typing import Any

import pytest

from proctor.clock import SYSTEM_CLOCK
from proctor.event.model import FrameNoted
from proctor.event.row import Direction
from proctor.evidence.recorder import FrameLog
from proctor.evidence.redact import RedactedLine, Redactor
from proctor.runtime.codex_app_server import RUNTIME

MASK = "[redacted:account]"
WINDOW = {"usedPercent": 12, "windowDurationMins": 300, "resetsAt": 1794781974}
LIMITS = {"limitId": "codex", "primary": WINDOW, "secondary": None, "credits": {"hasCredits": True, "balance": "9.50"}}
MASKED_LIMITS = {
    "limitId": MASK,
    "primary": dict.fromkeys(WINDOW, MASK),
    "secondary": None,
    "credits": {"hasCredits": MASK, "balance": MASK},
}


def redacted(frame: Any) -> RedactedLine:
    return Redactor([], private=RUNTIME.private_paths).line(json.dumps(frame).encode())


@pytest.mark.requirement("evidence.redaction")
@pytest.mark.parametrize(
    ("frame", "masked"),
    [
        (
            {"method": "account/rateLimits/updated", "params": {"rateLimits": LIMITS}, "emittedAtMs": 1},
            {"method": "account/rateLimits/updated", "params": {"rateLimits": MASKED_LIMITS}, "emittedAtMs": 1},
        ),
        (
            {"method": "account/updated", "params": {"authMode": "chatgpt", "planType": "pro"}},
            {"method": "account/updated", "params": {"authMode": "chatgpt", "planType": MASK}},
        ),
        (
            {"id": 3, "result": {"account": {"type": "chatgpt", "email": "ada@example.org", "planType": "pro"}}},
            {"id": 3, "result": {"account": {"type": "chatgpt", "email": MASK, "planType": MASK}}},
        ),
        (
            {"id": 4, "result": {"rateLimits": LIMITS, "rateLimitsByLimitId": {"codex": LIMITS}, "accountId": "a"}},
            {
                "id": 4,
                "result": {"rateLimits": MASKED_LIMITS, "rateLimitsByLimitId": {"codex": MASKED_LIMITS}}
                | {"accountId": MASK},
            },
        ),
        (
            {"id": 5, "result": {"accessToken": "at-0123456789", "chatgptAccountId": "a"}},
            {"id": 5, "result": {"accessToken": "[redacted:scan:key]", "chatgptAccountId": MASK}},
        ),
    ],
    ids=["limits", "plan", "account", "limits read", "token refresh"],
)
def test_account_data_is_masked_and_all_else_is_as_it_was(frame: Any, masked: Any) -> None:
    line = redacted(frame)
    assert json.loads(line.raw) == masked
    assert "account" in line.names


def test_the_same_words_elsewhere_are_no_account_data() -> None:
    frame = {"method": "item/completed", "params": {"item": {"arguments": {"email": "x", "rateLimits": 1}}}}
    assert redacted(frame).names == ()


def test_a_frame_of_account_data_is_recorded_and_told_like_any_other(tmp_path: Path) -> None:
    redactor = Redactor([], private=RUNTIME.private_paths)
    with FrameLog(tmp_path / "frames.jsonl", redactor=redactor, clock=SYSTEM_CLOCK) as log:
        log.stage(Direction.IN, b'{"method":"account/rateLimits/updated","params":{"rateLimits":{"limitId":"codex"}}}')
        log.stage(Direction.IN, b'{"method":"thread/closed","params":{}}')
        rows = log.commit()

    assert [row.redacted for row in rows] == [("account",), ()]
    normalizer = RUNTIME.normalizer()
    assert [type(event) for row in rows for event in normalizer.feed(row)] == [FrameNoted, FrameNoted]
