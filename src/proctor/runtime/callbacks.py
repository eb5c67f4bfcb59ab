"""One call of somebody else's code: what it gives in time, or why there is nothing. It can hurt nobody but itself."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import anyio

T = TypeVar("T")

GRACE_S = 2.0

# The loop itself holds tasks only weakly.
_given_up: set[asyncio.Task[Any]] = set()


class CallbackError(Exception):
    """It failed, and in these words."""


async def call(
    callback: Callable[[], Awaitable[Any]],
    *,
    read: Callable[[Any], T],
    deadline_s: float,
    on_given_up: Callable[[], None],
) -> T | None:
    """What `read` makes of its answer, None where it is late; CallbackError for whatever it raises.

    A task of asyncio's, because no task group can be left while one of its tasks swallows cancellation: such a one is
    given up, and runs on as long as its loop does. It also tells a callback's own CancelledError from one of ours.
    """

    async def called() -> T:
        return read(await callback())

    task = asyncio.ensure_future(called())
    task.add_done_callback(_look_at)
    try:
        with anyio.move_on_after(deadline_s) as patience:
            await asyncio.wait({task})
    finally:
        if not task.done():
            await _end(task, on_given_up)
    if patience.cancelled_caught:
        return None
    if task.cancelled():
        raise CallbackError("CancelledError: nobody had cancelled it")
    if (error := task.exception()) is None:
        return task.result()
    if isinstance(error, KeyboardInterrupt | SystemExit):
        raise error
    raise CallbackError(_told(error)) from error


async def _end(task: asyncio.Task[Any], on_given_up: Callable[[], None]) -> None:
    task.cancel()
    # Shielded so that one that cleans up can; bounded, because it may never end.
    with anyio.CancelScope(shield=True), anyio.move_on_after(GRACE_S):
        await asyncio.wait({task})
    if not task.done():
        _given_up.add(task)
        task.add_done_callback(_given_up.discard)
        on_given_up()


def _look_at(task: asyncio.Task[Any]) -> None:
    """An error that nobody looked at is logged by asyncio, in somebody's program."""
    if not task.cancelled():
        task.exception()


def _told(error: BaseException) -> str:
    name = type(error).__name__
    try:
        # What cannot be encoded could not be recorded either.
        return f"{name}: {error}".encode(errors="backslashreplace").decode()
    except Exception:
        return f"{name}, which cannot be put into words"
