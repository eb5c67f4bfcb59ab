"""The rows of rounds.jsonl: what happened in an auto run, in order. Each row is on disk before the next step begins."""

from enum import StrEnum

import msgspec

from proctor.auto.wall_clock import Moment
from proctor.event.outcome import Outcome
from proctor.evidence.artifacts import RequiredProbe
from proctor.ids import AttemptId, Digest, RunId, RuntimeId, ThreadId


class CriteriaSource(StrEnum):
    """Who wrote the criteria of a run."""

    FILE = "file"
    """A person, in the file that `--criteria` names."""
    CLASS = "class"
    """A task class of Proctor or of the config."""
    AGENT = "agent"
    """An agent, in a separate session (`--plan`)."""


class AutoBudget(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """What a run may use. Null for no limit."""

    rounds: int
    """Number of rounds in which the agent is asked."""
    tokens: int | None = None
    """Tokens of all turns."""
    usd: float | None = None
    """Cost of all turns, in US dollars."""
    wall_ms: int | None = None
    """Time since the run was started, in milliseconds, whether or not a process worked on it."""


class AutoRow(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True, tag_field="row"):
    """Base of the rows."""

    at: Moment
    """When the row was written."""


class RunStarted(AutoRow, tag="started", frozen=True, kw_only=True):
    """A process took up the run: its beginning, or a resume. Only the budget may differ from the first such row."""

    run_id: RunId
    """Id of the run that holds the evidence of the rounds that follow."""
    goal_sha256: Digest
    """Digest of the goal as it was given."""
    runtime_id: RuntimeId
    """Id of the runtime."""
    criteria_sha256: Digest
    """Digest of the frozen criteria."""
    criteria_by: CriteriaSource
    """Who wrote the criteria."""
    required_probes: tuple[RequiredProbe, ...]
    """The probes that decide, in the order of the criteria."""
    base_digest: Digest
    """Digest of the untouched workspace."""
    budget: AutoBudget
    """What the run may use, counted from its beginning."""


class AskKind(StrEnum):
    """What the agent is asked in a round."""

    GOAL = "goal"
    """The goal."""
    FINDINGS = "findings"
    """To continue, with the findings of the round before."""
    AGAIN = "again"
    """The goal and the findings, because the native thread was lost."""
    NOTHING = "nothing"
    """Nothing: the workspace is only probed, after an interruption or when a blocked run is resumed."""


class RoundAsked(AutoRow, tag="asked", frozen=True, kw_only=True):
    """A round begins. From this row on, its prompt counts as sent."""

    round: int
    """Number of the round. The first is 1."""
    attempt_id: AttemptId
    """Id of the attempt that is the round."""
    asks: AskKind
    """What the agent is asked."""
    prompt_sha256: Digest | None
    """Digest of the prompt. Null if nothing is asked."""
    workspace_digest: Digest
    """Digest of the workspace before the round."""


class RoundSettled(AutoRow, tag="settled", frozen=True, kw_only=True):
    """The turn of a round is over, and nothing that the agent started still runs."""

    round: int
    """Number of the round."""
    outcome: Outcome
    """How the turn ended. `unknown` if the process of the round was killed, and `completed` if nothing was asked."""
    code: str | None
    """Error code of what ended the turn. Null if no error did."""
    thread_id: ThreadId | None
    """The agent's own id of the thread. Null if unknown."""
    tokens: int | None
    """Tokens of the turn. Null if unknown."""
    usd: float | None
    """Cost of the turn. Null if unknown."""
    workspace_digest: Digest
    """Digest of the workspace after the turn."""


class RoundProbed(AutoRow, tag="probed", frozen=True, kw_only=True):
    """The probes of a round are recorded in its attempt."""

    round: int
    """Number of the round."""
    probes_sha256: Digest
    """Digest of probes.jsonl of the attempt."""


class RoundDecided(AutoRow, tag="decided", frozen=True, kw_only=True):
    """A round is decided and sealed."""

    round: int
    """Number of the round."""
    verified: bool | None
    """Whether the probes verify the work. Null if they could not decide."""
    met: int
    """Number of criteria that are met."""
    findings: Digest
    """Digest of everything that speaks against the work."""
    seal_sha256: Digest
    """Digest of seal.json of the attempt."""


AnyAutoRow = RunStarted | RoundAsked | RoundSettled | RoundProbed | RoundDecided


class AutoOutcome(StrEnum):
    """How an auto run ended."""

    VERIFIED = "verified"
    """The probes established every criterion, and the last turn completed."""
    UNVERIFIED = "unverified"
    """It was stopped, and the probes could not decide."""
    OUT_OF_BUDGET = "out-of-budget"
    """A budget was used up."""
    BLOCKED = "blocked"
    """It was stopped, and the probes speak against the work."""
    FAILED = "failed"
    """The agent's turn failed, although the probes pass."""
    INFRASTRUCTURE = "infrastructure"
    """The machine, the provider or Proctor itself kept it from working."""
