"""Explain one attempt. Without a seal, the explanation is derived from its frames as far as they go."""

from collections.abc import Callable
from dataclasses import replace

import msgspec

from proctor.attempt.recheck import derive_again
from proctor.errors import ProctorError
from proctor.event.trace import ToolCall
from proctor.evidence.artifacts import Feedback
from proctor.evidence.layout import TOOL_CALLS, AttemptPaths
from proctor.ids import AttemptId
from proctor.report.explanation import AttemptExplanation, tell
from proctor.report.live import is_running
from proctor.report.view import view_attempt


def explain_attempt(paths: AttemptPaths, *, spell: Callable[[str], str]) -> AttemptExplanation:
    """Return the explanation of an attempt. `spell` formats the suggested commands for this user."""
    view, tokens = view_attempt(paths), None
    if not view.is_sealed:
        try:
            again = derive_again(paths)
        except ProctorError:
            pass  # only the existing files can be used
        else:
            calls = tuple(_call(line) for line in again.files[TOOL_CALLS].splitlines())
            feedback = Feedback(attempt_id=AttemptId(paths.folder.name), **msgspec.structs.asdict(again.derived.claim))
            tokens = again.derived.metrics.total_tokens
            view = replace(view, tool_calls=calls, feedback=view.feedback or feedback)
    explanation = tell(view, is_running=is_running(paths))
    return msgspec.structs.replace(
        explanation,
        tokens=explanation.tokens if tokens is None else tokens,
        next=tuple(map(spell, explanation.next)),
    )


def _call(line: bytes) -> ToolCall:
    # The fields of the hash chain are not needed, and are ignored.
    return msgspec.json.decode(line, type=ToolCall)
