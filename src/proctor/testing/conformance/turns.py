"""Cases of conversation: turns, tools, steering, interrupts, resumed threads and parallel sessions."""

from typing import Any, Final

import anyio

from proctor import decoding
from proctor.event.laws import Laws
from proctor.event.model import TextSaid, TextStreamed, ToolEnded, TurnEnded
from proctor.event.outcome import Outcome
from proctor.event.trace import ToolCall
from proctor.runtime.base import Session, Tool
from proctor.testing.agent_under_test import EventTap
from proctor.testing.conformance.case import NotApplicableError, must
from proctor.testing.conformance.processes import napping, new_nap, until, until_asleep, until_gone, wake
from proctor.testing.conformance.subject import DONE, Subject
from proctor.transport.fault import Delay, LineFault

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
        subject.agent() as agent,
        agent.session({"say": WORDS}, name="one-turn", prompt=prompt) as (session, tap),
    ):
        await session.turn(prompt)
        must(bool(session.thread), "the thread has no id after its first turn")
        heard = subject.heard(agent, "one-turn")
        must(any("4711" in text for text in heard), "the prompt did not reach the model")
        must([said.text for said in tap.of(TextSaid)] == [WORDS], "its text did not arrive as an event")
        must(ended(tap) == ["completed"], f"the turn ended as {ended(tap)}")
        must_be_lawful(tap)


async def event_stream(subject: Subject) -> None:
    nap = new_nap()
    if not subject.has_process:
        await _check_stream_without_process(subject)
        return
    steps = {"do": [{"say": WORDS}, {"run": napping(nap)}]}
    async with (
        subject.agent() as agent,
        agent.session(steps, name="stream") as (session, tap),
        anyio.create_task_group() as tasks,
    ):
        tasks.start_soon(session.turn, "Go on.")
        await until_asleep(nap)

        await _wait_for_text(tap)
        tasks.cancel_scope.cancel()


async def _check_stream_without_process(subject: Subject) -> None:
    """Check the event stream of an agent that runs no command, by delaying the line that ends its turn."""
    late = LineFault(at=subject.samples.is_turn_end, how=Delay(delay_s=600))
    async with (
        subject.agent(is_own=True, plan=[late]) as agent,
        agent.session({"say": WORDS}, name="stream") as (session, tap),
        anyio.create_task_group() as tasks,
    ):
        tasks.start_soon(session.turn, "Go on.")
        await _wait_for_text(tap)
        tasks.cancel_scope.cancel()


async def _wait_for_text(tap: EventTap) -> None:
    def has_text() -> bool:
        streamed = "".join(event.text for event in tap.of(TextStreamed))
        return WORDS in streamed or WORDS in [event.text for event in tap.of(TextSaid)]

    await until(has_text, "its text does not arrive while the turn runs")
    must(ended(tap) == [], "the turn had already ended, so the case shows nothing")


async def tool_call(subject: Subject) -> None:
    if not subject.has_calls:
        raise NotApplicableError("the program writes plain text, in which tool calls are not visible")
    evidence = await subject.mission({"run": "echo $((6 * 7))"}, {"say": DONE})
    evidence.must_end(Outcome.COMPLETED)
    rows = [decoding.decode(line, ToolCall) for line in evidence.paths.tool_calls.read_bytes().splitlines()]
    must(len(rows) == 1, f"the trace has {len(rows)} tool calls, the agent made one")
    must(rows[0].ok is True and "42" in (rows[0].output or ""), f"the trace says {rows[0].ok}: {rows[0].output!r}")
    must(evidence.summary.claimed is True, "the agent's claim was not recognized in its text")


async def steer(subject: Subject) -> None:
    # During a command, because some agents queue messages that arrive during a model reply.
    nap = new_nap()
    steps = {"run": napping(nap)}, {"say": WORDS}
    async with subject.agent() as agent, agent.session(*steps, name="steer") as (session, tap):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(session.turn, "Go on.")
            await until_asleep(nap)
            await session.steer("Another way.")
            must(ended(tap) == [], f"the turn had already ended: {ended(tap)}")
            wake(nap)
        heard = subject.heard(agent, "steer")
        must(any("Another way." in text for text in heard), "the message did not reach the model")
        must(ended(tap) == ["completed"], f"the turn ended as {ended(tap)}")


async def interrupt(subject: Subject) -> None:
    nap, other_nap = new_nap(), new_nap()
    async with subject.agent() as agent, agent.session({"run": napping(nap)}, name="halted") as (session, tap):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(session.turn, "Go on.")
            await until_asleep(nap)
            if subject.can_share:
                async with agent.session({"run": napping(other_nap)}, name="sibling") as (sibling, sibling_tap):
                    tasks.start_soon(sibling.turn, "Go on.")
                    await until_asleep(other_nap)
                    await _halt(session, nap)
                    must(ended(sibling_tap) == [], f"a turn in another session ended with it: {ended(sibling_tap)}")
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
    async with subject.agent() as agent:
        async with agent.session({"say": "4711 it is."}, name="kept", is_persistent=True) as (session, _):
            await session.turn("Remember 4711.")
            thread = session.thread
        must(thread is not None, "the thread has no id to resume it by")
        async with agent.session({"say": WORDS}, name="resumed", resume=thread) as (session, tap):
            await session.turn("Which?")
            heard = subject.heard(agent, "resumed")
            must("4711 it is." in heard, "the model did not receive the earlier conversation")
            must(ended(tap) == ["completed"], f"the turn ended as {ended(tap)}")


async def parallel_sessions(subject: Subject) -> None:
    nap = new_nap()
    async with (
        subject.agent() as agent,
        agent.session({"run": napping(nap)}, name="first") as (first, first_tap),
        agent.session({"say": WORDS}, name="second") as (second, second_tap),
        anyio.create_task_group() as tasks,
    ):
        tasks.start_soon(first.turn, "Go on.")
        await until_asleep(nap)
        await second.turn("Go on.")
        must(ended(first_tap) == [] and ended(second_tap) == ["completed"], "one session had to wait for the other")
        said = [event.text for event in first_tap.of(TextSaid)]
        must(WORDS not in said, "one session received the text of the other")
        await first.interrupt()
        tasks.cancel_scope.cancel()


async def dynamic_tools(subject: Subject) -> None:
    async def answer(_: Any) -> str:
        return "forty-two"

    tool = Tool(name="proctor_case", description="Answers.", schema={"type": "object", "properties": {}}, call=answer)
    steps = {"call": {"tool": "proctor_case"}}, {"say": WORDS}
    async with subject.agent() as agent, agent.session(*steps, name="tools", tools=(tool,)) as (session, tap):
        await session.turn("Go on.")
        heard = subject.heard(agent, "tools")
        must(any("forty-two" in text for text in heard), "the tool's result did not reach the model")
        must([call.ok for call in tap.of(ToolEnded)] == [True], "the tool call is not among the events")


async def compaction(subject: Subject) -> None:
    steps = {"say": "4711 it is."}, {"say": WORDS}
    async with subject.agent() as agent, agent.session(*steps, name="compact") as (session, _):
        await session.turn("Remember 4711.")
        await session.compact()
        await session.turn("Go on.")
        must("4711 it is." not in subject.heard(agent, "compact"), "the history was not shortened")


async def context_use(subject: Subject) -> None:
    """Compare what a session reports with the usage that the model reports to the agent."""
    if not subject.has_process:
        raise NotApplicableError("without an agent program there is no model that counts")
    first, second = 20_000, 40_000
    steps = [{"say": WORDS, "usage": {"input": tokens, "output": 10}} for tokens in (first, second)]
    # Some agents write it to the thread's file only.
    kept = subject.runtime.capabilities.thread_resume
    async with subject.agent() as agent, agent.session(*steps, name="context", is_persistent=kept) as (session, tap):
        await session.turn("Go on.")
        before = await session.read_context()
        if before.used_tokens is None:
            raise NotApplicableError("it does not report how full its context window is")
        await session.turn("Go on.")
        after = await session.read_context()
        used = [use.used_tokens or 0 for use in (before, after)]
        must(first <= used[0] < second <= used[1], f"the model counted {first} and {second} tokens, the session {used}")
        must(before.window_tokens is None or before.window_tokens > used[0], f"the window has {before.window_tokens}")
        must(ended(tap) == ["completed"] * 2, f"the turns ended as {ended(tap)}")
        must_be_lawful(tap)


async def structured_output(subject: Subject) -> None:
    schema = {"type": "object", "properties": {}, "required": [], "additionalProperties": False}
    async with subject.agent() as agent, agent.session({"say": "{}"}, name="schema") as (session, tap):
        await session.turn("Go on.", output_schema=schema)
        must(agent.model.journal("schema")[-1].has_output_schema, "the schema did not reach the model")
        must(ended(tap) == ["completed"], f"the turn ended as {ended(tap)}")
