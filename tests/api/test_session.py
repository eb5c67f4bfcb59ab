"""A conversation with the real agent from Python: turns, offsets, evidence, and nothing left behind."""

import asyncio
import os
from collections.abc import Awaitable, Callable
from pathlib import Path

import anyio
import anyio.lowlevel
import anyio.to_thread
import pytest

import proctor
from proctor.attempt import stream
from proctor.attempt.recheck import examine_run
from proctor.evidence.layout import RunPaths
from tests.api.talk import assert_gone, bounded, nap, script
from tests.lab import jsonl

pytestmark = pytest.mark.real_agent

HELLO = {"say": {"text": "Hello, whoever you are.", "chunk_chars": 3}}


def assert_strictly_valid(s: proctor.Session) -> None:
    assert s.folder is not None
    found = examine_run(RunPaths(s.folder.parent.parent), is_strict=True)
    assert [(each.status, each.findings) for each in found] == [("valid", ())] * len(found)


async def until_it_naps(s: proctor.Session) -> None:
    async for _, event in s.events():
        if isinstance(event, proctor.ToolBegan):
            return


@pytest.mark.requirement("surface.api")
def test_a_conversation_of_two_turns_is_told_in_events_and_sealed_on_disk(tmp_path: Path) -> None:
    steps = script(tmp_path, HELLO, {"run": "echo hi > made.txt; cat made.txt"}, {"say": "It says hi."})
    work = tmp_path / "work"
    work.mkdir()

    async def talk() -> proctor.Session:
        async with proctor.session(script=steps, workspace=work, evidence="disk", root=tmp_path / "root") as s:
            said = [event async for event in s.say("Hello?")]
            assert [type(event) for event in said if isinstance(event, proctor.PromptSent | proctor.TurnEnded)] == [
                proctor.PromptSent,
                proctor.TurnEnded,
            ]
            streamed = "".join(event.text for event in said if isinstance(event, proctor.TextStreamed))
            assert (s.outcome, s.answer) == (proctor.Outcome.COMPLETED, streamed)
            turn = s.say("What does the file say?")
            assert s.outcome is proctor.Outcome.UNKNOWN
            ending = await turn
            assert (ending, ending.outcome, s.answer) == (s.ending, proctor.Outcome.COMPLETED, "It says hi.")
        return s

    s = bounded(talk)
    assert_strictly_valid(s)
    assert s.folder is not None
    assert [row["text"] for row in jsonl(s.folder / "transcript.jsonl") if row["kind"] == "prompt"] == [
        "Hello?",
        "What does the file say?",
    ]
    assert "+hi" in (s.folder / "workspace.diff").read_text()
    # It works in the caller's own folder.
    assert [each.name for each in work.iterdir()] == ["made.txt"]


@pytest.mark.requirement("surface.embed")
@pytest.mark.parametrize("evidence", ["off", "memory", "disk"])
def test_readers_that_come_and_go_in_the_middle_of_a_turn_see_every_event_once(
    tmp_path: Path, evidence: proctor.EvidenceKept, monkeypatch: pytest.MonkeyPatch
) -> None:
    if evidence == "disk":
        monkeypatch.setattr(stream, "WINDOW", 8)  # so that most is read from the record
    words = {"say": {"text": "word " * 40, "chunk_chars": 5}}
    steps = script(tmp_path, {"do": [words, {"delay": "1s"}, words]}, HELLO)

    async def talk() -> None:
        async with proctor.session(script=steps, evidence=evidence, root=tmp_path / "root") as s:
            watched: list[list[proctor.OffsetEvent]] = [[], []]

            async def watch(seen: list[proctor.OffsetEvent]) -> None:
                async for placed in s.events():
                    seen.append(placed)  # noqa: PERF401  it is cancelled

            async with anyio.create_task_group() as readers:
                for seen in watched:
                    readers.start_soon(watch, seen)
                turn = s.say("Say a lot.")
                seen_by_hops: list[proctor.OffsetEvent] = []
                while len(seen_by_hops) < 30:
                    async for placed in s.events(after=len(seen_by_hops)):
                        seen_by_hops.append(placed)
                        if placed.offset % 7 == 0:
                            break
                assert s.outcome is proctor.Outcome.UNKNOWN
                await turn
                await s.say("And more.")
                count = s.offset
                async for placed in s.events(after=len(seen_by_hops)):
                    seen_by_hops.append(placed)
                    if placed.offset == count:
                        break
                while min(map(len, watched)) < count:
                    await anyio.lowlevel.checkpoint()
                readers.cancel_scope.cancel()
            assert [offset for offset, _ in seen_by_hops] == list(range(1, count + 1))
            assert watched == [seen_by_hops, seen_by_hops]
            with pytest.raises(proctor.InputError, match="the last one is") as refused:
                s.events(after=count + 1)
            assert refused.value.code == "session.offset"

    bounded(talk)


async def leaves(s: proctor.Session) -> None:
    await until_it_naps(s)


async def raises(s: proctor.Session) -> None:
    await until_it_naps(s)
    raise LookupError("of the caller's own")


async def is_cancelled(s: proctor.Session) -> None:
    await until_it_naps(s)
    task = asyncio.current_task()
    assert task is not None
    task.cancel()
    await anyio.sleep_forever()


@pytest.mark.requirement("surface.embed")
@pytest.mark.parametrize(
    ("way", "seen"), [(leaves, None), (raises, LookupError), (is_cancelled, asyncio.CancelledError)]
)
def test_whatever_ends_the_block_in_the_middle_of_a_turn_nothing_is_left_and_the_record_is_sealed(
    tmp_path: Path, way: Callable[[proctor.Session], Awaitable[None]], seen: type[BaseException] | None
) -> None:
    steps = script(tmp_path, {"run": (command := nap())}, HELLO)
    sessions: list[proctor.Session] = []
    work = tmp_path / "work"
    work.mkdir()

    async def talk() -> None:
        async with proctor.session(script=steps, workspace=work, evidence="disk", root=tmp_path / "root") as s:
            sessions.append(s)
            s.say("Take a nap.")
            await way(s)

    async def caught() -> type[BaseException] | None:
        task = asyncio.ensure_future(talk())
        await asyncio.wait([task])
        if task.cancelled():
            return asyncio.CancelledError
        return None if (error := task.exception()) is None else type(error)

    assert bounded(caught) is seen
    assert_gone(command)
    assert list(work.iterdir()) == []  # what the agent's sandbox leaves there empty is taken away
    [s] = sessions
    assert (s.ending.outcome, s.ending.code, s.ending.detail) == (
        proctor.Outcome.CANCELLED,
        "run.cancelled",
        "the session was closed",
    )
    assert_strictly_valid(s)
    with pytest.raises(proctor.InputError) as over:
        s.say("Are you there?")
    assert over.value.code == "session.over"


def test_an_interrupted_turn_is_cancelled_with_what_it_ran_and_the_next_one_goes_on(tmp_path: Path) -> None:
    steps = script(tmp_path, {"run": (command := nap())}, {"say": "Awake again."})

    async def talk() -> None:
        async with proctor.session(script=steps) as s:
            turn = s.say("Take a nap.")
            await until_it_naps(s)
            with pytest.raises(proctor.InputError) as busy:
                s.say("And another.")
            assert busy.value.code == "session.busy"
            await s.interrupt()
            await anyio.to_thread.run_sync(assert_gone, command)
            assert (await turn).code == "run.cancelled"
            assert (await s.say("Wake up.")).outcome is proctor.Outcome.COMPLETED
            assert s.answer == "Awake again."
            with pytest.raises(proctor.InputError) as idle:
                await s.steer("Faster.")
            assert idle.value.code == "session.idle"

    bounded(talk)
    assert_gone(command)


def test_words_can_be_put_into_a_running_turn(tmp_path: Path) -> None:
    steps = script(tmp_path, {"run": "sleep 1"}, {"say": "I heard you."}, {"say": "Twice."})

    async def talk() -> None:
        async with proctor.session(script=steps) as s:
            turn = s.say("Wait for me.")
            await until_it_naps(s)
            await s.steer("I am here.")
            assert (await turn).outcome is proctor.Outcome.COMPLETED
            said = [event.text async for event in turn if isinstance(event, proctor.PromptSent)]
            assert said == ["Wait for me.", "I am here."]

    bounded(talk)


@pytest.mark.requirement("surface.embed")
def test_the_clocks_run_in_a_conversation_too(tmp_path: Path) -> None:
    steps = script(tmp_path, {"run": (command := nap())}, HELLO)
    # Between turns, the agent is silent for longer than a stall takes.
    limits = proctor.Limits(attempt="6s", turn="1s", stall="2s")

    async def talk() -> None:
        async with proctor.session(script=steps, limits=limits) as s:
            ending = await s.say("Take a nap.")
            assert (ending.outcome, ending.code) == (proctor.Outcome.TIMED_OUT, "limit.turn")
            assert (await s.say("Hello?")).outcome is proctor.Outcome.COMPLETED
            async for _, event in s.events(after=s.offset):
                if isinstance(event, proctor.ClockFired):
                    assert event.clock == "attempt"
                    break
            with pytest.raises(proctor.InputError) as over:
                s.say("Still there?")
            assert over.value.code == "session.over"

    bounded(talk)
    assert_gone(command)


@pytest.mark.requirement("surface.embed")
@pytest.mark.parametrize("is_in_turn", [True, False])
def test_a_conversation_that_has_used_up_its_tokens_is_over(tmp_path: Path, is_in_turn: bool) -> None:
    command = nap()
    # The agent tells what a step used when it is over.
    steps = script(tmp_path, *([{"run": "true"}, {"run": command}] if is_in_turn else []), HELLO, HELLO)
    limits = proctor.Limits(tokens=10)

    async def talk() -> proctor.Session:
        async with proctor.session(script=steps, limits=limits, evidence="disk", root=tmp_path / "root") as s:
            ending = await s.say("Hello?")
            assert not is_in_turn or (ending.outcome, ending.code) == (proctor.Outcome.TIMED_OUT, "limit.tokens")
            with pytest.raises(proctor.InputError, match="tokens used, 10 allowed") as over:
                s.say("Still there?")
            assert over.value.code == "session.over"
        return s

    s = bounded(talk)
    assert_gone(command)
    assert_strictly_valid(s)


def test_a_disk_that_fills_up_ends_the_turn_and_leaves_no_seal(tmp_path: Path) -> None:
    steps = script(tmp_path, {"run": (command := nap())})
    folders: list[Path] = []

    async def talk() -> None:
        async with proctor.session(script=steps, evidence="disk", root=tmp_path / "root") as s:
            assert s.folder is not None
            folders.append(s.folder)
            turn = s.say("Take a nap.")
            await until_it_naps(s)
            fill_the_disk_under(s.folder / "frames.jsonl")
            with pytest.raises(proctor.InputError):
                s.say("Are you there?")
            with pytest.raises(proctor.MachineError):
                await s.interrupt()
            with pytest.raises(proctor.MachineError):
                await turn

    with pytest.raises(proctor.MachineError) as full:
        bounded(talk)
    assert full.value.code == "machine.disk-full"
    assert_gone(command)
    assert not (folders[0] / "seal.json").exists()


def fill_the_disk_under(file: Path) -> None:
    """Every write to this open file fails from now on, as on a full disk."""
    full = os.open("/dev/full", os.O_WRONLY)
    [held] = [int(fd.name) for fd in Path("/proc/self/fd").iterdir() if fd.is_symlink() and fd.readlink() == file]
    os.dup2(full, held)
    os.close(full)
