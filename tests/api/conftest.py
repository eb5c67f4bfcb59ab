"""What holds for every session that a test here opens."""

from collections.abc import Iterator

import pytest

from tests.api.talk import scratch


@pytest.fixture(autouse=True)
def _no_scratch_is_left() -> Iterator[None]:
    before = scratch()
    yield
    assert scratch() == before
