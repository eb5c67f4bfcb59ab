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
ThreadId = NewType("ThreadId", str)
TurnId = NewType("TurnId", str)
