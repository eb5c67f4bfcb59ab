"""Messages and instructions for a thread of the real Claude Code, as they reach the model."""

from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any
from uuid import UUID

import anyio
import pytest

from proctor.errors import DeadlineError, HangupError, RefusedError
from proctor.event.message import AgentPart, CallPart, Message, UserPart
from proctor.event.model import (
    FrameNoted,
    HistoryGiven,
    HistoryOffered,
    PromptSent,
    SessionBegan,
    TextSaid,
    TurnBegan,
    TurnEnded,
    Unrecognized,
    UsageReported,
)
from proctor.event.row import HistoryReceipt
from proctor.ids import EntryId
from proctor.model.journal import Journal, JournalItem
from proctor.runtime.claude_code import RUNTIME
from proctor.runtime.claude_code.frame_giver import FrameGiver
from proctor.runtime.claude_code.native_items import native_items
from proctor.runtime.claude_code.stored_history import split_history
from proctor.runtime.claude_code.turns import Turns
from proctor.runtime.conversion import NO_OUTPUT
from proctor.testing.agent_under_test import AgentUnderTest, EventTap, open_agent
from proctor.testing.conformance.processes import napping, new_nap, until_asleep
from proctor.testing.journals import recorded_journals, request_items
from tests.runtime.claude_code.real import run
from tests.runtime.messages import ids, message, round_of, said
from tests.runtime.twin import MemoryTap

pytestmark = [pytest.mark.requirement("context.projection.native"), pytest.mark.requirement("context.given")]


def agent(folder: Path) -> AbstractAsyncContextManager[AgentUnderTest]:
    """The real Claude Code with homes that another host can use later, for sessions of the same name."""
    return open_agent(RUNTIME, RUNTIME.locate({}), home=folder / "home")


def round_at_the_model(number: int) -> list[tuple[str, str]]:
    return [
        ("user", f"question {number}"),
        ("Bash", f'{{"command":"cat {number}"}}'),
        ("mcp__kit.add", f'{{"a":1,"b":{number}}}'),
        ("user", f"sum {number}"),
        ("user", f"file {number}"),
        ("assistant", f"answer {number}"),
    ]


def roles_of(items: tuple[JournalItem, ...], text: str) -> list[str]:
    return [item.role for item in items if text in item.whole_text]


def receipts(tap: EventTap) -> list[tuple[EntryId, ...]]:
    return [event.entries for event in tap.of(HistoryGiven) if event.entries]


@pytest.mark.real_agent
@pytest.mark.agent("claude_code")
def test_given_messages_arrive_once_and_in_order_before_and_between_turns_and_after_resume(tmp_path: Path) -> None:
    async def main() -> list[Journal]:
        with recorded_journals() as journals:
            async with agent(tmp_path) as first:
                steps = {"say": "Said 1."}, {"say": "Said 2."}
                async with first.session(*steps, name="kept", is_persistent=True) as (session, tap):
                    delivery = await session.give(round_of(10))
                    assert (delivery.items, delivery.sha256) == (4, native_items(round_of(10)).sha256)
                    assert delivery.entries == ids(round_of(10))
                    await session.turn("prompt 1")
                    await session.give(round_of(20))
                    await session.turn("prompt 2")
                    thread = session.thread
                assert receipts(tap) == [ids(round_of(10)), ids(round_of(20))]
                counts = [len(tap.of(kind)) for kind in (PromptSent, TurnBegan, TurnEnded, TextSaid, UsageReported)]
                assert counts == [2, 2, 2, 2, 2]
                assert tap.of(Unrecognized) == []
            async with (
                agent(tmp_path) as second,
                second.session({"say": "x"}, name="kept", resume=thread) as (
                    session,
                    _,
                ),
            ):
                await session.give(round_of(30))
                await session.turn("prompt 3")
        return journals

    first, second, third = (said(items) for items in request_items(run(main)))
    assert first == [*round_at_the_model(10), ("user", "prompt 1")]
    assert second == [*first, ("assistant", "Said 1."), *round_at_the_model(20), ("user", "prompt 2")]
    assert third == [*second, ("assistant", "Said 2."), *round_at_the_model(30), ("user", "prompt 3")]


@pytest.mark.real_agent
@pytest.mark.agent("claude_code")
@pytest.mark.parametrize("rounds", [1, 11])
@pytest.mark.parametrize("is_persistent", [False, True])
def test_history_of_a_new_thread_arrives_before_its_first_prompt(
    tmp_path: Path, rounds: int, is_persistent: bool
) -> None:
    history = tuple(each for number in range(rounds) for each in round_of(100 + 10 * number))

    async def main() -> tuple[list[Journal], EventTap, str]:
        with recorded_journals() as journals:
            asked: dict[str, Any] = {"history": history, "is_persistent": is_persistent, "instructions": "Say 4711."}
            async with agent(tmp_path) as it, it.session({"say": '{"a":1}'}, name="new", **asked) as (session, tap):
                await session.turn("prompt 1", output_schema={"type": "object"})
                persistence = session.facts["persistence"].value
        return journals, tap, str(persistence)

    journals, tap, persistence = run(main)
    (items,) = request_items(journals)
    expected = [each for number in range(rounds) for each in round_at_the_model(100 + 10 * number)]
    assert said(items) == [*expected, ("user", "prompt 1")]
    assert roles_of(items, "Say 4711.") == ["system"]
    assert receipts(tap) == [ids(history)]
    (began,) = tap.of(SessionBegan)
    assert (began.is_resumed, persistence) == (False, "persistent" if is_persistent else "ephemeral")
    assert len(tap.of(TurnBegan)) == 1


@pytest.mark.real_agent
@pytest.mark.agent("claude_code")
def test_long_history_that_ends_with_the_user_gets_no_invented_answer(tmp_path: Path) -> None:
    history = [each for number in range(11) for each in round_of(100 + 10 * number)]
    history += [message(998, UserPart(text="question 998")), message(999, CallPart(kind="other", name="look"))]

    async def main() -> tuple[list[Journal], EventTap]:
        with recorded_journals() as journals:
            async with (
                agent(tmp_path) as it,
                it.session({"say": "x"}, name="new", history=tuple(history)) as (session, tap),
            ):
                await session.turn("prompt 1")
        return journals, tap

    journals, tap = run(main)
    (items,) = request_items(journals)
    texts = [item.whole_text for item in items]
    assert roles_of(items, "No response requested.") == []
    assert texts.index("question 998") < texts.index(NO_OUTPUT) < texts.index("prompt 1")
    assert [entry for entries in receipts(tap) for entry in entries] == list(ids(history))


def test_long_history_is_split_after_the_last_text_of_the_agent() -> None:
    history = [*round_of(10), *round_of(20)[:5]]
    stored, rest = split_history(native_items(history))
    assert (stored.entries, rest.entries) == (ids(round_of(10)), ids(round_of(20)[:5]))
    stored, rest = split_history(native_items(round_of(20)[:1]))
    assert (stored.entries, rest.entries) == ((), ids(round_of(20)[:1]))


@pytest.mark.real_agent
@pytest.mark.agent("claude_code")
def test_giving_is_refused_while_a_turn_runs(tmp_path: Path) -> None:
    nap = new_nap()

    async def main() -> EventTap:
        async with (
            agent(tmp_path) as it,
            it.session({"run": napping(nap)}, name="busy") as (session, tap),
            anyio.create_task_group() as tasks,
        ):
            tasks.start_soon(session.turn, "prompt 1")
            await until_asleep(nap)
            with pytest.raises(RefusedError, match="a turn is running"):
                await session.give(round_of(10))
            await session.interrupt()
            await session.settle()
        return tap

    assert run(main).of(HistoryOffered) == []


@pytest.mark.real_agent
@pytest.mark.agent("claude_code")
def test_turn_is_refused_while_messages_are_given(tmp_path: Path) -> None:
    many = [message(number, AgentPart(text=f"answer {number}.")) for number in range(40)]

    async def main() -> list[Journal]:
        with recorded_journals() as journals:
            async with agent(tmp_path) as it, it.session({"say": "x"}, name="busy") as (session, tap):
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(session.give, many)
                    while "message completed" not in [event.native for event in tap.of(FrameNoted)]:  # noqa: ASYNC110
                        await anyio.sleep(0.001)
                    with pytest.raises(RefusedError, match="messages are being given"):
                        await session.turn("prompt 1")
                await session.turn("prompt 2")
        return journals

    (items,) = request_items(run(main))
    assert said(items) == [*(("assistant", f"answer {number}.") for number in range(40)), ("user", "prompt 2")]


@pytest.mark.real_agent
@pytest.mark.agent("claude_code")
def test_turn_after_a_cancelled_giving_ends_with_its_own_answer(tmp_path: Path) -> None:
    async def main() -> EventTap:
        async with agent(tmp_path) as it, it.session({"say": "Said 1."}, name="cut") as (session, tap):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(session.give, round_of(10)[:1])
                # Not before the whole line is read: a line that is sent in part ends the session.
                while "message queued" not in [event.native for event in tap.of(FrameNoted)]:  # noqa: ASYNC110
                    await anyio.sleep(0.001)
                tasks.cancel_scope.cancel()
            await session.turn("prompt 1")
        return tap

    tap = run(main)
    assert [event.text for event in tap.of(TextSaid)] == ["Said 1."]
    assert [event.status for event in tap.of(TurnEnded)] == ["completed"]


@pytest.mark.real_agent
@pytest.mark.agent("claude_code")
@pytest.mark.requirement("context.system-addition")
def test_instructions_arrive_in_the_system_role_only_and_remain(tmp_path: Path) -> None:
    async def main() -> list[Journal]:
        with recorded_journals() as journals:
            steps = [{"say": str(number)} for number in range(3)]
            asked: dict[str, Any] = {"instructions": "Say 4711.", "expects_instructions": True, "is_persistent": True}
            async with agent(tmp_path) as it:
                async with it.session(*steps, name="kept", **asked) as (session, tap):
                    await session.turn("prompt 1")
                    await session.give(round_of(10), instructions="Say 4712.")
                    await session.give((), instructions="Say 4713.")
                    await session.turn("prompt 2")
                    await session.turn("prompt 3")
                    thread = session.thread
                offered, given = tap.of(HistoryOffered), tap.of(HistoryGiven)
                assert [event.instructions_sha256 for event in given if event.instructions_sha256] == [
                    event.instructions_sha256 for event in offered
                ]
                async with it.session({"say": "x"}, name="again", resume=thread) as (session, _):
                    await session.turn("prompt 4")
        return journals

    requests = request_items(run(main))
    assert [roles_of(items, "Say 4711.") for items in requests] == [["system"]] * 4
    assert [roles_of(items, "Say 4712.") for items in requests] == [[], *[["system"]] * 3]
    assert [roles_of(items, "Say 4713.") for items in requests] == [[], *[["system"]] * 3]


@pytest.mark.real_agent
@pytest.mark.agent("claude_code")
def test_instructions_between_turns_must_be_expected(tmp_path: Path) -> None:
    async def main() -> EventTap:
        async with agent(tmp_path) as it, it.session({"say": "a"}, name="plain") as (session, tap):
            await session.turn("prompt 1")
            with pytest.raises(RefusedError, match="expects_instructions") as refused:
                await session.give((), instructions="Say 4712.")
            assert refused.value.code == "runtime.capability"
        return tap

    assert run(main).of(HistoryOffered) == []


# ── states that the program does not report here ──


async def give(states: list[str | None]) -> tuple[list[dict[str, Any]], MemoryTap, Exception | None]:
    """Give two messages to a program that reports these states; None is its end."""
    sent: list[dict[str, Any]] = []
    tap = MemoryTap()

    async def send(frame: Any) -> None:
        sent.append(frame)
        match states.pop(0):
            case "silence":
                pass
            case None:
                giver.hang_up("it ended")
            case state:
                giver.heard_state(frame["uuid"], "queued")
                giver.heard_state(frame["uuid"], state)

    giver = FrameGiver(send, Turns(), tap, base_s=0.05)
    messages: list[Message] = [message(1, UserPart(text="question")), message(2, AgentPart(text="answer"))]
    try:
        await giver.give(native_items(messages))
    except (RefusedError, HangupError, DeadlineError) as error:
        return sent, tap, error
    return sent, tap, None


@pytest.mark.parametrize(
    ("states", "error", "accepted"),
    [
        (["completed", "completed"], type(None), [2]),
        (["completed", "cancelled"], RefusedError, [1]),
        (["completed", "silence"], DeadlineError, [1]),
        (["completed", None], HangupError, []),
    ],
)
def test_receipt_has_what_was_processed(states: list[str | None], error: type[Any], accepted: list[int]) -> None:
    async def main() -> tuple[list[dict[str, Any]], MemoryTap, Exception | None]:
        return await give(states)

    sent, tap, raised = run(main)
    assert isinstance(raised, error)
    rows = [row for _, row in tap.rows if isinstance(row, HistoryReceipt)]
    assert [len(row.entries) for row in rows] == accepted
    assert [row.problem is None for row in rows] == [raised is None] * len(rows)
    assert [(frame["type"], frame.get("shouldQuery")) for frame in sent] == [("user", False), ("assistant", None)]
    assert len({UUID(frame["uuid"]) for frame in sent}) == 2
