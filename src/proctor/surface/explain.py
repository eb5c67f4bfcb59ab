"""The story of one attempt; of one that has no seal, as far as its frames go."""

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
    """`spell` turns what is to be done next into what can be typed here."""
    view, tokens = view_attempt(paths), None
    if not view.is_sealed:
        try:
            again = derive_again(paths)
        except ProctorError:
            pass  # then there is nothing more to tell than what the files say
        else:
            calls = tuple(_call(line) for line in again.files[TOOL_CALLS].splitlines())
            feedback = Feedback(attempt_id=AttemptId(paths.folder.name), **msgspec.structs.asdict(again.derived.claim))
            tokens = again.derived.metrics.total_tokens
            view = replace(view, tool_calls=calls, feedback=view.feedback or feedback)
    story = tell(view, is_running=is_running(paths))
    return msgspec.structs.replace(
        story, tokens=story.tokens if tokens is None else tokens, next=tuple(map(spell, story.next))
    )


def _call(line: bytes) -> ToolCall:
    # Its place in the chain is of no interest here, and a struct passes over what it does not name.
    return msgspec.json.decode(line, type=ToolCall)
