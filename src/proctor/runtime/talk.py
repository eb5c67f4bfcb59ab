"""A contained process that speaks lines: each is on record before anybody acts on it."""

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import anyio
import anyio.lowlevel

from proctor.clock import Clock
from proctor.contain.fences import Fences
from proctor.contain.launch import new_marker, wrap
from proctor.errors import DeadlineError, HangupError, lone
from proctor.event.row import ChannelClosed, ChildExited, Dir, StepTaken
from proctor.evidence.redact import TextStream
from proctor.protocol.lines import MAX_LINE_BYTES, LineSplitter
from proctor.runtime.base import HostAsk, Tap
from proctor.runtime.complaints import Complaints
from proctor.transport.channel import Channel
from proctor.transport.process import AgentProcess, ExitStatus, Patience, open_process

EXIT_S = 2.0
STDERR_LINGER_S = 0.5
SEND_S = 30.0
MOST_AT_ONCE = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class Routed:
    """What recording a line needs to know of it: a piece of which text it carries, and which texts end with it.

    `ended` is the prefix of their keys.
    """

    stream: TextStream | None = None
    ended: str | None = None


PLAIN = Routed()


class Listener(Protocol):
    """Whoever talks to the process."""

    def route(self, line: bytes) -> Routed:
        """The one look at a line before it is recorded."""

    def heard(self, line: bytes) -> None:
        """It is on record now."""

    def hung_up(self, cause: str) -> None:
        """It says no more; how it ended is on record."""


@dataclass(slots=True)
class Count:
    """Lines read, for all the processes of one host."""

    lines: int = 0


@dataclass(slots=True, kw_only=True)
class Talk:
    """One process. Made by `open_talk` only."""

    process: AgentProcess
    channel: Channel
    listener: Listener
    tap: Tap
    clock: Clock
    count: Count
    is_turns_own: bool
    is_text: bool
    exit_s: float
    heard_s: float
    exit: ExitStatus | None = None
    hangup: str | None = None
    closed: anyio.Event = field(default_factory=anyio.Event)
    _quiet: anyio.Event = field(default_factory=anyio.Event)
    # Shielded so that what a cancelled caller leaves is heard out; `stop` is what ends it.
    _hearing: anyio.CancelScope = field(default_factory=lambda: anyio.CancelScope(shield=True))

    async def say(self, data: bytes) -> None:
        """One line, on record first. HangupError where nobody is left to read it."""
        if self.hangup is not None:
            raise HangupError("peer.hangup", self.hangup)
        self.tap.stage(Dir.OUT, data)
        self.tap.commit()
        try:
            with anyio.fail_after(SEND_S):
                await self.channel.send(data + b"\n")
        except TimeoutError:
            self.hangup = "the agent does not read its input"
            raise DeadlineError("peer.deadline", self.hangup) from None
        except anyio.get_cancelled_exc_class():
            # Half of a line may have gone: whatever followed would be taken for the rest of it.
            self.hangup = "a line to the agent was broken off"
            raise

    async def end_input(self) -> None:
        """Nothing more is said to it."""
        await self.process.close_stdin()

    async def stop(self) -> None:
        """End the whole tree, and wait until its end is on record; bounded."""
        await self.process.stop()
        with anyio.move_on_after(EXIT_S + STDERR_LINGER_S):
            await self.closed.wait()
        self._hearing.cancel()

    # ── tasks ──

    async def run(self) -> None:
        """Hear it out."""
        try:
            with self._hearing:
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(self._hear_complaints)
                    await self._hear()
                    self.exit = await self.channel.wait(deadline_s=self.exit_s)
                    # A grandchild may hold stderr open for ever: what arrives soon is enough.
                    with anyio.move_on_after(STDERR_LINGER_S):
                        await self._quiet.wait()
                    tasks.cancel_scope.cancel()
            is_given_up = self._hearing.cancelled_caught
            self._record_end("it was given up" if is_given_up else "the agent closed its output")
        finally:
            self.hangup = self.hangup or "the process was given up"
            self.listener.hung_up(self.hangup)
            self.closed.set()

    async def _hear(self) -> None:
        if self.is_text:
            await self._hear_text()
            return
        splitter = LineSplitter(limit_bytes=MAX_LINE_BYTES)
        try:
            while chunk := await self.channel.receive():
                await self._take_all(splitter.feed(chunk))
        finally:
            if (torn := splitter.rest()).strip():
                self._take([torn])

    async def _hear_text(self) -> None:
        text = Complaints(is_verbatim=True)
        try:
            while chunk := await self.channel.receive():
                self.heard_s = self.clock.steady_s()  # it need not be a line yet
                await self._take_all(text.feed(chunk))
        finally:
            self._take(text.rest())

    async def _take_all(self, lines: list[bytes]) -> None:
        # A chunk may hold thousands of empty lines: between them the clocks must come to their right.
        for at in range(0, len(lines), MOST_AT_ONCE):
            self._take(lines[at : at + MOST_AT_ONCE])
            if len(lines) > MOST_AT_ONCE:
                await anyio.lowlevel.checkpoint()

    def _take(self, lines: list[bytes]) -> None:
        if not lines:
            return
        self.heard_s = self.clock.steady_s()
        self.count.lines += len(lines)
        for line in lines:
            routed = self.listener.route(line)
            if routed.ended is not None:
                self.tap.release(routed.ended)
            self.tap.stage(Dir.IN, line, stream=routed.stream)
        self.tap.commit()
        for line in lines:
            self.listener.heard(line)

    async def _hear_complaints(self) -> None:
        complaints = Complaints()
        try:
            while chunk := await self.channel.receive_err():
                self.heard_s = self.clock.steady_s() if self.is_text else self.heard_s
                self._complain(complaints.feed(chunk))
        finally:
            self._complain(complaints.rest())
            self._quiet.set()

    def _complain(self, lines: list[bytes]) -> None:
        for line in lines:
            self.tap.stage(Dir.ERR, line)
        if lines:
            self.tap.commit()

    def _record_end(self, cause: str) -> None:
        self.hangup = cause
        self.tap.release("")
        if not self.is_turns_own:
            self.tap.say(ChannelClosed(cause=cause))
        if self.exit is not None:
            code, signal = self.exit.code, self.exit.signal
            self.tap.say(ChildExited(code=code, signal=signal, is_turns_own=self.is_turns_own))
        elif self.is_turns_own:
            self.tap.say(StepTaken(step="output closed", detail={"what": cause}))


@asynccontextmanager
async def open_talk(
    argv: Sequence[str],
    *,
    ask: HostAsk,
    listener: Listener,
    tap: Tap,
    count: Count,
    env: Mapping[str, str],
    cwd: Path,
    fences: Fences | None = None,
    is_turns_own: bool = False,
    is_text: bool = False,
    exit_s: float = EXIT_S,
    patience: Patience | None = None,
    wrap_channel: Callable[[Channel], Channel] | None = None,
) -> AsyncIterator[Talk]:
    """The program, started in the containment and heard; on leaving, the whole of it has ended and that is on record.

    `env` is added to what every process of the host is given. `is_turns_own` where the session outlives the process.
    `is_text` where it speaks no protocol: then its lines are kept as they are, blank ones too, and what it complains of
    counts as speaking. `exit_s` is how long it may live on when it has closed its output.
    """
    between = wrap_channel or ask.between
    plan = wrap(ask.containment, argv, env={**ask.env, **env}, cwd=cwd, marker=new_marker(), fences=fences)
    try:
        async with (
            open_process(plan, intents=ask.intents, patience=patience) as process,
            anyio.create_task_group() as tasks,
        ):
            talk = Talk(
                process=process,
                channel=process if between is None else between(process),
                listener=listener,
                tap=tap,
                clock=ask.clock,
                count=count,
                is_turns_own=is_turns_own,
                is_text=is_text,
                exit_s=exit_s,
                heard_s=ask.clock.steady_s(),
            )
            tasks.start_soon(talk.run)
            try:
                yield talk
            finally:
                # Shielded so that a cancelled caller cannot leak the tree; every wait inside is bounded.
                with anyio.CancelScope(shield=True):
                    await talk.stop()
    except BaseExceptionGroup as group:
        raise lone(group) from group
