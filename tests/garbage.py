"""Garbage collection of a process that runs tests: seldom, and never of what pytest collected.

This is a plugin of pytest's. A collected session is 390,000 objects that live until the end. Python would look at all
of them again and again: a quarter of the time of collecting tests, and nearly a tenth of that of running them.
"""

import gc
from collections.abc import Generator
from typing import Final

import pytest

MORE_OBJECTS: Final = 10_000
"""How many more objects there must be for the youngest to be looked at. Python's own number is 700."""


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection() -> Generator[None, object, object]:
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.set_threshold(MORE_OBJECTS)
        gc.enable()
