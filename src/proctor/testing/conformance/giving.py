"""Cases of giving: messages and instructions that are added to a thread without a turn."""

from collections.abc import Sequence
from typing import Final

from proctor.event.message import AgentPart, CallPart, Message, Part, ResultPart, UserPart
from proctor.event.model import HistoryGiven, HistoryOffered, PromptSent, TextSaid, TurnBegan
from proctor.ids import EntryId
from proctor.model.journal import JournalItem
from proctor.testing.agent_under_test import AgentUnderTest, EventTap
from proctor.testing.conformance.case import must
from proctor.testing.conformance.subject import Subject
from proctor.testing.conformance.turns import WORDS, ended, must_be_lawful

INSTRUCTIONS: Final = "Speak of 4713 only."
_INSTRUCTING: Final = frozenset({"developer", "system"})


def _message(number: int, part: Part) -> Message:
    return Message(id=EntryId(f"run/mission.flow.r1.1#{number}"), at_ms=0, part=part)


_CALL: Final = _message(5, CallPart(kind="command", name="shell", input={"command": "cat 4714"}))
_EARLIER: Final = (_message(1, UserPart(text="Which is it?")), _message(3, AgentPart(text="4711 it is.")))
_LATER: Final = (
    _message(4, UserPart(text="And the next?")),
    _CALL,
    _message(7, ResultPart(call=_CALL.id, name="shell", output="4712 it says.", ok=True)),
    _message(8, AgentPart(text="4712 it is.")),
)
_TEXTS: Final = ("Which is it?", "4711 it is.", "And the next?", "cat 4714", "4712 it says.", "4712 it is.")


async def history(subject: Subject) -> None:
    steps = {"say": WORDS}, {"say": WORDS}
    async with subject.agent() as agent, agent.session(*steps, name="history") as (session, tap):
        first = await session.give(_EARLIER)
        await session.turn("Go on.")
        second = await session.give(_LATER)
        await session.turn("Go on.")
    accepted = [*first.entries, *second.entries]
    must(accepted == [each.id for each in (*_EARLIER, *_LATER)], f"it reported {accepted} as accepted")
    _must_hold(_last_items(agent, "history"), _TEXTS)
    _must_not_be_turns(tap, turns=2)
    recorded = [entry for event in tap.of(HistoryGiven) for entry in event.entries]
    must(recorded == accepted, f"the record says that {recorded} were given")
    must(len(tap.of(HistoryOffered)) == 2, "what is offered is not recorded before it is sent")


async def history_resumed(subject: Subject) -> None:
    async with subject.agent() as agent:
        kept = agent.session({"say": WORDS}, name="history-kept", is_persistent=True)
        async with kept as (session, _):
            await session.give(_EARLIER)
            await session.turn("Go on.")
            thread = session.thread
        resumed = agent.session({"say": WORDS}, name="history-resumed", resume=thread)
        async with resumed as (session, tap):
            await session.give(_LATER)
            await session.turn("Go on.")
    _must_hold(_last_items(agent, "history-resumed"), _TEXTS)
    _must_not_be_turns(tap, turns=1)


async def start_instructions(subject: Subject) -> None:
    opening = {"say": WORDS}
    async with (
        subject.agent() as agent,
        agent.session(opening, name="instructed", instructions=INSTRUCTIONS) as (session, tap),
    ):
        await session.turn("Go on.")
        must(ended(tap) == ["completed"], f"the turn ended as {ended(tap)}")
    _must_instruct(_last_items(agent, "instructed"), times=1)


async def turn_instructions(subject: Subject) -> None:
    steps = {"say": WORDS}, {"say": WORDS}, {"say": WORDS}
    asked = subject.agent()
    async with (
        asked as agent,
        agent.session(*steps, name="reminded", expects_instructions=True) as (session, tap),
    ):
        await session.turn("Go on.")
        await session.give((), instructions=INSTRUCTIONS)
        await session.turn("Go on.")
        _must_instruct(_last_items(agent, "reminded"), times=1)
        await session.turn("Go on.")
        _must_instruct(_last_items(agent, "reminded"), times=1)
    _must_not_be_turns(tap, turns=3)
    given = [event.instructions_sha256 for event in tap.of(HistoryGiven) if event.instructions_sha256]
    must(len(given) == 1, f"the record says {len(given)} times, not once, that instructions were given")


def _last_items(agent: AgentUnderTest, name: str) -> tuple[JournalItem, ...]:
    """Return the items of the last request for a reply to the model of a session."""
    return [row.items for row in agent.model.journal(name) if row.digest is not None][-1]


def _must_hold(items: Sequence[JournalItem], texts: Sequence[str]) -> None:
    """Require that each of the texts is once in the last request, in this order."""
    found = [text for item in items for text in texts if _has(item, text)]
    must(found == list(texts), f"of what the thread was given, the model received {found}")


def _has(item: JournalItem, text: str) -> bool:
    # A call has its command among other arguments.
    return item.whole_text == text or (bool(item.tool) and text in item.whole_text)


def _must_instruct(items: Sequence[JournalItem], *, times: int) -> None:
    roles = [item.role for item in items if INSTRUCTIONS in item.whole_text]
    must(len(roles) == times, f"the instructions reached the model {len(roles)} times, not {times}")
    must(set(roles) <= _INSTRUCTING, f"the instructions reached the model in the roles {', '.join(roles)}")


def _must_not_be_turns(tap: EventTap, *, turns: int) -> None:
    """Require that prompts, turns and texts are only those of the turns that were requested."""
    counts = len(tap.of(PromptSent)), len(tap.of(TurnBegan)), len(tap.of(TextSaid))
    must(counts == (turns, turns, turns), f"prompts, turns and texts are {counts}, with {turns} turns")
    must(ended(tap) == ["completed"] * turns, f"the turns ended as {ended(tap)}")
    must_be_lawful(tap)
