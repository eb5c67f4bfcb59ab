"""Convert messages to items of `thread/inject_items`. Pure."""

from collections.abc import Iterable, Iterator
from typing import Any, Final

from proctor import canonical
from proctor.event.message import AgentPart, CallPart, Message, ResultPart, SummaryPart, UserPart
from proctor.ids import EntryId
from proctor.runtime.conversion import (
    FAILED_NOTE,
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

SHELL: Final = "exec_command"
"""The tool with which Codex 0.163 runs commands."""


def native_items(messages: Iterable[Message]) -> Conversion:
    """Return the messages as items. Codex has no place for the failure of a call, so a note in the output states it."""
    prepared = prepare(messages)
    items = tuple(item for step in prepared.steps for item in _step_items(step))
    return Conversion(items=items, omitted=prepared.omitted, unanswered=prepared.unanswered)


def developer_item(text: str) -> dict[str, Any]:
    """Return instructions as an item. The role `system` would be accepted and dropped."""
    return _message("developer", "input_text", clean(text))


def _step_items(step: Message | Round) -> Iterator[NativeItem]:
    if isinstance(step, Round):
        for call in step.calls:
            yield NativeItem(entries=(call.id,), value=_call(call))
        for result in step.results:
            yield NativeItem(entries=(result.id,), value=_result(result))
        for call in step.unanswered:
            yield NativeItem(entries=(), value=_output(call.id, NO_OUTPUT))
        return
    match step.part:
        case UserPart(text=text):
            value = _message("user", "input_text", clean(text))
        case AgentPart(text=text):
            value = _message("assistant", "output_text", clean(text))
        case SummaryPart(text=text):
            value = _message("user", "input_text", SUMMARY_LABEL + clean(text))
        case _:
            raise AssertionError("calls and results are in rounds")
    yield NativeItem(entries=(step.id,), value=value)


def _message(role: str, kind: str, text: str) -> dict[str, Any]:
    return {"type": "message", "role": role, "content": [{"type": kind, "text": text}]}


def _call(message: Message) -> dict[str, Any]:
    assert isinstance(message.part, CallPart)
    if message.part.kind == "command" and (command := shell_command(message.part)) is not None:
        name, arguments = SHELL, {"cmd": command}
    else:
        name, arguments = tool_name(message.part), tool_input(message.part)
    encoded = canonical.encode(arguments).decode()
    return {"type": "function_call", "name": name, "call_id": call_id_of(message.id), "arguments": encoded}


def _result(message: Message) -> dict[str, Any]:
    assert isinstance(message.part, ResultPart)
    text = output_text(message.part)
    return _output(message.part.call, f"{text}\n{FAILED_NOTE}" if message.part.ok is False else text)


def _output(call: EntryId, text: str) -> dict[str, Any]:
    return {"type": "function_call_output", "call_id": call_id_of(call), "output": text}


def call_id_of(call: EntryId) -> str:
    return call_id(call, prefix="call_")
