"""Projection: exactly what the thread lacks, in order, whole, and the same bytes each time."""

import os
import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from proctor.context.budget import TokenRatio, message_bytes, most_bytes
from proctor.context.payload import Payload
from proctor.context.project import (
    Dropped,
    Form,
    Projection,
    ProjectionLimits,
    Prompt,
    is_held,
    project,
)
from proctor.context.reference import Reference, Trust, quote_reference
from proctor.context.text import CLOSING, OPENING, Header, parse, quote_message, render_quote
from proctor.event.message import CallPart, Message, ResultPart, UserPart
from proctor.ids import EntryId
from tests.context.histories import agent, call, entry, ids, result, sessions, summary, texts, user
from tests.context.test_text import reordered

PROMPT = Prompt(id=EntryId("20261118T194947Z-ab12/session.2#4"), text="Go on.")
NO_LIMITS = ProjectionLimits()
FORMS: tuple[Form, ...] = ("items", "text")

forms = st.sampled_from(FORMS)
references = st.lists(st.builds(Reference, id=texts, text=texts, trust=st.sampled_from(Trust)), max_size=3)
ratios = st.builds(TokenRatio, sample_bytes=st.integers(1, 10**6), sample_tokens=st.floats(1, 10**6))
limits = st.builds(
    ProjectionLimits,
    text_chars=st.none() | st.integers(0, 900),
    text_bytes=st.none() | st.integers(0, 900),
    tokens=st.none() | st.integers(0, 300),
    ratio=ratios,
)


def projected(
    assembled: list[Message],
    *,
    form: Form = "text",
    held: set[EntryId] | None = None,
    history: list[Message] | None = None,
    prompt: Prompt = PROMPT,
    addition: str | None = None,
    limits: ProjectionLimits = NO_LIMITS,
    payload: Payload | None = None,
    references: list[Reference] | None = None,
) -> Projection:
    return project(
        assembled,
        original_history=assembled if history is None else history,
        prompt=prompt,
        system_addition=addition,
        held=held or set(),
        limits=limits,
        form=form,
        payload=payload,
        references=references or [],
    )


@st.composite
def sessions_with_held(draw: st.DrawFn) -> tuple[list[Message], set[EntryId]]:
    messages = draw(sessions())
    return messages, set(draw(st.lists(st.sampled_from([entry(0), *ids(messages)]))))


# ── what is given ──


@pytest.mark.requirement("context.projection")
@given(session=sessions_with_held(), form=forms)
def test_exactly_what_the_thread_lacks_is_given_in_order(
    session: tuple[list[Message], set[EntryId]], form: Form
) -> None:
    messages, held = session
    projection = projected(messages, form=form, held=held)
    assert list(projection.given) == [each.id for each in messages if not is_held(each, held)]
    assert projection.dropped == ()
    assert projection.assembled_messages == tuple(messages)


@pytest.mark.requirement("context.projection")
@given(session=sessions_with_held())
def test_items_are_the_messages_and_leave_the_prompt_as_it_is(session: tuple[list[Message], set[EntryId]]) -> None:
    messages, held = session
    projection = projected(messages, form="items", held=held)
    assert list(projection.items) == [each for each in messages if not is_held(each, held)]
    assert projection.prompt_text == PROMPT.text


@pytest.mark.requirement("context.projection")
@given(session=sessions_with_held())
def test_text_is_the_quotes_of_the_messages_and_the_request(session: tuple[list[Message], set[EntryId]]) -> None:
    messages, held = session
    projection = projected(messages, held=held, payload=Payload.WHOLE)
    read = parse(projection.prompt_text)
    lacking = [each for each in messages if not is_held(each, held)]
    assert [quote.header for quote in read.quotes] == [quote_message(each).header for each in lacking]
    assert [quote.text for quote in read.quotes if quote.header in {Header.USER, Header.ASSISTANT}] == [
        quote_message(each).text for each in lacking if quote_message(each).header in {Header.USER, Header.ASSISTANT}
    ]
    assert read.request == PROMPT.text
    assert projection.items == ()


@given(messages=sessions(), accepted=st.integers(0, 14))
def test_what_was_not_taken_as_items_is_given_as_text(messages: list[Message], accepted: int) -> None:
    items = projected(messages, form="items").given
    held = set(items[:accepted])
    assume(not any(is_held(each, held) for each in messages if each.id not in held))  # no summary of accepted ones
    assert items[:accepted] + projected(messages, form="text", held=held).given == items


def test_a_summary_is_held_if_all_its_sources_are() -> None:
    of_two, of_none = summary("leaf-1", "x", 1, 2), summary("leaf-2", "x")
    assert is_held(of_two, {entry(1), entry(2)})
    assert is_held(of_two, {EntryId("leaf-1")})
    assert not is_held(of_two, {entry(1)})
    assert not is_held(of_none, {entry(1)})
    assert not is_held(user(3, "x"), {entry(1), entry(2)})


def test_a_result_is_given_also_if_only_its_call_is_held() -> None:
    messages = [user(0, "a"), call(1, None), result(2, 1, "out")]
    assert projected(messages, held={entry(0), entry(1)}, form="items").given == (entry(2),)


def test_a_message_is_never_given_twice() -> None:
    once = user(1, "a")
    projection = projected([once, agent(2, "b"), once], form="items")
    assert projection.given == (entry(1), entry(2))
    assert projection.dropped == (Dropped(kind="message", id=entry(1), reason="repeated"),)


def test_results_name_their_calls_by_number_and_not_by_id() -> None:
    messages = [call(1, 1, name="a"), call(2, 2, name="b"), result(3, 2, "x", name="b"), result(4, 1, "y", name="a")]
    quotes = parse(projected(messages, payload=Payload.WHOLE).prompt_text).quotes
    assert [quote.text.splitlines()[0] for quote in quotes] == [
        "call 1: a",
        "call 2: b",
        "call 2: b succeeded",
        "call 1: a succeeded",
    ]


@pytest.mark.parametrize(
    ("form", "payload", "input_", "output"),
    [
        ("items", None, {"x": "v"}, "out"),
        ("items", Payload.SHAPE, {"x": "string"}, ""),
        ("items", Payload.ELIDED, None, ""),
    ],
)
def test_payloads_are_whole_in_items_unless_asked_for_otherwise(
    form: Form, payload: Payload | None, input_: Any, output: str
) -> None:
    called, ended = projected([call(1, {"x": "v"}), result(2, 1, "out")], form=form, payload=payload).items
    assert isinstance(called.part, CallPart)
    assert isinstance(ended.part, ResultPart)
    assert (called.part.input, ended.part.output) == (input_, output)
    assert len(output) + ended.part.cut_bytes == len("out")


def test_payloads_are_shapes_in_text_unless_asked_for_otherwise() -> None:
    text = projected([call(1, {"x": "v"}), result(2, 1, "out")]).prompt_text
    assert '> {"x":"string"}\n' in text
    assert "> string, 3 bytes\n" in text


# ── the prompt ──


@pytest.mark.requirement("context.dedupe")
@pytest.mark.parametrize("form", FORMS)
def test_case_5_the_prompt_at_the_end_of_history_is_dropped_by_id(form: Form) -> None:
    history = [user(1, "a"), agent(2, "b"), Message(id=PROMPT.id, at_ms=0, part=UserPart(text=PROMPT.text))]
    projection = projected(history, form=form)
    assert projection.given == (entry(1), entry(2))
    assert projection.dropped == (Dropped(kind="message", id=PROMPT.id, reason="is-prompt"),)
    assert projection.pre_prompt_message_count == 2


@pytest.mark.requirement("context.dedupe")
@pytest.mark.parametrize("form", FORMS)
def test_case_5_an_equal_text_with_another_id_is_kept(form: Form) -> None:
    history = [agent(1, "b"), user(2, PROMPT.text)]
    projection = projected(history, form=form)
    assert projection.given == (entry(1), entry(2))
    assert projection.dropped == ()
    assert projection.pre_prompt_message_count == 2


@pytest.mark.requirement("context.projection")
@pytest.mark.parametrize("form", FORMS)
@given(request=texts)
def test_case_6_with_nothing_to_give_the_text_is_the_prompt(form: Form, request: str) -> None:
    held = [user(1, "a"), agent(2, "b")]
    prompt = Prompt(id=PROMPT.id, text=request)
    for projection in (
        projected([], form=form, prompt=prompt),
        projected(held, form=form, prompt=prompt, held=set(ids(held))),
    ):
        assert (projection.prompt_text, projection.items) == (request, ())


@pytest.mark.requirement("context.projection")
@given(messages=sessions(), request=texts, limits=limits, form=forms, quoted=references)
def test_case_7_the_request_is_never_cut(
    messages: list[Message], request: str, limits: ProjectionLimits, form: Form, quoted: list[Reference]
) -> None:
    prompt = Prompt(id=PROMPT.id, text=request)
    projection = projected(messages, form=form, prompt=prompt, limits=limits, references=quoted)
    assert projection.prompt_text.endswith(request)
    if projection.spans[:-1]:
        assert projection.prompt_text.endswith(CLOSING + request)
    else:
        assert projection.prompt_text == request


@pytest.mark.requirement("context.projection")
@given(messages=sessions(), form=forms)
def test_case_8_the_addition_is_only_in_the_developer_text(messages: list[Message], form: Form) -> None:
    addition = "Answer in Latin, planted-word."
    projection = projected(messages, form=form, addition=addition)
    assert projection.developer_addition == addition
    assert projection.prompt_text == projected(messages, form=form).prompt_text
    assert projection.items == projected(messages, form=form).items


@pytest.mark.parametrize("addition", [None, "", " \n"])
def test_a_blank_addition_is_none(addition: str | None) -> None:
    assert projected([], addition=addition).developer_addition is None


# ── limits ──


def weight(projection: Projection) -> int:
    """Bytes of everything that the turn gives."""
    return len(projection.prompt_text.encode("utf-8", "surrogatepass")) + sum(map(message_bytes, projection.items))


@pytest.mark.requirement("context.projection")
@given(messages=sessions(), limits=limits, form=forms, quoted=references)
def test_case_3_whole_messages_are_dropped_and_named(
    messages: list[Message], limits: ProjectionLimits, form: Form, quoted: list[Reference]
) -> None:
    projection = projected(messages, form=form, limits=limits, references=quoted)
    everything = projected(messages, form=form, references=quoted)
    given_references = [span.id for span in projection.spans if span.kind == "reference"]
    dropped = [(each.kind, each.id) for each in projection.dropped]

    assert sorted([*projection.given, *(id_ for kind, id_ in dropped if kind == "message")]) == sorted(ids(messages))
    assert [*given_references, *(id_ for kind, id_ in dropped if kind == "reference")] == [each.id for each in quoted]
    for span in projection.spans:
        assert projection.prompt_text[span.start : span.end] in everything.prompt_text
    assert all(each in everything.items for each in projection.items)


@pytest.mark.requirement("context.projection")
@given(messages=sessions(), limits=limits, form=forms, quoted=references)
def test_what_is_given_is_within_the_limits(
    messages: list[Message], limits: ProjectionLimits, form: Form, quoted: list[Reference]
) -> None:
    projection = projected(messages, form=form, limits=limits, references=quoted)
    if projection.given or len(projection.spans) > 1:
        if limits.tokens is not None:
            assert weight(projection) <= most_bytes(limits.tokens, ratio=limits.ratio)
        if limits.text_chars is not None and len(projection.spans) > 1:
            assert len(projection.prompt_text) <= limits.text_chars
        if limits.text_bytes is not None and len(projection.spans) > 1:
            assert len(projection.prompt_text.encode(errors="backslashreplace")) <= limits.text_bytes


@pytest.mark.requirement("context.projection")
@given(messages=sessions(), limits=limits, form=forms)
def test_case_3_a_call_and_its_result_stay_together(
    messages: list[Message], limits: ProjectionLimits, form: Form
) -> None:
    given_ids = set(projected(messages, form=form, limits=limits).given)
    for each in messages:
        if isinstance(each.part, ResultPart):
            assert (each.id in given_ids) == (each.part.call in given_ids)


@pytest.mark.requirement("context.projection")
@given(messages=sessions(), limits=limits, form=forms)
def test_case_3_the_newest_user_turn_is_dropped_last(
    messages: list[Message], limits: ProjectionLimits, form: Form
) -> None:
    users = [each.id for each in messages if isinstance(each.part, UserPart)]
    given_ids = projected(messages, form=form, limits=limits).given
    if users and given_ids:
        assert users[-1] in given_ids


TURNS = [
    summary("leaf-1", "s"),
    user(1, "old question"),
    call(2, {"command": "ls"}),
    call(3, {"command": "pwd"}),
    result(4, 2, "out"),
    agent(5, "old answer"),
    result(6, 3, "out"),
    user(7, "new question"),
    call(8, {"command": "make"}),
    result(9, 8, "out"),
    agent(10, "new answer"),
]
DROP_ORDER = ["leaf-1", entry(1), {entry(2), entry(4)}, {entry(3), entry(6)}, entry(5), {entry(8), entry(9)}]
DROP_ORDER += [entry(10), entry(7)]


@pytest.mark.requirement("context.projection")
@pytest.mark.parametrize("form", FORMS)
def test_case_3_messages_are_dropped_oldest_first_and_the_newest_question_last(form: Form) -> None:
    kept = [set(projected(TURNS, form=form, limits=ProjectionLimits(tokens=n)).given) for n in range(400)]
    assert kept[399] == set(ids(TURNS))
    steps = [now - before for before, now in pairwise(kept) if now != before]
    assert [step if len(step) > 1 else next(iter(step)) for step in reversed(steps)] == DROP_ORDER


@pytest.mark.requirement("context.projection")
def test_text_may_be_as_long_as_the_limit_and_no_longer() -> None:
    limit = 1_048_576
    frame = len(OPENING + "[user]\n> \n" + CLOSING)
    prompt = Prompt(id=PROMPT.id, text="p" * 1_000)
    fitting, longer = (user(1, "é" * (limit - 1_000 - frame + more)) for more in (0, 1))
    projection = projected([fitting], prompt=prompt, limits=ProjectionLimits(text_chars=limit))
    assert len(projection.prompt_text) == limit

    projection = projected([longer], prompt=prompt, limits=ProjectionLimits(text_chars=limit))
    assert projection.prompt_text == prompt.text
    assert projection.dropped == (Dropped(kind="message", id=entry(1), reason="text-limit"),)


def test_text_limit_does_not_count_items() -> None:
    projection = projected(TURNS, form="items", limits=ProjectionLimits(text_chars=len(PROMPT.text)))
    assert (len(projection.items), projection.dropped) == (len(TURNS), ())


def test_token_limit_counts_the_request_and_the_addition() -> None:
    messages = [user(1, "a" * 300)]
    fits = ProjectionLimits(tokens=110)
    assert projected(messages, form="items", limits=fits).given == (entry(1),)
    long_prompt = Prompt(id=PROMPT.id, text="p" * 300)
    assert projected(messages, form="items", limits=fits, prompt=long_prompt).given == ()
    projection = projected(messages, form="items", limits=fits, addition="p" * 300)
    assert projection.dropped == (Dropped(kind="message", id=entry(1), reason="token-limit"),)


@pytest.mark.parametrize("form", FORMS)
def test_references_are_dropped_before_messages_and_the_last_first(form: Form) -> None:
    quoted = [Reference(id=name, text="x" * 300) for name in "abc"]
    kept = []
    for n in range(700):
        projection = projected([user(1, "question")], form=form, references=quoted, limits=ProjectionLimits(tokens=n))
        given_references = [span.id for span in projection.spans if span.kind == "reference"]
        if (found := [*projection.given, *given_references]) not in kept:
            kept.append(found)
    assert kept == [[], [entry(1)], [entry(1), "a"], [entry(1), "a", "b"], [entry(1), "a", "b", "c"]]


# ── spans ──


@given(messages=sessions(), quoted=references, form=forms)
def test_spans_name_the_source_of_all_of_the_text_but_the_frame(
    messages: list[Message], quoted: list[Reference], form: Form
) -> None:
    projection = projected(messages, form=form, references=quoted)
    *blocks, request = projection.spans
    parts = [projection.prompt_text[span.start : span.end] for span in blocks]

    assert "".join(parts) == projection.prompt_text.removeprefix(OPENING)[: sum(map(len, parts))]
    assert parts[: len(quoted)] == [render_quote(quote_reference(each)) for each in quoted]
    assert [(span.kind, span.id) for span in blocks] == [
        *(("reference", each.id) for each in quoted),
        *(("message", each.id) for each in messages if form == "text"),
    ]
    assert (request.kind, request.id) == ("request", PROMPT.id)
    assert projection.prompt_text[request.start : request.end] == PROMPT.text


# ── equal bytes ──


def shuffled(messages: list[Message]) -> list[Message]:
    """The same messages, with other times and with the keys of all inputs in another order."""
    return [
        msgspec.structs.replace(
            each,
            at_ms=each.at_ms + 1,
            part=msgspec.structs.replace(each.part, input=reordered(each.part.input))
            if isinstance(each.part, CallPart)
            else each.part,
        )
        for each in messages
    ]


@pytest.mark.requirement("context.projection")
@given(messages=sessions(), form=forms, payload=st.sampled_from(Payload))
def test_case_1_equal_inputs_give_equal_bytes(messages: list[Message], form: Form, payload: Payload) -> None:
    one, other = (projected(each, form=form, payload=payload) for each in (messages, shuffled(messages)))
    assert one.prompt_text == other.prompt_text
    assert one.sha256 == other.sha256
    assert one.spans == other.spans


@pytest.mark.requirement("context.projection")
@pytest.mark.parametrize("form", FORMS)
def test_digest_differs_if_the_agent_is_given_anything_else(form: Form) -> None:
    messages = [user(1, "a"), call(2, {"x": "1"}), result(3, 2, "out")]
    others = [
        projected(messages[:1], form=form),
        projected([user(1, "b"), *messages[1:]], form=form),
        projected([messages[0], call(2, {"y": "1"}), messages[2]], form=form),
        projected(messages, form=form, addition="x"),
        projected(messages, form=form, prompt=Prompt(id=PROMPT.id, text="Stop.")),
        projected(messages, form=form, references=[Reference(id="a", text="b")]),
        projected(messages, form="text" if form == "items" else "items"),
    ]
    assert projected(messages, form=form).sha256 not in {each.sha256 for each in others}
    assert len({each.sha256 for each in others}) == len(others)


HASH_SEEDS = """
import sys
from proctor.context.project import ProjectionLimits, Prompt, project
from tests.context.test_project import PROMPT, TURNS, call
messages = [*TURNS, call(11, {name: {name: [1, None]} for name in {"alpha", "beta", "gamma", "delta"}})]
for form in ("items", "text"):
    projection = project(
        messages, original_history=messages, prompt=PROMPT, system_addition="x", held={each.id for each in TURNS[:3]},
        limits=ProjectionLimits(tokens=120), form=form,
    )
    print(projection.sha256, projection.prompt_text.encode(), projection.given, projection.dropped)
"""


@pytest.mark.proctor_process
@pytest.mark.requirement("context.projection")
def test_case_1_two_hash_seeds_give_equal_bytes() -> None:
    outputs = {
        subprocess.run(
            [sys.executable, "-c", HASH_SEEDS],
            env={**os.environ, "PYTHONHASHSEED": seed},
            cwd=Path(__file__).parents[2],
            capture_output=True,
            timeout=60,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(outputs) == 1
    assert outputs != {b""}
