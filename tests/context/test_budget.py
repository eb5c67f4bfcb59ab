"""Budgets and estimates: where their numbers come from, and what never counts."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proctor.context.budget import (
    ASSUMED_RATIO,
    DEFAULT_WINDOW_TOKENS,
    RESERVE_TOKENS,
    Budget,
    TokenRatio,
    WindowSource,
    budget_for,
    calibrate,
    estimate_messages,
    estimate_tokens,
    message_bytes,
    most_bytes,
)
from proctor.event.message import Message
from tests.context.histories import agent, call, result, sessions, summary, user

samples = st.lists(st.tuples(st.integers(-10, 10**7), st.integers(-10, 10**7)), max_size=8)
sizes = st.none() | st.integers(-5, 2_000_000)


def measured(found: list[tuple[int, int]]) -> TokenRatio:
    ratio = ASSUMED_RATIO
    for added_bytes, added_tokens in found:
        ratio = calibrate(ratio, added_bytes=added_bytes, added_tokens=added_tokens)
    return ratio


# ── the window ──


@pytest.mark.parametrize(
    ("reported", "configured", "window", "source"),
    [
        (272_000, 64_000, 272_000, WindowSource.AGENT),
        (None, 64_000, 64_000, WindowSource.CONFIG),
        (0, 64_000, 64_000, WindowSource.CONFIG),
        (None, None, DEFAULT_WINDOW_TOKENS, WindowSource.DEFAULT),
        (0, 0, DEFAULT_WINDOW_TOKENS, WindowSource.DEFAULT),
    ],
)
def test_window_is_the_agents_else_the_configured_one_else_a_default(
    reported: int | None, configured: int | None, window: int, source: WindowSource
) -> None:
    budget = budget_for(reported_window=reported, configured_window=configured, fixed_prompt_tokens=None)
    assert budget == Budget(window=window, reserve=RESERVE_TOKENS, history=window - RESERVE_TOKENS, source=source)


def test_reserve_holds_the_fixed_prompt_where_it_was_measured() -> None:
    budget = budget_for(reported_window=100_000, configured_window=None, fixed_prompt_tokens=12_000)
    assert (budget.reserve, budget.history) == (32_000, 68_000)


@given(reported=sizes, configured=sizes, fixed=sizes)
def test_history_is_never_negative_and_never_more_than_the_window_without_the_reserve(
    reported: int | None, configured: int | None, fixed: int | None
) -> None:
    budget = budget_for(reported_window=reported, configured_window=configured, fixed_prompt_tokens=fixed)
    assert budget.history == max(0, budget.window - budget.reserve)
    assert budget.reserve >= RESERVE_TOKENS


# ── the ratio ──


def test_ratio_starts_at_3_and_says_that_it_is_assumed() -> None:
    assert (ASSUMED_RATIO.bytes_per_token, ASSUMED_RATIO.source) == (3.0, "assumed")


@given(found=samples)
def test_ratio_stays_within_1_5_and_6_whatever_was_measured(found: list[tuple[int, int]]) -> None:
    ratio = measured(found)
    assert 1.5 <= ratio.bytes_per_token <= 6
    is_measured = any(added_bytes > 0 and added_tokens > 0 for added_bytes, added_tokens in found)
    assert ratio.source == ("measured" if is_measured else "assumed")


@given(found=samples, data=st.data())
def test_ratio_does_not_depend_on_the_order_of_measurements(found: list[tuple[int, int]], data: st.DataObject) -> None:
    other = measured(data.draw(st.permutations(found)))
    assert other.bytes_per_token == pytest.approx(measured(found).bytes_per_token)


@pytest.mark.parametrize("actual", [1.6, 2.5, 4.0, 5.9])
def test_ratio_approaches_what_is_measured(actual: float) -> None:
    ratio = measured([(100_000, int(100_000 / actual))] * 40)
    assert ratio.bytes_per_token == pytest.approx(actual, rel=0.02)


def test_a_few_measured_bytes_hardly_move_the_ratio() -> None:
    assert measured([(60, 10)]).bytes_per_token == pytest.approx(3.0, rel=0.01)


def test_one_impossible_measurement_weighs_no_more_than_a_possible_one() -> None:
    assert measured([(30_000, 1)]) == measured([(30_000, 5_000)])
    assert measured([(30_000, 10**9)]) == measured([(30_000, 20_000)])


# ── estimates ──


@given(size=st.integers(0, 10**8), found=samples)
def test_estimates_carry_their_ratio_and_round_up(size: int, found: list[tuple[int, int]]) -> None:
    ratio = measured(found)
    estimate = estimate_tokens(size, ratio=ratio)
    assert (estimate.bytes_per_token, estimate.source) == (ratio.bytes_per_token, ratio.source)
    assert estimate.tokens - 1 < size / ratio.bytes_per_token <= estimate.tokens * (1 + 1e-9)


@given(tokens=st.integers(-5, 10**7), found=samples)
def test_what_fits_is_estimated_as_fitting(tokens: int, found: list[tuple[int, int]]) -> None:
    ratio = measured(found)
    assert estimate_tokens(most_bytes(tokens, ratio=ratio), ratio=ratio).tokens <= max(0, tokens)


@given(messages=sessions())
def test_an_estimate_of_messages_counts_all_their_bytes(messages: list[Message]) -> None:
    total = sum(message_bytes(each) for each in messages)
    assert estimate_messages(messages, ratio=ASSUMED_RATIO) == estimate_tokens(total, ratio=ASSUMED_RATIO)


def test_bytes_of_a_message_are_those_of_its_text_name_and_payload() -> None:
    empty = message_bytes(user(1, ""))
    sizes_of = [
        message_bytes(each) - empty
        for each in (
            agent(1, "é"),
            summary("s", "abc"),
            call(1, {"a": 1}, name="shell"),
            call(1, None, name="shell"),
            result(2, 1, "\ud800", name="shell"),
            result(2, 1, None, name="shell"),
        )
    ]
    assert sizes_of == [2, 3, 12, 5, 8, 5]
