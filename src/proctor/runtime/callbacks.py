"""Call a caller's callback with a deadline, so that it can neither block nor break the session."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import anyio

T = TypeVar("T")

GRACE_S = 2.0

# References to abandoned tasks, because the event loop holds tasks only weakly.
_abandoned: set[asyncio.Task[Any]] = set()


class CallbackError(Exception):
    """A callback raised, or returned what it may not. The message is its error."""


async def call(
    callback: Callable[[], Awaitable[Any]],
    *,
    read: Callable[[Any], T],
    deadline_s: float,
    on_given_up: Callable[[], None],
) -> T | None:
    """Return `read` of the callback's result, or None if it is not there by the deadline.

    Raises CallbackError if the callback or `read` raises. `on_given_up` is called if the callback ignores its
    cancellation.

    This uses an asyncio task, because a task group cannot be left while one of its tasks swallows cancellation. Such a
    task is abandoned and runs until its event loop ends. The task also separates a CancelledError that the callback
    raises from a cancellation of this call.
    """

    async def run_callback() -> T:
        return read(await callback())

    task = asyncio.ensure_future(run_callback())
    task.add_done_callback(_retrieve_exception)
    try:
        with anyio.move_on_after(deadline_s) as timeout:
            await asyncio.wait({task})
    finally:
        if not task.done():
            await _end(task, on_given_up)
    if timeout.cancelled_caught:
        return None
    if task.cancelled():
        raise CallbackError("CancelledError: the callback raised it without being cancelled")
    if (error := task.exception()) is None:
        return task.result()
    if isinstance(error, KeyboardInterrupt | SystemExit):
        raise error
    raise CallbackError(_describe(error)) from error


async def _end(task: asyncio.Task[Any], on_given_up: Callable[[], None]) -> None:
    task.cancel()
    # Shielded so that the callback can clean up; bounded, because it may never end.
    with anyio.CancelScope(shield=True), anyio.move_on_after(GRACE_S):
        await asyncio.wait({task})
    if not task.done():
        _abandoned.add(task)
        task.add_done_callback(_abandoned.discard)
        on_given_up()


def _retrieve_exception(task: asyncio.Task[Any]) -> None:
    """Retrieve a task's exception, because asyncio logs exceptions that are never retrieved."""
    if not task.cancelled():
        task.exception()


def _describe(error: BaseException) -> str:
    name = type(error).__name__
    try:
        # A lone surrogate could not be recorded.
        return f"{name}: {error}".encode(errors="backslashreplace").decode()
    except Exception:
        return f"{name} (its message cannot be formatted)"
