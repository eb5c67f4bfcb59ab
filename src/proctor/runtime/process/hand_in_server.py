"""The socket on which a running command hands in feedback and notes, with one message per connection."""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Final

import anyio
import anyio.abc
import msgspec

from proctor.clock import Clock
from proctor.errors import disk_error, unwrap_single
from proctor.event.row import MESSAGE_REFUSED, NoteHeard, ResultRead, StepTaken, SupervisorRow
from proctor.protocol.hand_in import MAX_MESSAGE_BYTES, MAX_MESSAGES, Feedback, Receipt, read_message
from proctor.runtime.base import Tap

SOCKET: Final = "feedback.sock"
# A silent connection blocks only other processes of the same command, for this long.
MESSAGE_S: Final = 2.0


class HandInServer:
    """Takes one message at a time. Each is recorded before it is answered."""

    def __init__(self, tap: Tap, *, clock: Clock) -> None:
        self.last_output_s = clock.steady_s()
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
            self._refuse(f"no more messages are accepted: {error.strerror}")

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
            return  # the sender did not wait for the answer

    def _take(self, data: bytes) -> Receipt:
        self.last_output_s = self._clock.steady_s()
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
        seen: SupervisorRow
        if isinstance(message, Feedback):
            seen = ResultRead(source="feedback", done=message.done, answer=message.answer, result=message.result)
        else:
            seen = NoteHeard(text=message.text)
        self._tap.record(seen)
        return Receipt(ok=True)

    def _refuse(self, what: str) -> None:
        self._tap.record(StepTaken(step=MESSAGE_REFUSED, detail={"what": what}))


@asynccontextmanager
async def open_hand_in_server(folder: Path, tap: Tap, *, clock: Clock) -> AsyncIterator[HandInServer]:
    """Serve on SOCKET in the folder while the block runs."""
    server = HandInServer(tap, clock=clock)
    try:
        held = os.open(folder, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            with suppress(FileNotFoundError):
                os.unlink(SOCKET, dir_fd=held)  # left there by an earlier turn
            # Through the descriptor, because the path of a socket is limited to 107 bytes.
            listener = await anyio.create_unix_listener(f"/proc/self/fd/{held}/{SOCKET}", mode=0o600)
        finally:
            os.close(held)
    except OSError as error:
        raise disk_error(error, path=folder / SOCKET) from error
    try:
        async with listener, anyio.create_task_group() as tasks:
            tasks.start_soon(server.serve, listener)
            try:
                yield server
            finally:
                tasks.cancel_scope.cancel()
    except BaseExceptionGroup as group:
        raise unwrap_single(group) from group
