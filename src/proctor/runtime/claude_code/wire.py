"""The part of Claude Code's stream that Proctor reads. Other fields of a frame are ignored."""

from typing import Annotated, Any, Final, Literal

import msgspec


class Native(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Root of all native structs, which tolerate fields they do not know."""


# ── an envelope: as far as routing and control need it ──


class Delta(Native, frozen=True):
    type: str = ""
    text: str | None = None
    thinking: str | None = None
    partial_json: str | None = None
    stop_reason: str | None = None


class _Started(Native, frozen=True):
    id: str | None = None


class StreamEvent(Native, frozen=True):
    type: str = ""
    index: int = 0
    delta: Delta | None = None
    message: _Started | None = None


class Request(Native, frozen=True):
    """A control request from the agent."""

    subtype: str = ""
    tool_name: str | None = None
    input: Any = None
    tool_use_id: str | None = None
    decision_reason: str | None = None
    message: Any = None


class Response(Native, frozen=True):
    """The agent's reply to a control request."""

    subtype: str = ""
    request_id: str = ""
    error: str | None = None


READ_CONTEXT: Final = "get_context_usage"

# A number that every JSON reader can represent.
Count = Annotated[int, msgspec.Meta(ge=0, le=2**53)]


class Category(Native, frozen=True):
    """A part of the context window. `kind` says whether its tokens are in it."""

    id: str = ""
    tokens: Count = 0
    kind: str = ""


class ContextUsage(Native, frozen=True):
    categories: tuple[Category, ...] = ()
    total_tokens: Count | None = msgspec.field(default=None, name="totalTokens")
    max_tokens: Count | None = msgspec.field(default=None, name="maxTokens")
    compacts_at: Count | None = msgspec.field(default=None, name="autoCompactThreshold")
    is_compacting_enabled: bool = msgspec.field(default=False, name="isAutoCompactEnabled")


class _ContextResponse(Native, frozen=True):
    response: ContextUsage


class ContextReply(Native, frozen=True):
    """The reply to `get_context_usage`."""

    response: _ContextResponse


class Task(Native, frozen=True):
    task_id: str


class Envelope(Native, frozen=True):
    """Any frame. `api_message_id` is the id of the model message that a stream event belongs to."""

    type: str = ""
    subtype: str | None = None
    session_id: str | None = None
    parent_tool_use_id: str | None = None
    api_message_id: str | None = None
    event: StreamEvent | None = None
    request_id: str | None = None
    request: Request | None = None
    response: Response | None = None
    command_uuid: str | None = None
    state: str | None = None
    tasks: tuple[Task, ...] | None = None
    errors: tuple[str, ...] | None = None
    uuid: str | None = None


STREAMED: Final = {"text_delta": "text", "thinking_delta": "thinking", "input_json_delta": "partial_json"}
"""The field that holds the text of a delta, by the type of the delta."""


# ── whole frames, as normalizing needs them ──


class Block(Native, frozen=True):
    type: str
    id: str | None = None
    name: str | None = None
    input: Any = None
    text: str | None = None
    thinking: str | None = None
    tool_use_id: str | None = None
    content: Any = None
    is_error: bool | None = None


class Message(Native, frozen=True):
    id: str = ""
    model: str | None = None
    content: str | tuple[Block, ...] = ()

    @property
    def blocks(self) -> tuple[Block, ...]:
        return (Block(type="text", text=self.content),) if isinstance(self.content, str) else self.content


class Unrun(Native, frozen=True):
    """Why a tool call was not run."""

    id: str = ""
    non_execution_kind: str | None = None


class Said(Native, frozen=True):
    """An `assistant` or `user` frame. `error` is set if the program reports a provider's failure in it."""

    message: Message
    parent_tool_use_id: str | None = None
    error: str | None = None
    api_error_status: int | None = None
    api_error: str | None = None
    tool_result_meta: tuple[Unrun, ...] = ()
    tool_use_result: Any = None
    uuid: str = ""
    should_query: bool | None = msgspec.field(default=None, name="shouldQuery")

    @property
    def is_given(self) -> bool:
        """Whether Proctor added this message of the user to the thread without a turn."""
        return self.should_query is False


class Init(Native, frozen=True):
    session_id: str
    model: str | None = None
    cwd: str | None = None
    claude_code_version: str | None = None
    api_key_source: str | None = msgspec.field(default=None, name="apiKeySource")


PROMPT_SUBMIT: Final = "UserPromptSubmit"
"""The event of the hook that the program calls with each prompt, before it asks the model."""


class Hook(Native, frozen=True):
    """The report before each tool call, by the agent or a subagent."""

    tool_name: str = ""
    tool_input: Any = None
    tool_use_id: str | None = None


class Retry(Native, frozen=True):
    attempt: int = 0
    max_retries: int = 0
    retry_delay_ms: Annotated[float, msgspec.Meta(ge=0, le=1e12)] | None = None
    error_status: int | None = None
    error: str | None = None


COMPACT: Final = "/compact"
"""The command that has the program shorten its history."""

COMPACTING: Final = "compacting"


class Status(Native, frozen=True):
    """What the program does. `compact_result` is set in the status after a compaction."""

    status: str | None = None
    compact_result: Literal["success", "failed"] | None = None
    compact_error: str | None = None


class Preserved(Native, frozen=True):
    """The messages that are kept verbatim. `all_uuids` also names those between the messages of `uuids`."""

    uuids: tuple[str, ...] = ()
    all_uuids: tuple[str, ...] = ()


class Compacted(Native, frozen=True):
    trigger: Literal["manual", "auto"] | None = None
    preserved_messages: Preserved = Preserved()
    pre_tokens: Count | None = None
    post_tokens: Count | None = None


class CompactBoundary(Native, frozen=True):
    """Where the shortened history begins."""

    compact_metadata: Compacted = Compacted()


class _OutputDetails(Native, frozen=True):
    thinking_tokens: int | None = None


class Usage(Native, frozen=True):
    input_tokens: int = 0
    output_tokens: int = 0
    cache_creation_input_tokens: int | None = None
    cache_read_input_tokens: int | None = None
    output_tokens_details: _OutputDetails | None = None


class Result(Native, frozen=True):
    """The end of the work on one message sent to the agent."""

    subtype: str = ""
    is_error: bool = False
    api_error_status: int | None = None
    terminal_reason: str | None = None
    result: str | None = None
    errors: tuple[str, ...] = ()
    structured_output: Any = None
    usage: Usage | None = None
    uuid: str = ""


class Denied(Native, frozen=True):
    """A call that the program refused without asking."""

    tool_name: str = ""
    message: str | None = None


SILENT: Final = frozenset(
    """
    system/background_tasks_changed system/commands_changed system/files_persisted
    system/hook_progress system/hook_response system/hook_started system/local_command_output
    system/per_turn_effort_changed system/session_state_changed system/task_notification system/task_progress
    system/task_started system/task_updated system/thinking_tokens system/turn_duration
    auth_status command_lifecycle control_cancel_request keep_alive prompt_suggestion rate_limit_event
    tool_progress tool_use_summary
    """.split()
)
"""Known frames that produce no event."""
