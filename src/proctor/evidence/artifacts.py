"""The JSON files of campaigns, attempts and agent processes as structs with a schema version."""

from collections.abc import Iterable
from enum import StrEnum
from typing import Any, Final, Literal

import msgspec

from proctor.errors import Bucket
from proctor.event.metrics import Metrics
from proctor.event.outcome import Outcome
from proctor.event.row import CommitStatus
from proctor.fact import Fact
from proctor.ids import (
    AttemptId,
    CampaignId,
    Digest,
    FlowId,
    MissionId,
    ProcessId,
    RunId,
    RuntimeId,
    SessionId,
    SessionKey,
    ThreadId,
    TrialId,
)
from proctor.plan.continuation import FreshStart
from proctor.plan.model import Limits, Plan
from proctor.spec.campaign_options import ToolsSpec
from proctor.spec.choices import Approvals, Isolation, Sandbox
from proctor.spec.criterion import Role, WaiverSpec
from proctor.spec.expect import ExpectSpec

SCHEMA_VERSION: Final = 1
"""Version of the format of every artifact. Another one is refused."""


class Part(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """Base of every struct inside an artifact. Unknown fields are an error."""


class Artifact(Part, frozen=True, kw_only=True):
    """Base of every artifact file. A file of another schema version cannot be read."""

    schema_version: Literal[1] = 1
    """Version of the file format. Always 1."""


class PlanFile(Artifact, frozen=True, kw_only=True):
    """plan.json: the plan of a campaign."""

    plan: Plan
    """Trials, flows, limits, schedule and gates, with every default filled in."""
    snapshot: dict[str, Digest]
    """Digest of each file in spec.snapshot as it was written, by its path in that folder."""


class Judged(StrEnum):
    """Where the comparison behind a verdict was made."""

    INSIDE = "inside"
    """By a process that also runs the product, which could forge the result."""
    OUTSIDE = "outside"
    """By Proctor, from what it observed."""


class RequiredProbe(Part, frozen=True, kw_only=True):
    """A probe that a mission requires."""

    digest: Digest
    """Digest of the probe's complete spec with the content of its files and of the mission's hidden files: a probe with
    another command or another golden is another probe."""
    kind: str
    """Kind of the probe, such as `headless_run`."""
    index: int
    """Position of the probe in the mission, counted from 0."""
    role: Role = Role.GOAL
    """`goal`: the probe shows that the task is done. `guard`: it shows that nothing else was broken."""
    has_mutant: bool = False
    """Whether a patch of the mission shows that the guard can fail."""
    criterion: str
    """What the probe shows, in words."""


class SittingRef(Part, frozen=True, kw_only=True):
    """The place of an attempt in the session whose sitting it is."""

    session: SessionKey
    """Id of the session."""
    n: int
    """Number of the sitting in the session. The first is 1."""
    is_fresh: bool
    """Whether nothing was said in the session before, so that nothing is continued."""
    first_turn: int
    """Number that the first turn of the sitting has, or would have, in the session."""
    history_after: int
    """Number of the last turn before the session's last reset. 0 if it was never reset."""
    tools: str
    """Digest of the tools that the agent was offered."""
    is_import: bool
    """Whether it imported the history of a thread that existed before the session."""
    is_ephemeral: bool = False
    """Whether its native thread was not kept."""


class ContextRef(Part, frozen=True, kw_only=True):
    """The context engine of an attempt."""

    engine: str
    """Id of the engine."""
    owns_compaction: bool
    """Whether the engine owned the compaction."""


class ContinuedFrom(Part, frozen=True, kw_only=True):
    """What an attempt took over from the attempt that it continues."""

    run_id: RunId
    """Id of the run that made that attempt."""
    thread_id: ThreadId
    """The agent's own id for the conversation that was resumed."""
    workspace_digest: Digest
    """Digest of the workspace with which the attempt began: the one that that attempt left."""
    tokens: int
    """Known tokens that that attempt, and those that it continues, used together. The limit of tokens covers them."""
    tokens_unknown: int
    """Number of these attempts whose tokens are not known."""


class AttemptRecord(Artifact, frozen=True, kw_only=True):
    """attempt.json: the identity, plan and settings of an attempt. Written before the agent gets its prompt."""

    attempt_id: AttemptId
    """Id of the attempt, `<trial>.<n>`. It is also the name of the attempt's folder."""
    trial: TrialId
    """Id of the trial that this attempt belongs to."""
    n: int
    """Number of this attempt among the attempts of its trial. The first is 1."""
    campaign_id: CampaignId
    """Id of the campaign."""
    run_id: RunId
    """Id of the run that made the attempt."""
    mission_id: MissionId
    """Id of the mission."""
    flow_id: FlowId
    """Id of the flow."""
    repeat: int
    """Number of the trial among the repeats of its mission and flow. The first is 1."""
    runtime_id: RuntimeId
    """Id of the runtime that the attempt used, out of the flow's runtime chain."""
    is_scripted: bool
    """Whether the scripted model answered the agent, and not a real one."""
    plan_digest: Digest
    """Digest of the plan."""
    plan_file_digest: Digest | None
    """Digest of the bytes of plan.json, so that the attempt's seal covers the campaign's plan and spec. Null for a
    conversation, which has no plan.json."""
    trial_digest: Digest
    """Digest of everything that decides what the trial runs."""
    prompt_digest: Digest
    """Digest of the bytes of prompt.txt."""
    workspace_digest: Digest
    """Digest of the untouched workspace: before the agent started or, if the attempt continues others, before the first
    of them."""
    required_probes: tuple[RequiredProbe, ...]
    """The probes that the mission requires, in the order of the spec."""
    waivers: tuple[WaiverSpec, ...] = ()
    """Criteria that the mission does not require this time, with who decided that and why."""
    expect: ExpectSpec
    """What the mission expects of the attempt."""
    isolation: Isolation
    """Whether the agent's process was shared with other attempts."""
    sandbox: Sandbox
    """What the agent's own sandbox allowed it to write."""
    approvals: Approvals
    """How approval requests of the agent were answered."""
    limits: Limits
    """Clock limits in milliseconds, and the limits of tokens and evidence."""
    tools: ToolsSpec
    """The flow's policy of allowed and denied tool calls."""
    secret_names: tuple[str, ...]
    """Names of the secrets that are masked in the evidence."""
    sitting: SittingRef | None = None
    """Which sitting of which session this is. Null if it belongs to no session with an id."""
    context: ContextRef | None = None
    """The context engine of the session or the flow. Null if there was none."""
    continues: AttemptId | None = None
    """Id of the attempt of the same trial that it continues: the agent's thread was resumed, in the workspace that the
    attempt left. Null if it started fresh."""
    continued_from: ContinuedFrom | None = None
    """What it took over from that attempt. Null if it started fresh."""
    fresh_start: FreshStart | None = None
    """Why it does not continue the attempt of its trial before it. Null if it does, if it is the first, or if the
    campaign has no `schedule.continue_after_wait`."""
    created_at_ms: int
    """Wall-clock time when the file was written, in milliseconds since the epoch."""


class RunnerRef(Artifact, frozen=True, kw_only=True):
    """runner.ref.json: the program and session that answered, and the facts known about them."""

    attempt_id: AttemptId
    """Id of the attempt."""
    runtime_id: RuntimeId
    """Id of the runtime."""
    transport: str
    """Transport between Proctor and the agent, such as `stdio`."""
    process_id: ProcessId | None
    """Id of the agent process, whose record is in `runtimes/`. Null if none was started."""
    session_id: SessionId | None
    """Id of the session: `<attempt>/<thread>`. Null if the agent named no thread."""
    thread_id: ThreadId | None
    """The agent's own id for the conversation, with which it can be resumed. Null if unknown."""
    is_fresh_session: bool
    """Whether the session started with an empty history, neither resumed nor forked."""
    facts: dict[str, Fact]
    """Everything recorded about program, model and session, by fact name, each with the authority of its source."""
    sitting: SittingRef | None = None
    """Which sitting of which session this is, as in attempt.json."""
    last_turn: int | None = None
    """Number of the last turn of the sitting in the session. Null if it had none, or belongs to no session."""


class Feedback(Artifact, frozen=True, kw_only=True):
    """feedback.json: what the agent claims about its task."""

    attempt_id: AttemptId
    """Id of the attempt."""
    claimed: bool | None
    """Whether the agent claims success. Null if it made no readable claim."""
    answer: str | None
    """The answer that the agent gave with its claim."""
    frame: int | None
    """`seq` of the row in frames.jsonl that holds the claim."""
    problem: str | None
    """Why the claim or the result cannot be read. Null if there is no such problem."""
    result: Any
    """The JSON value that the agent handed in as its result besides the answer."""


class GateReason(StrEnum):
    """Why a probe does not verify an attempt."""

    FAILS = "fails"
    """It fails on the agent's workspace. Decides no."""
    MUTATED = "mutated"
    """The agent's workspace changed while it ran. Decides no."""
    BROKEN = "broken"
    """It ran on the untouched workspace; something that the agent left keeps it from judging. Decides no."""
    TAMPERED = "tampered"
    """A program that it runs was changed while the agent worked, and the agent could change it. Decides no."""
    PASSES_UNTOUCHED = "passes-untouched"
    """It already passes on the untouched workspace, so it cannot tell success from failure."""
    UNTOUCHED_UNAVAILABLE = "untouched-unavailable"
    """It could not judge the untouched workspace."""
    UNTOUCHED_MUTATED = "untouched-mutated"
    """The untouched workspace changed while it ran."""
    UNTOUCHED_NOT_RUN = "untouched-not-run"
    """It was not run on the untouched workspace."""
    FAILS_UNTOUCHED = "fails-untouched"
    """It is a guard, and fails on the untouched workspace."""
    NO_MUTANT = "no-mutant"
    """It is a guard without a mutant, so nothing shows that it can fail."""
    PASSES_MUTANT = "passes-mutant"
    """It is a guard, and passes on its mutant, so it does not protect what it should."""
    MUTANT_UNAVAILABLE = "mutant-unavailable"
    """It is a guard, and could not judge its mutant."""
    MUTANT_NOT_RUN = "mutant-not-run"
    """It is a guard, and was not run on its mutant."""
    UNAVAILABLE = "unavailable"
    """The machine kept it from judging the agent's workspace."""
    PROGRAM_CHANGED = "program-changed"
    """A program that it runs was changed while the agent worked, and the agent could not have done that."""
    UNSTABLE = "unstable"
    """It failed and passed on the same content."""
    NOT_RUN = "not-run"
    """It was not run on the agent's workspace, because the attempt ended early."""
    UNCHANGED = "unchanged"
    """It is a guard like all probes of the mission, and the agent changed nothing."""
    WAIVED = "waived"
    """Its criterion is waived."""
    NO_PROBE = "no-probe"
    """The mission has no probe."""


# Such a probe could not have verified any work of the agent, so a failure says nothing either.
_UNUSABLE: Final = frozenset(
    {
        GateReason.PASSES_UNTOUCHED,
        GateReason.UNTOUCHED_UNAVAILABLE,
        GateReason.UNTOUCHED_MUTATED,
        GateReason.FAILS_UNTOUCHED,
        GateReason.NO_MUTANT,
        GateReason.PASSES_MUTANT,
        GateReason.MUTANT_UNAVAILABLE,
        GateReason.WAIVED,
    }
)
_INCONCLUSIVE: Final = frozenset(
    {
        GateReason.UNAVAILABLE,
        GateReason.PROGRAM_CHANGED,
        GateReason.UNSTABLE,
        GateReason.UNTOUCHED_NOT_RUN,
        GateReason.MUTANT_NOT_RUN,
    }
)


def why_unjudged(verified: bool | None, reason_codes: Iterable[GateReason]) -> GateReason | None:
    """Return why the probes cannot judge an attempt, for reasons that do not lie with the agent; None if they can.

    A probe that was not run because the attempt ended early is no such reason.

    >>> why_unjudged(False, [GateReason.FAILS]), why_unjudged(None, [GateReason.NOT_RUN])
    (None, None)
    >>> why_unjudged(False, [GateReason.FAILS, GateReason.PASSES_UNTOUCHED]).value
    'passes-untouched'
    """
    codes = tuple(reason_codes)
    if not codes:
        return None
    kinds = (_UNUSABLE, _INCONCLUSIVE) if verified is None else (_UNUSABLE,)
    return next((code for kind in kinds for code in codes if code in kind), None)


ExpectKey = Literal["outcome", "verified", "answer", "result", "trace", "workspace"]
"""A part of `expect`. `answer` covers `matches` too."""


class Expectation(Part, frozen=True, kw_only=True, gc=False):
    """Comparison of an attempt with the `expect` of its mission."""

    met: bool | None
    """Whether every expectation was met. Null if the mission states none, or if all others were met and the probes
    could not judge `verified` or the runtime cannot see the tool calls of `trace`."""
    keys: dict[ExpectKey, bool | None]
    """Whether each key that the mission states was met. Null for `verified` if the probes could not judge it, and for
    `trace` if the runtime cannot see tool calls."""
    unmet: tuple[str, ...]
    """One sentence for each expectation that was not met: what was expected and what was found."""

    @property
    def content_holds(self) -> bool | None:
        """Whether answer, result, trace and workspace are as stated. None if the mission states none of them, or if
        all others are as stated and the trace is unknown."""
        if not self.keys:
            return None
        stated = [is_met for key, is_met in self.keys.items() if key not in ("outcome", "verified")]
        return False if False in stated else None if None in stated or not stated else True

    @property
    def is_undecided(self) -> bool:
        """Whether nothing that could be judged is unmet, and something could not be judged."""
        return self.met is None and None in self.keys.values()


class FailedProbe(Part, frozen=True, kw_only=True, gc=False):
    """A probe that did not pass on the workspace as the agent left it."""

    index: int
    """Position of the probe in the mission, counted from 0."""
    command: str
    """Its command as bash runs it, in the workspace; empty if none was run. Cut after 300 characters."""
    verdict: str
    """`fail`, or why it could not judge: `unavailable` or `not_run`."""
    summary: str
    """What was observed."""
    exit_code: int | None
    """The exit code of the command; null if unknown or if it did not exit."""
    signal: int | None
    """The signal that killed the command; null if unknown or none."""
    timed_out: bool
    """Whether the command was stopped at the probe's `timeout`."""
    stdout: tuple[str, ...]
    """The last lines of its stdout, without escape sequences. Long lines are cut."""
    stderr: tuple[str, ...]
    """The last lines of its stderr, likewise."""


class FileExcerpt(Part, frozen=True, kw_only=True, gc=False):
    """The beginning of what the agent changed in one file."""

    file: str
    """Path in the workspace, quoted as git does if it is not plain text."""
    added: int
    """Number of lines added."""
    removed: int
    """Number of lines removed."""
    lines: tuple[str, ...]
    """The first lines of its diff. Long lines are cut."""
    lines_left_out: int
    """How many lines of its diff follow."""


class DiffExcerpt(Part, frozen=True, kw_only=True, gc=False):
    """What the agent changed, source files first. workspace.diff has all of it."""

    files: tuple[FileExcerpt, ...]
    """Changed files, without generated ones."""
    files_left_out: int
    """How many more such files changed."""
    generated_files: int
    """How many caches, installed packages, lock files and minified files changed; none of them is shown."""
    generated_lines: int
    """How many lines of these were added or removed."""
    other_paths: int
    """How many changed folders, links and references of the repository are not shown."""


class FailureExcerpt(Part, frozen=True, kw_only=True, gc=False):
    """What shows why an attempt failed."""

    probes: tuple[FailedProbe, ...]
    """The first probes that did not pass."""
    probes_left_out: int
    """How many more did not pass."""
    diff: DiffExcerpt | None
    """What the agent changed; null if nothing."""


class CriterionDecision(Part, frozen=True, kw_only=True):
    """The decision for one criterion of a mission."""

    criterion: str
    """The criterion, in words."""
    verified: bool | None
    """Whether its probes established it. Null if they could not decide, or if it is waived."""
    probes: tuple[int, ...]
    """Positions of its probes in the mission, counted from 0."""
    waived_by: str | None = None
    """Who waived it. Null if it is required."""


class AttemptReport(Artifact, frozen=True, kw_only=True):
    """attempt.report.json: how the attempt ended, what was claimed and verified, and what it cost."""

    attempt_id: AttemptId
    """Id of the attempt."""
    outcome: Outcome
    """How the attempt ended."""
    code: str | None
    """Error code of what ended the attempt. Null if no error did."""
    detail: str | None
    """Explanation of `code` in words."""
    bucket: Bucket | None
    """Category of the cause: `agent`, `infra`, `quota`, `auth`, `harness` or `gate`. Null without a code."""
    retryable: bool | None
    """Whether a new attempt may succeed after this `code`. Null without a code."""
    todo: str | None
    """What to do about `code`. Null without a code."""
    claimed: bool | None
    """Whether the agent claims success. Null if it made no readable claim."""
    verified: bool | None
    """Whether the required probes established success. Null if they could not decide."""
    judged: Judged | None = None
    """Where the success was established: `outside` if a probe that passed was judged by Proctor; `inside` if all were
    judged by a process that also runs the product, which could forge the result. Null unless `verified` is true."""
    reasons: tuple[str, ...]
    """Why `verified` is not true, one sentence each."""
    reason_codes: tuple[GateReason, ...]
    """The kind of each of `reasons`, in the same order."""
    criteria: tuple[CriterionDecision, ...] = ()
    """The decision for each criterion, in the order of the mission."""
    expectation: Expectation
    """Comparison with the `expect` of the mission."""
    metrics: Metrics
    """Counts of turns, tool calls, tokens and frames."""
    retry_after_ms: int | None
    """How long to wait after the end of the attempt before a retry, in milliseconds, if the agent or its provider
    stated that."""
    workspace_digest_after: Digest | None
    """Digest of the workspace after the agent stopped. Null if it is not known."""
    has_changed_files: bool
    """Whether the workspace differs from the one the agent was given."""
    policy_violations: tuple[str, ...] | None
    """One sentence for each tool call that the flow's `tools` policy does not allow. Null if there is a policy, and the
    runtime cannot see tool calls."""
    degraded: str | None = None
    """Why the context engine did not apply to a turn, or not in full. Null if it always did, or without an engine."""
    duration_ms: int
    """Duration of the attempt on the monotonic clock, in milliseconds."""
    failure: FailureExcerpt | None = None
    """What shows why the attempt failed. Null if it did not fail."""


class SealedFile(Part, frozen=True, kw_only=True):
    """Digest and size of one file."""

    sha256: str
    """SHA-256 of the content, as hex."""
    bytes: int
    """Size in bytes."""


class StreamHead(Part, frozen=True, kw_only=True):
    """The end of a hash-chained stream."""

    rows: int
    """Number of rows in the stream."""
    head: str
    """First 32 hex digits of the SHA-256 of the last line. All zeros for an empty stream."""


class ProcessRecord(Artifact, frozen=True, kw_only=True):
    """process.json: one agent process. Written when the process has ended."""

    process_id: ProcessId
    """Id of the process. It is also the name of the process's folder."""
    runtime_id: RuntimeId
    """Id of the runtime."""
    frames_in: int
    """Number of lines that the process sent, counted at the pipe, independently of any recording."""
    rows: dict[str, int]
    """Number of rows in the process's own frames.jsonl, by direction."""
    facts: dict[str, Fact]
    """Everything recorded about the program, by fact name, each with the authority of its source."""
    stream: StreamHead
    """The end of the process's own frames.jsonl."""
    sha256: str
    """SHA-256 of this record without this field, in canonical JSON, as hex."""


class Seal(Artifact, frozen=True, kw_only=True):
    """seal.json: digest and size of every other file of an attempt when it ended."""

    attempt_id: AttemptId
    """Id of the attempt."""
    sealed_at_ms: int
    """Wall-clock time of the seal, in milliseconds since the epoch."""
    statement: Literal["integrity only: shows damage, not forgery"] = "integrity only: shows damage, not forgery"
    """What a seal without a signature proves."""
    commit: CommitStatus | None = None
    """Whether the session's context engine had the attempt's turns then, as far as known: `committed` if it had all
    that completed, `queued` or `blocked` if it lacked one, `none` if none completed. Null without a context engine.
    What becomes known later is in the session."""
    files: dict[str, SealedFile]
    """Digest and size of each file, by file name."""
    streams: dict[str, StreamHead]
    """The end of each hash-chained stream, by file name."""
    sha256: str
    """SHA-256 of this seal without this field, in canonical JSON, as hex."""
