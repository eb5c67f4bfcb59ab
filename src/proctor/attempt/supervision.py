"""What an attempt and a conversation have in common: workspace, record, clocks, and the reason for a stop."""

from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

import anyio
import anyio.to_thread

from proctor.attempt.model import AttemptRequest, Lease
from proctor.attempt.recording import Recording, open_recording, write_first_files
from proctor.attempt.tap import OnEvent, RecordingTap
from proctor.attempt.watchdog import ClockExpiry, LimitExceeded, Stop, Watch, pause_row, under_watch
from proctor.attempt.workspace_layout import WorkspaceLayout, create_scratch
from proctor.errors import HangupError, ProctorError
from proctor.event.model import Event
from proctor.event.row import CancelRequested, ClockRanOut, FailureFound, LimitHit, SessionRefusal, StepTaken
from proctor.evidence.redact import Redactor
from proctor.ids import ThreadId
from proctor.runtime.base import Session
from proctor.workspace.diff import diff
from proctor.workspace.snapshot import EMPTY, Snapshot

T = TypeVar("T")


async def off_loop(work: Callable[[], T], *, is_small: bool) -> T:
    """Do the work in a thread, or on the event loop if it is small.

    Small work takes longer in a thread: the interpreter's lock changes hands at each system call.
    """
    return work() if is_small else await anyio.to_thread.run_sync(work)


class Supervision:
    """State and steps that an attempt and a conversation have in common. The caller decides when each step is taken.

    Before the agent: `lay_out`, `write_first_files`, `open_recording`. During: `watched`, with `attempt.turn` for the
    session and its turns. After: `flush` and `attempt.finalize`.
    """

    def __init__(self, request: AttemptRequest, workspace: WorkspaceLayout) -> None:
        self.request = request
        self.workspace = workspace
        self.redactor = Redactor(request.secrets, private=request.runtime.private_paths)
        self.base = EMPTY
        """The untouched workspace. EMPTY until `lay_out`."""
        self.first_files: dict[str, bytes] = {}
        """Bytes of the files that were written before the agent started, by name."""
        self.lease: Lease | None = None
        """The place in an agent process. None until there is one."""
        self.session: Session | None = None
        """The session, also after its end. None until it is open."""
        self.thread: ThreadId | None = None
        """The agent's id for the thread at the end of the session. None before that, or if it is not known."""
        self.last_turn: int | None = None
        """Number of the last turn in the session of which this is a sitting. None before its first turn."""
        self._recording: Recording | None = None
        limits, self._began_s = request.limits, request.clock.steady_s()
        self.watch = Watch(
            now_s=self._began_s,
            attempt_ms=limits.attempt_ms,
            turn_ms=limits.turn_ms,
            stall_ms=limits.stall_ms,
            left=request.left,
            tokens=limits.tokens,
            tokens_before=0 if request.continuation is None else request.continuation.taken.tokens,
            evidence_bytes=limits.evidence_bytes,
        )

    @property
    def at_start(self) -> Snapshot:
        """The workspace before the agent started: the untouched one, or the one that a continued attempt left."""
        continuation = self.request.continuation
        return self.base if continuation is None else continuation.tree

    @property
    def is_agent_alive(self) -> bool:
        """Whether another turn can be started in the session that is open."""
        lease, session = self.lease, self.session
        return lease is not None and lease.host.is_alive and session is not None and session.is_alive

    @property
    def duration_ms(self) -> int:
        """The time since the start."""
        return round((self.request.clock.steady_s() - self._began_s) * 1000)

    # ── workspace and record ──

    async def lay_out(self) -> None:
        """Create the scratch folder and the workspace. Raises InputError or MachineError if that fails."""

        def create() -> Snapshot:
            create_scratch(self.request.scratch, is_kept=self.request.is_kept)
            return self.workspace.create()

        self.base = await off_loop(create, is_small=self.workspace.base_root is None)

    def write_first_files(self, prompt: str) -> None:
        """Write prompt.txt and attempt.json. The evidence folder exists, and the workspace is laid out."""
        self.first_files = write_first_files(self.request, prompt=prompt, base=self.base.digest, redactor=self.redactor)

    @contextmanager
    def open_recording(self, on_event: OnEvent, *, is_on_disk: bool = True) -> Iterator[None]:
        """Open the streams. With `is_on_disk=False`, nothing is stored. `on_event` is called with each event."""

        def event_recorded(event: Event) -> None:
            on_event(event)
            self.watch.event_recorded(event)

        # The watch only counts tokens.
        watcher = on_event if self.request.limits.tokens is None else event_recorded
        with open_recording(
            self.request, redactor=self.redactor, watcher=watcher, is_on_disk=is_on_disk
        ) as self._recording:
            yield

    @property
    def recording(self) -> Recording:
        """The streams, also after they are closed."""
        assert self._recording is not None, "open_recording() was entered"
        return self._recording

    @property
    def tap(self) -> RecordingTap:
        """Where rows enter the record."""
        return self.recording.tap

    def failure(self) -> ProctorError | None:
        """Return why this record, or the record of its agent process, cannot be written; None if it can."""
        return self.tap.failure or (None if self.lease is None else self.lease.failure())

    def flush(self) -> None:
        """Write what redaction held back. Called when the session has ended."""
        self.tap.release("")
        self.tap.commit()

    def diff(self, now: Snapshot) -> bytes:
        """Return the changes of the workspace since the agent started. `now` is its snapshot."""
        return diff(self.workspace.base_root, self.workspace.root, base=self.base, now=now)

    # ── under the clocks ──

    def watched(
        self,
        work: Callable[[], Awaitable[None]],
        *,
        stop: anyio.Event,
        failure: Callable[[], FailureFound | ProctorError | None],
        on_stop: Callable[[Stop], None],
    ) -> Awaitable[None]:
        """Run work until it ends, a limit is reached, `stop` is set, or `failure()` returns a reason to stop.

        `on_stop` is called with the reason before the work is cancelled. It passes it to `record_stop`.
        """
        tap = self.tap
        return under_watch(
            work,
            self.watch,
            clock=self.request.clock,
            heard_s=self._heard_s,
            evidence_bytes=lambda: tap.size_bytes,
            failure=failure,
            stop=stop,
            on_stop=on_stop,
            on_pause=lambda lag_s: tap.record(pause_row(lag_s)),
        )

    def _heard_s(self) -> float:
        # Silence counts only during a turn: otherwise the agent has nothing to say.
        if self.session is None or not self.watch.is_in_turn:
            return self.request.clock.steady_s()
        return self.session.last_heard_s

    def record_stop(self, cause: Stop, *, cancelled: Callable[[], CancelRequested], is_hangup_recorded: bool) -> None:
        """Record why work is being stopped.

        `cancelled()` returns the row for a requested stop. `is_hangup_recorded` is whether the connection has recorded
        the end of the channel if the cause is a hangup. The hangup is then a step and not the cause.
        """
        match cause:
            case FailureFound():
                self.tap.record(cause)
            case LimitExceeded(limit=limit, most=most, used=used):
                self.tap.record(LimitHit(limit=limit, most=most, used=used))
            case ClockExpiry(clock=None):
                self.tap.record(cancelled())
            case ClockExpiry(clock=clock, limit_ms=limit_ms) if clock is not None:
                self.tap.record(ClockRanOut(clock=clock, limit_ms=limit_ms))
            case HangupError() if is_hangup_recorded:
                self.tap.record(StepTaken(step="hangup", detail={"what": str(cause)}))
            case ProctorError():
                self.tap.record(SessionRefusal(code=cause.code, detail=str(cause)))
