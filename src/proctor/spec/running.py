"""How a campaign is run and judged, as the YAML spells it: limits, schedule, hooks, gates, tool policy, selection."""

from enum import StrEnum
from typing import Annotated

from msgspec import Meta

from proctor.ids import StrategyId
from proctor.spec.struct import Command, Count, Duration, Spec, Text, Texts

Slots = Annotated[int, Meta(ge=1, le=256)]


class LimitsSpec(Spec, frozen=True, kw_only=True):
    """Three clocks always run over an attempt. `mission` bounds a cell with all its attempts, `campaign` the whole.

    `tokens` is for an attempt, `usd` for the campaign; the latter needs `prices`.
    """

    attempt: Duration = "300s"
    turn: Duration = "180s"
    stall: Duration = "60s"
    mission: Duration | None = None
    campaign: Duration | None = None
    tokens: Count | None = None
    usd: Annotated[float, Meta(ge=0)] | None = None


class ScheduleSpec(Spec, frozen=True, kw_only=True):
    """How many attempts at a time: in all, and for each strategy, provider and credential.

    `start_interval` lies between two starts, at least. `retries` are made of a cell after failures that are nobody's
    verdict; `backoff` is the first pause before one, and `longest_wait` what a campaign waits at most for a quota.
    """

    parallel: Slots = 4
    strategies: dict[StrategyId, Slots] = {}
    providers: dict[str, Slots] = {}
    per_credential: Slots | None = None
    start_interval: Duration | None = None
    retries: Annotated[int, Meta(ge=0, le=20)] = 2
    backoff: Duration = "2s"
    longest_wait: Duration = "6h"


class HooksSpec(Spec, frozen=True, kw_only=True):
    """Commands of the operator's own around each attempt of a mission, in the spec's folder, contained but not fenced.

    One `before` that fails keeps the agent from being asked; one `after` that fails is told.
    """

    before: Command | None = None
    after: Command | None = None
    timeout: Duration = "30s"


class TraceProfile(StrEnum):
    """What every attempt's trace must show for its evidence to count."""

    NONE = "none"
    USED_TOOLS = "used-tools"  # at least one tool call
    CHANGED_FILES = "changed-files"  # something in the workspace
    MCP = "mcp"  # at least one MCP call


class GatesSpec(Spec, frozen=True, kw_only=True):
    """What a mission must pass to count. `pair`: in every flow alike many attempts that say something of the agent.

    `coverage` is the share of cells that must have a result.
    """

    pair: bool = False
    coverage: Annotated[float, Meta(ge=0, le=1)] = 1.0
    trace: TraceProfile = TraceProfile.NONE


class ToolsSpec(Spec, frozen=True, kw_only=True):
    """A flow's tool policy, by globs over `kind:name` and `command:line`; what is denied is never allowed."""

    allow: Texts | None = None
    deny: Texts = []


class SelectSpec(Spec, frozen=True, kw_only=True):
    """Which missions: each key narrows, its entries widen. `range` counts from 1, as in `2-5` or `7`."""

    ids: Texts = []
    globs: Texts = []
    tags: Texts = []
    range: Text | None = None


class MissionsFolder(Spec, frozen=True, kw_only=True):
    """Missions as Markdown files: the id is the file's name, the prompt its text, the rest its front matter."""

    folder: Text
