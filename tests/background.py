"""Tests started in the background, under nohup or by cron: what they start must not ignore a signal because of that.

This is a plugin of pytest's. A process that runs tests and ignores a signal gets a handler that does nothing instead:
the signal still has no effect on it, as nohup promises, and the programs it executes have the default action.
"""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

import pytest

# Python ignores these itself and gives them back to each child.
PYTHONS_OWN = frozenset({signal.SIGPIPE, signal.SIGXFSZ})


def pytest_configure(config: pytest.Config) -> None:
    # The controller of pytest-xdist runs no tests. It goes on ignoring, so that its workers know what to do.
    if hasattr(config, "workerinput") or not config.getoption("numprocesses", None):
        ignore_by_handler()


def ignore_by_handler() -> None:
    for number in ignored() - PYTHONS_OWN:
        signal.signal(number, _do_nothing)


def ignored() -> set[signal.Signals]:
    return {number for number in signal.valid_signals() if signal.getsignal(number) is signal.SIG_IGN}


def _do_nothing(_: int, __: FrameType | None) -> None:
    pass


@contextmanager
def ignoring(*numbers: signal.Signals) -> Iterator[None]:
    """Ignore signals in this process, as `nohup COMMAND &` does, and then handle them as before."""
    before = {number: signal.signal(number, signal.SIG_IGN) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
