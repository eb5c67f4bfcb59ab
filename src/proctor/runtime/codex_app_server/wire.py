"""Typed structs for the parts of the Codex app-server protocol that Proctor reads. Other fields are ignored."""

from typing import Annotated, Any

import msgspec

# Numbers that every JSON reader and every database can represent. A frame with a larger one is unrecognized.
Count = Annotated[int, msgspec.Meta(ge=0, le=2**53)]
Number = Annotated[int, msgspec.Meta(ge=-(2**53), le=2**53)]


class Native(msgspec.Struct, frozen=True, rename="camel", gc=False):
    """Root of native structs: unknown fields are ignored."""


# ── turns and items ──


class Item(Native, frozen=True):
    """Any thread item, flattened: each kind fills its own fields."""

    type: str
    id: str
    text: str | None = None
    phase: str | None = None
    command: str | None = None
    cwd: str | None = None
    aggregated_output: str | None = None
    exit_code: Number | None = None
    duration_ms: Count | None = None
    status: str | None = None
    changes: Any = None
    server: str | None = None
    tool: str | None = None
    namespace: str | None = None
    arguments: Any = None
    result: Any = None
    error: Any = None
    success: bool | None = None
    content_items: Any = None
    query: str | None = None
    summary: Any = None
    content: Any = None


class TurnError(Native, frozen=True):
    message: str
    codex_error_info: Any = None
    additional_details: str | None = None


class Turn(Native, frozen=True):
    id: str
    status: str = "inProgress"
    error: TurnError | None = None


class KeptTurn(Native, frozen=True):
    items: tuple[Item, ...] = ()


class TurnsPage(Native, frozen=True):
    """The reply to thread/turns/list."""

    data: tuple[KeptTurn, ...]
    next_cursor: str | None = None


class Status(Native, frozen=True):
    type: str
    active_flags: tuple[str, ...] = ()


class Thread(Native, frozen=True):
    id: str
    ephemeral: bool | None = None
    status: Status | None = None


class AuthStatus(Native, frozen=True):
    """The reply to getAuthStatus. Without a method there is no login."""

    auth_method: str | None = None


class ThreadStarted(Native, frozen=True):
    """The reply to thread/start, thread/resume and thread/fork."""

    thread: Thread
    model: str | None = None
    cwd: str | None = None


class Initialized(Native, frozen=True):
    """The reply to initialize. In `user_agent` the name is Proctor's and the version is the server's."""

    user_agent: str
    codex_home: str | None = None


# ── parameters of notifications and requests ──


class TurnParams(Native, frozen=True):
    """Also the reply to turn/start."""

    turn: Turn
    thread_id: str | None = None


class ItemParams(Native, frozen=True):
    item: Item
    turn_id: str = ""
    thread_id: str | None = None


class DeltaParams(Native, frozen=True):
    item_id: str
    delta: str
    turn_id: str = ""
    thread_id: str | None = None


class Breakdown(Native, frozen=True):
    total_tokens: Count
    input_tokens: Count
    output_tokens: Count
    cached_input_tokens: Count | None = None
    cache_write_input_tokens: Count | None = None
    reasoning_output_tokens: Count | None = None


class ThreadUsage(Native, frozen=True):
    total: Breakdown
    last: Breakdown | None = None
    model_context_window: Count | None = None


class UsageParams(Native, frozen=True):
    token_usage: ThreadUsage
    thread_id: str | None = None
    turn_id: str | None = None


class UsageNotification(Native, frozen=True):
    params: UsageParams


class StatusParams(Native, frozen=True):
    status: Status
    thread_id: str | None = None


class ErrorParams(Native, frozen=True):
    error: TurnError
    will_retry: bool | None = None


class WarningParams(Native, frozen=True):
    """`message` of warning and guardianWarning, `summary` of configWarning and deprecationNotice."""

    message: str | None = None
    summary: str | None = None
    details: str | None = None


class RerouteParams(Native, frozen=True):
    from_model: str = "?"
    to_model: str = "?"
    reason: str | None = None


class McpStatusParams(Native, frozen=True):
    name: str = ""
    status: str = ""
    error: str | None = None
    failure_reason: str | None = None


class AskMeta(Native, frozen=True):
    codex_approval_kind: str | None = msgspec.field(default=None, name="codex_approval_kind")


class AskParams(Native, frozen=True):
    """The fields that the agent's requests have in common."""

    item_id: str | None = None
    call_id: str | None = None
    command: str | tuple[str, ...] | None = None
    reason: str | None = None
    tool: str | None = None
    message: str | None = None
    meta: AskMeta | None = msgspec.field(default=None, name="_meta")


class TurnInput(Native, frozen=True):
    text: str = ""


class TurnStartParams(Native, frozen=True):
    """The parameters of turn/start and turn/steer, read back from the record."""

    input: tuple[TurnInput, ...] = ()


# Requests of Proctor: those that open a session's thread, and those that send a prompt.
OPENINGS = frozenset({"thread/start", "thread/resume", "thread/fork"})
START_TURN = "turn/start"
PROMPTS = frozenset({START_TURN, "turn/steer"})
READ_TURNS = "thread/turns/list"
GIVE = "thread/inject_items"
COMPACT = "thread/compact/start"
COMPACTION = "contextCompaction"
USAGE = "thread/tokenUsage/updated"
ARCHIVE, UNARCHIVE = "thread/archive", "thread/unarchive"
FAILED = "systemError"
"""The status of a thread whose last turn failed."""

# Notifications that carry a piece of streamed text.
TEXT_DELTAS = frozenset({"item/agentMessage/delta", "item/plan/delta"})
REASONING_DELTAS = frozenset({"item/reasoning/summaryTextDelta", "item/reasoning/textDelta"})
OUTPUT_DELTAS = frozenset({"item/commandExecution/outputDelta"})
DELTAS = TEXT_DELTAS | REASONING_DELTAS | OUTPUT_DELTAS

ELICITATION = "mcpServer/elicitation/request"
MCP_CALL = "mcp tool"
MCP_CALL_KIND = "mcp_tool_call"
MCP_STATUS = "mcpServer/startupStatus/updated"
APPROVALS = {
    "item/commandExecution/requestApproval": "command",
    "item/fileChange/requestApproval": "patch",
    "item/permissions/requestApproval": "permissions",
    "item/tool/requestUserInput": "input",
    "item/tool/call": "dynamic tool",
    ELICITATION: "mcp elicitation",
    "account/chatgptAuthTokens/refresh": "token refresh",
    "attestation/generate": "attestation",
    "currentTime/read": "time",
    "applyPatchApproval": "patch",
    "execCommandApproval": "command",
}

# Notifications of 0.163 that are known and ignored.
SILENT = frozenset(
    """
    thread/started thread/readState/changed thread/archived thread/deleted thread/unarchived thread/closed
    thread/reverted skills/changed thread/name/updated thread/attachment/updated thread/goal/updated
    thread/prediction/updated thread/goal/cleared thread/queue/changed project/changed thread/project/updated
    thread/environment/connected thread/environment/disconnected thread/settings/updated hook/started hook/completed
    turn/diff/updated turn/plan/updated item/autoApprovalReview/started item/autoApprovalReview/completed
    autoApprovalReview/strictReviewRequired command/exec/outputDelta process/outputDelta process/exited
    item/commandExecution/terminalInteraction item/fileChange/outputDelta item/fileChange/patchUpdated
    serverRequest/resolved item/mcpToolCall/progress mcpServer/oauthLogin/completed mcpServer/event/stream/notification
    account/updated account/gatewayOAuth/changed account/rateLimits/updated account/login/completed app/list/updated
    remoteControl/status/changed externalAgentConfig/import/progress externalAgentConfig/import/completed fs/changed
    item/reasoning/summaryPartAdded thread/compacted model/verification
    modelProvider/authRecoveryStarted modelProvider/authRecoveryCompleted turn/moderationMetadata
    model/safetyBuffering/updated fuzzyFileSearch/sessionUpdated fuzzyFileSearch/sessionCompleted
    windowsSandbox/setupCompleted windows/worldWritableWarning
    thread/realtime/started thread/realtime/closed thread/realtime/error thread/realtime/sdp thread/realtime/itemAdded
    thread/realtime/item/started thread/realtime/item/completed thread/realtime/item/transcript/delta
    thread/realtime/transcript/delta thread/realtime/transcript/done thread/realtime/outputAudio/delta
    """.split()
)
