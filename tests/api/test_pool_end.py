"""How a pool ends: by its own block under open sessions, by Ctrl-C, and beside callbacks that misbehave."""

import asyncio
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import anyio
import pytest

import proctor
from proctor.attempt.recheck import examine_run
from proctor.evidence.layout import RootPaths
from proctor.runtime import callbacks
from tests.api.talk import assert_gone, bounded, nap, script

pytestmark = pytest.mark.real_agent


def assert_strictly_valid(root: Path, *, parts: int) -> None:
    [run] = RootPaths(root).runs()
    found = examine_run(run, is_strict=True)
    assert [(each.status, each.findings) for each in found] == [("valid", ())] * parts


@pytest.mark.requirement("surface.embed")
def test_sessions_under_which_the_pool_is_closed_are_cancelled_and_sealed(tmp_path: Path) -> None:
    napping, root = script(tmp_path, {"run": (command := nap())}), tmp_path / "root"
    sessions: list[proctor.Session] = []

    async def talk(pool: proctor.Pool, is_ready: anyio.Event) -> None:
        async with pool.session(script=napping) as s:
            sessions.append(s)
            async for event in s.say("Take a nap."):
                if isinstance(event, proctor.ToolBegan):
                    is_ready.set()

    async def listen(pool: proctor.Pool, is_ready: anyio.Event) -> None:
        async with pool.session(script=napping) as s:
            sessions.append(s)
            is_ready.set()
            async for _ in s.events():
                if s.outcome is not proctor.Outcome.UNKNOWN:
                    break

    async def test() -> None:
        async with anyio.create_task_group() as talks, proctor.pool(evidence="disk", root=root) as pool:
            for work in (talk, listen):
                talks.start_soon(work, pool, is_ready := anyio.Event())
                await is_ready.wait()

    bounded(test)
    assert_gone(command)
    assert [(s.ending.outcome, s.ending.code, s.ending.detail) for s in sessions] == [
        (proctor.Outcome.CANCELLED, "run.cancelled", "the pool was closed")
    ] * 2
    assert_strictly_valid(root, parts=4)  # the run, 2 sessions, the process


PROGRAM = """
import asyncio, sys, proctor

async def main():
    async with proctor.pool(evidence="disk", root=sys.argv[1]) as pool, pool.session(script=sys.argv[2]) as s:
        async for event in s.say("Take a nap."):
            if isinstance(event, proctor.ToolBegan):
                print("napping", flush=True)

asyncio.run(main())
"""


@pytest.mark.requirement("surface.embed")
def test_a_pool_that_is_interrupted_from_the_keyboard_leaves_sealed_evidence(tmp_path: Path) -> None:
    napping, root = script(tmp_path, {"run": (command := nap())}), tmp_path / "root"
    argv = [sys.executable, "-c", PROGRAM, str(root), str(napping)]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as running:
        assert running.stdout is not None
        assert running.stdout.readline() == "napping\n"
        running.send_signal(signal.SIGINT)
        _, told = running.communicate(timeout=60)
    assert told.splitlines()[-1:] == ["KeyboardInterrupt"]
    assert_gone(command)
    assert_strictly_valid(root, parts=3)


def test_a_pool_that_is_cancelled_from_around_it_leaves_sealed_evidence(tmp_path: Path) -> None:
    napping, root = script(tmp_path, {"run": (command := nap())}), tmp_path / "root"

    async def test() -> None:
        with anyio.CancelScope() as around:
            async with proctor.pool(evidence="disk", root=root) as pool, pool.session(script=napping) as s:
                async for event in s.say("Take a nap."):
                    if isinstance(event, proctor.ToolBegan):
                        around.cancel()

    bounded(test)
    assert_gone(command)
    assert_strictly_valid(root, parts=3)


@pytest.mark.requirement("runtime.approvals.answered")
def test_callbacks_that_fail_are_warned_of_and_the_other_session_goes_on(tmp_path: Path) -> None:
    risky = {"run": {"command": "echo out > made.txt", "escalate": True}}
    trouble = script(tmp_path, {"call": {"tool": "odd", "arguments": {}}}, risky, {"say": "Done."})
    hello = script(tmp_path, {"say": "Hello."})

    async def odd(_: object) -> str:
        return "\udc80 bad"

    async def hasty(_: proctor.Question) -> proctor.Decision:
        raise ValueError("no answer")

    tool = proctor.Tool(name="odd", description="Odd.", schema={"type": "object"}, call=odd)

    async def test() -> None:
        async with (
            proctor.pool() as pool,
            pool.session(script=trouble, tools=[tool], approvals=hasty) as s,
            pool.session(script=hello) as other,
        ):
            said = [event async for event in s.say("Go on.")]
            warned = [event.text for event in said if isinstance(event, proctor.WarningRaised) and is_ours(event)]
            assert [text.partition(" can't")[0] for text in warned] == [
                "callback failed: UnicodeEncodeError: 'utf-8' codec",
                "callback failed: ValueError: no answer",
            ]
            assert [(event.ok) for event in said if isinstance(event, proctor.ToolEnded)] == [False, False]
            assert [(event.decision, event.by) for event in said if isinstance(event, proctor.ApprovalResolved)] == [
                ("failed", "error"),
                ("decline", "error"),
            ]
            assert (s.outcome, s.answer) == (proctor.Outcome.COMPLETED, "Done.")
            assert (await other.say("Hello?")).outcome is proctor.Outcome.COMPLETED

    bounded(test)


def test_a_tool_that_will_not_end_stops_neither_the_clocks_nor_the_end_of_the_pool(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(callbacks, "GRACE_S", 0.1)
    steps = script(tmp_path, {"call": {"tool": "stuck", "arguments": {}}}, {"run": (command := nap())})

    async def test() -> None:
        it_may_end = anyio.Event()

        async def stuck(_: object) -> str:
            while not it_may_end.is_set():
                try:
                    await it_may_end.wait()
                except asyncio.CancelledError:
                    continue
            return "too late"

        tool = proctor.Tool(name="stuck", description="Stuck.", schema={"type": "object"}, call=stuck)
        limits = proctor.Limits(stall="20s", turn="5s", attempt="60s")
        async with (
            proctor.pool() as pool,
            pool.session(script=steps, tools=[tool], tool_deadline="100ms", limits=limits) as s,
        ):
            said = [event async for event in s.say("Go on.")]
            warned = [event.text for event in said if isinstance(event, proctor.WarningRaised) and is_ours(event)]
            assert warned == ["callback given up: the callback did not end when it was cancelled"]
            assert (s.ending.outcome, s.ending.code) == (proctor.Outcome.TIMED_OUT, "limit.turn")
        assert not it_may_end.is_set()
        it_may_end.set()

    bounded(test)
    assert_gone(command)


def is_ours(event: proctor.WarningRaised) -> bool:
    return event.source == "callback"


def test_to_ask_with_nobody_to_be_asked_is_refused(tmp_path: Path) -> None:
    async def test() -> None:
        ask: Any = "ask"
        async with proctor.session(script=script(tmp_path, {"say": "Hello."}), approvals=ask):
            raise AssertionError("it was opened")

    with pytest.raises(proctor.InputError) as nobody:
        bounded(test)
    assert (nobody.value.code, nobody.value.where) == ("policy.no-approver", "session: approvals")
