"""Structs of a spec: what the author of a mission expects of result, trace and workspace."""

from enum import StrEnum
from typing import Any

from proctor.event.outcome import Outcome
from proctor.spec.struct import Count, Spec, Text, Texts


class ExpectedVerdict(StrEnum):
    """What the probes established about the task."""

    YES = "yes"
    """It was done."""

    NO = "no"
    """It was not done."""

    UNKNOWN = "unknown"
    """Neither was established."""

    @property
    def as_bool(self) -> bool | None:
        """The verdict as reports and `--json` write it: true, false or null."""
        return None if self is ExpectedVerdict.UNKNOWN else self is ExpectedVerdict.YES


class ResultExpect(Spec, frozen=True, kw_only=True):
    """`expect.result`: the structured result that the agent hands in besides its answer. Pointers are JSON Pointers
    (RFC 6901)."""

    equals: Any = None
    """The whole result, compared as JSON. Default: not compared."""

    has: Texts = []
    """Pointers at which the result must have a value, which may be null. Default: none."""

    non_empty: Texts = []
    """Pointers at which the result must have a value that is not null or empty. Default: none."""


class TraceExpect(Spec, frozen=True, kw_only=True):
    """`expect.trace`: the agent's tool calls. Zero is a limit; no limit is None."""

    max_tool_calls: Count | None = None
    """Most tool calls. Default: no limit."""

    max_failures: Count | None = None
    """Most failed tool calls. Default: no limit."""

    max_repeats: Count | None = None
    """Most equal tool calls in a row. Default: no limit."""

    tools: Texts = []
    """Globs; each must match the name, kind or `kind:name` of a call. Default: none."""

    commands: Texts = []
    """Texts; a command line must begin with each. Default: none."""


class WorkspaceExpect(Spec, frozen=True, kw_only=True):
    """`expect.workspace`: the paths that the agent changed, as globs."""

    changed: Texts = []
    """Globs; each must match a changed path. Default: none."""

    untouched: Texts = []
    """Globs; no changed path may match one. Default: none."""

    only: Texts | None = None
    """Globs; every changed path must match one. An empty list allows no change. Default: not compared."""


class ExpectSpec(Spec, frozen=True, kw_only=True):
    """`expect`: the result that the author of a mission expects. `proctor run` exits with 0 if every trial meets it."""

    verified: ExpectedVerdict | None = None
    """The probes' verdict. Default: not compared."""

    outcome: Outcome | None = None
    """How the attempt ends. Default: not compared."""

    answer: str | None = None
    """The agent's answer, exactly. Default: not compared."""

    matches: Text | None = None
    """RE2 pattern that must be found in the answer. Default: not compared."""

    result: ResultExpect | None = None
    """The agent's structured result. Default: not compared."""

    trace: TraceExpect | None = None
    """The agent's tool calls. Default: not compared."""

    workspace: WorkspaceExpect | None = None
    """The agent's changes to the workspace. Default: not compared."""

    @property
    def states_something(self) -> bool:
        """Whether anything is compared. Otherwise a mission with probes is expected to pass them.

        >>> ExpectSpec(trace=TraceExpect()).states_something, ExpectSpec(answer="").states_something
        (False, True)
        """
        empty = (None, ResultExpect(), TraceExpect(), WorkspaceExpect())
        return any(getattr(self, name) not in empty for name in self.__struct_fields__)
