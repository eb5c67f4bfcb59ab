"""Approvals with the real pi: callback, policy and fences."""

import asyncio
import os
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
import pytest
from examples.plugins.pi.tests.real import open_pi, run

from proctor.clock import SYSTEM_CLOCK
from proctor.event.model import ApprovalAsked, ApprovalResolved, ToolEnded
from proctor.runtime import callbacks
from proctor.runtime.base import Decision, Executable, ModelChoice, Question
from proctor.spec.choices import Approvals, Login, Sandbox
from proctor.testing.agent_under_test import EventTap, session_asked
from proctor_pi import RUNTIME
from proctor_pi.approvals import Answer, ApprovalHandler, PiQuestion
from proctor_pi.tools import Call

OUTSIDE = {"patch": {"file": "../outside.txt", "content": "x"}}
INSIDE = {"patch": {"file": "inside.txt", "content": "x"}}
DONE = {"say": "Done."}


async def outcome(pi: Any, *steps: Any, name: str, **ask: Any) -> list[tuple[str, str, str]]:
    """Return the source and outcome of each decision, and the status of the call."""
    async with pi.session(*steps, DONE, name=name, **ask) as (session, tap):
        await session.turn("Go on.")
        decided = [(each.decision, each.by) for each in tap.of(ApprovalResolved)]
        assert len(tap.of(ApprovalAsked)) == len(decided)
        return [(*each, tool.status) for each, tool in zip(decided, tap.of(ToolEnded), strict=True)]


def test_callback_decides_approvals(tmp_path: Path, program: Executable) -> None:
    asked: list[Question] = []

    async def decide(question: Question) -> Decision:
        asked.append(question)
        if question.command == "false":
            raise ValueError("no idea")
        return Decision.ACCEPT if question.command == "true" else Decision.DENY

    async def test() -> None:
        async with open_pi(tmp_path, program) as pi:
            steps = ({"run": "true"}, {"run": "touch denied"}, INSIDE, {"run": "false"})
            ask = {"approvals": Approvals.ASK, "decide": decide}
            assert await outcome(pi, *steps, name="ask", **ask) == [
                ("accept", "callback", "completed"),
                ("decline", "callback", "declined"),
                ("decline", "callback", "declined"),
                ("decline", "error", "declined"),
            ]
            assert list((tmp_path / "ask" / "workspace").iterdir()) == []
            questions = [(question.about, question.command, question.paths) for question in asked]
            assert questions == [
                ("command", "true", ()),
                ("command", "touch denied", ()),
                ("patch", None, ("inside.txt",)),
                ("command", "false", ()),
            ]

    run(test)


@pytest.mark.parametrize(
    ("ask", "is_fenced", "allowed"),
    [
        ({}, True, (True, True, False)),
        ({}, False, (False, True, False)),  # nothing restricts a command
        ({"approvals": Approvals.WORKSPACE}, False, (False, True, False)),
        ({"sandbox": Sandbox.READ_ONLY}, True, (True, False, False)),
        ({"sandbox": Sandbox.DANGER_FULL_ACCESS}, False, (True, True, True)),
        ({"approvals": Approvals.ACCEPT}, False, (True, True, True)),
        ({"approvals": Approvals.ASK}, True, (True, True, False)),  # and no callback
    ],
)
def test_policy_allows_what_fences_or_workspace_contain(
    ask: dict[str, Any], is_fenced: bool, allowed: tuple[bool, ...], tmp_path: Path
) -> None:
    asked = session_asked(tmp_path, name="a", base_url="", **ask)
    approvals = ApprovalHandler(asked, EventTap(RUNTIME.normalizer()), clock=SYSTEM_CLOCK, is_fenced=is_fenced)
    (asked.workspace / "link").symlink_to("/etc")
    (asked.workspace / "two").write_text("names")
    (tmp_path / "names").hardlink_to(asked.workspace / "two")

    def is_allowed(name: str, **args: str) -> bool:
        answer = approvals.take(PiQuestion(request="1", about=Call(id="c", name=name, args=args)))
        assert answer is not None
        return answer.is_allowed

    command, inside, outside = allowed
    assert is_allowed("bash", command="true") is command
    assert is_allowed("edit", path="a/b") is inside
    assert is_allowed("edit", path="@a/b") is inside
    for path in ("link/passwd", "~/x", "@/etc/passwd", "@~/x", "..\u00a0/../../x", "two", ".pi/settings.json"):
        assert is_allowed("write", path=path) is outside, path
    assert approvals.take(PiQuestion(request="2", about=None)) == Answer("none")


def test_callback_that_ignores_cancellation_blocks_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(callbacks, "GRACE_S", 0.01)

    async def test() -> None:
        is_let_go = anyio.Event()

        async def decide(_: Question) -> Decision:
            while not is_let_go.is_set():
                with suppress(asyncio.CancelledError):
                    await is_let_go.wait()
            return Decision.ACCEPT

        ask = session_asked(tmp_path, name="a", base_url="", approvals=Approvals.ASK, decide=decide)
        tap = EventTap(RUNTIME.normalizer())
        approvals = ApprovalHandler(replace(ask, decide_deadline_s=0.01), tap, clock=SYSTEM_CLOCK, is_fenced=True)
        asked = PiQuestion(request="1", about=Call(id="c", name="bash", args={"command": "true"}))
        assert approvals.take(asked) is None
        assert await approvals.consider(asked, record_row=tap.record) == Answer("decline")
        assert [each.by for each in tap.of(ApprovalResolved)] == ["deadline"]
        is_let_go.set()

    run(test)


@pytest.mark.requirement("attempt.contain")
def test_policy_accepts_everything_inside_the_fences(
    tmp_path: Path, program: Executable, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "user"
    home.mkdir()
    (home / "diary").write_text("private")
    monkeypatch.setenv("HOME", str(home))
    tries = f"touch inside $TMPDIR/inside {tmp_path}/outside; touch /etc/outside; cat {home}/diary; env | grep -c KEY"
    env = {"PATH": os.environ["PATH"], "MY_KEY": "sk-0123456789"}

    async def test() -> None:
        async with open_pi(tmp_path, program, env=env) as pi:
            model = ModelChoice(provider="mine", name="m", key_variable="MY_KEY", login=Login.API_KEY)
            async with pi.session({"run": tries}, INSIDE, OUTSIDE, DONE, name="held", model=model) as (session, tap):
                await session.turn("Go on.")
                assert [each.by for each in tap.of(ApprovalResolved)] == ["policy"] * 3
                command, inside, outside = tap.of(ToolEnded)
                assert [tool.status for tool in (inside, outside)] == ["completed", "declined"]
                refused = [line.rpartition(": ")[2] for line in (command.output or "").splitlines()]
                # The provider's key is in pi's environment, but not in that of its commands.
                # Its stdout and stderr are two pipes, so their lines come in any order.
                assert sorted(refused[:3]) == ["0", "No such file or directory", "Read-only file system"]
                # The fences gave it its own folder of that name.
                assert not (tmp_path / "outside").exists()
                assert (tmp_path / "held" / "workspace" / "inside").exists()
                assert session.facts["fences"].value == {
                    "writable": ["workspace", "tmp", "home"],
                    "readOnly": [],
                    "network": "host",
                }

    run(test)
