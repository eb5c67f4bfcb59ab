"""A session that replays a recorded attempt: every line in both directions, in the recorded order."""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

import anyio
import anyio.to_thread
import msgspec

from proctor import decoding
from proctor.errors import HangupError, RefusedError
from proctor.event.message import Message
from proctor.event.model import SessionBegan
from proctor.event.row import ChannelClosed, ChildExited, Direction, FactsLearned, StepTaken
from proctor.event.supervisor_events import decode_supervisor_row
from proctor.evidence.reader import MAX_LINE_BYTES
from proctor.fact import Authority, Fact
from proctor.ids import RuntimeId, ThreadId
from proctor.protocol.lines import LineSplitter
from proctor.runtime.base import ContextUse, Delivery, HostRequest, Normalizer, SessionRequest, Tap
from proctor.runtime.capability import missing_capability, require_capability
from proctor.runtime.line_process import LineCount
from proctor.runtime.replay.capabilities import CAPABILITIES, ID
from proctor.runtime.replay.normalize import NOT_REPLAYED, REPLAY_OF, REPLAYED
from proctor.runtime.replay.options import Options, read_options
from proctor.runtime.replay.recording import Recording, Step, read_recording
from proctor.transport.channel import Channel
from proctor.transport.replay import EXITED, KILLED, ReplayChannel

EXIT_S = 2.0
CUT_OFF = "the agent closed its output"


class _Lines:
    """Reads the lines of one direction, whatever chunks they arrive in."""

    def __init__(self, receive: Callable[[], Awaitable[bytes]]) -> None:
        self._receive = receive
        self._splitter = LineSplitter(limit_bytes=MAX_LINE_BYTES, is_verbatim=True)
        self._ready: list[bytes] = []
        self._is_over = False

    async def next(self, *, like: bytes) -> bytes | None:
        """Return as many lines as `like` consists of, joined; None if the channel ends first."""
        count = like.count(b"\n") + 1
        while len(self._ready) < count and not self._is_over:
            chunk = await self._receive()
            self._is_over = not chunk
            self._ready += self._splitter.feed(chunk)
        if len(self._ready) < count:
            return None
        taken, self._ready = self._ready[:count], self._ready[count:]
        return b"\n".join(taken)

    async def rest(self) -> list[bytes]:
        """Return all lines until the channel ends, including a torn last line."""
        while not self._is_over:
            chunk = await self._receive()
            self._is_over = not chunk
            self._ready += self._splitter.feed(chunk)
        torn = self._splitter.rest()
        left, self._ready = [*self._ready, *([torn] if torn else [])], []
        return left


class ReplaySession:
    """Replays the whole recording as one turn. Create it with `open_session`."""

    is_alive = True

    def __init__(
        self,
        host: HostRequest,
        request: SessionRequest,
        tap: Tap,
        *,
        recording: Recording,
        options: Options,
        reader: Normalizer,
        count: LineCount,
    ) -> None:
        self.thread: ThreadId | None = None
        self.last_heard_s = host.clock.steady_s()
        self._host = host
        self._request = request
        self._tap = tap
        self._recording = recording
        self._options = options
        self._reader = reader
        self._count = count
        self._done = 0
        self._is_begun = False

    @property
    def facts(self) -> Mapping[str, Fact]:
        return {
            "recording": Fact(
                value={**self._of, "framesSha256": self._recording.frames_sha256, "rows": self._recording.rows},
                authority=Authority.OBSERVED,
                source="the attempt's folder, as it was read",
            )
        }

    @property
    def _of(self) -> dict[str, str]:
        attempt = self._recording.attempt
        return {"runtimeId": attempt.runtime_id, "attempt": attempt.attempt_id, "run": attempt.run_id}

    def start(self) -> None:
        """Record which runtime the replayed rows belong to, before the first of them."""
        self._tap.record(StepTaken(step=REPLAY_OF, detail=dict(self._of)))

    async def turn(self, prompt: str, *, output_schema: Mapping[str, Any] | None = None) -> None:
        recording = self._recording
        if self._is_begun:
            raise RefusedError("peer.refused", "the recording has already been replayed and has no other turn")
        self._is_begun = True
        for problem in recording.problems:
            self._warn(problem)
        if recording.prompt is not None and recording.prompt != prompt:
            self._warn("the prompt: the recorded prompt is used instead")
        twin = ReplayChannel(
            [step.said for step in recording.steps if step.said is not None],
            exit_status=KILLED if recording.is_killed else EXITED,
            chunk_sizes=self._options.chunk_sizes(),
            sleep=anyio.sleep if self._options.speed == "real" else None,
        )
        channel: Channel = twin if self._host.wrap_channel is None else self._host.wrap_channel(twin)
        output, stderr = _Lines(channel.receive), _Lines(channel.receive_err)
        for step in recording.steps:
            if not await self._replay(step, channel, output, stderr):
                break
            self._done += 1
        await self._end(channel, output)

    async def _replay(self, step: Step, channel: Channel, output: _Lines, stderr: _Lines) -> bool:
        """Replay one step. Return False if the channel has ended."""
        said = step.said
        if said is None:
            self._replay_seen(step)
        elif said.dir is Direction.OUT:
            self._record(Direction.OUT, said.data)
            try:
                await channel.send(said.encoded)
            except HangupError:
                return False
        else:
            line = await (output if said.dir is Direction.IN else stderr).next(like=said.data)
            if line is None:
                return False
            self._record(said.dir, line)
        self._look_for_thread(step)
        return True

    def _replay_seen(self, step: Step) -> None:
        match decode_supervisor_row(step.row):
            case FactsLearned():
                return  # these are facts about the recorded agent
            case StepTaken(step="tripwire"):
                return  # this record has its own
            case _:
                detail = decoding.decode(step.row.frame) if isinstance(step.row.frame, msgspec.Raw) else None
                if isinstance(detail, dict):
                    self._tap.record(StepTaken(step=REPLAYED, detail=detail))
                else:
                    self._warn(f"row {step.row.seq}, which is not a supervisor row")

    def _record(self, dir_: Direction, line: bytes) -> None:
        self.last_heard_s = self._host.clock.steady_s()
        self._count.lines += dir_ is Direction.IN
        self._tap.stage(dir_, line)
        self._tap.commit()

    def _look_for_thread(self, step: Step) -> None:
        if self.thread is None:
            began = (event for event in self._reader.feed(step.row) if isinstance(event, SessionBegan))
            self.thread = next((event.thread for event in began), None)

    async def _end(self, channel: Channel, output: _Lines) -> None:
        left = await output.rest()
        for line in left:
            self._record(Direction.IN, line)
        unplayed = self._recording.rows - self._done
        if not unplayed:
            if left:
                self._warn(f"{len(left)} lines that are not in the recording; they are recorded here")
            return
        self._warn(f"{unplayed} of {self._recording.rows} rows")
        ended = await channel.wait(deadline_s=EXIT_S)
        self._tap.record(ChannelClosed(cause=CUT_OFF))
        if ended is not None:
            self._tap.record(ChildExited(code=ended.code, signal=ended.signal))
        raise HangupError("peer.hangup", CUT_OFF)

    def _warn(self, what: str) -> None:
        self._tap.record(StepTaken(step=NOT_REPLAYED, detail={"what": what}))

    # ── not supported by a recording ──

    async def give(self, messages: Sequence[Message], *, instructions: str | None = None) -> Delivery:
        raise missing_capability("takes_history", runtime_id=ID)

    async def steer(self, text: str) -> None:
        require_capability(CAPABILITIES, "turn_steer", runtime_id=ID)

    async def compact(self) -> None:
        require_capability(CAPABILITIES, "compaction", runtime_id=ID)

    async def interrupt(self) -> None:
        """Do nothing: no agent is running."""

    async def settle(self) -> None:
        """Do nothing: no process was started."""

    async def read_history(self) -> None:
        raise RefusedError("peer.refused", "a recording has no stored history")

    async def read_context(self) -> ContextUse:
        return ContextUse()


@asynccontextmanager
async def open_session(
    host: HostRequest,
    request: SessionRequest,
    tap: Tap,
    *,
    reader_of: Callable[[RuntimeId], Normalizer],
    count: LineCount,
) -> AsyncIterator[ReplaySession]:
    """Open a replay session. The whole recording is read first."""
    options = read_options(request.options)
    recording = await anyio.to_thread.run_sync(read_recording, options)
    reader = reader_of(recording.attempt.runtime_id)
    session = ReplaySession(host, request, tap, recording=recording, options=options, reader=reader, count=count)
    session.start()
    yield session
