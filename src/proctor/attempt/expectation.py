"""Whether an attempt came out as its record says it should: judged from its files, when they are new and ever after."""

from proctor.attempt.derive import Derived
from proctor.attempt.judge import judge
from proctor.event.trace import ToolCall
from proctor.evidence.artifacts import AttemptRecord, Expectation
from proctor.evidence.layout import AttemptPaths
from proctor.evidence.reader import read_bytes, read_rows
from proctor.spec.expect import ExpectSpec, Verified
from proctor.workspace.changed import changed_in


def expectation_of(record: AttemptRecord, paths: AttemptPaths, derived: Derived, *, verified: Verified) -> Expectation:
    """EvidenceError where a file that it takes cannot be read."""
    expect = record.expect or ExpectSpec()
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
