"""Where a running command hands in feedback and notes: a socket in its own folder, one message a connection."""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Final

import anyio
import anyio.abc
import msgspec

from proctor.clock import Clock
from proctor.errors import disk_refusal, lone
from proctor.event.row import MESSAGE_REFUSED, NoteHeard, ResultRead, Seen, StepTaken
from proctor.protocol.handing_in import MAX_MESSAGE_BYTES, MAX_MESSAGES, Feedback, Receipt, read_message
from proctor.runtime.base import Tap

SOCKET: Final = "feedback.sock"
# Whoever connects and says nothing keeps only the other processes of its own command waiting.
MESSAGE_S: Final = 2.0


class Desk:
    """Takes one message after the other. Each is on record before it is answered."""

    def __init__(self, tap: Tap, *, clock: Clock) -> None:
        self.heard_s = clock.steady_s()
        self._tap = tap
        self._clock = clock
        self._count = 0

    async def serve(self, listener: anyio.abc.SocketListener) -> None:
        try:
            while True:
                async with await listener.accept() as stream:
                    with anyio.move_on_after(MESSAGE_S):
                        await self._answer(stream)
        except OSError as error:
            self._refuse(f"nothing more is taken: {error.strerror}")

    async def _answer(self, stream: anyio.abc.SocketStream) -> None:
        data = bytearray()
        try:
            while len(data) <= MAX_MESSAGE_BYTES:
                data += await stream.receive()
        except anyio.EndOfStream:
            pass
        except anyio.BrokenResourceError:
            return
        receipt = self._take(bytes(data))
        try:
            await stream.send(msgspec.json.encode(receipt))
        except (anyio.BrokenResourceError, anyio.ClosedResourceError):
            return  # it did not wait for the answer

    def _take(self, data: bytes) -> Receipt:
        self.heard_s = self._clock.steady_s()
        self._count += 1
        if self._count > MAX_MESSAGES:
            what = f"more than {MAX_MESSAGES} messages"
            if self._count == MAX_MESSAGES + 1:
                self._refuse(f"{what}: the rest is not kept")
            return Receipt(ok=False, what=what)
        try:
            message = read_message(data)
        except ValueError as error:
            self._refuse(str(error))
            return Receipt(ok=False, what=str(error))
        seen: Seen
        if isinstance(message, Feedback):
            seen = ResultRead(source="feedback", done=message.done, answer=message.answer, result=message.result)
        else:
            seen = NoteHeard(text=message.text)
        self._tap.say(seen)
        return Receipt(ok=True)

    def _refuse(self, what: str) -> None:
        self._tap.say(StepTaken(step=MESSAGE_REFUSED, detail={"what": what}))


@asynccontextmanager
async def open_desk(folder: Path, tap: Tap, *, clock: Clock) -> AsyncIterator[Desk]:
    """Open while the block runs, at SOCKET in the folder."""
    desk = Desk(tap, clock=clock)
    try:
        held = os.open(folder, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            with suppress(FileNotFoundError):
                os.unlink(SOCKET, dir_fd=held)  # whatever an earlier turn has left there
            # By the descriptor: the path of a socket may have 107 bytes, and ours may be longer.
            listener = await anyio.create_unix_listener(f"/proc/self/fd/{held}/{SOCKET}", mode=0o600)
        finally:
            os.close(held)
    except OSError as error:
        raise disk_refusal(error, path=folder / SOCKET) from error
    try:
        async with listener, anyio.create_task_group() as tasks:
            tasks.start_soon(desk.serve, listener)
            try:
                yield desk
            finally:
                tasks.cancel_scope.cancel()
    except BaseExceptionGroup as group:
        raise lone(group) from group
