"""Names of things, each its own type, so that one id is never handed over for another."""

from typing import NewType

AttemptId = NewType("AttemptId", str)
CallId = NewType("CallId", str)
CampaignId = NewType("CampaignId", str)
CellId = NewType("CellId", str)
Digest = NewType("Digest", str)
FlowId = NewType("FlowId", str)
ItemId = NewType("ItemId", str)
MissionId = NewType("MissionId", str)
ProcessId = NewType("ProcessId", str)
RunId = NewType("RunId", str)
StrategyId = NewType("StrategyId", str)
ThreadId = NewType("ThreadId", str)
TurnId = NewType("TurnId", str)
