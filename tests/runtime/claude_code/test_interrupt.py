"""The real Claude Code is stopped: by us, by a signal, by the clock of nobody. Nothing of it runs on."""

import os
import signal
from pathlib import Path

import anyio
import pytest

from proctor.errors import HangupError
from proctor.event.model import ProcessExited, StreamEnded, ToolEnded, TurnBegan, UsageReported
from tests.lab import processes_with
from tests.runtime.claude_code.real import Real, Talk, claude, run

pytestmark = [pytest.mark.real_agent, pytest.mark.agent("claude_code")]


async def gone(number: str) -> None:
    """Until no process shows it; the kernel tells nobody when a stranger's child ends."""
    for _ in range(500):
        if not processes_with(number):
            return
        await anyio.sleep(0.01)
    pytest.fail(f"still running: {number}")


async def started(number: str) -> None:
    for _ in range(1000):
        if processes_with(f"sleep\0{number}"):
            return
        await anyio.sleep(0.01)
    pytest.fail(f"never seen: {number}")


@pytest.mark.requirement("runtime.claude-code")
def test_an_interrupted_turn_ends_with_its_children_and_the_session_goes_on(tmp_path: Path) -> None:
    async def main() -> None:
        async with (
            claude(tmp_path) as real,
            real.talk(
                {"do": [{"say": "I begin."}, {"delay": "10m"}]},
                {"run": "echo a; sleep 77071 & sleep 77072; true"},
                {"call": {"tool": "Bash", "arguments": {"command": "echo a; sleep 77073", "run_in_background": True}}},
                {"say": "It runs."},
                {"say": "I am still here."},
            ) as talk,
        ):
            await talk.session.interrupt()  # no turn runs, and that is no error
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(talk.session.turn, "Say.")
                await talk.until(lambda: talk.said)
                await talk.session.interrupt()
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(talk.session.turn, "Run.")
                await started("77072")
                await talk.session.interrupt()
                await talk.session.settle()
            assert talk.ends == [("interrupted", None)] * 2
            await gone("7707")
            await talk.session.turn("Leave something.")
            await talk.session.settle()
            await gone("7707")
            await talk.session.turn("Still there?")
            assert talk.said[-1] == "I am still here."
            assert [event.status for event in talk.of(ToolEnded)] == ["interrupted", "backgrounded"]
            assert [row.client_aborted for row in talk.journal] == [True, False, False, False, False]
            # What a reply cost that was broken off is not known, and that is not nought.
            turns = [event.turn for event in talk.of(TurnBegan)]
            assert [event.turn for event in talk.of(UsageReported)] == turns[1:]
            assert all(event.tokens.total for event in talk.of(UsageReported))

    run(main)


def test_one_that_is_killed_hangs_up_and_its_sibling_does_not_notice(tmp_path: Path) -> None:
    async def take(real: Real, talk: Talk) -> None:
        with pytest.raises(HangupError):
            await talk.session.turn("Go on.")

    async def main() -> None:
        wait = {"run": "echo a; sleep 77081 & sleep 77082; true"}
        async with (
            claude(tmp_path) as real,
            real.talk({"run": "while [ ! -e go ]; do sleep 0.05; done"}, {"say": "Unhurt."}) as sibling,
            real.talk(wait) as talk,
            anyio.create_task_group() as tasks,
        ):
            tasks.start_soon(sibling.session.turn, "Wait.")
            tasks.start_soon(take, real, talk)
            await started("77082")
            assert talk.session.line_process is not None
            agent = talk.session.line_process.process.agent
            assert agent is not None
            os.kill(agent.pid, signal.SIGKILL)
            await talk.until(lambda: talk.of(ProcessExited))
            await gone("7708")
            (sibling.workspace / "go").touch()
            await sibling.until(lambda: sibling.ends)
            assert (sibling.said, sibling.ends) == (["Unhurt."], [("completed", None)])
            assert (talk.ends, len(talk.of(StreamEnded))) == ([], 1)

    run(main)


def test_a_session_that_is_left_in_the_middle_of_a_turn_leaves_nothing(tmp_path: Path) -> None:
    async def main() -> None:
        async with claude(tmp_path) as real:
            with anyio.CancelScope() as scope:
                async with (
                    real.talk({"run": "echo a; setsid sleep 77091 & sleep 77092; true"}) as talk,
                    anyio.create_task_group() as tasks,
                ):
                    tasks.start_soon(talk.session.turn, "Go on.")
                    await started("77092")
                    scope.cancel()
            await gone("7709")
            assert processes_with(str(tmp_path)) == []

    run(main)
