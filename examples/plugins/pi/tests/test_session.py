"""Sessions of the real pi: turns, steering, interrupts, stored sessions, and no leftover processes."""

import os
from pathlib import Path

import anyio
import anyio.to_thread
import pytest
from examples.plugins.pi.tests.real import OPTIONS, broken_laws, open_pi, run

from proctor.contain.identity import descendants, identify, is_alive
from proctor.errors import HangupError, RefusedError
from proctor.event.history_item import HistoryItem
from proctor.event.model import (
    HistoryRead,
    RequestSent,
    SessionBegan,
    TextSaid,
    TextStreamed,
    Tokens,
    ToolBegan,
    ToolEnded,
    ToolStreamed,
    TurnEnded,
    Unrecognized,
    UsageReported,
)
from proctor.runtime.base import Executable
from proctor.transport.channel import Channel
from proctor.transport.process import AgentProcess
from proctor.transport.tree import ExitStatus
from proctor_pi.lean import LEFT_OUT
from proctor_pi.session import PiSession

WAITS = {"do": [{"say": "I begin."}, {"delay": "10m"}]}


def test_turn_with_tools_becomes_events(tmp_path: Path, program: Executable) -> None:
    steps = (
        {"run": "echo one; exit 3", "usage": {"input": 100, "cached": 40, "output": 7}},
        {"patch": {"file": "a.txt", "content": "one\ntwo"}, "usage": {"input": 1, "output": 1}},
        {"patch": {"file": "a.txt", "old": "two", "new": "three"}, "usage": {"input": 1, "output": 1}},
        {"think": "Well.", "say": {"text": "All is done.", "chunk_chars": 5}, "usage": {"input": 9, "output": 1}},
    )

    async def test() -> None:
        async with open_pi(tmp_path, program) as pi, pi.session(*steps, name="one") as (session, tap):
            await session.turn("Do it.")
            assert broken_laws(tap.events) == []
            assert tap.of(Unrecognized) == []
            assert [(began.thread, began.ephemeral) for began in tap.of(SessionBegan)] == [(session.thread, True)]
            assert [ended.status for ended in tap.of(TurnEnded)] == ["completed"]
            assert [began.name for began in tap.of(ToolBegan)] == ["shell", "patch", "patch"]
            ended = [(tool.kind, tool.ok, tool.exit_code, tool.status) for tool in tap.of(ToolEnded)]
            assert ended == [
                ("command", False, 3, "failed"),
                ("patch", True, None, "completed"),
                ("patch", True, None, "completed"),
            ]
            assert "".join(piece.text for piece in tap.of(ToolStreamed)) == "one\n"
            assert "".join(piece.text for piece in tap.of(TextStreamed)) == "All is done."
            assert [said.text for said in tap.of(TextSaid)] == ["All is done."]
            usage = [(said.scope, said.basis, said.tokens) for said in tap.of(UsageReported)]
            assert usage == [("turn", "absolute", Tokens(input=111, output=10, total=121, cached_input=40))]
            left_out = session.facts["frames"].value
            assert left_out["leftOut"] == LEFT_OUT
            assert left_out["bytes"] > 0
            assert (tmp_path / "one" / "workspace" / "a.txt").read_text() == "one\nthree\n"

    run(test)


def test_steer_reaches_the_running_turn_only(tmp_path: Path, program: Executable) -> None:
    async def test() -> None:
        async with open_pi(tmp_path, program) as pi:
            steps = ({"run": "until test -e heard; do sleep 0.05; done"}, {"say": "As you like."})
            async with pi.session(*steps, name="steer") as (session, tap):
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(session.turn, "Go on.")
                    await pi.model.journal_until("steer", lambda rows: len(rows) == 1)
                    await session.steer("Another way.")
                    (tmp_path / "steer" / "workspace" / "heard").touch()
                assert "Another way." in pi.model.journal("steer")[-1].texts
                assert [ended.status for ended in tap.of(TurnEnded)] == ["completed"]
                with pytest.raises(RefusedError):
                    await session.steer("Too late.")

    run(test)


def test_interrupt_ends_only_its_own_turn_and_leftovers(tmp_path: Path, program: Executable) -> None:
    command = "sleep 300 & setsid sleep 300 & echo > started; sleep 300"

    async def test() -> None:
        async with (
            open_pi(tmp_path, program) as pi,
            pi.session({"run": command}, {"say": "I am here."}, name="busy") as (busy, busy_tap),
            pi.session(WAITS, WAITS, name="sibling") as (sibling, sibling_tap),
            anyio.create_task_group() as tasks,
        ):
            tasks.start_soon(sibling.turn, "Go on.")
            await pi.model.journal_until("sibling", lambda rows: len(rows) == 1)
            async with anyio.create_task_group() as turn:
                started = tmp_path / "busy" / "workspace" / "started"
                os.mkfifo(started)
                turn.start_soon(busy.turn, "Go on.")
                await anyio.to_thread.run_sync(started.read_text, abandon_on_cancel=True)
                assert len(_beside_pi(busy)) >= 3
                await busy.interrupt()
            await busy.settle()
            assert _beside_pi(busy) == []
            assert [ended.status for ended in busy_tap.of(TurnEnded)] == ["interrupted"]
            assert [(tool.ok, tool.exit_code) for tool in busy_tap.of(ToolEnded)] == [(False, None)]
            await busy.turn("Are you there?")
            assert [said.text for said in busy_tap.of(TextSaid)] == ["I am here."]
            assert sibling_tap.of(TurnEnded) == []
            await sibling.interrupt()
            assert [ended.status for ended in sibling_tap.of(TurnEnded)] == ["interrupted"]
            # Immediately, before pi has begun the turn.
            tasks.start_soon(sibling.turn, "Go on.")
            await anyio.wait_all_tasks_blocked()
            await sibling.interrupt()
            assert [ended.status for ended in sibling_tap.of(TurnEnded)] == ["interrupted"] * 2
            wrappers = [_process(busy).wrapper, _process(sibling).wrapper]
        assert not any(map(is_alive, wrappers))

    run(test)


class Withholding:
    """A channel that holds back pi's reply to a prompt until it is released."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self.prompted, self.is_open = anyio.Event(), anyio.Event()
        self.is_open.set()

    async def receive(self) -> bytes:
        chunk = await self._channel.receive()
        await self.is_open.wait()
        return chunk

    async def receive_err(self) -> bytes:
        return await self._channel.receive_err()

    async def send(self, data: bytes) -> None:
        if is_prompt := b'"type":"prompt"' in data:
            self.is_open = anyio.Event()
        await self._channel.send(data)
        if is_prompt:
            self.prompted.set()

    async def wait(self, *, deadline_s: float) -> ExitStatus | None:
        return await self._channel.wait(deadline_s=deadline_s)


def test_turn_cancelled_before_pi_accepts_it_is_aborted(tmp_path: Path, program: Executable) -> None:
    channels: list[Withholding] = []

    def between(channel: Channel) -> Channel:
        channels.append(Withholding(channel))
        return channels[-1]

    async def test() -> None:
        async with (
            open_pi(tmp_path, program, wrap_channel=between) as pi,
            pi.session(WAITS, name="early") as (session, tap),
        ):
            [channel] = channels
            async with anyio.create_task_group() as turn:
                turn.start_soon(session.turn, "Go on.")
                await channel.prompted.wait()
                turn.cancel_scope.cancel()
            channel.is_open.set()
            await session.interrupt()
            assert [asked.method for asked in tap.of(RequestSent)][-2:] == ["abort", "get_state"]
            assert [ended.status for ended in tap.of(TurnEnded)] == ["interrupted"]

    run(test)


def _process(session: object) -> AgentProcess:
    assert isinstance(session, PiSession)
    return session._line_process.process


def _beside_pi(session: object) -> list[int]:
    """Return the live processes of a session that are neither pi nor what pi runs in."""
    process = _process(session)
    assert process.agent is not None
    agent = process.agent.pid
    beside = [pid for pid in descendants(process.wrapper.pid) if pid != agent and agent not in descendants(pid)]
    # A killed process is a zombie until its parent collects it.
    return [pid for pid in beside if (identity := identify(pid)) is not None and is_alive(identity)]


def test_stored_session_can_be_read_resumed_and_forked(tmp_path: Path, program: Executable) -> None:
    steps = ({"run": "echo 4711"}, {"think": "Well.", "say": "It is 4711."})

    async def test() -> None:
        async with open_pi(tmp_path, program) as pi:
            async with pi.session(*steps, name="kept", is_persistent=True) as (session, tap):
                await session.turn("Remember it.")
                await session.read_history()
                [call] = tap.of(ToolEnded)
                assert [(read.source, read.items) for read in tap.of(HistoryRead)] == [
                    (
                        "pi session file",
                        (
                            HistoryItem(kind="prompt", text="Remember it."),
                            HistoryItem(kind="tool", id=call.call),
                            HistoryItem(kind="reasoning", text="Well."),
                            HistoryItem(kind="message", text="It is 4711."),
                        ),
                    )
                ]
                thread = session.thread
            for name, ask in (("resumed", {"resume": thread}), ("forked", {"fork": thread})):
                async with pi.session({"run": "pwd"}, {"say": "Yes."}, name=name, **ask) as (session, tap):
                    await session.turn("Which?")
                    assert "It is 4711." in pi.model.journal(name)[0].texts
                    assert (session.thread == thread) == (name == "resumed")
                    assert [began.is_resumed for began in tap.of(SessionBegan)] == [True]
                    # By default, pi would return to the folder where the session began.
                    assert [tool.output for tool in tap.of(ToolEnded)] == [f"{tmp_path / name / 'workspace'}\n"]
            with pytest.raises(RefusedError):
                async with pi.session({"say": "-"}, name="stranger", resume="no-such"):
                    pass

    run(test)


def test_pi_that_dies_in_a_turn_is_a_hangup(tmp_path: Path, program: Executable) -> None:
    async def test() -> None:
        async with open_pi(tmp_path, program) as pi:
            async with pi.session({"run": "kill -9 $PPID"}, name="dies", options=OPTIONS) as (session, tap):
                with pytest.raises(HangupError):
                    await session.turn("Go on.")
                with pytest.raises(HangupError):
                    await session.turn("Are you there?")
            assert broken_laws(tap.events) == []

    run(test)
