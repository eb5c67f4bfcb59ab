"""What a probe found, as a row of probes.jsonl says it, and what is required of one."""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

import msgspec

from proctor.canonical import digest
from proctor.ids import Digest
from proctor.spec.model import Contain, Network, ProbeSpec


class Verdict(StrEnum):
    """What one run of a probe established."""

    PASS = "pass"  # noqa: S105
    FAIL = "fail"  # the workspace is wrong
    UNAVAILABLE = "unavailable"  # the probe could not judge
    NOT_RUN = "not_run"


class Phase(StrEnum):
    """Before the agent began, on the untouched workspace; or after it ended."""

    BASELINE = "baseline"
    FINAL = "final"


class Contained(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """What held a probe's processes, and what they could write to and reach."""

    by: str
    files: Contain
    network: Network


class ProbeRow(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """One run of one probe, bound to the probe's whole spec and to the content it was run on.

    `summary` and the tails say what was observed and never what was expected: an agent may be shown them.
    """

    phase: Phase
    index: int
    kind: str
    probe_digest: Digest
    workspace_digest: Digest
    verdict: Verdict
    summary: str
    argv: tuple[str, ...] = ()
    exit_code: int | None = None
    signal: int | None = None
    duration_ms: int = 0
    timed_out: bool = False
    stdout_tail: str = ""
    stderr_tail: str = ""
    mutated: bool = False
    contained: Contained | None = None  # none where it could not be as the spec asks, and in rows older than this


@dataclass(frozen=True, slots=True, kw_only=True)
class RequiredProbe:
    """One probe that a mission asks for. Its digest is that of its whole spec, so another command is another probe."""

    digest: Digest
    kind: str
    index: int


def require(probes: Iterable[ProbeSpec]) -> tuple[RequiredProbe, ...]:
    """The requirements of a mission, in its own order."""
    return tuple(
        RequiredProbe(digest=digest(spec), kind=kind_of(spec), index=index) for index, spec in enumerate(probes)
    )


def kind_of(spec: ProbeSpec) -> str:
    """
    >>> from proctor.spec.model import HeadlessRun
    >>> kind_of(HeadlessRun(command="true"))
    'headless_run'
    """
    return str(spec.__struct_config__.tag)
