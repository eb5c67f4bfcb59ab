"""The record of clients that the scripted model refused: they belong to no attempt, so the run keeps it."""

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

import anyio

from proctor.campaign.process import seal_process_record
from proctor.clock import Clock
from proctor.errors import ProctorError
from proctor.event.row import StepTaken
from proctor.evidence import tripwire
from proctor.evidence.artifacts import ProcessRecord
from proctor.evidence.layout import RuntimePaths
from proctor.evidence.recorder import FrameLog
from proctor.evidence.redact import Redactor
from proctor.evidence.secrets import Secret
from proctor.fact import Authority, Fact
from proctor.ids import ProcessId, RuntimeId

if TYPE_CHECKING:
    from proctor.model.connection import RefusedClient

MODEL: Final = ProcessId("model")
"""The name of the record, among those of the runtime processes."""
CLIENT_REFUSED: Final = "model client refused"
MAX_ROWS: Final = 500
"""Rows that are written. Refusals above this are only counted, so that no client can fill the disk."""
IDLE: Final = "idle"
_MAX_PATH_CHARS: Final = 200


class ModelRecord:
    """Counts refused clients, and records the first 500. The record begins with the first of them."""

    def __init__(self, paths: RuntimePaths | None, *, redactor: Redactor, planted: Secret, clock: Clock) -> None:
        self.counts: Counter[str] = Counter()
        """Refusals by reason."""
        self._paths = paths
        self._redactor = redactor
        self._planted = planted
        self._clock = clock
        self._log: FrameLog | None = None
        self._failure: ProctorError | None = None

    def add(self, refused: "RefusedClient") -> None:
        """Record a refusal. Does not raise: it is called by the event loop."""
        self.counts[refused.why] += 1
        if self._paths is None or self._failure is not None or self.counts.total() > MAX_ROWS:
            return
        detail = {"why": refused.why, "client": refused.client}
        if refused.method:
            detail |= {"method": refused.method, "path": refused.path[:_MAX_PATH_CHARS]}
        try:
            if self._log is None:
                self._log = self._open(self._paths)
            self._log.say(StepTaken(step=CLIENT_REFUSED, detail=detail))
        except ProctorError as error:
            self._failure = error

    def _open(self, paths: RuntimePaths) -> FrameLog:
        paths.create()
        forbidden = tripwire.forbidden_bytes(self._planted)
        log = FrameLog(paths.frames, redactor=self._redactor, clock=self._clock, forbidden=forbidden)
        log.say(tripwire.planted_row(self._planted))
        return log

    async def seal(self) -> None:
        """Close and seal the record, if there is one."""
        if self._log is None or self._paths is None:
            return
        with self._log as log:
            record = ProcessRecord(
                process_id=MODEL,
                runtime_id=RuntimeId(MODEL),
                frames_in=0,
                rows={dir_.value: count for dir_, count in sorted(log.counts.items())},
                facts={
                    "refusedClients": Fact(
                        value=dict(self.counts), authority=Authority.OBSERVED, source="the scripted model's server"
                    ),
                    "redaction": tripwire.fact(self._planted),
                },
                stream=log.head,
                sha256="",
            )
            try:
                # Shielded so that a cancelled run leaves a sealed record; the call is bounded.
                with anyio.CancelScope(shield=True):
                    await seal_process_record(self._paths, record, log, redactor=self._redactor)
            except ProctorError as error:
                self._failure = error

    def warnings(self) -> Iterator[str]:
        """Yield a message if clients were refused. A connection without a request may be an agent's own."""
        counts = {why: count for why, count in sorted(self.counts.items()) if why != IDLE}
        if counts:
            each = ", ".join(f"{count} {why}" for why, count in counts.items())
            where = "" if self._paths is None else f": see {self._paths.folder}"
            if self._failure is not None:
                where = f", which could not be recorded: {self._failure.what}"
            yield f"the scripted model refused {sum(counts.values())} clients that belong to no attempt ({each}){where}"
