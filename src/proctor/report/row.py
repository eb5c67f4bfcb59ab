"""One attempt as lists and reports show it."""

from collections.abc import Mapping
from typing import Literal

from msgspec.structs import replace

from proctor.errors import Bucket
from proctor.event.outcome import Outcome
from proctor.event.usage import STRENGTH, plus
from proctor.evidence.artifacts import Part
from proctor.evidence.reader import Finding
from proctor.evidence.summary import AttemptSummary
from proctor.ids import AttemptId, CampaignId, FlowId, MissionId, RunId, RuntimeId, TrialId

State = Literal["running", "sealed", "partial", "abandoned", "unreadable"]
"""`partial`: cut off. `abandoned`: its evidence could not be kept. `unreadable`: its files do not decode."""

Evidence = Literal["unchecked", "valid", "partial", "invalid"]


class AttemptRow(Part, frozen=True, kw_only=True, gc=False):
    """One attempt. Null means unknown."""

    attempt_id: AttemptId
    """The trial's id, a dot and the attempt's number."""
    run_id: RunId
    """The run that made it."""
    campaign_id: CampaignId | None = None
    """The campaign that it belongs to."""
    trial: TrialId | None = None
    """The trial that it is an attempt of."""
    mission_id: MissionId | None = None
    """The mission of the trial."""
    flow_id: FlowId | None = None
    """The flow of the trial."""
    repeat: int | None = None
    """The repeat of the trial, from 1."""
    n: int | None = None
    """The number of the attempt among those of its trial, from 1."""
    is_superseded: bool = False
    """Whether another attempt of its trial counts instead of it."""
    runtime_id: RuntimeId | None = None
    """The runtime that drove the agent."""
    state: State
    """What state its evidence is in."""
    code: str | None = None
    """The error code that ended it, sealed or not."""
    bucket: Bucket | None = None
    """Which kind of cause the code has."""
    retryable: bool | None = None
    """Whether another attempt may end differently."""
    todo: str | None = None
    """What to do about the code."""
    detail: str | None = None
    """What was observed when the code was set."""
    summary: AttemptSummary | None = None
    """What its sealed files say; null unless it is sealed."""
    tokens: int | None = None
    """All tokens that it used, sealed or not."""
    usd: float | None = None
    """What it cost by the frozen prices, in US dollars."""
    dir: str
    """The attempt's folder."""
    evidence: Evidence = "unchecked"
    """What a check of its evidence found."""
    findings: tuple[Finding, ...] = ()
    """What is wrong with its evidence."""

    @property
    def ref(self) -> str:
        """Its name among all attempts of an evidence root."""
        return f"{self.run_id}/{self.attempt_id}"

    @property
    def is_invalid(self) -> bool:
        """Whether its evidence is invalid or cannot be read."""
        return self.evidence == "invalid" or self.state == "unreadable"

    @property
    def is_scripted(self) -> bool:
        """Whether the scripted model answered the agent. False if unknown."""
        return self.summary is not None and self.summary.is_scripted

    @property
    def outcome(self) -> Outcome | None:
        """How it ended, if it is sealed."""
        return None if self.summary is None else self.summary.outcome

    @property
    def claimed(self) -> bool | None:
        """Whether the agent said that the task is done."""
        return None if self.summary is None else self.summary.claimed

    @property
    def verified(self) -> bool | None:
        """Whether the required probes verified the task."""
        return None if self.summary is None else self.summary.verified

    @property
    def is_expected(self) -> bool | None:
        """Whether it came out as expected; None if nothing was expected."""
        return None if self.summary is None else self.summary.is_expected

    @property
    def tool_calls(self) -> int | None:
        """How many tool calls the agent made."""
        return None if self.summary is None else self.summary.tool_calls

    @property
    def duration_ms(self) -> int | None:
        """How long it took, in milliseconds."""
        return None if self.summary is None else self.summary.duration_ms

    @property
    def reasons(self) -> tuple[str, ...]:
        """Why it is not verified."""
        return () if self.summary is None else self.summary.reasons

    @property
    def degraded(self) -> str | None:
        """Why its context engine did not apply, or not in full."""
        return None if self.summary is None else self.summary.degraded

    @property
    def unmet(self) -> tuple[str, ...]:
        """Which expectations it does not meet."""
        return () if self.summary is None else self.summary.expectation.unmet

    @property
    def continues(self) -> AttemptId | None:
        """The attempt of its trial that it continues after a wait."""
        return None if self.summary is None else self.summary.continues


# ── attempts that continue others ──


def find_chain(row: AttemptRow, others: Mapping[AttemptId, AttemptRow]) -> tuple[AttemptRow, ...]:
    """Return the attempts that an attempt continues, oldest first, and then itself. `others` are those of its trial."""
    chain, seen = [row], {row.attempt_id}
    while (before := chain[0].continues) is not None and before in others and before not in seen:
        seen.add(before)
        chain.insert(0, others[before])
    return tuple(chain)


def sum_chain(chain: tuple[AttemptRow, ...]) -> AttemptRow:
    """Return the last attempt of a chain with the usage, cost and duration of all of them. What one lacks is unknown.

    Everything else, such as how it ended, is that of the last attempt.
    """
    last = chain[-1]
    if len(chain) == 1 or last.summary is None:
        return last
    summary = last.summary
    for row in chain[-2::-1]:
        summary = _sum_summaries(summary, row.summary)
    tokens, usd = [row.tokens for row in chain], [row.usd for row in chain]
    return replace(
        last,
        summary=summary,
        tokens=None if None in tokens else sum(filter(None, tokens)),
        usd=None if None in usd else sum(filter(None, usd)),
    )


def _sum_summaries(summary: AttemptSummary, before: AttemptSummary | None) -> AttemptSummary:
    """Return the summary with what was measured in the attempt before; None if its evidence cannot be read."""
    if before is None:
        unknown = dict.fromkeys(_COUNTS)
        return replace(summary, tokens=None, tokens_authority=None, is_stuck=None, policy_violations=None, **unknown)
    tokens = None
    if summary.tokens is not None and before.tokens is not None:
        tokens = plus(summary.tokens, before.tokens)
    authorities = [each.tokens_authority for each in (summary, before) if each.tokens_authority is not None]
    stuck = (summary.is_stuck, before.is_stuck)
    violations = _plus_known(summary.policy_violations, before.policy_violations)
    return replace(
        summary,
        duration_ms=summary.duration_ms + before.duration_ms,
        turns=summary.turns + before.turns,
        tokens=tokens,
        tokens_authority=min(authorities, key=lambda each: STRENGTH[each], default=None),
        tool_ms=None if summary.tool_ms is before.tool_ms is None else (summary.tool_ms or 0) + (before.tool_ms or 0),
        is_stuck=True if True in stuck else None if None in stuck else False,
        policy_violations=violations,
        first_violations=(*before.first_violations, *summary.first_violations),
        **{name: _plus_known(getattr(summary, name), getattr(before, name)) for name in _COUNTS},
    )


_COUNTS = ("tool_calls", "mcp_calls", "tool_failures", "tool_retries", "tool_output_bytes")
"""Fields of a summary that are unknown if the runtime cannot see tool calls."""


def _plus_known(one: int | None, other: int | None) -> int | None:
    return None if one is None or other is None else one + other
