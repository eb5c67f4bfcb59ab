"""Campaigns whose agent is refused by its provider for a while: what they are run with, and what they leave."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from proctor.evidence.artifacts import AttemptRecord
from proctor.evidence.layout import AttemptPaths
from proctor.ids import TrialId
from tests.lab import Lab, mission, say_done
from tests.provider import Provider

KEY = "pk-loopback-0123456789"
PROMPT = "Do the whole work."
WORK, FINISH = {"run": "echo half >> work.txt"}, {"run": "echo rest >> work.txt"}
"""The work before the wait and after it. Done twice, the file has one line too many."""
PROBE = {"kind": "headless_run", "command": 'test "$(cat work.txt)" = "$(printf "half\\nrest")"'}
STARTED = {"kind": "headless_run", "command": "test -s work.txt"}
"""Passes on what the first attempt leaves, and so must not be run on that as the untouched workspace."""
RATE_LIMIT = {"fault": {"status": 429, "retry_after": 1}}
USAGE_LIMIT = {"fault": {"status": 429, "body": {"error": {"type": "usage_limit_reached", "message": "no"}}}}
CODEX, EXEC, CLAUDE = "codex_app_server", "codex_exec", "claude_code"
AT_ONCE: dict[str, dict[str, Any]] = {
    CODEX: {"request_max_retries": 0, "stream_max_retries": 0},
    EXEC: {"request_max_retries": 0, "stream_max_retries": 0},
    CLAUDE: {"max_retries": 0},
}
"""So that the campaign retries, and not the agent."""
TRIAL = TrialId("m.agent.r1")
FIRST, SECOND, THIRD = (f"{TRIAL}.{n}" for n in (1, 2, 3))


def write_waiting_spec(
    lab: Lab,
    provider: Provider,
    runtime: str = CODEX,
    *,
    schedule: Mapping[str, Any] | None = None,
    top: Mapping[str, Any] | None = None,
    **flow: Any,
) -> Path:
    """A campaign of one trial, which is continued after a wait. The environment has KEY for its provider."""
    vendor = "anthropic" if runtime == CLAUDE else "loopback"
    flow = {
        "id": "agent",
        "runtime": [runtime],
        "model": {"provider": vendor, "name": "any", "base_url": provider.base_url},
        "login": "api-key",
        "isolation": "process",
        "options": {runtime: AT_ONCE[runtime]},
        **flow,
    }
    schedule = {"parallel": 1, "backoff": "100ms", "continue_after_wait": True, **(schedule or {})}
    return lab.write_spec(
        [mission("m", probes=[PROBE, STARTED], prompt=PROMPT)], flow=flow, schedule=schedule, **(top or {})
    )


def interrupted(*refusals: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    """A thread that is refused after its first half of the work, and then finishes."""
    return (WORK, *(refusals or (RATE_LIMIT,)), FINISH, say_done())


def record_of(paths: AttemptPaths) -> AttemptRecord:
    return msgspec.json.decode(paths.attempt.read_bytes(), type=AttemptRecord)
