"""What an engine may not return: each fault is found, and its message says what to do."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from proctor.context.budget import ASSUMED_RATIO, Budget, TokenRatio, budget_for
from proctor.context.check_assembled import check_assembled
from proctor.context.history import ListedHistory
from proctor.context.reference import Reference
from proctor.event.message import AgentPart, Message, PartRoot, SummaryPart, UserPart
from proctor.ids import EntryId
from tests.context.histories import agent, call, entry, message, result, sessions, summary, user

PROMPT = EntryId("20261118T194947Z-ab12/session.2#4")
LARGE = budget_for(reported_window=10**9, configured_window=None, fixed_prompt_tokens=None)
HISTORY = [user(1, "question"), call(2, {"command": "ls"}), result(3, 2, "out"), agent(4, "answer"), call(5, None)]


class ImagePart(PartRoot, tag="image", frozen=True, kw_only=True):
    """A part that an engine invented."""

    url: str
    """Where the image is."""


def findings(
    messages: object,
    *,
    addition: object = None,
    references: object = (),
    history: list[Message] | None = None,
    budget: Budget = LARGE,
    ratio: TokenRatio = ASSUMED_RATIO,
    most_bytes: int = 10_000_000,
    **more: Any,
) -> list[tuple[str, str | None, str]]:
    found = check_assembled(
        messages,
        system_addition=addition,
        references=references,
        history=ListedHistory(HISTORY if history is None else history),
        prompt_id=PROMPT,
        budget=budget,
        ratio=ratio,
        most_bytes=most_bytes,
        **more,
    )
    assert all((each.message or "") in each.what for each in found)
    return [(each.fault, each.message, each.what) for each in found]


# ── nothing is wrong ──


@given(history=sessions())
def test_an_engine_may_return_the_whole_history(history: list[Message]) -> None:
    assert findings(history, history=history) == []
    assert findings(tuple(history), history=history) == []


@pytest.mark.parametrize(
    "assembled",
    [
        [],
        HISTORY[3:],
        [summary("leaf-1", "s", 1, 2, 3), *HISTORY[3:]],
        [*HISTORY, Message(id=PROMPT, at_ms=0, part=UserPart(text="x"))],
        [Message(id=EntryId("note"), at_ms=0, part=AgentPart(text="\ud800")), *HISTORY],
    ],
    ids=["nothing", "a tail", "a summary and a tail", "the prompt at the end", "a message that it made"],
)
def test_an_engine_may_return_part_of_the_history_and_messages_that_it_made(assembled: list[Message]) -> None:
    assert findings(assembled) == []


def test_a_call_without_a_result_in_the_history_is_not_the_engines_fault() -> None:
    assert findings([call(5, None)]) == []


def test_a_result_without_a_call_in_the_history_is_not_the_engines_fault() -> None:
    imported = [result(3, 2, "out")]
    assert findings(imported, history=imported) == []


# ── shapes ──


@pytest.mark.parametrize(
    ("messages", "message_id", "what"),
    [
        (None, None, "`messages` is a NoneType: return a list or tuple of Message"),
        ("text", None, "`messages` is a str: return a list or tuple of Message"),
        ({"messages": []}, None, "`messages` is a dict: return a list or tuple of Message"),
        (iter(HISTORY), None, "`messages` is a list_iterator: return a list or tuple of Message"),
        ([{"role": "wizard"}], None, "`messages[0]` is a dict: return a Message"),
        (
            [user(1, "x"), Message(id=EntryId("m"), at_ms=0, part=UserPart(text=None))],  # type: ignore[arg-type]
            "m",
            "message m: Expected `str`, got `null` - at `$.part.text`: give every field a value of its type",
        ),
        (
            [Message(id=7, at_ms=0, part=UserPart(text="x"))],  # type: ignore[arg-type]
            None,
            "`messages[0]`: Expected `str`, got `int` - at `$.id`: give every field a value of its type",
        ),
        (
            [summary("s", "x"), Message(id=EntryId("t"), at_ms=0, part=SummaryPart(text="", sources=(1,)))],  # type: ignore[arg-type]
            "t",
            "message t: Expected `str`, got `int` - at `$.part.sources[0]`: give every field a value of its type",
        ),
    ],
)
def test_case_15_a_wrong_shape_is_found(messages: object, message_id: str | None, what: str) -> None:
    assert findings(messages) == [("wrong-shape", message_id, what)]


@pytest.mark.parametrize("input_", [{1: 2}, {"a": {1, 2}}, b"x", (1,), object(), float("nan"), [float("inf")]])
def test_case_15_an_input_that_is_not_json_is_found(input_: Any) -> None:
    what = (
        "message m: `part.input` is not a JSON value of at most 64 levels and 100000 values: give every field a value"
        " of its type"
    )
    made = msgspec.structs.replace(call(1, input_), id=EntryId("m"))
    assert findings([made]) == [("wrong-shape", "m", what)]


def test_case_15_an_input_without_an_end_is_found() -> None:
    endless: list[Any] = []
    endless.append(endless)
    vast: Any = "x"
    for _ in range(60):
        vast = [vast, vast]
    for input_ in (endless, vast):
        assert [fault for fault, _, _ in findings([call(1, input_)])] == ["wrong-shape"]


@pytest.mark.parametrize(
    ("addition", "references", "what"),
    [
        (7, (), "`system_addition` is a int: return a text or None"),
        (None, {"a": "b"}, "`references` is a dict: return a list or tuple of Reference"),
        (None, ["a"], "`references[0]` is a str: return a Reference"),
    ],
)
def test_case_15_a_wrong_addition_or_reference_is_found(addition: object, references: object, what: str) -> None:
    assert findings([], addition=addition, references=references) == [("wrong-shape", None, what)]


def test_case_15_a_reference_of_unknown_trust_is_found() -> None:
    ((fault, name, what),) = findings([], references=[Reference(id="a.md", text="x", trust="divine")])  # type: ignore[arg-type]
    assert (fault, name) == ("wrong-shape", "a.md")
    assert what.startswith("reference a.md: Invalid enum value 'divine'")


def test_case_15_an_unknown_part_is_found() -> None:
    image = Message(id=EntryId("m"), at_ms=0, part=ImagePart(url="x"))  # type: ignore[arg-type]
    what = "message m: its part is a ImagePart: use one of UserPart, AgentPart, CallPart, ResultPart, SummaryPart"
    assert findings([image]) == [("unknown-part", "m", what)]


anything = st.recursive(
    st.none() | st.integers() | st.text(max_size=3) | st.sampled_from([*HISTORY, UserPart(text=""), object()]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text(max_size=2), inner, max_size=2)
        | st.builds(lambda id_, part: Message(id=id_, at_ms=0, part=part), inner, inner)
    ),
)


@given(messages=anything, addition=anything, references=anything)
def test_case_15_nothing_that_an_engine_returns_makes_the_check_fail(
    messages: object, addition: object, references: object
) -> None:
    findings(messages, addition=addition, references=references)


# ── ids ──


def test_case_15_a_repeated_message_is_found() -> None:
    what = f"message {entry(1)} was assembled 2 times: return each message once"
    assert findings([*HISTORY, HISTORY[0]]) == [("repeated", entry(1), what)]


def test_case_15_an_entry_that_is_not_in_the_history_is_found() -> None:
    what = f"message {entry(8)} is not in the history: give a message that you make an id without `#`"
    assert findings([*HISTORY, user(8, "x")]) == [("unknown-entry", entry(8), what)]


@pytest.mark.parametrize(
    "changed",
    [agent(4, "another answer"), message(4, AgentPart(text="answer"), at_ms=9), user(4, "answer")],
    ids=["text", "time", "role"],
)
def test_case_15_a_changed_entry_is_found(changed: Message) -> None:
    what = (
        f"message {entry(4)} differs from the entry with this id: return entries unchanged, replace them with"
        " `ctx.rewrite`, or return a SummaryPart that names them as sources"
    )
    assert findings([changed]) == [("altered", entry(4), what)]


def test_case_15_an_input_that_the_engine_changed_in_place_is_found() -> None:
    shared, own = (call(5, {"command": ["ls"]}) for _ in range(2))
    shared.part.input["command"].append("-l")  # type: ignore[union-attr]
    assert [(fault, id_) for fault, id_, _ in findings([shared], history=[own])] == [("altered", entry(5))]


# ── calls and results ──


def test_case_15_a_call_without_its_result_is_found() -> None:
    what = f"message {entry(2)} is a tool call without its result: return message {entry(3)} too, or neither"
    assert findings([HISTORY[0], HISTORY[1]]) == [("call-without-result", entry(2), what)]


def test_case_15_a_call_that_the_engine_made_needs_a_result() -> None:
    made = msgspec.structs.replace(call(1, None), id=EntryId("m"))
    what = "message m is a tool call without its result: return a message with a ResultPart too, or neither"
    assert findings([made]) == [("call-without-result", "m", what)]


@pytest.mark.parametrize("assembled", [[HISTORY[2]], [HISTORY[2], HISTORY[0]]])
def test_case_15_a_result_without_its_call_is_found(assembled: list[Message]) -> None:
    what = f"message {entry(3)} is a tool result without its call: return message {entry(2)} before it, or neither"
    assert findings(assembled) == [("result-without-call", entry(3), what)]


def test_case_15_a_result_before_its_call_is_found() -> None:
    assert [(fault, id_) for fault, id_, _ in findings([HISTORY[2], HISTORY[1]])] == [("result-without-call", entry(3))]


def test_case_15_a_result_that_names_something_else_than_a_call_is_found() -> None:
    made = msgspec.structs.replace(result(1, 1, "out"), id=EntryId("m"))
    what = f"message m is a tool result without its call: return message {entry(1)} before it, or neither"
    assert findings([*HISTORY, made]) == [("result-without-call", "m", what)]


# ── sizes ──


def test_case_15_more_than_the_budget_is_found() -> None:
    budget = budget_for(reported_window=20_100, configured_window=None, fixed_prompt_tokens=None)
    history = [user(1, "x" * 100), agent(2, "y" * 200)]
    what = (
        "about 108 tokens were assembled (3.00 bytes per token, assumed), and the budget is 100 (the largest message"
        f" is {entry(2)}): return at most `ctx.budget.history` tokens"
    )
    assert findings(history, history=history, budget=budget) == [("over-budget", entry(2), what)]
    assert findings(history[1:], history=history, budget=budget) == []


def test_case_15_the_addition_and_references_count() -> None:
    budget = budget_for(reported_window=20_100, configured_window=None, fixed_prompt_tokens=None)
    assert [fault for fault, _, _ in findings([], addition="x" * 301, budget=budget)] == ["over-budget"]
    references = [Reference(id="a", text="x" * 300)]
    assert [fault for fault, _, _ in findings([], references=references, budget=budget)] == ["over-budget"]


def test_case_15_a_huge_result_is_found_by_its_size_alone() -> None:
    huge = [*HISTORY, HISTORY[0], agent(8, "x" * 5_000)]
    what = (
        f"5140 bytes were assembled, and at most 5000 are accepted (the largest message is {entry(8)}): return fewer"
        " messages, or summaries of them"
    )
    assert findings(huge, most_bytes=5_000) == [("too-large", entry(8), what)]


def test_case_15_more_than_the_budget_is_no_finding_if_the_engine_says_so() -> None:
    budget = budget_for(reported_window=20_100, configured_window=None, fixed_prompt_tokens=None)
    assert findings([], addition="x" * 301, budget=budget, may_overflow=True) == []


# ── the epoch ──


@pytest.mark.parametrize("epoch", [None, ""])
def test_case_18_the_mode_thread_bootstrap_needs_an_epoch(epoch: str | None) -> None:
    what = (
        "the mode is `thread_bootstrap` and `projection.epoch` is empty: return an id of the stable part of the context"
    )
    assert findings([], needs_epoch=True, epoch=epoch) == [("no-epoch", None, what)]
    assert findings([], needs_epoch=True, epoch="e") == []


# ── what is read of the history ──


class CountingHistory(ListedHistory):
    """Counts the entries that are read, and the positions that are looked up."""

    read = looked_up = 0

    def __getitem__(self, at: Any) -> Any:
        found = super().__getitem__(at)
        self.read += len(found) if isinstance(at, slice) else 1
        return found

    def __iter__(self) -> Any:
        raise AssertionError("the whole history is read")

    def position(self, id_: EntryId) -> int | None:
        self.looked_up += 1
        return super().position(id_)


def test_few_entries_are_read_and_looked_up() -> None:
    """Of neighbours, which are most of what engines assemble, only a few positions are looked up."""
    history = CountingHistory([user(number, "x") for number in range(10_000)])
    assembled = [*history[3:5], *history[9_000:9_600]]
    history.read = 0
    budget, ratio = LARGE, ASSUMED_RATIO
    assert check_assembled(assembled, history=history, prompt_id=PROMPT, budget=budget, ratio=ratio) == ()
    assert history.read <= 2 * len(assembled)
    assert history.looked_up < 20


def test_entries_in_any_order_are_compared() -> None:
    entries = [user(number, "x") for number in range(40)]
    shuffled = [entries[at] for at in (5, 3, 4, 39, *range(10, 20), 0, 38)]
    assert findings(shuffled, history=entries) == []
    altered = [user(15, "y") if each is entries[15] else each for each in shuffled]
    assert [(fault, id_) for fault, id_, _ in findings(altered, history=entries)] == [("altered", entry(15))]
