"""What a runtime can be asked to show of each of its claims: a case is passed or raises why not."""

from collections.abc import Awaitable, Callable
from typing import Any, Final

import anyio

from proctor.event.laws import Laws
from proctor.event.model import ApprovalResolved, TextSaid, ToolEnded, TurnEnded
from proctor.runtime.base import Decision, Question, Tool
from proctor.spec.model import Approvals
from proctor.testing.trial import EventTap, Trial

WORDS: Final = "Heard and answered."
_WAIT: Final = {"do": [{"say": "I begin."}, {"delay": "10m"}]}


class UnprovenError(Exception):
    """The case ran, and did not show what is claimed."""


def must(holds: bool, what: str) -> None:
    if not holds:
        raise UnprovenError(what)


def ended(tap: EventTap) -> list[str]:
    return [event.status for event in tap.of(TurnEnded)]


async def thread_start(trial: Trial) -> None:
    async with trial.session({"say": WORDS}, name="start") as (session, _):
        must(bool(session.thread), "no thread id was given")


async def event_stream(trial: Trial) -> None:
    async with trial.session({"run": "echo $((6 * 7))"}, {"say": WORDS}, name="stream") as (session, tap):
        await session.turn("Go on.")
        must([said.text for said in tap.of(TextSaid)] == [WORDS], "its words did not come as an event")
        must([tool.output for tool in tap.of(ToolEnded)] == ["42\n"], "its command's output did not come as an event")
        must(ended(tap) == ["completed"], f"the turn ended as {ended(tap)}")
        laws = Laws()
        broken = [law for event in tap.events if (law := laws.feed(event)) is not None]
        must(not broken, "; ".join(broken))


async def turn_steer(trial: Trial) -> None:
    async with trial.session(_WAIT, {"say": WORDS}, name="steer") as (session, tap):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(session.turn, "Go on.")
            await trial.model.journal_until("steer", lambda rows: len(rows) == 1)
            await session.steer("Another way.")
        must("Another way." in trial.model.journal("steer")[-1].heard, "what was said did not reach the model")
        must(ended(tap) == ["completed"], f"the turn ended as {ended(tap)}")


async def interrupt(trial: Trial) -> None:
    async with trial.session(_WAIT, name="interrupt") as (session, tap):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(session.turn, "Go on.")
            await trial.model.journal_until("interrupt", lambda rows: len(rows) == 1)
            await session.interrupt()
            tasks.cancel_scope.cancel()
        must(ended(tap) == ["interrupted"], f"the turn ended as {ended(tap)}")


async def thread_resume(trial: Trial) -> None:
    async with trial.session({"say": "4711 it is."}, name="kept", is_persistent=True) as (session, _):
        await session.turn("Remember 4711.")
        thread = session.thread
    async with trial.session({"say": WORDS}, name="resume", resume=thread) as (session, _):
        await session.turn("Which?")
        must("4711 it is." in trial.model.journal("resume")[-1].heard, "the model was not told of what was said before")


async def parallel_sessions(trial: Trial) -> None:
    async with (
        trial.session(_WAIT, name="first") as (first, first_tap),
        trial.session({"say": WORDS}, name="second") as (second, second_tap),
        anyio.create_task_group() as tasks,
    ):
        tasks.start_soon(first.turn, "Go on.")
        await trial.model.journal_until("first", lambda rows: len(rows) == 1)
        await second.turn("Go on.")
        must(ended(first_tap) == [] and ended(second_tap) == ["completed"], "one had to wait for the other")
        await first.interrupt()
        tasks.cancel_scope.cancel()


async def approvals(trial: Trial) -> None:
    for decision, is_done in ((Decision.ACCEPT, True), (Decision.DENY, False)):

        async def decide(_: Question, decision: Decision = decision) -> Decision:
            return decision

        asks = {"run": {"command": "true", "escalate": True}}
        ask: dict[str, Any] = {"approvals": Approvals.ASK, "decide": decide}
        async with trial.session(asks, {"say": WORDS}, name=f"asks-{decision}", **ask) as (session, tap):
            await session.turn("Go on.")
            must([each.by for each in tap.of(ApprovalResolved)] == ["callback"], "nobody was asked")
            must([tool.ok for tool in tap.of(ToolEnded)] == [is_done], f"what was decided ({decision}) did not happen")


async def dynamic_tools(trial: Trial) -> None:
    async def answer(_: Any) -> str:
        return "forty-two"

    tool = Tool(name="proctor_probe", description="Answers.", schema={"type": "object", "properties": {}}, call=answer)
    asks = {"call": {"tool": "proctor_probe"}}
    async with trial.session(asks, {"say": WORDS}, name="tools", tools=(tool,)) as (session, _):
        await session.turn("Go on.")
        must("forty-two" in trial.model.journal("tools")[-1].heard, "its answer did not reach the model")


async def compaction(trial: Trial) -> None:
    async with trial.session({"say": "4711 it is."}, {"say": WORDS}, name="compact") as (session, _):
        await session.turn("Remember 4711.")
        await session.compact()
        await session.turn("Go on.")
        must("4711 it is." not in trial.model.journal("compact")[-1].heard, "the history is as long as it was")


async def structured_output(trial: Trial) -> None:
    schema = {"type": "object", "properties": {}, "required": [], "additionalProperties": False}
    async with trial.session({"say": "{}"}, name="schema") as (session, _):
        await session.turn("Go on.", output_schema=schema)
        must(trial.model.journal("schema")[-1].has_output_schema, "the schema did not reach the model")


CASES: Final[dict[str, Callable[[Trial], Awaitable[None]]]] = {
    case.__name__: case
    for case in (
        thread_start,
        thread_resume,
        turn_steer,
        interrupt,
        event_stream,
        parallel_sessions,
        approvals,
        dynamic_tools,
        compaction,
        structured_output,
    )
}
"""By the claim that each of them proves."""
