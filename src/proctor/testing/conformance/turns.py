"""Cases of conversation: a turn, a tool, a word in between, an end put to it, and another day."""

from typing import Any, Final

import anyio
import msgspec

from proctor.event.laws import Laws
from proctor.event.model import TextSaid, TextStreamed, ToolEnded, TurnEnded
from proctor.event.outcome import Outcome
from proctor.event.trace import ToolCall
from proctor.runtime.base import Session, Tool
from proctor.testing.conformance.case import NotApplicableError, must
from proctor.testing.conformance.look import napping, new_nap, until, until_asleep, until_gone, wake
from proctor.testing.conformance.subject import DONE, Subject
from proctor.testing.trial import EventTap
from proctor.transport.fault import Break, Delay

WORDS: Final = "Heard and answered."


def ended(tap: EventTap) -> list[str]:
    return [event.status for event in tap.of(TurnEnded)]


def must_be_lawful(tap: EventTap) -> None:
    laws = Laws()
    broken = [law for event in tap.events if (law := laws.feed(event)) is not None]
    must(not broken, "; ".join(broken))


async def one_turn(subject: Subject) -> None:
    prompt = "Say that 4711 was heard."
    async with (
        subject.trial() as trial,
        trial.session({"say": WORDS}, name="one-turn", prompt=prompt) as (session, tap),
    ):
        await session.turn(prompt)
        must(bool(session.thread), "the thread has no name after its first turn")
        heard = subject.heard(trial, "one-turn")
        must(any("4711" in text for text in heard), "the prompt did not reach the model")
        must([said.text for said in tap.of(TextSaid)] == [WORDS], "its words did not come as an event")
        must(ended(tap) == ["completed"], f"the turn ended as {ended(tap)}")
        must_be_lawful(tap)


async def event_stream(subject: Subject) -> None:
    nap = new_nap()
    if not subject.has_process:
        await _told_before_its_end(subject)
        return
    steps = {"do": [{"say": WORDS}, {"run": napping(nap)}]}
    async with (
        subject.trial() as trial,
        trial.session(steps, name="stream") as (session, tap),
        anyio.create_task_group() as tasks,
    ):
        tasks.start_soon(session.turn, "Go on.")
        await until_asleep(nap)

        await _until_told(tap)
        tasks.cancel_scope.cancel()


async def _told_before_its_end(subject: Subject) -> None:
    """Of what runs no command that could last: the line that ends its turn is long in coming."""
    late = Break(at=subject.samples.is_turn_end, how=Delay(delay_s=600))
    async with (
        subject.trial(is_own=True, plan=[late]) as trial,
        trial.session({"say": WORDS}, name="stream") as (session, tap),
        anyio.create_task_group() as tasks,
    ):
        tasks.start_soon(session.turn, "Go on.")
        await _until_told(tap)
        tasks.cancel_scope.cancel()


async def _until_told(tap: EventTap) -> None:
    def is_told() -> bool:
        streamed = "".join(event.text for event in tap.of(TextStreamed))
        return WORDS in streamed or WORDS in [event.text for event in tap.of(TextSaid)]

    await until(is_told, "what it said is not told while its turn runs")
    must(ended(tap) == [], "the turn had ended by then, so nothing was shown")


async def tool_call(subject: Subject) -> None:
    if not subject.has_calls:
        raise NotApplicableError("its lines are its words: no calls of tools are seen in them")
    kept = await subject.mission({"run": "echo $((6 * 7))"}, {"say": DONE})
    kept.must_end(Outcome.COMPLETED)
    rows = [msgspec.json.decode(line, type=ToolCall) for line in kept.paths.tool_calls.read_bytes().splitlines()]
    must(len(rows) == 1, f"{len(rows)} calls are in the trace, and it made one")
    must(rows[0].ok is True and "42" in (rows[0].output or ""), f"the trace says {rows[0].ok}: {rows[0].output!r}")
    must(kept.report.claimed is True, "what it claims was not read from its words")


async def steer(subject: Subject) -> None:
    # In the middle of a command: what comes in the middle of a reply some agents keep until it is whole.
    nap = new_nap()
    steps = {"run": napping(nap)}, {"say": WORDS}
    async with subject.trial() as trial, trial.session(*steps, name="steer") as (session, tap):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(session.turn, "Go on.")
            await until_asleep(nap)
            await session.steer("Another way.")
            must(ended(tap) == [], f"the turn had ended by then: {ended(tap)}")
            wake(nap)
        heard = subject.heard(trial, "steer")
        must(any("Another way." in text for text in heard), "what was said did not reach the model")
        must(ended(tap) == ["completed"], f"the turn ended as {ended(tap)}")


async def interrupt(subject: Subject) -> None:
    nap, other_nap = new_nap(), new_nap()
    async with subject.trial() as trial, trial.session({"run": napping(nap)}, name="halted") as (session, tap):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(session.turn, "Go on.")
            await until_asleep(nap)
            if subject.can_share:
                async with trial.session({"run": napping(other_nap)}, name="sibling") as (sibling, sibling_tap):
                    tasks.start_soon(sibling.turn, "Go on.")
                    await until_asleep(other_nap)
                    await _halt(session, nap)
                    must(ended(sibling_tap) == [], f"a sibling's turn ended with it: {ended(sibling_tap)}")
                    await until_asleep(other_nap)
                    await _halt(sibling, other_nap)
            else:
                await _halt(session, nap)
            tasks.cancel_scope.cancel()
        must(ended(tap) == ["interrupted"], f"the turn ended as {ended(tap)}")
        must_be_lawful(tap)


async def _halt(session: Session, nap: str) -> None:
    await session.interrupt()
    await session.settle()
    await until_gone(nap)


async def resume(subject: Subject) -> None:
    async with subject.trial() as trial:
        async with trial.session({"say": "4711 it is."}, name="kept", is_persistent=True) as (session, _):
            await session.turn("Remember 4711.")
            thread = session.thread
        must(thread is not None, "the thread has no name to resume it by")
        async with trial.session({"say": WORDS}, name="resumed", resume=thread) as (session, tap):
            await session.turn("Which?")
            heard = subject.heard(trial, "resumed")
            must("4711 it is." in heard, "the model was not told of what was said before")
            must(ended(tap) == ["completed"], f"the turn ended as {ended(tap)}")


async def parallel_sessions(subject: Subject) -> None:
    nap = new_nap()
    async with (
        subject.trial() as trial,
        trial.session({"run": napping(nap)}, name="first") as (first, first_tap),
        trial.session({"say": WORDS}, name="second") as (second, second_tap),
        anyio.create_task_group() as tasks,
    ):
        tasks.start_soon(first.turn, "Go on.")
        await until_asleep(nap)
        await second.turn("Go on.")
        must(ended(first_tap) == [] and ended(second_tap) == ["completed"], "one had to wait for the other")
        said = [event.text for event in first_tap.of(TextSaid)]
        must(WORDS not in said, "one was told what the other one said")
        await first.interrupt()
        tasks.cancel_scope.cancel()


async def dynamic_tools(subject: Subject) -> None:
    async def answer(_: Any) -> str:
        return "forty-two"

    tool = Tool(name="proctor_case", description="Answers.", schema={"type": "object", "properties": {}}, call=answer)
    steps = {"call": {"tool": "proctor_case"}}, {"say": WORDS}
    async with subject.trial() as trial, trial.session(*steps, name="tools", tools=(tool,)) as (session, tap):
        await session.turn("Go on.")
        heard = subject.heard(trial, "tools")
        must(any("forty-two" in text for text in heard), "its answer did not reach the model")
        must([call.ok for call in tap.of(ToolEnded)] == [True], "the call is not among the events")


async def compaction(subject: Subject) -> None:
    steps = {"say": "4711 it is."}, {"say": WORDS}
    async with subject.trial() as trial, trial.session(*steps, name="compact") as (session, _):
        await session.turn("Remember 4711.")
        await session.compact()
        await session.turn("Go on.")
        must("4711 it is." not in subject.heard(trial, "compact"), "the history is as long as it was")


async def structured_output(subject: Subject) -> None:
    schema = {"type": "object", "properties": {}, "required": [], "additionalProperties": False}
    async with subject.trial() as trial, trial.session({"say": "{}"}, name="schema") as (session, tap):
        await session.turn("Go on.", output_schema=schema)
        must(trial.model.journal("schema")[-1].has_output_schema, "the schema did not reach the model")
        must(ended(tap) == ["completed"], f"the turn ended as {ended(tap)}")
