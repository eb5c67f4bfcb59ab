"""Which step a request gets: the next one, the same again, or none."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from proctor.model.dialects import built_in_dialects
from proctor.model.player import Hang, Player, Refusal, RequestKind, ServedReply
from proctor.model.script import Script
from proctor.model.wire import Item, Pause, Reasoning, Reply, ReplyRequest, Text, Tokens, Tool, ToolCall

EXEC = Tool(name="exec_command", properties={"cmd": {"type": "string"}})


def player(*steps: dict[str, Any]) -> Player:
    script = msgspec.convert({"version": 1, "steps": steps}, Script)
    return Player("key", script, dialects=built_in_dialects())


def ask(*texts: str, tools: tuple[Tool, ...] = (EXEC,)) -> ReplyRequest:
    """A conversation; what begins with `u` is the user's."""
    items = [Item(raw=text.encode(), is_users=text.startswith("u"), parts=()) for text in texts]
    return ReplyRequest(model="m", tools=tools, items=tuple(items))


def place(served: ServedReply) -> tuple[RequestKind, int | None, int]:
    return served.kind, served.step, served.try_number


def said(served: ServedReply) -> str:
    assert isinstance(served.answer, Reply)
    return "".join(part.full_text for part in served.answer.parts if isinstance(part, Text))


def test_each_new_request_takes_the_next_step_until_there_is_none() -> None:
    playing = player({"say": "one"}, {"say": "two"})
    first, second = playing.serve(ask("u1")), playing.serve(ask("u1", "a", "u2"))
    assert [(place(served), said(served)) for served in (first, second)] == [
        ((RequestKind.MAIN, 0, 0), "one"),
        ((RequestKind.MAIN, 1, 0), "two"),
    ]
    for more in ("u3", "u4"):
        after = playing.serve(ask("u1", "a", "u2", more))
        assert place(after) == (RequestKind.EXHAUSTED, None, 0)
        assert after.answer == Refusal(
            status=400,
            code="script_exhausted",
            message="the script is exhausted: all steps (2) were used and the agent made another request",
        )


def test_the_same_request_gets_the_same_step_under_new_ids() -> None:
    playing = player({"say": "one"}, {"say": "two"})
    first, again = playing.serve(ask("u1")), playing.serve(ask("u1"))
    assert (place(again), said(again)) == ((RequestKind.RETRY, 0, 1), "one")
    assert isinstance(first.answer, Reply)
    assert isinstance(again.answer, Reply)
    assert first.answer.serial != again.answer.serial


def test_tries_answer_one_request_after_another() -> None:
    playing = player({"tries": [{"fault": {"status": 500}}, {"fault": "hang"}, {"say": "there"}]}, {"say": "next"})
    served = [playing.serve(ask("u1")) for _ in range(4)]
    assert [place(each) for each in served] == [
        (RequestKind.FAULT, 0, 0),
        (RequestKind.FAULT, 0, 1),
        (RequestKind.RETRY, 0, 2),
        (RequestKind.RETRY, 0, 3),
    ]
    assert served[0].answer == Refusal(status=500, code="scripted_fault", message="a scripted fault: HTTP 500")
    assert served[1].answer == Hang()
    assert said(served[2]) == said(served[3]) == "there"
    assert said(playing.serve(ask("u1", "a", "u2"))) == "next"


def test_a_fault_that_was_not_retried_is_over() -> None:
    playing = player({"fault": {"status": 400}}, {"say": "next"})
    playing.serve(ask("u1"))
    assert said(playing.serve(ask("u1", "u2"))) == "next"


@pytest.mark.parametrize(
    ("is_complete", "then", "expected"),
    [
        (False, ("u1", "call", "output"), (RequestKind.RETRY, 0, 1)),
        (False, ("u1", "call", "output", "u2"), (RequestKind.MAIN, 1, 0)),
        (False, ("u0", "call", "output"), (RequestKind.MAIN, 1, 0)),
        (True, ("u1", "call", "output"), (RequestKind.MAIN, 1, 0)),
    ],
    ids=["broken off", "broken off, then the user spoke", "another conversation", "delivered"],
)
def test_what_a_broken_reply_left_behind_does_not_make_another_request(
    is_complete: bool, then: tuple[str, ...], expected: tuple[RequestKind, int, int]
) -> None:
    playing = player({"say": "one"}, {"say": "two"})
    playing.serve(ask("u1")).is_complete = is_complete
    assert place(playing.serve(ask(*then))) == expected


@given(st.lists(st.sampled_from(["side", "again"]), max_size=8), st.integers(1, 4))
def test_side_requests_and_retries_never_move_the_script(noise: list[str], step_count: int) -> None:
    playing = player(*({"say": str(number)} for number in range(step_count)))
    texts: tuple[str, ...] = ()
    for number in range(step_count):
        texts = (*texts, f"u{number}")
        assert said(playing.serve(ask(*texts))) == str(number)
        for kind in noise:
            if kind == "side":
                assert place(playing.serve(ask("u title", tools=()))) == (RequestKind.SIDE, None, 0)
            else:
                assert said(playing.serve(ask(*texts))) == str(number)


def test_a_step_without_its_tool_is_refused_by_name() -> None:
    served = player({"say": "Now.", "patch": {"file": "a", "content": "b"}}).serve(ask("u1"))
    assert (place(served), served.answer) == (
        (RequestKind.REFUSED, 0, 0),
        Refusal(
            status=400,
            code="tool_not_offered",
            message="step 0 needs `patch`, but no offered tool can do that (offered: exec_command)",
        ),
    )


@pytest.mark.trust
def test_a_step_without_its_tool_is_not_skipped() -> None:
    playing = player({"patch": {"file": "a", "content": "b"}}, {"say": "Done."})
    assert playing.misfit is None
    # An agent may change its request, or its user may send another message.
    for number, texts in enumerate((("u1",), ("u1",), ("u1 again",), ("u1", "u2"))):
        assert place(playing.serve(ask(*texts))) == (RequestKind.REFUSED, 0, number)
        assert playing.misfit == "step 0 needs `patch`, but no offered tool can do that (offered: exec_command)"
    offered = ask("u1", tools=(EXEC, Tool(name="apply_patch", freeform=True, properties={})))
    assert place(playing.serve(offered)) == (RequestKind.RETRY, 0, 4)
    assert playing.misfit is None
    assert place(playing.serve(ask("u1", "u2", "u3"))) == (RequestKind.MAIN, 1, 0)


def test_a_fault_carries_what_the_script_gave_it() -> None:
    step = {"delay": "2s", "fault": {"status": 429, "retry_after": 3, "body": {"error": {"code": "slow"}}}}
    assert player(step).serve(ask("u1")).answer == Refusal(
        status=429,
        code="scripted_fault",
        message="a scripted fault: HTTP 429",
        body=b'{"error":{"code":"slow"}}',
        retry_after_s=3,
        delay_s=2,
    )
    plain = player({"fault": {"status": 502, "body": "Bad gateway"}}).serve(ask("u1")).answer
    assert isinstance(plain, Refusal)
    assert plain.body == b"Bad gateway"


def test_a_reply_costs_what_its_sizes_say_unless_the_script_says_otherwise() -> None:
    step = {"do": [{"think": "12345"}, {"delay": 1}, {"say": {"text": "ab", "repeat": 8}}, {"run": "ls"}]}
    reply = player(step).serve(ask("u12345678")).answer
    assert reply == Reply(
        serial="2c70e12b_1",
        model="m",
        parts=(
            Reasoning(text="12345"),
            Pause(delay_s=1),
            Text(text="ab", repeat=8),
            ToolCall(tool=EXEC, payload='{"cmd":"ls"}'),
        ),
        tokens=Tokens(input=3, cached=0, output=9, reasoning=2),
    )
    claimed = player({"say": "a", "usage": {"input": 9, "cached": 8, "output": 7, "reasoning": 6}}).serve(ask("u"))
    assert isinstance(claimed.answer, Reply)
    assert claimed.answer.tokens == Tokens(input=9, cached=8, output=7, reasoning=6)


def test_no_two_players_share_an_id() -> None:
    script = msgspec.convert({"version": 1, "steps": [{"say": "a"}]}, Script)
    replies = [Player(key, script, dialects={}).serve(ask("u1")).answer for key in ("one", "two")]
    assert len({reply.serial for reply in replies if isinstance(reply, Reply)}) == 2
