"""Codex frames into events, one kind after the other, by frames of the shape that 0.163 was seen to send."""

from typing import Any

import pytest

from proctor.event.model import (
    ApprovalAsked,
    ApprovalResolved,
    CompactionBegan,
    CompactionEnded,
    CompactionTrigger,
    ErrorReported,
    Event,
    FrameNoted,
    ModelRerouted,
    ProcessExited,
    PromptSent,
    ReasoningSaid,
    ReasoningStreamed,
    ReplyReceived,
    RequestSent,
    SessionBegan,
    StatusChanged,
    StreamEnded,
    TextSaid,
    TextStreamed,
    Tokens,
    ToolBegan,
    ToolEnded,
    ToolStreamed,
    TurnBegan,
    TurnEnded,
    Unrecognized,
    UsageAuthority,
    UsageReported,
    WarningRaised,
)
from proctor.event.row import ChannelClosed, ChildExited, Direction, QuestionAnswered, StepTaken, TailReleased
from proctor.ids import CallId, ItemId, ThreadId, TurnId
from tests.runtime.stories import COMMAND, THREAD, TURN, Story, at

T = TurnId(TURN)
GIVEN = {"command": "/bin/bash -c 'echo $((6 * 7))'", "cwd": "/w"}


@pytest.fixture
def story() -> Story:
    return Story().begun()


def test_a_session_begins_with_the_reply_to_thread_start() -> None:
    story = Story()
    assert story.asked(1, "thread/start", cwd="/w") == [RequestSent(method="thread/start", **at(1))]
    result = {"thread": {"id": THREAD, "ephemeral": True, "cliVersion": "0.163.0"}, "model": "m", "cwd": "/w"}
    assert story.row(Direction.IN, {"id": 1, "result": result}) == [
        SessionBegan(thread=ThreadId(THREAD), model="m", cwd="/w", ephemeral=True, **at(2)),
        ReplyReceived(method="thread/start", **at(2)),
    ]
    assert story.heard("thread/started", thread={"id": THREAD}) == [FrameNoted(native="thread/started", **at(3))]


def test_a_prompt_is_what_turn_start_says_and_a_turn_has_a_beginning_and_an_end() -> None:
    story = Story()
    said = [{"type": "text", "text": "Fix it."}, {"type": "text", "text": "Now."}]
    assert story.asked(2, "turn/start", threadId=THREAD, input=said) == [PromptSent(text="Fix it.\nNow.", **at(1))]
    began: dict[str, Any] = {"id": TURN, "items": [], "itemsView": "notLoaded", "status": "inProgress", "error": None}
    assert story.heard("turn/started", turn=began) == [TurnBegan(turn=T, **at(2))]
    ended: dict[str, Any] = {
        "id": TURN,
        "items": [],
        "itemsView": "summary",
        "status": "completed",
        "error": None,
        "durationMs": 699,
    }
    assert story.heard("turn/completed", turn=ended) == [TurnEnded(turn=T, status="completed", **at(3))]


def test_a_refused_request_is_a_reply_with_an_error(story: Story) -> None:
    story.asked(9, "thread/backgroundTerminals/clean", threadId=THREAD)
    refusal = {"code": -32600, "message": "thread not found: x"}
    assert story.row(Direction.IN, {"id": 9, "error": refusal}) == [
        ReplyReceived(method="thread/backgroundTerminals/clean", error="thread not found: x", **at(6))
    ]


@pytest.mark.parametrize(
    ("info", "error_class", "code"),
    [
        (None, None, None),
        ("contextWindowExceeded", "contextWindowExceeded", "provider.context-full"),
        ({"httpConnectionFailed": {"httpStatusCode": 401}}, "httpConnectionFailed:401", "provider.unauthorized"),
        ({"responseStreamDisconnected": {"httpStatusCode": None}}, "responseStreamDisconnected", "provider.stream-cut"),
        ({"something": "newer"}, "something", None),
        (17, None, None),
    ],
)
def test_a_failed_turn_says_why(story: Story, info: Any, error_class: str | None, code: str | None) -> None:
    error = {"message": "no luck", "codexErrorInfo": info, "additionalDetails": None}
    turn = {"id": TURN, "items": [], "itemsView": "notLoaded", "status": "failed", "error": error}
    assert story.heard("error", error=error, willRetry=True) == [
        ErrorReported(text="no luck", error_class=error_class, will_retry=True, **at(5))
    ]
    assert story.heard("turn/completed", turn=turn) == [
        TurnEnded(turn=T, status="failed", error="no luck", error_class=error_class, code=code, **at(6))
    ]


def test_an_error_that_is_being_retried_says_what_is_wrong_and_not_only_how_often(story: Story) -> None:
    error = {
        "message": "Reconnecting... 2/5",
        "codexErrorInfo": {"responseStreamDisconnected": {"httpStatusCode": None}},
        "additionalDetails": "Connection failed: error sending request",
    }
    assert story.heard("error", error=error, willRetry=True) == [
        ErrorReported(
            text="Reconnecting... 2/5: Connection failed: error sending request",
            error_class="responseStreamDisconnected",
            will_retry=True,
            code="provider.unreachable",
            **at(5),
        )
    ]


def test_another_model_that_answers_is_a_warning(story: Story) -> None:
    text = "small answers instead of large: highRiskCyberActivity"
    assert story.heard("model/rerouted", fromModel="large", toModel="small", reason="highRiskCyberActivity") == [
        ModelRerouted(to="small", **at(5)),
        WarningRaised(source="provider", text=text, channel="model/rerouted", **at(5)),
    ]


def test_messages_and_reasoning_are_streamed_and_then_said(story: Story) -> None:
    story.item("item/started", "agentMessage", "m", text="", phase=None, memoryCitation=None)
    assert story.heard("item/agentMessage/delta", itemId="m", delta="The sh") == [
        TextStreamed(turn=T, item=ItemId("m"), text="The sh", **at(6))
    ]
    assert story.item("item/completed", "agentMessage", "m", text="The shell says 42.", phase="final_answer") == [
        TextSaid(turn=T, item=ItemId("m"), text="The shell says 42.", phase="final_answer", **at(7))
    ]
    for seq, method in enumerate(("item/reasoning/summaryTextDelta", "item/reasoning/textDelta"), start=8):
        assert story.heard(method, itemId="r", delta="Hm", summaryIndex=0) == [
            ReasoningStreamed(turn=T, item=ItemId("r"), text="Hm", **at(seq))
        ]
    assert story.item("item/completed", "reasoning", "r", summary=["One.", "Two."], content=["Three."]) == [
        ReasoningSaid(turn=T, item=ItemId("r"), text="One.\nTwo.\nThree.", **at(10))
    ]


@pytest.mark.parametrize(
    ("status", "exit_code", "output", "ok"),
    [("completed", 0, "42\n", True), ("failed", 1, "no\n", False), ("declined", None, None, False)],
)
def test_a_command_begins_streams_and_ends(
    story: Story, status: str, exit_code: int | None, output: str | None, ok: bool
) -> None:
    running = {**COMMAND, "status": "inProgress", "aggregatedOutput": None, "exitCode": None, "durationMs": None}
    assert story.item("item/started", "commandExecution", "c", **running) == [
        ToolBegan(turn=T, call=CallId("c"), kind="command", name="shell", input=GIVEN, **at(5))
    ]
    assert story.heard("item/commandExecution/outputDelta", itemId="c", delta="4") == [
        ToolStreamed(turn=T, call=CallId("c"), text="4", **at(6))
    ]
    ended = {**COMMAND, "status": status, "aggregatedOutput": output, "exitCode": exit_code, "durationMs": 328}
    assert story.item("item/completed", "commandExecution", "c", **ended) == [
        ToolEnded(
            turn=T,
            call=CallId("c"),
            kind="command",
            name="shell",
            ok=ok,
            status=status,
            input=GIVEN,
            exit_code=exit_code,
            output=output,
            duration_ms=328,
            **at(7),
        )
    ]


def test_a_command_that_ends_after_its_turn_belongs_to_that_turn(story: Story) -> None:
    story.heard("turn/completed", turn={"id": TURN, "status": "completed"})
    story.heard("turn/started", turn={"id": "next", "status": "inProgress"}, turnId="next")
    [ended] = story.item("item/completed", "commandExecution", "c", **COMMAND, status="failed", exitCode=-1)
    [streamed] = story.heard("item/commandExecution/outputDelta", itemId="c", delta="x")
    assert isinstance(ended, ToolEnded)
    assert isinstance(streamed, ToolStreamed)
    assert (ended.turn, streamed.turn) == (T, T)


CHANGES = [{"path": "/w/greet.py", "kind": {"type": "update", "move_path": None}, "diff": "@@ -1 +1 @@\n-a\n+b\n"}]


@pytest.mark.parametrize(
    ("type_", "fields", "expected"),
    [
        (
            "fileChange",
            {"changes": CHANGES, "status": "completed"},
            {"kind": "patch", "name": "patch", "input": {"changes": CHANGES}, "ok": True, "status": "completed"},
        ),
        (
            "mcpToolCall",
            {"server": "files", "tool": "read", "arguments": {"path": "a"}, "status": "completed", "durationMs": 3}
            | {"result": {"content": [{"type": "text", "text": "x"}], "isError": False}},
            {"kind": "mcp", "name": "files/read", "input": {"path": "a"}, "ok": True, "status": "completed"}
            | {"duration_ms": 3, "output": '{"content":[{"type":"text","text":"x"}],"isError":false}'},
        ),
        (
            "mcpToolCall",
            {"server": "files", "tool": "read", "arguments": {}, "status": "completed", "result": {"isError": True}},
            {"kind": "mcp", "name": "files/read", "input": {}, "ok": False, "status": "completed"}
            | {"output": '{"isError":true}'},
        ),
        (
            "mcpToolCall",
            {"server": "files", "tool": "read", "arguments": {}, "status": "failed", "error": {"message": "gone"}},
            {"kind": "mcp", "name": "files/read", "input": {}, "ok": False, "status": "failed"}
            | {"output": '{"message":"gone"}'},
        ),
        (
            "dynamicToolCall",
            {"tool": "add", "arguments": [1], "status": "completed", "success": False, "contentItems": []},
            {"kind": "dynamic", "name": "add", "input": [1], "ok": False, "status": "completed", "output": "[]"},
        ),
        (
            "webSearch",
            {"query": "weather", "action": None},
            {"kind": "web", "name": "search", "input": {"query": "weather"}, "ok": True, "status": "completed"},
        ),
    ],
    ids=["patch", "mcp", "mcp error by its result", "mcp error by its status", "dynamic", "web"],
)
def test_the_other_tools_end_as_what_they_are(
    story: Story, type_: str, fields: dict[str, Any], expected: dict[str, Any]
) -> None:
    assert story.item("item/completed", type_, "c", **fields) == [
        ToolEnded(turn=T, call=CallId("c"), **expected, **at(5))
    ]


@pytest.mark.requirement("runtime.usage")
@pytest.mark.requirement("context.usage")
def test_usage_is_the_threads_total_so_far(story: Story) -> None:
    total = {"totalTokens": 3782, "inputTokens": 3746, "cachedInputTokens": 40, "cacheWriteInputTokens": 0}
    total |= {"outputTokens": 36, "reasoningOutputTokens": 5}
    last = {"totalTokens": 20, "inputTokens": 12, "cachedInputTokens": 0, "outputTokens": 8, "reasoningOutputTokens": 0}
    usage = {"total": total, "last": last, "modelContextWindow": 190000}
    assert story.heard("thread/tokenUsage/updated", tokenUsage=usage) == [
        UsageReported(
            tokens=Tokens(input=3746, output=36, total=3782, cached_input=40, cache_write=0, reasoning_output=5),
            scope="thread",
            basis="cumulative",
            authority=UsageAuthority.LIVE_THREAD_USAGE,
            turn=T,
            **at(5),
        )
    ]
    older = {"total": last, "last": last}
    assert story.heard("thread/tokenUsage/updated", tokenUsage=older) == [
        FrameNoted(native="outdated thread/tokenUsage/updated", **at(6))
    ]


@pytest.mark.requirement("evidence.trace")
def test_filled_context_window_is_not_accepted_as_usage(story: Story) -> None:
    """After an overflow Codex reports the size of the window as the total, without input and output."""
    first = {"totalTokens": 10, "inputTokens": 9, "outputTokens": 1, "cachedInputTokens": 0, "reasoningOutputTokens": 0}
    window = {**first, "totalTokens": 272_000, "inputTokens": 0, "outputTokens": 0}
    fallen = {**first, "totalTokens": 300_000, "inputTokens": 299_999, "outputTokens": 0}
    noted = "outdated thread/tokenUsage/updated"
    assert story.heard("thread/tokenUsage/updated", tokenUsage={"total": window, "last": window}) == [
        FrameNoted(native=noted, **at(5))
    ]
    [accepted] = story.heard("thread/tokenUsage/updated", tokenUsage={"total": first, "last": first})
    assert isinstance(accepted, UsageReported)
    for n, total in enumerate((window, fallen), start=7):
        assert story.heard("thread/tokenUsage/updated", tokenUsage={"total": total, "last": total}) == [
            FrameNoted(native=noted, **at(n))
        ]


@pytest.mark.requirement("runtime.status")
def test_the_threads_status_is_told_with_its_flags(story: Story) -> None:
    waiting = {"type": "active", "activeFlags": ["waitingOnApproval"]}
    assert story.heard("thread/status/changed", status=waiting) == [
        StatusChanged(status="active", flags=("waitingOnApproval",), channel="thread/status/changed", **at(5))
    ]
    assert story.heard("thread/status/changed", status={"type": "systemError"}) == [
        StatusChanged(status="system-error", channel="thread/status/changed", **at(6))
    ]


@pytest.mark.requirement("runtime.warnings")
@pytest.mark.parametrize(
    ("method", "params", "source", "text"),
    [
        ("warning", {"message": "Careful."}, "thread", "Careful."),
        ("guardianWarning", {"message": "Careful."}, "thread", "Careful."),
        (
            "configWarning",
            {"summary": "No bubblewrap.", "details": "Install it."},
            "config",
            "No bubblewrap. Install it.",
        ),
        ("deprecationNotice", {"summary": "Old.", "details": None}, "deprecation", "Old."),
        ("mcpServer/startupStatus/updated", {"name": "s", "status": "failed", "error": "gone"}, "mcp", "s: gone"),
    ],
)
def test_a_warning_is_attributed_by_the_channel_it_came_through(
    story: Story, method: str, params: dict[str, Any], source: Any, text: str
) -> None:
    assert story.heard(method, **params) == [WarningRaised(source=source, text=text, channel=method, **at(5))]


@pytest.mark.parametrize("said", [{"text": "ERROR no"}, {"frame": {"level": "ERROR"}}], ids=["text", "json"])
def test_stderr_is_a_warning_of_the_process(said: dict[str, Any]) -> None:
    text = said.get("text", '{"level":"ERROR"}')
    assert Story().row(Direction.ERR, **said) == [WarningRaised(source="process", text=text, channel="stderr", **at(1))]


@pytest.mark.parametrize(
    ("method", "params", "expected"),
    [
        (
            "item/commandExecution/requestApproval",
            {"itemId": "c", "command": "touch x", "reason": "to touch"},
            {"about": "command", "call": CallId("c"), "detail": "touch x"},
        ),
        (
            "item/fileChange/requestApproval",
            {"itemId": "c", "reason": None, "grantRoot": None},
            {"about": "patch", "call": CallId("c")},
        ),
        (
            "execCommandApproval",
            {"callId": "c", "command": ["touch", "x"], "parsedCmd": []},
            {"about": "command", "call": CallId("c"), "detail": "touch x"},
        ),
        ("item/tool/call", {"callId": "c", "tool": "add"}, {"about": "dynamic tool", "call": "c", "detail": "add"}),
        ("mcpServer/elicitation/request", {"serverName": "s"}, {"about": "mcp elicitation"}),
        ("currentTime/read", {}, {"about": "time"}),
    ],
)
def test_a_question_is_asked_answered_and_put_to_rest(
    story: Story, method: str, params: dict[str, Any], expected: dict[str, Any]
) -> None:
    question = {"id": 0, "method": method, "params": {"threadId": THREAD, **params}}
    assert story.row(Direction.IN, question) == [ApprovalAsked(request="0", **expected, **at(5))]
    answered = QuestionAnswered(request="0", method=method, decision="decline", by="policy")
    assert story.saw(answered) == [ApprovalResolved(request="0", decision="decline", by="policy", **at(6))]
    assert story.row(Direction.OUT, {"id": 0, "result": {}}) == [RequestSent(method=f"reply: {method}", **at(7))]
    assert story.heard("serverRequest/resolved", requestId=0) == [FrameNoted(native="serverRequest/resolved", **at(8))]


@pytest.mark.parametrize(
    ("stream", "expected"),
    [
        (f"{THREAD}|m|item/agentMessage/delta", TextStreamed(turn=T, item=ItemId("m"), text="sk-li", **at(5))),
        (f"{THREAD}|a|b|item/plan/delta", TextStreamed(turn=T, item=ItemId("a|b"), text="sk-li", **at(5))),
        (f"{THREAD}|r|item/reasoning/textDelta", ReasoningStreamed(turn=T, item=ItemId("r"), text="sk-li", **at(5))),
        (
            f"{THREAD}|c|item/commandExecution/outputDelta",
            ToolStreamed(turn=T, call=CallId("c"), text="sk-li", **at(5)),
        ),
        ("helper|m|item/agentMessage/delta", FrameNoted(native="another thread's item/agentMessage/delta", **at(5))),
        ("of another kind", FrameNoted(native="tail of of another kind", **at(5))),
    ],
)
def test_what_redaction_held_back_is_streamed_at_the_end_as_part_of_its_item(
    story: Story, stream: str, expected: Event
) -> None:
    assert story.saw(TailReleased(stream=stream, text="sk-li")) == [expected]


def test_what_the_supervisor_saw_is_told_in_the_same_words(story: Story) -> None:
    assert [
        *story.saw(ChannelClosed(cause="gone")),
        *story.saw(ChildExited(signal=9)),
        *story.saw(StepTaken(step="hangup")),
        *story.row(Direction.SELF, {"saw": "something newer"}),
    ] == [
        StreamEnded(cause="gone", **at(5)),
        ProcessExited(code=None, signal=9, **at(6)),
        FrameNoted(native="hangup", **at(7)),
        Unrecognized(native="self", **at(8)),
    ]


# ── compaction ──


def reported(story: Story, *, last: tuple[int, int], total: int) -> list[Event]:
    """A report of usage, with the input and all tokens of the last request."""
    used = {"inputTokens": last[0], "outputTokens": last[1] - last[0] if last[0] else 0, "totalTokens": last[1]}
    whole = {"inputTokens": total, "outputTokens": 0, "totalTokens": total}
    return story.heard("thread/tokenUsage/updated", tokenUsage={"total": whole, "last": used})


def compactions(events: list[Event]) -> list[Event]:
    return [event for event in events if isinstance(event, CompactionBegan | CompactionEnded)]


def compacted(trigger: CompactionTrigger, seq: int, **known: Any) -> CompactionEnded:
    return CompactionEnded(trigger=trigger, keeps="user-messages", keeps_tokens=20_000, **known, **at(seq))


@pytest.mark.requirement("context.compaction")
@pytest.mark.parametrize("trigger", ["manual", "auto"])
def test_compaction_has_a_beginning_an_end_and_the_tokens_that_codex_reports(trigger: CompactionTrigger) -> None:
    story = Story()
    story.begun()
    reported(story, last=(30_000, 30_010), total=30_010)
    story.asked(3, "thread/compact/start" if trigger == "manual" else "turn/start", threadId=THREAD)
    assert story.item("item/started", "contextCompaction") == [CompactionBegan(trigger=trigger, **at(7))]
    # Codex repeats the last report, then reports the request for the summary, then counts what is left.
    reported(story, last=(30_000, 30_010), total=30_010)
    reported(story, last=(2_254, 2_256), total=32_266)
    reported(story, last=(0, 2_023), total=32_266)
    known = {"ok": True, "tokens_before": 30_010, "tokens_after": 2_023}
    assert story.item("item/completed", "contextCompaction") == [compacted(trigger, 11, **known)]


@pytest.mark.requirement("context.compaction")
def test_compaction_without_reports_has_unknown_tokens(story: Story) -> None:
    story.item("item/started", "contextCompaction")
    assert story.item("item/completed", "contextCompaction") == [compacted("auto", 6, ok=True)]


@pytest.mark.requirement("context.compaction")
def test_compaction_after_which_codex_does_not_count_has_no_tokens_after(story: Story) -> None:
    story.item("item/started", "contextCompaction")
    reported(story, last=(2_254, 2_256), total=2_256)
    assert story.item("item/completed", "contextCompaction") == [compacted("auto", 7, ok=True)]


@pytest.mark.requirement("context.compaction")
@pytest.mark.parametrize("status", ["failed", "interrupted"])
def test_compaction_that_ends_with_its_turn_has_failed(story: Story, status: str) -> None:
    story.asked(3, "thread/compact/start", threadId=THREAD)
    story.item("item/started", "contextCompaction")
    ended, turn_ended = story.heard("turn/completed", turn={"id": TURN, "items": [], "status": status, "error": None})
    assert ended == compacted("manual", 7, ok=False)
    assert isinstance(turn_ended, TurnEnded)
    story.asked(4, "turn/start", threadId=THREAD, input=[])
    assert story.item("item/started", "contextCompaction", "j") == [CompactionBegan(trigger="auto", **at(9))]


@pytest.mark.requirement("context.compaction")
def test_compaction_whose_frames_are_repeated_or_lost_is_one_compaction(story: Story) -> None:
    lost = story.item("item/completed", "contextCompaction")
    assert lost == [CompactionBegan(trigger="auto", **at(5)), compacted("auto", 5, ok=True)]
    late = story.item("item/started", "contextCompaction") + story.item("item/completed", "contextCompaction")
    assert compactions(late) == []


@pytest.mark.requirement("context.compaction")
def test_compaction_of_another_thread_is_not_the_sessions(story: Story) -> None:
    item = {"type": "contextCompaction", "id": "i"}
    assert story.heard("item/started", item=item, threadId="another") == [
        FrameNoted(native="another thread's contextCompaction", **at(5))
    ]
