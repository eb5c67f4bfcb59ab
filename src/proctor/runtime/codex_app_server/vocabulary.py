"""The app-server's own words, and where in its frames account data stands."""

from collections.abc import Iterator
from typing import Final

from proctor.runtime.codex_app_server import wire
from proctor.runtime.codex_app_server.route import Envelope

# What `normalize` and `session` tell apart and what we say ourselves; of the rest, `wire` has lists.
_TOLD_APART = """
error initialize initialized item/completed item/started mcpServer/startupStatus/updated
thread/backgroundTerminals/clean thread/compact/start thread/fork thread/read thread/resume thread/start
thread/status/changed thread/tokenUsage/updated thread/turns/list thread/unsubscribe
turn/completed turn/interrupt turn/start turn/started turn/steer warning guardianWarning configWarning deprecationNotice
agentMessage collabAgentToolCall commandExecution dynamicToolCall fileChange imageGeneration imageView mcpToolCall plan
reasoning sleep userMessage webSearch
active completed declined failed idle inProgress interrupted notLoaded systemError
danger-full-access developer instructions never on-failure on-request read-only untrusted workspace-write
dangerFullAccess readOnly workspaceWrite
""".split()


def _fields() -> Iterator[str]:
    """The names of all fields that we read: behind a masked name nothing is found."""
    kinds = [Envelope, wire.Native]
    for kind in kinds:
        kinds += kind.__subclasses__()
        yield from kind.__struct_encode_fields__


WORDS: Final = frozenset((*_TOLD_APART, *wire.SILENT, *wire.DELTAS, *wire.APPROVALS, *_fields()))

_ACCOUNT = {
    "params": """
        planType rateLimits loginId authUrl previousAccountId installationId
    """,
    "result": """
        accountId chatgptAccountId chatgptPlanType installationId workspaceRouting
        rateLimits rateLimitsByLimitId rateLimitResetCredits rateLimitUpsell ordinaryUsageAllowed
        loginId authUrl verificationUrl userCode dailyUsageBuckets
    """,
    "result account": "email planType",
    "result summary": "currentStreakDays lifetimeTokens longestRunningTurnSec longestStreakDays peakDailyTokens",
}

PRIVATE: Final = frozenset((*above.split(), name) for above, names in _ACCOUNT.items() for name in names.split())
"""Paths to account data, whatever frame they are in; everything under one of them is."""
