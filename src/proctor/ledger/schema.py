"""The tables of ledger.db, and the structs that their rows are decoded into."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Final, Literal

import msgspec

from proctor import decoding
from proctor.errors import EvidenceError
from proctor.event.outcome import Outcome
from proctor.evidence.database import Database
from proctor.evidence.summary import SCORED, AttemptSummary, Count
from proctor.ids import AttemptId, Digest, FlowId, MissionId, RunId, RuntimeId, TrialId

VERSION: Final = 1

DATABASE: Final = Database(
    application=0x50524354,  # "PRCT"
    version=VERSION,
    schema="""
create table campaign (one integer primary key check (one = 1), file text not null, spec text not null,
                       plan text not null, began_at_ms integer not null) strict;
create table trial (id text primary key, mission text not null, flow text not null, repeat integer not null,
                    digest text not null) strict;
create table run (id text primary key, began_at_ms integer not null, ended_at_ms integer, ended text) strict;
create table attempt (id text primary key, trial text not null references trial, n integer not null,
                      run text not null references run, state text not null, started_at_ms integer not null,
                      ended_at_ms integer, outcome text, code text, runtime text, tokens integer, usd real,
                      retry_at_ms integer, summary text, unique (trial, n)) strict;
create index attempt_state on attempt (state);
create table replacement (trial text not null references trial, n integer not null, run text not null references run,
                          reason text not null, at_ms integer not null, primary key (trial, n)) strict;
""",
    code="machine.ledger",
    # With WAL, "full" means that a committed transaction survives a power cut.
    synchronous="full",
)

CAMPAIGN: Final = "select file, spec, plan, began_at_ms from campaign"
TRIALS: Final = "select id, mission, flow, repeat, digest from trial order by rowid"
RUNS: Final = "select id, began_at_ms, ended_at_ms, ended from run order by began_at_ms, id"
ATTEMPTS: Final = """
select id, trial, n, run, state, started_at_ms, ended_at_ms, outcome, code, runtime, tokens, usd, retry_at_ms, summary
from attempt
"""

REPLACEMENTS: Final = "select trial, n, run, reason, at_ms from replacement order by at_ms, trial"

Moment = Annotated[int, msgspec.Meta(ge=0, le=253_402_300_799_999)]
"""Milliseconds since the epoch, up to the end of the year 9999."""
Usd = Annotated[float, msgspec.Meta(ge=0, le=1e18)]
"""US dollars: not negative, not infinite."""

AttemptState = Literal["running", "sealed", "abandoned"]


class LedgerCampaign(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What a campaign was started with."""

    file: str
    """Path of the spec; empty if the spec was built in memory."""
    spec: Digest
    """Digest of the spec file."""
    plan: Digest
    """Digest of the plan."""
    began_at_ms: Moment
    """Time of the first run, in milliseconds since the epoch."""


class LedgerTrial(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A trial of the plan."""

    id: TrialId
    """Mission, flow and repeat in one name."""
    mission: MissionId
    """The mission."""
    flow: FlowId
    """The flow."""
    repeat: int
    """The repeat, from 1."""
    digest: Digest
    """Digest of everything that determines what runs."""


class LedgerRun(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One run of the campaign."""

    id: RunId
    """The run's id."""
    began_at_ms: Moment
    """Start, in milliseconds since the epoch."""
    ended_at_ms: Moment | None
    """End, in milliseconds since the epoch; null while it runs or if it was killed."""
    how: str | None
    """How it ended: `done`, or what stopped it, such as `drained` or `budget`."""


class LedgerAttempt(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One attempt. The columns after `started_at_ms` are null while it runs.

    `outcome`, `code`, `runtime_id` and `tokens` repeat the summary so that SQL can filter on them; an abandoned
    attempt has no summary, and its own code and tokens.
    """

    id: AttemptId
    """The trial's id, a dot and the attempt's number."""
    trial: TrialId
    """The trial."""
    n: Count
    """The number of the attempt among those of its trial, from 1."""
    run: RunId
    """The run that started it."""
    state: AttemptState
    """`running`, `sealed` or `abandoned`."""
    started_at_ms: Moment
    """Start, in milliseconds since the epoch."""
    ended_at_ms: Moment | None = None
    """End, in milliseconds since the epoch."""
    outcome: Outcome | None = None
    """How it ended."""
    code: str | None = None
    """The error code that ended it."""
    runtime_id: RuntimeId | None = None
    """The runtime that drove the agent."""
    tokens: int | None = None
    """All tokens that it used."""
    usd: Usd | None = None
    """What it cost by the frozen prices."""
    retry_at_ms: int | None = None
    """When its trial is due again, if another attempt follows."""
    summary: AttemptSummary | None = None
    """What its sealed files say; null unless it is sealed."""

    @property
    def is_scored(self) -> bool:
        """Whether it is sealed, and passed or failed for reasons that lie with the agent."""
        return self.state == "sealed" and self.summary is not None and self.summary.result in SCORED

    @property
    def has_begun(self) -> bool:
        """Whether the agent accepted a turn. Assumed if it is not sealed."""
        return self.summary is None or self.summary.has_begun

    @property
    def took_ms(self) -> int:
        """Time from start to end; 0 while it runs."""
        return 0 if self.ended_at_ms is None else max(0, self.ended_at_ms - self.started_at_ms)

    def rebuild(self, summary: AttemptSummary) -> "LedgerAttempt":
        """Return the row with every column that follows from the sealed files."""
        return msgspec.structs.replace(
            self,
            state="sealed",
            outcome=summary.outcome,
            code=summary.code,
            runtime_id=summary.runtime_id,
            tokens=None if summary.tokens is None else summary.tokens.total,
            summary=summary,
        )


class LedgerReplacement(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A request to replace the scored result of a trial."""

    trial: TrialId
    """The trial."""
    n: Count
    """Number of the first attempt that may take the place of the result."""
    run: RunId
    """The run that was started for it."""
    reason: str
    """Why, in the user's words."""
    at_ms: Moment
    """When it was requested, in milliseconds since the epoch."""


def replaced_from(replacements: Iterable[LedgerReplacement]) -> dict[TrialId, set[int]]:
    """Return the numbers of the attempts from which on the result of a trial was replaced, by trial."""
    numbers: dict[TrialId, set[int]] = {}
    for each in replacements:
        numbers.setdefault(each.trial, set()).add(each.n)
    return numbers


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerContents:
    """Everything a ledger holds: trials in plan order, and the attempts of each tried trial by number."""

    campaign: LedgerCampaign | None = None
    """None if set-up was cut off before it was written."""
    runs: tuple[LedgerRun, ...] = ()
    trials: tuple[LedgerTrial, ...] = ()
    attempts_of: Mapping[TrialId, Sequence[LedgerAttempt]] = field(default_factory=dict)
    replacements: tuple[LedgerReplacement, ...] = ()
    """Requests to replace a scored result, oldest first."""

    @property
    def attempts(self) -> list[LedgerAttempt]:
        """All attempts in plan order."""
        return [each for trial in self.trials for each in self.attempts_of.get(trial.id, ())]


_STATE, _OUTCOME, _SUMMARY = map(LedgerAttempt.__struct_fields__.index, ("state", "outcome", "summary"))

_decode_summary: Callable[[str], AttemptSummary] = decoding.json_decoder(AttemptSummary)


def decode_attempts(rows: Iterable[tuple[Any, ...]]) -> list[LedgerAttempt]:
    """Decode rows of `ATTEMPTS`. Raises EvidenceError if a row is not what a Proctor writes."""
    decoded = []
    for row in rows:
        summary = row[_SUMMARY]
        if (summary is None or row[_OUTCOME] is None) and row[_STATE] == "sealed":
            what = f"{row[0]} is sealed, but has no outcome or no summary"
            raise EvidenceError("evidence.ledger", what, file="ledger.db")
        try:
            decoded.append(row if summary is None else row[:_SUMMARY] + (_decode_summary(summary),))  # noqa: RUF005
        except (msgspec.DecodeError, TypeError) as error:
            raise EvidenceError("evidence.ledger", f"{row[0]}: summary: {error}", file="ledger.db") from error
    try:
        return decoding.convert(decoded, list[LedgerAttempt])
    except msgspec.ValidationError as error:
        raise EvidenceError("evidence.ledger", f"attempt: {error}", file="ledger.db") from error
