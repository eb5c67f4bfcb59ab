"""Convert messages to `user` and `assistant` frames of Claude Code. Pure."""

from collections.abc import Iterable, Iterator
from typing import Any, Final

from proctor.event.message import AgentPart, CallPart, Message, ResultPart, SummaryPart, UserPart
from proctor.ids import EntryId
from proctor.runtime.claude_code.results import PATCHES, SERVER
from proctor.runtime.conversion import (
    NO_OUTPUT,
    SUMMARY_LABEL,
    Conversion,
    NativeItem,
    Round,
    call_id,
    clean,
    output_text,
    prepare,
    shell_command,
    tool_input,
    tool_name,
)

SHELL: Final = "Bash"
"""The tool with which Claude Code runs commands."""


def native_items(messages: Iterable[Message]) -> Conversion:
    """Return the messages as frames without the fields that differ each time, such as `uuid`.

    All calls of a round are in one frame and their results in the next: if each had a separate frame, Claude Code
    would replace all results but the last (seen with 2.1.325).
    """
    prepared = prepare(messages)
    items = tuple(item for step in prepared.steps for item in _step_frames(step))
    return Conversion(items=items, omitted=prepared.omitted, unanswered=prepared.unanswered)


def is_agents_text(item: NativeItem) -> bool:
    """Return whether a frame holds a text of the agent."""
    content = item.value["message"]["content"]
    return bool(item.value["type"] == "assistant" and content[0]["type"] == "text")


def _step_frames(step: Message | Round) -> Iterator[NativeItem]:
    if isinstance(step, Round):
        calls = [_call(call) for call in step.calls]
        yield NativeItem(entries=tuple(call.id for call in step.calls), value=_frame("assistant", *calls))
        results = [_result(result) for result in step.results]
        results += [_tool_result(call.id, NO_OUTPUT, is_error=True) for call in step.unanswered]
        yield NativeItem(entries=tuple(result.id for result in step.results), value=_frame("user", *results))
        return
    match step.part:
        case UserPart(text=text):
            value = _frame("user", _text(text))
        case AgentPart(text=text):
            value = _frame("assistant", _text(text))
        case SummaryPart(text=text):
            value = _frame("user", _text(SUMMARY_LABEL + text))
        case _:
            raise AssertionError("calls and results are in rounds")
    yield NativeItem(entries=(step.id,), value=value)


def _frame(role: str, *blocks: dict[str, Any]) -> dict[str, Any]:
    return {"type": role, "message": {"role": role, "content": list(blocks)}}


def _text(text: str) -> dict[str, Any]:
    return {"type": "text", "text": clean(text)}


def _call(message: Message) -> dict[str, Any]:
    part = message.part
    assert isinstance(part, CallPart)
    name, input_ = tool_name(part), tool_input(part)
    match part.kind:
        case "command" if (command := shell_command(part)) is not None:
            name, input_ = SHELL, {"command": command}
        case "dynamic":
            name = f"mcp__{SERVER}__{name}"
        case "patch" if part.name in PATCHES:
            # Added by `tool_use`. The tool itself does not accept it.
            input_.pop("changes", None)
        case _:
            pass
    return {"type": "tool_use", "id": call_id_of(message.id), "name": name, "input": input_}


def _result(message: Message) -> dict[str, Any]:
    assert isinstance(message.part, ResultPart)
    return _tool_result(message.part.call, output_text(message.part), is_error=message.part.ok is False)


def _tool_result(call: EntryId, text: str, *, is_error: bool) -> dict[str, Any]:
    block = {"type": "tool_result", "tool_use_id": call_id_of(call), "content": text}
    return {**block, "is_error": True} if is_error else block


def call_id_of(call: EntryId) -> str:
    return call_id(call, prefix="toolu_")
