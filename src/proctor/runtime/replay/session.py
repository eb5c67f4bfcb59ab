"""A recorded attempt that happens again: what the agent said is heard, what we said is said, in the order it was."""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

import anyio
import anyio.to_thread
import msgspec

from proctor.errors import HangupError, RefusedError
from proctor.event.model import SessionBegan
from proctor.event.row import ChannelClosed, ChildExited, Dir, FactsLearned, StepTaken
from proctor.event.witness import seen_in
from proctor.evidence.reader import MAX_LINE_BYTES
from proctor.fact import Authority, Fact
from proctor.ids import StrategyId, ThreadId
from proctor.protocol.lines import LineSplitter
from proctor.runtime.base import HostAsk, Normalizer, SessionAsk, Tap
from proctor.runtime.capability import demand
from proctor.runtime.replay.claims import CLAIMS, ID
from proctor.runtime.replay.normalize import NOT_REPLAYED, REPLAY_OF, REPLAYED
from proctor.runtime.replay.options import Options, read_options
from proctor.runtime.replay.recording import Recording, Step, read_recording
from proctor.runtime.talk import Count
from proctor.transport.channel import Channel
from proctor.transport.replay import EXITED, KILLED, ReplayChannel

EXIT_S = 2.0
CUT_OFF = "the agent closed its output"


class _Lines:
    """The lines of one direction as they arrive, however they are cut into chunks."""

    def __init__(self, receive: Callable[[], Awaitable[bytes]]) -> None:
        self._receive = receive
        self._splitter = LineSplitter(limit_bytes=MAX_LINE_BYTES, is_verbatim=True)
        self._ready: list[bytes] = []
        self._is_over = False

    async def next(self, *, like: bytes) -> bytes | None:
        """As many lines as this one is made of, as one; None where the channel ends before."""
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
        """All that is left until the channel ends, a torn line last."""
        while not self._is_over:
            chunk = await self._receive()
            self._is_over = not chunk
            self._ready += self._splitter.feed(chunk)
        torn = self._splitter.rest()
        left, self._ready = [*self._ready, *([torn] if torn else [])], []
        return left


class ReplaySession:
    """All of the recording is one turn. Made by `open_session` only."""

    is_alive = True  # each turn has a process of its own

    def __init__(
        self,
        host: HostAsk,
        ask: SessionAsk,
        tap: Tap,
        *,
        recording: Recording,
        options: Options,
        reader: Normalizer,
        count: Count,
    ) -> None:
        self.thread: ThreadId | None = None
        self.last_heard_s = host.clock.steady_s()
        self._host = host
        self._ask = ask
        self._tap = tap
        self._recording = recording
        self._options = options
        self._reader = reader
        self._count = count
        self._done = 0
        self._is_begun = False

    @property
    def session_id(self) -> str:
        return f"{self._ask.attempt}/{self.thread}"

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
        return {"strategy": attempt.strategy, "attempt": attempt.attempt_id, "run": attempt.run_id}

    def start(self) -> None:
        """Whose words follow stands before the first of them."""
        self._tap.say(StepTaken(step=REPLAY_OF, detail=dict(self._of)))

    async def turn(self, prompt: str, *, output_schema: Mapping[str, Any] | None = None) -> None:
        recording = self._recording
        if self._is_begun:
            raise RefusedError("peer.refused", "the recording has been replayed, and holds no other turn")
        self._is_begun = True
        for problem in recording.problems:
            self._warn(problem)
        if recording.prompt is not None and recording.prompt != prompt:
            self._warn("the prompt: the recorded one is said in its place")
        twin = ReplayChannel(
            [step.said for step in recording.steps if step.said is not None],
            ends=KILLED if recording.is_killed else EXITED,
            chunk_sizes=self._options.chunk_sizes(),
            sleep=anyio.sleep if self._options.speed == "real" else None,
        )
        channel: Channel = twin if self._host.between is None else self._host.between(twin)
        words, complaints = _Lines(channel.receive), _Lines(channel.receive_err)
        for step in recording.steps:
            if not await self._replay(step, channel, words, complaints):
                break
            self._done += 1
        await self._end(channel, words)

    async def _replay(self, step: Step, channel: Channel, words: _Lines, complaints: _Lines) -> bool:
        """Whether it could be: a channel that has ended says no more, and takes nothing."""
        said = step.said
        if said is None:
            self._replay_seen(step)
        elif said.dir is Dir.OUT:
            self._record(Dir.OUT, said.data)
            try:
                await channel.send(said.whole)
            except HangupError:
                return False
        else:
            line = await (words if said.dir is Dir.IN else complaints).next(like=said.data)
            if line is None:
                return False
            self._record(said.dir, line)
        self._look_for_thread(step)
        return True

    def _replay_seen(self, step: Step) -> None:
        match seen_in(step.row):
            case FactsLearned():
                return  # those were of the agent that was recorded
            case StepTaken(step="canary"):
                return  # this record has its own
            case _:
                detail = msgspec.json.decode(step.row.frame) if isinstance(step.row.frame, msgspec.Raw) else None
                if isinstance(detail, dict):
                    self._tap.say(StepTaken(step=REPLAYED, detail=detail))
                else:
                    self._warn(f"row {step.row.seq}, which is none of the supervisor's")

    def _record(self, dir_: Dir, line: bytes) -> None:
        self.last_heard_s = self._host.clock.steady_s()
        self._count.lines += dir_ is Dir.IN
        self._tap.stage(dir_, line)
        self._tap.commit()

    def _look_for_thread(self, step: Step) -> None:
        if self.thread is None:
            began = (event for event in self._reader.feed(step.row) if isinstance(event, SessionBegan))
            self.thread = next((event.thread for event in began), None)

    async def _end(self, channel: Channel, words: _Lines) -> None:
        left = await words.rest()
        for line in left:
            self._record(Dir.IN, line)
        unplayed = self._recording.rows - self._done
        if not unplayed:
            if left:
                self._warn(f"{len(left)} lines that the recording has no place for; they are kept")
            return
        self._warn(f"{unplayed} of {self._recording.rows} rows")
        ended = await channel.wait(deadline_s=EXIT_S)
        self._tap.say(ChannelClosed(cause=CUT_OFF))
        if ended is not None:
            self._tap.say(ChildExited(code=ended.code, signal=ended.signal))
        raise HangupError("peer.hangup", CUT_OFF)

    def _warn(self, what: str) -> None:
        self._tap.say(StepTaken(step=NOT_REPLAYED, detail={"what": what}))

    # ── what a recording cannot ──

    async def steer(self, text: str) -> None:
        demand(CLAIMS, "turn_steer", strategy=ID)

    async def compact(self) -> None:
        demand(CLAIMS, "compaction", strategy=ID)

    async def interrupt(self) -> None:
        """Nothing runs that could be interrupted."""

    async def settle(self) -> None:
        """Nothing was started."""

    async def read_history(self) -> None:
        raise RefusedError("peer.refused", "a recording keeps no history of its own")


@asynccontextmanager
async def open_session(
    host: HostAsk, ask: SessionAsk, tap: Tap, *, reader_of: Callable[[StrategyId], Normalizer], count: Count
) -> AsyncIterator[ReplaySession]:
    """The recording is read whole before anything of it happens again."""
    options = read_options(ask.options)
    recording = await anyio.to_thread.run_sync(read_recording, options)
    reader = reader_of(recording.attempt.strategy)
    session = ReplaySession(host, ask, tap, recording=recording, options=options, reader=reader, count=count)
    session.start()
    yield session
