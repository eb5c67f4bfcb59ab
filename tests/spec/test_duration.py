"""Durations as people write them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proctor.spec.duration import parse_duration_s


@given(st.integers(1, 7 * 24 * 3600 * 1000))
def test_a_number_of_milliseconds_is_the_same_however_it_is_written(duration_ms: int) -> None:
    duration_s = duration_ms / 1000
    for written in (f"{duration_ms}ms", f"{duration_s:.3f}s", f"{duration_s:.3f}", f" {duration_s:.3f} s ", duration_s):
        assert round(parse_duration_s(written) * 1000) == duration_ms


@pytest.mark.parametrize("written", ["", "s", "-1s", "1d", "1 m 2 s", "1e3s", "٣s", "nan", -0.5, "1s\n2s"])
def test_what_is_no_duration_is_refused(written: str | float) -> None:
    with pytest.raises(ValueError, match="not a duration"):
        parse_duration_s(written)


@pytest.mark.parametrize("written", [0, "0ms", "0.5ms", 1e-9, "169h", 1e300, "9" * 400 + "s"])
def test_a_duration_out_of_bounds_is_refused(written: str | float) -> None:
    with pytest.raises(ValueError, match="from 1ms to one week"):
        parse_duration_s(written)
