"""Messages and instructions for a thread of the real Codex, as they reach the model."""

from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import anyio
import pytest

from proctor.errors import DeadlineError, HangupError, RefusedError
from proctor.event.message import CallPart, UserPart
from proctor.event.model import HistoryGiven, HistoryOffered, PromptSent, TextSaid, TurnBegan, UsageReported
from proctor.event.row import Direction, HistoryOffer, HistoryReceipt
from proctor.ids import EntryId
from proctor.model.journal import Journal, JournalItem
from proctor.runtime.codex_app_server import RUNTIME
from proctor.runtime.codex_app_server.native_items import native_items
from proctor.runtime.codex_app_server.session import CodexSession, Deadlines
from proctor.runtime.conversion import NO_OUTPUT, Omission
from proctor.testing.agent_under_test import AgentUnderTest, EventTap, open_agent
from proctor.testing.conformance.processes import napping, new_nap, until_asleep
from proctor.testing.journals import recorded_journals, request_items
from tests.runtime.messages import ids, message, round_of, said
from tests.runtime.twin import MemoryTap, Twin, connected, ignore, meanwhile, run, session_ask

pytestmark = [pytest.mark.requirement("context.projection.native"), pytest.mark.requirement("context.given")]


def agent(folder: Path) -> AbstractAsyncContextManager[AgentUnderTest]:
    """The real Codex with a home that another process can use later."""
    return open_agent(RUNTIME, RUNTIME.locate({}), home=folder / "home")


def round_at_the_model(number: int) -> list[tuple[str, str]]:
    return [
        ("user", f"question {number}"),
        ("exec_command", f'{{"cmd":"cat {number}"}}'),
        ("mcp__kit__add", f'{{"a":1,"b":{number}}}'),
        ("function_call_output", f"sum {number}"),
        ("function_call_output", f"file {number}"),
        ("assistant", f"answer {number}"),
    ]


def roles_of(items: tuple[JournalItem, ...], text: str) -> list[str]:
    return [item.role for item in items if text in item.whole_text]


def receipts(tap: EventTap) -> list[tuple[tuple[EntryId, ...], str | None]]:
    return [(event.entries, event.problem) for event in tap.of(HistoryGiven)]


@pytest.mark.real_agent
def test_given_messages_arrive_once_and_in_order_before_and_between_turns_and_after_resume(tmp_path: Path) -> None:
    async def main() -> list[Journal]:
        with recorded_journals() as journals:
            async with agent(tmp_path) as first:
                steps = {"say": "Said 1."}, {"say": "Said 2."}
                async with first.session(*steps, name="kept", is_persistent=True) as (session, tap):
                    delivery = await session.give(round_of(10))
                    assert (delivery.items, delivery.sha256) == (6, native_items(round_of(10)).sha256)
                    await session.turn("prompt 1")
                    await session.give(round_of(20))
                    await session.turn("prompt 2")
                    thread = session.thread
                assert receipts(tap) == [(delivery.entries, None), (ids(round_of(20)), None)]
                assert delivery.entries == ids(round_of(10))
                assert [len(tap.of(kind)) for kind in (PromptSent, TurnBegan, TextSaid, UsageReported)] == [2, 2, 2, 2]
            async with (
                agent(tmp_path) as second,
                second.session({"say": "x"}, name="again", resume=thread) as (
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
def test_history_of_a_new_thread_arrives_before_its_first_prompt(tmp_path: Path) -> None:
    async def main() -> list[Journal]:
        with recorded_journals() as journals:
            async with (
                agent(tmp_path) as it,
                it.session({"say": "x"}, name="new", history=round_of(10)) as (session, _),
            ):
                await session.turn("prompt 1")
        return journals

    (items,) = request_items(run(main))
    assert said(items) == [*round_at_the_model(10), ("user", "prompt 1")]


@pytest.mark.real_agent
def test_call_without_result_gets_a_note_and_codex_invents_nothing(tmp_path: Path) -> None:
    async def main() -> list[Journal]:
        with recorded_journals() as journals:
            async with agent(tmp_path) as it, it.session({"say": "x"}, name="new") as (session, _):
                delivery = await session.give([*round_of(10)[:2], round_of(20)[3]])
                assert delivery.unanswered == (round_of(10)[1].id,)
                assert delivery.omitted == (Omission(entry=round_of(20)[3].id, reason="result without call"),)
                await session.turn("prompt 1")
        return journals

    (items,) = request_items(run(main))
    assert [item.whole_text for item in items if item.kind == "function_call_output"] == [NO_OUTPUT]


@pytest.mark.real_agent
def test_bad_items_are_refused_together_with_a_typed_error(tmp_path: Path) -> None:
    async def main() -> tuple[list[Journal], EventTap]:
        with recorded_journals() as journals:
            async with agent(tmp_path) as it, it.session({"say": "x"}, name="bad") as (session, tap):
                assert isinstance(session, CodexSession)
                good = native_items(round_of(10)).items[0].value
                with pytest.raises(RefusedError, match="is not a valid response item") as refused:
                    await session.inject([good, {"type": "message", "content": []}])
                assert refused.value.code == "peer.refused"
                await session.turn("prompt 1")
        return journals, tap

    journals, tap = run(main)
    (items,) = request_items(journals)
    assert said(items) == [("user", "prompt 1")]
    ((entries, problem),) = receipts(tap)
    assert (entries, "is not a valid response item" in (problem or "")) == ((), True)


@pytest.mark.real_agent
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
@pytest.mark.requirement("context.system-addition")
def test_instructions_arrive_in_the_developer_role_only(tmp_path: Path) -> None:
    async def main() -> list[Journal]:
        with recorded_journals() as journals:
            steps = {"say": "a"}, {"say": "b"}
            async with (
                agent(tmp_path) as it,
                it.session(*steps, name="new", instructions="Say 4711.") as (session, _),
            ):
                await session.turn("prompt 1")
                await session.give(round_of(10), instructions="Say 4712.")
                await session.turn("prompt 2")
        return journals

    first, second = request_items(run(main))
    assert [roles_of(items, "Say 4711.") for items in (first, second)] == [["developer"], ["developer"]]
    assert [roles_of(items, "Say 4712.") for items in (first, second)] == [[], ["developer"]]
    # Last but the prompt.
    assert second[-2].whole_text == "Say 4712."


@pytest.mark.real_agent
@pytest.mark.requirement("context.system-addition")
@pytest.mark.parametrize("repeated", [None, "Say 4711."])
def test_compaction_of_a_resumed_thread_keeps_only_instructions_of_the_resume(
    tmp_path: Path, repeated: str | None
) -> None:
    async def main() -> list[Journal]:
        with recorded_journals() as journals:
            async with agent(tmp_path) as it:
                kept = it.session({"say": "a"}, name="kept", is_persistent=True, instructions="Say 4711.")
                async with kept as (session, _):
                    await session.turn("prompt 1")
                    thread = session.thread
                steps = {"say": "b"}, {"say": "c"}
                resumed = it.session(*steps, name="again", resume=thread, instructions=repeated)
                async with resumed as (session, tap):
                    await session.turn("prompt 2")
                    assert roles_of(request_items(journals)[-1], "Say 4711.") == ["developer"]
                    await session.compact()
                    await session.turn("prompt 3")
                assert tap.of(HistoryOffered) == []
        return journals

    assert roles_of(request_items(run(main))[-1], "Say 4711.") == ([] if repeated is None else ["developer"])


# ── an app-server that does not answer ──


def test_receipt_follows_the_reply_and_offer_precedes_the_request() -> None:
    def accept(twin: Twin, request: Any) -> None:
        twin.reply(request, {})

    async def main() -> MemoryTap:
        tap = MemoryTap()
        async with (
            connected(Twin({"thread/inject_items": accept})) as line,
            line.host.open_session(session_ask(), tap) as session,
        ):
            await session.give(round_of(10), instructions="Say 4712.")
        return tap

    rows = run(main).rows
    places = [place for place, (_, row) in enumerate(rows) if isinstance(row, HistoryOffer | HistoryReceipt)]
    offer, receipt = (rows[place][1] for place in places)
    assert (offer.entries, offer.items, offer.sha256) == (receipt.entries, receipt.items, receipt.sha256)
    assert offer.instructions_sha256 == receipt.instructions_sha256 is not None
    between = [row for dir_, row in rows[places[0] : places[1]] if dir_ is Direction.OUT]
    assert [b"thread/inject_items" in row for row in between] == [True]


def test_missing_reply_leaves_the_offer_without_receipt() -> None:
    async def main() -> MemoryTap:
        tap = MemoryTap()
        twin = Twin({"thread/inject_items": ignore})
        hasty = Deadlines(start_s=0.2, teardown_s=0.1, late_items_s=0.1, farewell_s=0.01)
        async with connected(twin, deadlines=hasty) as line, line.host.open_session(session_ask(), tap) as session:
            with pytest.raises(DeadlineError, match="no reply"):
                await session.give(round_of(10))
        return tap

    kinds = [type(row) for row in run(main).of(Direction.SELF)]
    assert (kinds.count(HistoryOffer), kinds.count(HistoryReceipt)) == (1, 0)


def test_hangup_while_giving_is_a_typed_error() -> None:
    async def main() -> None:
        twin = Twin({"thread/inject_items": lambda twin, _: twin.hang_up()})
        async with connected(twin) as line, line.host.open_session(session_ask(), MemoryTap()) as session:
            with pytest.raises(HangupError):
                await session.give(round_of(10))
            with pytest.raises(HangupError):
                await session.give(round_of(10))

    run(main)


def test_turn_is_refused_while_messages_are_given() -> None:
    async def main() -> None:
        async with (
            connected(Twin({"thread/inject_items": ignore})) as line,
            line.host.open_session(session_ask(), MemoryTap()) as session,
            meanwhile(lambda: session.give(round_of(10))),
        ):
            with pytest.raises(RefusedError, match="messages are being given"):
                await session.turn("prompt 1")
            with pytest.raises(RefusedError, match="messages are being given"):
                await session.give(round_of(20))

    run(main)


def test_giving_nothing_sends_nothing() -> None:
    async def main() -> MemoryTap:
        tap = MemoryTap()
        async with connected() as line, line.host.open_session(session_ask(), tap) as session:
            delivery = await session.give([message(1, UserPart(text=" "))])
            assert (delivery.entries, delivery.items, delivery.sha256) == ((), 0, None)
        return tap

    tap = run(main)
    assert [row for row in tap.of(Direction.SELF) if isinstance(row, HistoryOffer)] == []
    assert not any(b"inject_items" in line for line in tap.of(Direction.OUT))


def test_unknown_command_input_keeps_the_tools_name() -> None:
    (item, _) = native_items([message(1, CallPart(kind="command", name="shell", input={"pid": 1}))]).items
    assert (item.value["name"], item.value["arguments"]) == ("shell", '{"pid":1}')
