"""The real Codex asks, and is answered: by a policy, by somebody who takes their time, or by a clock."""

from pathlib import Path
from typing import Any

import anyio
import pytest

from proctor.event.row import QuestionAnswered
from proctor.runtime.base import Decision, Question
from proctor.spec.choices import Approvals, Sandbox
from tests.runtime.real import Talk, real_server
from tests.runtime.twin import run

pytestmark = pytest.mark.real_agent

COMMAND = "item/commandExecution/requestApproval"
ESCALATE = {"run": {"command": "echo out > ../outside.txt; cat ../outside.txt", "escalate": True}}


def status_of(talk: Talk, kind: str) -> list[str]:
    items = [params["item"] for params in talk.heard("item/completed")]
    return [item["status"] for item in items if item["type"] == kind]


def rows(talk: Talk) -> list[tuple[str, str]]:
    return [(seen.decision, seen.by) for seen in talk.answers]


@pytest.mark.requirement("runtime.approvals.answered")
@pytest.mark.parametrize(
    ("decision", "status", "word", "is_there"),
    [(Decision.ACCEPT, "completed", "accept", True), (Decision.DENY, "declined", "decline", False)],
)
def test_what_somebody_decides_is_what_happens(
    tmp_path: Path, decision: Decision, status: str, word: str, is_there: bool
) -> None:
    asked: list[Question] = []

    async def decide(question: Question) -> Decision:
        asked.append(question)
        return decision

    async def test() -> None:
        async with (
            real_server(tmp_path) as server,
            server.talk(ESCALATE, {"say": "Done."}, approvals=Approvals.ASK, decide=decide) as talk,
        ):
            await talk.session.turn("Go on.")
            assert (talk.turns, talk.said) == (["completed"], ["Done."])
            assert status_of(talk, "commandExecution") == [status]
            assert talk.answers == [
                QuestionAnswered(request=asked[0].request, method=COMMAND, decision=word, by="callback")
            ]
            assert (talk.workspace.parent / "outside.txt").exists() is is_there
            [question] = asked
            assert (question.about, question.cwd) == ("command", str(talk.workspace))
            assert question.command is not None
            assert "outside.txt" in question.command
            assert question.reason == "The script asks for it."

    run(test)


@pytest.mark.requirement("runtime.approvals.answered")
def test_while_one_thread_waits_for_an_answer_another_finishes_and_silence_denies(tmp_path: Path) -> None:
    async def test() -> None:
        is_asked, is_other_done = anyio.Event(), anyio.Event()

        async def decide(_: Question) -> Decision:
            is_asked.set()
            await is_other_done.wait()
            return Decision.ACCEPT

        async def silent(_: Question) -> Decision:
            await anyio.sleep_forever()
            return Decision.ACCEPT

        async with real_server(tmp_path) as server:

            async def other() -> None:
                await is_asked.wait()
                async with server.talk(ESCALATE, {"say": "I am first."}, approvals=Approvals.DENY) as talk:
                    await talk.session.turn("Go on.")
                    assert (talk.turns, rows(talk)) == (["completed"], [("decline", "policy")])
                late: dict[str, Any] = {"approvals": Approvals.ASK, "decide": silent, "decide_deadline_s": 0.05}
                async with server.talk(ESCALATE, {"say": "So be it."}, **late) as talk:
                    await talk.session.turn("Go on.")
                    assert (talk.turns, rows(talk)) == (["completed"], [("decline", "deadline")])
                is_other_done.set()

            async with (
                anyio.create_task_group() as tasks,
                server.talk(ESCALATE, {"say": "Second."}, approvals=Approvals.ASK, decide=decide) as talk,
            ):
                tasks.start_soon(other)
                await talk.session.turn("Go on.")
                assert is_other_done.is_set()
                assert (talk.turns, rows(talk)) == (["completed"], [("accept", "callback")])
                assert "waitingOnApproval" in str(talk.heard("thread/status/changed"))

    run(test)


@pytest.mark.requirement("attempt.interrupt-one")
def test_an_interrupt_while_somebody_thinks_ends_the_turn_and_the_thinking(tmp_path: Path) -> None:
    async def test() -> None:
        is_asked, is_cancelled = anyio.Event(), anyio.Event()

        async def decide(_: Question) -> Decision:
            is_asked.set()
            try:
                await anyio.sleep_forever()
            finally:
                is_cancelled.set()
            return Decision.ACCEPT

        async with (
            real_server(tmp_path) as server,
            server.talk(ESCALATE, {"say": "Never."}, approvals=Approvals.ASK, decide=decide) as talk,
            anyio.create_task_group() as tasks,
        ):
            tasks.start_soon(talk.session.turn, "Go on.")
            await is_asked.wait()
            await talk.session.interrupt()
            await is_cancelled.wait()
            await talk.session.settle()
            assert (talk.turns, rows(talk)) == (["interrupted"], [("none", "cancelled")])

    run(test)


@pytest.mark.requirement("runtime.approvals.answered")
def test_the_workspace_policy_lets_in_what_stays_inside_and_nothing_else(tmp_path: Path) -> None:
    async def test() -> None:
        async with (
            real_server(tmp_path) as server,
            server.talk(
                {"patch": {"file": "inside.txt", "content": "in"}},
                {"patch": {"file": "../outside.txt", "content": "out"}},
                {"patch": {"file": "link/inside.txt", "content": "out"}},
                {"patch": {"file": ".git/config", "content": "out"}},
                ESCALATE,
                {"say": "Done."},
                name="here",
                approvals=Approvals.WORKSPACE,
                # Under which a patch of the workspace must be asked for.
                sandbox=Sandbox.READ_ONLY,
            ) as talk,
        ):
            (talk.workspace / "link").symlink_to("..")
            await talk.session.turn("Go on.")
            assert talk.turns == ["completed"]
            assert rows(talk) == [("accept", "policy"), *[("decline", "policy")] * 4]
            assert status_of(talk, "fileChange") == ["completed", "declined", "declined", "declined"]
            assert status_of(talk, "commandExecution") == ["declined"]
            assert sorted(file.name for file in talk.workspace.iterdir()) == ["inside.txt", "link"]
            assert sorted(file.name for file in talk.workspace.parent.iterdir()) == ["tmp", "workspace"]

    run(test)
