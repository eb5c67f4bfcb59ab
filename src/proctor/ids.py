"""Id types. Each is distinct, so that the type checker rejects one id in place of another."""

from typing import NewType

AttemptId = NewType("AttemptId", str)
CallId = NewType("CallId", str)
CampaignId = NewType("CampaignId", str)
TrialId = NewType("TrialId", str)
Digest = NewType("Digest", str)
FlowId = NewType("FlowId", str)
ItemId = NewType("ItemId", str)
MissionId = NewType("MissionId", str)
ProcessId = NewType("ProcessId", str)
RunId = NewType("RunId", str)
RuntimeId = NewType("RuntimeId", str)
SessionId = NewType("SessionId", str)
ThreadId = NewType("ThreadId", str)
TurnId = NewType("TurnId", str)


def session_id_of(attempt: AttemptId, thread: ThreadId | None) -> SessionId | None:
    """Return the id of an attempt's session; None as long as the agent has not named its thread.

    >>> session_id_of(AttemptId("fix.native.r1.1"), ThreadId("019a"))
    'fix.native.r1.1/019a'
    """
    return None if thread is None else SessionId(f"{attempt}/{thread}")
