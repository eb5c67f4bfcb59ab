"""Who answers the real Claude Code's questions: its fences, the policy, or whoever is asked."""

from pathlib import Path

import anyio
import pytest

from proctor.event.model import ApprovalAsked, ReplyReceived, Unrecognized
from proctor.runtime.base import Decision, Question
from proctor.spec.choices import Approvals
from proctor.spec.fence import Contain
from proctor.transport.channel import Channel
from proctor.transport.fault import FaultChannel, Inject, LineFault
from tests.runtime.claude_code.real import claude, run

pytestmark = [pytest.mark.real_agent, pytest.mark.agent("claude_code")]

# The program would let this run without a question.
HARMLESS = {"run": {"command": "true", "escalate": True}}
ESCALATED = {"run": {"command": "touch escalated", "escalate": True}}


@pytest.mark.requirement("runtime.claude-code")
def test_what_the_fences_allow_needs_no_approval_and_the_rest_is_denied_on_record(tmp_path: Path) -> None:
    async def main() -> None:
        outside = tmp_path / "outside.txt"
        async with (
            claude(tmp_path) as real,
            real.talk(
                {"run": "touch inside"},
                {"patch": {"file": "a.txt", "content": "a"}},
                ESCALATED,
                {"patch": {"file": str(outside), "content": "a"}},
                {"run": "true"},
                {"call": {"tool": "Read", "arguments": {"file_path": "/etc/hostname"}}},
                {"say": "Done."},
            ) as talk,
        ):
            await talk.session.turn("Go on.")
            assert talk.answers == [
                ("accept", "sandbox"),
                ("accept", "sandbox"),
                ("decline", "policy"),
                ("decline", "policy"),
                ("accept", "sandbox"),
            ]
            assert talk.deeds == [
                ("Bash", "completed"),
                ("Write", "completed"),
                ("Bash", "declined"),
                ("Write", "declined"),
                ("Bash", "completed"),
                ("Read", "completed"),
            ]
            assert [(event.about, event.detail) for event in talk.of(ApprovalAsked)][2] == (
                "command",
                "touch escalated",
            )
            assert sorted(path.name for path in talk.workspace.iterdir()) == ["a.txt", "inside"]
            assert not outside.exists()

    run(main)


@pytest.mark.requirement("runtime.claude-code")
def test_whoever_is_asked_decides(tmp_path: Path) -> None:
    asked: list[Question] = []

    async def decide(question: Question) -> Decision:
        asked.append(question)
        return Decision.ACCEPT if len(asked) == 1 else Decision.DENY

    async def main() -> None:
        async with (
            claude(tmp_path) as real,
            real.talk(HARMLESS, HARMLESS, {"say": "Done."}, approvals=Approvals.ASK, decide=decide) as talk,
        ):
            await talk.session.turn("Go on.")
            assert talk.answers == [("accept", "callback"), ("decline", "callback")]
            assert talk.deeds == [("Bash", "completed"), ("Bash", "declined")]
            first = asked[0]
            assert (first.about, first.command, first.cwd) == ("command", "true", str(talk.workspace))
            assert first.native["input"]["dangerouslyDisableSandbox"] is True
            assert {question.request for question in asked} == {event.request for event in talk.of(ApprovalAsked)}

    run(main)


def test_without_fences_the_policy_answers_for_all(tmp_path: Path) -> None:
    async def main() -> None:
        async with claude(tmp_path) as real:
            steps = ({"run": "touch a"}, {"patch": {"file": "b", "content": "b"}}, {"say": "Done."})
            for approvals, expected in (
                (Approvals.WORKSPACE, ["decline", "accept"]),
                (Approvals.ACCEPT, ["accept", "accept"]),
            ):
                name = approvals.value
                async with real.talk(*steps, name=name, approvals=approvals, contain=Contain.NONE) as talk:
                    await talk.session.turn("Go on.")
                    assert talk.answers == [(decision, "policy") for decision in expected]
                    assert talk.session.facts["fences"].value is None

    run(main)


def test_a_request_that_nobody_knows_is_answered_with_an_error_and_hinders_nothing(tmp_path: Path) -> None:
    stranger = (
        b'{"type":"control_request","request_id":"strange","request":{"subtype":"no_such_thing"}}',
        b'{"type":"no_such_frame"}',
        b'{"type":"assistant","message":7}',
        b'{"type":"control_response","response":{"subtype":"success","request_id":"nobody"}}',
        b"not JSON at all",
    )

    def between(channel: Channel) -> Channel:
        return FaultChannel(
            channel, [LineFault(at=lambda line: b'"subtype":"init"' in line, how=Inject(lines=stranger))]
        )

    async def main() -> None:
        async with claude(tmp_path, wrap_channel=between) as real, real.talk({"say": "Done."}) as talk:
            await talk.session.turn("Go on.")
            assert (talk.said, talk.ends) == (["Done."], [("completed", None)])
            assert talk.answers == [("unknown request", "policy")]
            assert [event.native for event in talk.of(Unrecognized)] == [
                "control_request/no_such_thing",
                "no_such_frame",
                "assistant",
                "reply to nothing",
                "not a frame",
            ]
            assert [(event.method, event.error) for event in talk.of(ReplyReceived)] == [("initialize", None)]

    run(main)


def test_a_question_that_is_withdrawn_is_on_record_as_unanswered(tmp_path: Path) -> None:
    async def main() -> None:
        async def never(_: Question) -> Decision:
            await anyio.sleep_forever()
            raise AssertionError

        async with (
            claude(tmp_path) as real,
            real.talk(ESCALATED, approvals=Approvals.ASK, decide=never) as talk,
            anyio.create_task_group() as tasks,
        ):
            tasks.start_soon(talk.session.turn, "Go on.")
            await talk.until(lambda: talk.of(ApprovalAsked))
            await talk.session.interrupt()
            assert talk.ends == [("interrupted", None)]
            assert talk.answers == [("none", "cancelled")]
            assert not (talk.workspace / "escalated").exists()

    run(main)
