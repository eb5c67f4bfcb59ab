"""Structs of a spec: limits, schedule, hooks, gates, tool policy, secrets and selection."""

from enum import StrEnum
from typing import Annotated

from msgspec import Meta
from msgspec.structs import force_setattr

from proctor.ids import RuntimeId
from proctor.spec.struct import Command, Count, Duration, Spec, Text, Texts, by_runtime_id

Slots = Annotated[int, Meta(ge=1, le=256)]
"""A number of attempts that may run at once."""


class LimitsSpec(Spec, frozen=True, kw_only=True):
    """`limits`: time, token, size and cost limits. Zero is a limit; no limit is None."""

    attempt: Duration = "300s"
    """Longest duration of one attempt. Default 300 s."""

    turn: Duration = "180s"
    """Longest duration of one turn. Default 180 s."""

    stall: Duration = "60s"
    """Longest time without anything from the agent. Default 60 s."""

    mission: Duration | None = None
    """Longest duration of all attempts of one trial together. Default: no limit."""

    campaign: Duration | None = None
    """Longest duration of the whole campaign. Default: no limit."""

    tokens: Count | None = None
    """Most tokens that one attempt may use, together with those that it continues. Default: no limit."""

    evidence: Text = "1GiB"
    """Most evidence of one attempt, 1 MB to 2 GiB. The agent is stopped beyond it. Default 1 GiB."""

    usd: Annotated[float, Meta(ge=0)] | None = None
    """Most US dollars that the campaign may cost; needs `prices`. Default: no limit."""


class ScheduleSpec(Spec, frozen=True, kw_only=True):
    """`schedule`: how many attempts run at once, and when a trial is tried again."""

    parallel: Slots = 4
    """Most attempts at once, 1 to 256. Default 4."""

    runtimes: dict[RuntimeId, Slots] = {}
    """Most attempts at once by runtime id. Default: only `parallel` limits."""

    providers: dict[str, Slots] = {}
    """Most attempts at once by model provider. Default: only `parallel` limits."""

    per_credential: Slots | None = None
    """Most attempts at once with the same credential. Default: only `parallel` limits."""

    start_interval: Duration | None = None
    """Shortest time between the starts of two attempts. Default: none."""

    retries: Annotated[int, Meta(ge=0, le=20)] = 2
    """Most retries of a trial after failures for infrastructure reasons, 0 to 20. Default 2."""

    backoff: Duration = "2s"
    """Pause before the first retry; it doubles with each further one. Default 2 s."""

    longest_wait: Duration = "6h"
    """Longest time that the campaign waits for a quota to reset. Default 6 h."""

    continue_after_wait: bool = False
    """Whether an attempt that ended in a rate limit or an exhausted quota is continued after the wait: the trial's next
    attempt resumes its thread in its workspace. Such a trial is not comparable with an uninterrupted one. Default
    false."""

    def __post_init__(self) -> None:
        force_setattr(self, "runtimes", by_runtime_id(self.runtimes))


class HooksSpec(Spec, frozen=True, kw_only=True):
    """`hooks`: the operator's commands around each attempt. They run in the spec's folder, contained but not fenced."""

    before: Command | None = None
    """Command to run before the attempt. If it fails, the agent is not started. Default: none."""

    after: Command | None = None
    """Command to run after the attempt. If it fails, a warning is recorded. Default: none."""

    timeout: Duration = "30s"
    """Longest duration of each command. Default 30 s."""


class TraceProfile(StrEnum):
    """What the trace of every attempt must show."""

    NONE = "none"
    """Nothing."""

    USED_TOOLS = "used-tools"
    """At least one tool call."""

    CHANGED_FILES = "changed-files"
    """At least one changed file in the workspace."""

    MCP = "mcp"
    """At least one MCP call."""


class Requirement(StrEnum):
    """How every result must be verified."""

    NONE = "none"
    """It need not be."""

    VERIFIED = "verified"
    """By its probes."""

    OUTSIDE = "outside"
    """By its probes, of which Proctor judges at least one goal outside the processes of the product."""


class GatesSpec(Spec, frozen=True, kw_only=True):
    """`gates`: what a campaign's results must fulfil."""

    pair: bool = False
    """Whether every flow must have the same number of scored attempts of each mission. Default false."""

    coverage: Annotated[float, Meta(ge=0, le=1)] = 1.0
    """Share of trials that must have a result, 0 to 1. Default 1."""

    trace: TraceProfile = TraceProfile.NONE
    """What every attempt's trace must show. Default `none`."""

    require: Requirement = Requirement.NONE
    """How every result must be verified. One that is not counts as unverified. Default `none`."""


class KeepSpec(Spec, frozen=True, kw_only=True):
    """`keep`: what a run keeps besides the evidence."""

    workspaces: bool = False
    """Whether the workspace that each agent left is kept, unredacted, in the user's cache folder, so that `proctor
    regrade` can use it. Default false."""


class ToolsSpec(Spec, frozen=True, kw_only=True):
    """`tools`: a flow's tool policy. Globs match `kind:name` of a call, and `command:` with the command line.
    Violations are reported; no call is blocked."""

    allow: Texts | None = None
    """A call that matches none of these globs is a violation. Default: every call is allowed."""

    deny: Texts = []
    """A call that matches one of these globs is a violation, even if it is allowed. Default: none."""


class SelectSpec(Spec, frozen=True, kw_only=True):
    """`select`: which missions to run. A mission must match every key that is present, and one entry of each."""

    ids: Texts = []
    """Ids of missions. Default: all."""

    globs: Texts = []
    """Globs that match ids of missions. Default: all."""

    tags: Texts = []
    """Tags of missions. Default: all."""

    range: Text | None = None
    """Positions of missions, counted from 1, such as `2-5` or `7`. Default: all."""


class MissionsFolder(Spec, frozen=True, kw_only=True):
    """`missions: {folder: PATH}`: missions as Markdown files. The file name is the id, the text is the prompt, and the
    front matter has the other keys."""

    folder: Text
    """Path of the folder, relative to the spec's folder."""


class SecretFile(Spec, frozen=True, kw_only=True):
    """A file with secrets: JSON or lines of NAME=value, of which the values named like secrets are masked, or one
    secret."""

    file: Text
    """Path of the file, relative to the spec's folder; `~` is the home folder."""
