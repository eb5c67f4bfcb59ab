"""Messages that tests give to threads, and how they are found again in what the model was sent."""

from collections.abc import Sequence

from proctor.event.message import AgentPart, CallPart, Message, Part, ResultPart, UserPart
from proctor.event.model import (
    CompactionBegan,
    CompactionEnded,
    Event,
    HistoryGiven,
    HistoryOffered,
    PromptSent,
    TextSaid,
    ToolBegan,
    ToolEnded,
    TurnBegan,
    TurnEnded,
)
from proctor.ids import EntryId
from proctor.model.journal import JournalItem


def message(number: int, part: Part) -> Message:
    return Message(id=EntryId(f"run/mission.flow.r1.1#{number}"), at_ms=0, part=part)


def round_of(number: int) -> tuple[Message, ...]:
    """A question, two calls that are answered in the other order, and the answer. Ids from `number` on."""
    first = message(number + 1, CallPart(kind="command", name="shell", input={"command": f"cat {number}"}))
    second = message(number + 2, CallPart(kind="mcp", name="kit/add", input={"b": number, "a": 1}))
    return (
        message(number, UserPart(text=f"question {number}")),
        first,
        second,
        message(number + 3, ResultPart(call=second.id, name="kit/add", output=f"sum {number}", ok=True)),
        message(number + 4, ResultPart(call=first.id, name="shell", output=f"file {number}", ok=True)),
        message(number + 5, AgentPart(text=f"answer {number}")),
    )


def ids(messages: Sequence[Message]) -> tuple[EntryId, ...]:
    return tuple(each.id for each in messages)


def said(items: Sequence[JournalItem]) -> list[tuple[str, str]]:
    """Tools or roles, and the texts, of what was given and asked, in order; without what the agent adds itself."""
    words = ("question", "answer", "sum", "file", "cat", '"a":1', "prompt", "Said")
    return [(item.tool or item.role or item.kind, item.whole_text.strip()) for item in items if _is_ours(item, words)]


def _is_ours(item: JournalItem, words: Sequence[str]) -> bool:
    return item.role not in ("system", "developer") and any(word in item.whole_text[:24] for word in words)


_ORDERED = (
    HistoryOffered,
    HistoryGiven,
    PromptSent,
    TurnBegan,
    CompactionBegan,
    CompactionEnded,
    ToolBegan,
    ToolEnded,
    TextSaid,
    TurnEnded,
)


def order_of(events: Sequence[Event]) -> list[str]:
    """The kinds of the events of turns, giving and compactions, in order."""
    return [type(event).__name__ for event in events if isinstance(event, _ORDERED)]
