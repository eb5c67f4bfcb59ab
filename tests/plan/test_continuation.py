"""The decision whether an attempt continues the one before it."""

from dataclasses import replace
from typing import Any

import pytest

from proctor.ids import Digest, ProcessId, RuntimeId, ThreadId
from proctor.plan.continuation import FreshStart, KeptState, SealedEnd, why_fresh
from proctor.plan.recover import Remedy

pytestmark = pytest.mark.requirement("session.continue-after-wait")

LEFT = Digest("sha256:left")
BEFORE = SealedEnd(
    remedy=Remedy.PARK,
    has_lost_thread=False,
    has_progress=True,
    runtime_id=RuntimeId("codex_app_server"),
    process=ProcessId("p-1"),
    thread=ThreadId("t"),
    workspace_digest=LEFT,
)
NOW = KeptState(
    runtime_id=RuntimeId("codex_app_server"),
    can_resume=True,
    is_shared=False,
    process=None,
    has_home=True,
    has_session=True,
    has_thread=True,
    workspace_digest=LEFT,
)
IN_SHARED = {"is_shared": True, "process": ProcessId("p-1")}


@pytest.mark.parametrize(
    ("before", "now", "expected"),
    [
        ({}, {}, None),
        ({"remedy": Remedy.YIELD}, {}, None),
        ({}, {"has_thread": None}, None),
        ({"process": ProcessId("p-2")}, {}, None),
        ({}, IN_SHARED, None),
        ({"remedy": Remedy.AGAIN}, {}, FreshStart.NO_WAIT),
        ({"remedy": Remedy.REDO}, {}, FreshStart.NO_WAIT),
        ({"remedy": Remedy.NONE}, {}, FreshStart.NO_WAIT),
        ({"remedy": Remedy.STOP}, {}, FreshStart.NO_WAIT),
        ({"remedy": Remedy.REDO, "has_lost_thread": True}, {}, FreshStart.THREAD_GONE),
        ({"has_progress": False}, {}, FreshStart.NO_PROGRESS),
        ({"thread": None}, {}, FreshStart.NO_THREAD),
        ({}, {"runtime_id": RuntimeId("claude_code")}, FreshStart.ANOTHER_RUNTIME),
        ({}, {"can_resume": False}, FreshStart.CANNOT_RESUME),
        ({"process": ProcessId("p-0")}, IN_SHARED, FreshStart.PROCESS_GONE),
        ({"process": None}, {"is_shared": True}, FreshStart.PROCESS_GONE),
        ({}, {"is_shared": True}, FreshStart.PROCESS_GONE),
        ({}, {"has_home": False}, FreshStart.HOME_MISSING),
        ({}, {"has_session": False}, FreshStart.SESSION_MISSING),
        ({}, {"has_thread": False}, FreshStart.THREAD_GONE),
        ({}, {"workspace_digest": None}, FreshStart.WORKSPACE_MISSING),
        ({"workspace_digest": None}, {"workspace_digest": None}, FreshStart.WORKSPACE_MISSING),
        ({}, {"workspace_digest": Digest("sha256:other")}, FreshStart.WORKSPACE_CHANGED),
        ({"workspace_digest": None}, {}, FreshStart.WORKSPACE_CHANGED),
    ],
)
def test_why_fresh_names_what_keeps_an_attempt_from_being_continued(
    before: dict[str, Any], now: dict[str, Any], expected: FreshStart | None
) -> None:
    assert why_fresh(replace(BEFORE, **before), replace(NOW, **now)) is expected


def test_why_fresh_never_continues_an_attempt_without_a_seal() -> None:
    assert why_fresh(None, NOW) is FreshStart.UNSEALED
