"""The words of the app-server protocol, and the paths of account data in its frames."""

from collections.abc import Iterator
from typing import Final

from proctor.runtime.codex_app_server import wire
from proctor.runtime.codex_app_server.route import Envelope

# Names that `normalize` and `session` compare with, and names that Proctor sends. `wire` lists the others.
_NAMES = """
additionalContext error initialize initialized item/completed item/started mcpServer/startupStatus/updated
thread/backgroundTerminals/clean thread/compact/start thread/fork thread/inject_items thread/read thread/resume
thread/start thread/status/changed thread/tokenUsage/updated thread/turns/list thread/unsubscribe
turn/completed turn/interrupt turn/start turn/started turn/steer warning guardianWarning configWarning deprecationNotice
function_call function_call_output input_text items message output_text
agentMessage collabAgentToolCall commandExecution contextCompaction dynamicToolCall fileChange imageGeneration imageView
mcpToolCall plan reasoning sleep userMessage webSearch
active completed declined failed idle inProgress interrupted notLoaded systemError
danger-full-access developer developerInstructions instructions never on-failure on-request read-only untrusted
workspace-write
dangerFullAccess readOnly workspaceWrite
""".split()


def _fields() -> Iterator[str]:
    """Yield the names of all fields that are read. If a name were masked, its field would not be found."""
    kinds = [Envelope, wire.Native]
    for kind in kinds:
        kinds += kind.__subclasses__()
        yield from kind.__struct_encode_fields__


WORDS: Final = frozenset((*_NAMES, *wire.SILENT, *wire.DELTAS, *wire.APPROVALS, *_fields()))

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
"""Paths to account data in any frame. Everything below them is masked."""
