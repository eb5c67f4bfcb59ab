"""The agent's claim about its task: the marker line that the prompt requests, or a result that it handed in."""

from typing import Any

import msgspec

from proctor import decoding
from proctor.event.model import Event, ResultFound, TextSaid, TurnAsked

MARKER = "PROCTOR-RESULT:"

FOOTER = (
    "When you are finished, end your last message with one line of exactly this form:\n"
    f'{MARKER} {{"done": true or false, "answer": "your answer in a few words, or an empty string"}}'
)


class _Marker(msgspec.Struct):
    done: bool
    answer: str | None = None


class Claim(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What the agent says about its task."""

    claimed: bool | None = None
    """Whether the agent says that the task is done; None if it says nothing readable."""

    answer: str | None = None
    """The agent's short answer; None if it gave none."""

    frame: int | None = None
    """Number of the row that contains the claim; None without a claim."""

    problem: str | None = None
    """Why a claim could not be read, or what is wrong with a handed-in result; None if nothing is."""

    result: Any = None
    """The structured result that the agent handed in, any JSON value."""


NO_CLAIM = Claim()


def with_footer(prompt: str) -> str:
    """Append the instruction to write the marker line to a prompt.

    >>> with_footer("Fix it.").startswith("Fix it.\\n\\nWhen you are finished")
    True
    """
    return f"{prompt.rstrip()}\n\n{FOOTER}\n"


def claim_in(text: str, *, frame: int, marker: str = MARKER) -> Claim:
    """Read the claim in the last line of a message, or return NO_CLAIM if that line is not a marker.

    >>> claim_in('Done.\\nPROCTOR-RESULT: {"done": true, "answer": "4"}', frame=7)
    Claim(claimed=True, answer='4', frame=7, problem=None, result=None)
    >>> claim_in("I fixed everything!", frame=7).claimed is None
    True
    """
    # Not splitlines(): JSON may contain a bare U+2028, which Python treats as the end of a line.
    lines = [stripped for line in text.split("\n") if (stripped := line.strip().strip("`").strip())]
    if not lines or not lines[-1].startswith(marker):
        return NO_CLAIM
    try:
        marker_line = decoding.decode(lines[-1].removeprefix(marker).strip().encode(), _Marker)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        return Claim(frame=frame, problem=f"the marker line is not readable: {error}")
    return Claim(claimed=marker_line.done, answer=marker_line.answer or None, frame=frame)


class ClaimFold:
    """Fold events into the claim of the last message of the last turn.

    A later message without a marker withdraws an earlier marker. A handed-in result is replaced only by a later one.
    """

    def __init__(self) -> None:
        self.claim = NO_CLAIM
        self._is_handed_in = False

    def feed(self, event: Event) -> None:
        match event:
            case TurnAsked():
                self.claim, self._is_handed_in = NO_CLAIM, False
            case TextSaid() if not self._is_handed_in:
                self.claim = claim_in(event.text, frame=event.frame)
            case ResultFound(problem=str(problem), code=code) if self._is_handed_in:
                self.claim = msgspec.structs.replace(self.claim, problem=f"{code}: {problem}")
            case ResultFound():
                self.claim, self._is_handed_in = _handed_in_claim(event), True
            case _:
                pass


def _handed_in_claim(event: ResultFound) -> Claim:
    return Claim(
        claimed=event.done,
        answer=event.answer or None,
        frame=event.frame,
        problem=None if event.problem is None else f"{event.code}: {event.problem}",
        result=event.result,
    )
