"""Id types. Each is distinct, so that the type checker rejects one id in place of another."""

from collections.abc import Mapping
from typing import Final, NewType

AttemptId = NewType("AttemptId", str)
CallId = NewType("CallId", str)
CampaignId = NewType("CampaignId", str)
TrialId = NewType("TrialId", str)
Digest = NewType("Digest", str)
EntryId = NewType("EntryId", str)
FlowId = NewType("FlowId", str)
ItemId = NewType("ItemId", str)
MissionId = NewType("MissionId", str)
ProcessId = NewType("ProcessId", str)
RunId = NewType("RunId", str)
RuntimeId = NewType("RuntimeId", str)
SessionId = NewType("SessionId", str)
SessionKey = NewType("SessionKey", str)
ThreadId = NewType("ThreadId", str)
TurnId = NewType("TurnId", str)

AGENT_RUNTIMES: Final[Mapping[str, RuntimeId]] = {
    "codex": RuntimeId("codex_app_server"),
    "claude": RuntimeId("claude_code"),
}
"""The default runtime of each agent, by the agent's name."""


def runtime_id_of(name: str) -> RuntimeId:
    """Return the runtime that a user means: the default runtime of an agent, or the runtime with that id.

    >>> runtime_id_of("codex"), runtime_id_of("codex_exec")
    ('codex_app_server', 'codex_exec')
    """
    return AGENT_RUNTIMES.get(name, RuntimeId(name))


def session_id_of(attempt: AttemptId, thread: ThreadId | None) -> SessionId | None:
    """Return the id of an attempt's session; None as long as the agent has not named its thread.

    >>> session_id_of(AttemptId("fix.native.r1.1"), ThreadId("019a"))
    'fix.native.r1.1/019a'
    """
    return None if thread is None else SessionId(f"{attempt}/{thread}")
