"""The record of a regrade: what other probes, or the same ones again, decide about the work of sealed attempts."""

from enum import StrEnum
from typing import Literal

from proctor.evidence.artifacts import Artifact, CriterionDecision, GateReason, Judged, Part, RequiredProbe
from proctor.ids import AttemptId, CampaignId, Digest, MissionId, RunId


class RegradeStatus(StrEnum):
    """Whether an attempt was regraded."""

    REGRADED = "regraded"
    """The probes were run on the tree that the agent left."""
    NO_PROBE = "no-probe"
    """The mission has no probe."""
    IMPOSSIBLE = "impossible"
    """The tree, or what judges it, cannot be restored. `why` has the reason."""
    INVALID = "invalid"
    """The evidence of the attempt is damaged or was changed, so nothing was run."""


class GradeRecord(Part, frozen=True, kw_only=True):
    """What probes decided about a tree."""

    verified: bool | None
    """Whether the tree is verified. Null if the probes could not decide."""
    judged: Judged | None
    """Where the success was established: `outside` or `inside`. Null unless `verified` is true."""
    reasons: tuple[str, ...]
    """Why `verified` is not true, one sentence each."""
    reason_codes: tuple[GateReason, ...]
    """The kind of each of `reasons`, in the same order."""
    criteria: tuple[CriterionDecision, ...]
    """The decision for each criterion."""


class RegradedAttempt(Part, frozen=True, kw_only=True):
    """One attempt of a regrade."""

    attempt_id: AttemptId
    """Id of the attempt."""
    run_id: RunId | None
    """Run of the attempt. Null if its record cannot be read."""
    mission_id: MissionId | None
    """Mission of the attempt. Null if its record cannot be read."""
    status: RegradeStatus
    """Whether the attempt was regraded."""
    why: str | None = None
    """Why it was not regraded. Null if it was."""
    seal_digest: Digest | None = None
    """Digest of the attempt's seal.json, which is unchanged. Null if the attempt has no seal."""
    base_digest: Digest | None = None
    """Digest of the untouched workspace. Null if the attempt was not regraded."""
    workspace_digest: Digest | None = None
    """Digest of the tree that the probes were run on, as the attempt recorded it. Null if it was not regraded."""
    tree: Literal["rebuilt", "kept"] | None = None
    """Where the tree comes from: rebuilt from workspace.diff, or kept by `keep`. Null if it was not regraded."""
    required_probes: tuple[RequiredProbe, ...] = ()
    """The probes that decided, in the order of the mission."""
    before: GradeRecord | None = None
    """What the attempt recorded. Null if its report cannot be read."""
    after: GradeRecord | None = None
    """What the probes decide now. Null if the attempt was not regraded."""


class RegradeRecord(Artifact, frozen=True, kw_only=True):
    """regrade.json: new decisions about sealed attempts, which stay as they are."""

    regrade_id: str
    """Id of the regrade. It is also the name of its folder."""
    campaign_id: CampaignId
    """Campaign of the attempts."""
    created_at_ms: int
    """Wall-clock time of the record, in milliseconds since the epoch."""
    spec: str | None
    """Path of the spec whose probes were run. Null for those of the campaign."""
    spec_digest: Digest
    """Digest of that spec."""
    rows_digest: Digest
    """Digest of regrade.probes.jsonl, which has every run of a probe."""
    attempts: tuple[RegradedAttempt, ...]
    """The attempts, in the order of their folders."""
