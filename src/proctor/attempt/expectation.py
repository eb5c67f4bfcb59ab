"""Compares an attempt with the expectation in its record, using only its files."""

from proctor.attempt.derive import DerivedResult
from proctor.attempt.judge import judge
from proctor.event.trace import ToolCall
from proctor.evidence.artifacts import AttemptRecord, Expectation
from proctor.evidence.layout import AttemptPaths
from proctor.evidence.reader import read_bytes, read_rows
from proctor.spec.expect import ExpectedVerdict
from proctor.workspace.changed import changed_in


def expectation_of(
    record: AttemptRecord, paths: AttemptPaths, derived: DerivedResult, *, verified: ExpectedVerdict
) -> Expectation:
    """Compare the attempt with `record.expect`. Raises EvidenceError if a file that this needs cannot be read."""
    expect = record.expect
    changed = None
    if expect.workspace is not None:
        diff = changed_in(read_bytes(paths.workspace_diff).decode("utf-8", "replace"))
        changed = None if diff.is_cut else diff.paths
    return judge(
        expect,
        outcome=derived.ending.outcome,
        verified=verified,
        claim=derived.claim,
        metrics=derived.metrics,
        calls=() if expect.trace is None else read_rows(paths.tool_calls, ToolCall),
        changed=changed,
    )
