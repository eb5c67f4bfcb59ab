"""Decides about an attempt from its record, using only its files: whether it is verified, and as expected."""

from collections.abc import Sequence

from proctor.attempt.derive import DerivedResult
from proctor.attempt.judge import judge
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
    """Compare the attempt with `record.expect`. Raises EvidenceError if a file that this needs cannot be read."""
    expect = record.expect
    changed = None
    if expect.workspace is not None:
        diff = changed_in(files.read_bytes(WORKSPACE_DIFF).decode("utf-8", "replace"))
        changed = None if diff.is_cut else diff.paths
    return judge(
        expect,
        outcome=derived.ending.outcome,
        verified=decision.verified,
        is_unjudged=decision.unjudged is not None,
        claim=derived.claim,
        metrics=derived.metrics,
        calls=() if expect.trace is None else files.rows(TOOL_CALLS, ToolCall),
        changed=changed,
    )
