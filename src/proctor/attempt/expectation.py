"""Decides about an attempt from its record, using only its files: whether it is verified, and as expected."""

from collections.abc import Iterator, Sequence

from msgspec.structs import replace

from proctor.attempt.continued_attempts import open_earlier
from proctor.attempt.derive import DerivedResult
from proctor.attempt.judge import judge
from proctor.event.metrics import Metrics
from proctor.event.trace import ToolCall
from proctor.evidence.artifacts import AttemptRecord, Expectation, RequiredProbe
from proctor.evidence.attempt_files import AttemptFiles
from proctor.evidence.layout import TOOL_CALLS, WORKSPACE_DIFF
from proctor.ids import Digest
from proctor.probe.gate import Decision, decide
from proctor.probe.model import ProbeRow
from proctor.spec.criterion import WaiverSpec
from proctor.workspace.changed import changed_in


def decision_of(record: AttemptRecord, rows: Sequence[ProbeRow], *, workspace_digest: Digest) -> Decision:
    """Decide whether the attempt is verified, if `workspace_digest` is that of the workspace which the agent left."""
    return decide_tree(
        record.required_probes,
        rows,
        workspace_digest=workspace_digest,
        base_digest=record.workspace_digest,
        waivers=record.waivers,
    )


def decide_tree(
    required: Sequence[RequiredProbe],
    rows: Sequence[ProbeRow],
    *,
    workspace_digest: Digest,
    base_digest: Digest,
    waivers: Sequence[WaiverSpec] = (),
) -> Decision:
    """Decide whether a tree is verified. Attempts, `probe check` and `regrade` all decide here.

    `workspace_digest` is that of the tree, and `base_digest` that of the untouched one.
    """
    return decide(required, rows, workspace_digest=workspace_digest, base_digest=base_digest, waivers=waivers)


def expectation_of(
    record: AttemptRecord, files: AttemptFiles, derived: DerivedResult, decision: Decision
) -> Expectation:
    """Compare the attempt with `record.expect`. Its trace includes that of the attempts that it continues.

    Raises EvidenceError if a file that this needs cannot be read.
    """
    expect = record.expect
    changed = None
    if expect.workspace is not None:
        diff = changed_in(files.read_bytes(WORKSPACE_DIFF).decode("utf-8", "replace"))
        changed = None if diff.is_cut else diff.paths
    metrics, calls = derived.metrics, () if expect.trace is None else _chain_calls(files, record)
    if expect.trace is not None and record.continued_from is not None:
        metrics = _chain_metrics(metrics, files, record)
    return judge(
        expect,
        outcome=derived.ending.outcome,
        verified=decision.verified,
        is_unjudged=decision.unjudged is not None,
        claim=derived.claim,
        metrics=metrics,
        calls=calls,
        changed=changed,
    )


def _chain_calls(files: AttemptFiles, record: AttemptRecord) -> Iterator[ToolCall]:
    """Yield the tool calls of the attempts that an attempt continues, and its own."""
    for earlier in open_earlier(files.paths, record):
        yield from earlier.rows(TOOL_CALLS, ToolCall)
    yield from files.rows(TOOL_CALLS, ToolCall)


def _chain_metrics(metrics: Metrics, files: AttemptFiles, record: AttemptRecord) -> Metrics:
    """Return the metrics with the tool calls of the attempts that the attempt continues."""
    for earlier in open_earlier(files.paths, record):
        more = earlier.report.metrics
        metrics = replace(
            metrics,
            tool_calls=_plus(metrics.tool_calls, more.tool_calls),
            tool_failures=_plus(metrics.tool_failures, more.tool_failures),
            longest_streak=max(metrics.longest_streak or 0, more.longest_streak or 0),
        )
    return metrics


def _plus(one: int | None, other: int | None) -> int | None:
    return None if one is None or other is None else one + other
