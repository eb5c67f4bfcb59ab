"""What the agent claims: the marker that the prompt asks for, or a result that it handed in; nothing is inferred."""

from typing import Any

import msgspec

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
    """`claimed` is None where the agent said nothing; `problem` where it said something we cannot read."""

    claimed: bool | None = None
    answer: str | None = None
    frame: int | None = None
    problem: str | None = None
    result: Any = None


NO_CLAIM = Claim()


def with_footer(prompt: str) -> str:
    """The prompt as it is sent.

    >>> with_footer("Fix it.").startswith("Fix it.\\n\\nWhen you are finished")
    True
    """
    return f"{prompt.rstrip()}\n\n{FOOTER}\n"


def claim_in(text: str, *, frame: int, marker: str = MARKER) -> Claim:
    """The claim of one message: its last line, exactly as the prompt asks for it.

    >>> claim_in('Done.\\nPROCTOR-RESULT: {"done": true, "answer": "4"}', frame=7)
    Claim(claimed=True, answer='4', frame=7, problem=None, result=None)
    >>> claim_in("I fixed everything!", frame=7).claimed is None
    True
    """
    # Not splitlines(): JSON may hold a bare U+2028, which is a line end to Python.
    lines = [stripped for line in text.split("\n") if (stripped := line.strip().strip("`").strip())]
    if not lines or not lines[-1].startswith(marker):
        return NO_CLAIM
    try:
        said = msgspec.json.decode(lines[-1].removeprefix(marker).strip().encode(), type=_Marker)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        return Claim(frame=frame, problem=f"the marker is not readable: {error}")
    return Claim(claimed=said.done, answer=said.answer or None, frame=frame)


class ClaimFold:
    """The claim of the last message of the last turn: whatever is said after a claim takes it back.

    Of a result that was handed in words take nothing back, but a later one does.
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
                self.claim, self._is_handed_in = _claim_of(event), True
            case _:
                pass


def _claim_of(event: ResultFound) -> Claim:
    return Claim(
        claimed=event.done,
        answer=event.answer or None,
        frame=event.frame,
        problem=None if event.problem is None else f"{event.code}: {event.problem}",
        result=event.result,
    )
