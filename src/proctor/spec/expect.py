"""What the author of a mission says will come out of it: result, trace and workspace. Nought is a limit."""

from enum import StrEnum
from typing import Any

from proctor.event.outcome import Outcome
from proctor.spec.struct import Count, Spec, Text, Texts


class Verified(StrEnum):
    """What a probe established. `unknown` is a value."""

    YES = "yes"
    NO = "no"
    UNKNOWN = "unknown"

    @property
    def as_bool(self) -> bool | None:
        """As reports and `--json` say it."""
        return None if self is Verified.UNKNOWN else self is Verified.YES


class ResultExpect(Spec, frozen=True, kw_only=True):
    """Of what the agent handed in beside its answer (`feedback.json` result). Pointers are RFC 6901."""

    equals: Any = None
    has: Texts = []
    non_empty: Texts = []


class TraceExpect(Spec, frozen=True, kw_only=True):
    """Of what it did: most calls, failures and equal calls in a row; tools and commands that must have been used.

    A command is named by what its line begins with.
    """

    max_tool_calls: Count | None = None
    max_failures: Count | None = None
    max_repeats: Count | None = None
    tools: Texts = []
    commands: Texts = []


class WorkspaceExpect(Spec, frozen=True, kw_only=True):
    """Of what it changed, by globs: each of `changed` fits a changed path, none of `untouched` does, and where `only`
    is given every changed path fits one of it.
    """

    changed: Texts = []
    untouched: Texts = []
    only: Texts | None = None


class ExpectSpec(Spec, frozen=True, kw_only=True):
    """What the spec's author says will come out; the run exits 0 when every cell meets it."""

    verified: Verified | None = None
    outcome: Outcome | None = None
    answer: str | None = None
    matches: Text | None = None  # a pattern (RE2) found in the answer
    result: ResultExpect | None = None
    trace: TraceExpect | None = None
    workspace: WorkspaceExpect | None = None
