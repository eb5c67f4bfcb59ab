"""Rows of probes.jsonl, and the probes that a mission requires."""

from collections.abc import Iterable, Mapping
from enum import StrEnum
from types import MappingProxyType

import msgspec

from proctor.canonical import digest, digest_bytes
from proctor.evidence.artifacts import Judged, RequiredProbe
from proctor.ids import AttemptId, Digest
from proctor.spec.criterion import Role
from proctor.spec.fence import Contain, Network
from proctor.spec.probes import ProbeSpec

_NO_FILES: Mapping[str, bytes] = MappingProxyType({})


class Verdict(StrEnum):
    """The result of one run of a probe."""

    PASS = "pass"  # noqa: S105
    """The workspace is as the probe requires."""
    FAIL = "fail"
    """The workspace is not as the probe requires."""
    UNAVAILABLE = "unavailable"
    """The probe could not judge the workspace."""
    NOT_RUN = "not_run"
    """The probe was not run."""


class Fault(StrEnum):
    """Where the cause lies if a probe could not judge the workspace."""

    MACHINE = "machine"
    """This machine: a program or containment is missing, or it refused an operation."""
    WORKSPACE = "workspace"
    """What the probe was run on. If it could judge the untouched workspace, the agent caused it."""


class Phase(StrEnum):
    """When a probe was run."""

    BASELINE = "baseline"
    """Before the agent started, on the untouched workspace."""
    MUTANT = "mutant"
    """Before the agent started, on the untouched workspace with the guard's mutant."""
    FINAL = "final"
    """After the agent ended."""


class ViewKind(StrEnum):
    """How a probe saw the workspace."""

    OVERLAY = "overlay"
    """Through an overlay mount at the workspace's own path. Nothing was copied."""
    COPY = "copy"
    """As a copy in another folder."""


class ContainmentRecord(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """How the processes of a probe were contained."""

    by: str
    """The containment variant, such as `bwrap`, `unshare`, `cgroup` or `warden`."""
    files: Contain
    """Whether file access was restricted: `fenced` or `none`."""
    network: Network
    """Which network the processes could reach: `none` (only loopback) or `host`."""


class ProbeProgram(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """A program that a probe ran, as its file was at that moment."""

    path: str
    """The real path of its file, relative to the workspace if it is there; the name, if there is no such program."""
    sha256: Digest | None
    """Digest of the file; null if it cannot be read or does not exist."""
    is_in_workspace: bool
    """Whether the file is in the workspace, and so part of what is judged."""
    is_writable: bool
    """Whether the agent could change the file, or put another in its place."""


class ControlsRecord(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """What the report says about the control tests, which were planted to show whether it can be believed."""

    passing_passed: bool
    """Whether each control test that must pass is reported as passed."""
    failing_failed: bool
    """Whether each control test that must fail is reported as failed, for the reason that is written in it."""


class TestsRecord(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """The tests of a report, without the control tests."""

    passed: int
    """How many tests passed."""
    failed: int
    """How many tests failed."""
    errors: int
    """How many tests, or files of tests, ended with an error."""
    skipped: int
    """How many tests were skipped or are expected to fail."""
    ran: tuple[str, ...] = ()
    """On the untouched workspace: for each test that was not skipped, the first 12 hex digits of the SHA-256 of its
    name. Empty in other rows."""
    not_imported: tuple[str, ...] = ()
    """On the untouched workspace: the same for each file of tests that could not be imported. Empty in other rows."""
    failed_tests: tuple[str, ...] = ()
    """On the untouched workspace, for `test_suite_parity`: those of `ran` that did not pass. Empty in other rows."""
    skipped_tests: tuple[str, ...] = ()
    """On the untouched workspace, for `test_suite_parity`: the same for each test that was skipped. Empty in other
    rows."""


class ProbeArtifact(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """A file that a probe produced, such as a screenshot, and that is part of the evidence."""

    file: str
    """Name of the file in the attempt's folder."""
    sha256: Digest
    """Digest of its content."""
    bytes: int
    """Its size."""


class ProbeRun(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """One of several runs of a probe that has `repeat`."""

    verdict: Verdict
    """The result of this run."""
    summary: str
    """What was observed in this run. Redacted; at most 500 characters."""
    duration_ms: int
    """How long this run took, in milliseconds."""


class ProbeRow(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """One run of one probe on one state of the workspace, or all runs of a probe that has `repeat`."""

    phase: Phase
    """When the probe was run: before (baseline, mutant) or after (final) the agent."""
    index: int
    """The position of the probe in the mission, counted from 0."""
    kind: str
    """The kind of the probe, such as `headless_run`."""
    probe_digest: Digest
    """The digest of the probe's complete spec with the content of its files and of the mission's hidden files."""
    role: Role = Role.GOAL
    """What the probe says about the mission: goal or guard."""
    criterion: str
    """What the probe shows, in words."""
    workspace_digest: Digest
    """The digest of the workspace that the probe was run on. A mutant is laid over it, and is not part of it."""
    verdict: Verdict
    """The result: pass, fail, unavailable or not_run."""
    summary: str
    """What was observed, never what was expected (an agent may be shown it). Redacted; at most 500 characters."""
    fault: Fault | None = None
    """Where the cause lies if the verdict is `unavailable`: machine or workspace; null for other verdicts."""
    argv: tuple[str, ...] = ()
    """The command line that was run, without what the probe's kind adds to it; empty if none was."""
    programs: tuple[ProbeProgram, ...] = ()
    """The programs that were run, with the interpreters of scripts; empty if none was."""
    exit_code: int | None = None
    """The exit code of the command; null if unknown or if it did not exit."""
    signal: int | None = None
    """The signal that killed the command; null if unknown or none. Set together with `exitCode` if ambiguous."""
    duration_ms: int = 0
    """How long the probe took, including the preparation of its view of the workspace, in milliseconds."""
    timed_out: bool = False
    """Whether the command was stopped at the probe's `timeout`."""
    stdout_tail: str = ""
    """The last 4096 bytes of the command's stdout, redacted; shortening is stated in the text."""
    stderr_tail: str = ""
    """The last 4096 bytes of the command's stderr, redacted; shortening is stated in the text."""
    mutated: bool = False
    """Whether the workspace itself (not the probe's view of it) changed while the probe ran."""
    view: ViewKind | None = None
    """How the probe saw the workspace: `overlay` or `copy`; null if it saw nothing."""
    contained: ContainmentRecord | None = None
    """How the probe's processes were contained; null if this machine could not contain them as the spec requires."""
    judged: Judged | None = None
    """Where the verdict comes from: `inside` or `outside` the product's process; null if it is not pass or fail, or
    if nothing was run."""
    controls: ControlsRecord | None = None
    """What the report says about the control tests; null if the probe has none, or there is no report."""
    tests: TestsRecord | None = None
    """The tests of the report; null if the probe reads none, or there is no report."""
    artifacts: tuple[ProbeArtifact, ...] = ()
    """Files that the probe produced and that were kept as evidence."""
    runs: tuple[ProbeRun, ...] = ()
    """The single runs of a probe that has `repeat`, in their order; empty for other probes."""
    carried_from: AttemptId | None = None
    """The attempt that recorded this row first, if it was carried over from an earlier one; null otherwise."""


def identify_probe(spec: ProbeSpec, *, files: Mapping[str, bytes] = _NO_FILES, hidden: Digest | None = None) -> Digest:
    """Return the digest of everything that a probe's verdict depends on, apart from the workspace and the machine.

    `files` are files of the spec by their path, and `hidden` is the digest of the mission's hidden files. A probe with
    another command, another golden or other hidden files is another probe.
    """
    content = [digest_bytes(files[path]) if path in files else None for path in spec.files.values()]
    return digest({"spec": spec, "files": content, "hidden": hidden})


def require(
    probes: Iterable[ProbeSpec], *, files: Mapping[str, bytes] = _NO_FILES, hidden: Digest | None = None
) -> tuple[RequiredProbe, ...]:
    """Return the required probes of a mission, in its order. `files` and `hidden` are as for `identify_probe`."""
    return tuple(
        RequiredProbe(
            digest=identify_probe(spec, files=files, hidden=hidden),
            kind=kind_of(spec),
            index=index,
            role=spec.role,
            has_mutant=spec.mutant is not None,
            criterion=criterion_of(spec, index),
        )
        for index, spec in enumerate(probes)
    )


def criterion_of(spec: ProbeSpec, index: int) -> str:
    """Return what a probe shows, in words. Without a criterion in the spec, it is the probe itself.

    >>> from proctor.spec.command_probes import HeadlessRun
    >>> criterion_of(HeadlessRun(command="true"), 0)
    'probe 1 (headless_run)'
    """
    return spec.criterion or f"probe {index + 1} ({kind_of(spec)})"


def kind_of(spec: ProbeSpec) -> str:
    """Return the kind of a probe, which is the tag of its spec.

    >>> from proctor.spec.command_probes import HeadlessRun
    >>> kind_of(HeadlessRun(command="true"))
    'headless_run'
    """
    return str(spec.__struct_config__.tag)
