"""What the agent claims: the marker that the prompt asks for, and nothing inferred from a turn that ended."""

import msgspec

from proctor.event.model import Event, TextSaid, TurnAsked

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


NO_CLAIM = Claim()


def with_footer(prompt: str) -> str:
    """The prompt as it is sent.

    >>> with_footer("Fix it.").startswith("Fix it.\\n\\nWhen you are finished")
    True
    """
    return f"{prompt.rstrip()}\n\n{FOOTER}\n"


def claim_in(text: str, *, frame: int) -> Claim:
    """The claim of one message: its last line, exactly as the prompt asks for it.

    >>> claim_in('Done.\\nPROCTOR-RESULT: {"done": true, "answer": "4"}', frame=7)
    Claim(claimed=True, answer='4', frame=7, problem=None)
    >>> claim_in("I fixed everything!", frame=7).claimed is None
    True
    """
    # Not splitlines(): JSON may hold a bare U+2028, which is a line end to Python.
    lines = [stripped for line in text.split("\n") if (stripped := line.strip().strip("`").strip())]
    if not lines or not lines[-1].startswith(MARKER):
        return NO_CLAIM
    try:
        marker = msgspec.json.decode(lines[-1].removeprefix(MARKER).strip().encode(), type=_Marker)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        return Claim(frame=frame, problem=f"the marker is not readable: {error}")
    return Claim(claimed=marker.done, answer=marker.answer or None, frame=frame)


class ClaimFold:
    """The claim of the last message of the last turn: whatever is said after a claim takes it back."""

    def __init__(self) -> None:
        self.claim = NO_CLAIM

    def feed(self, event: Event) -> None:
        if isinstance(event, TurnAsked):
            self.claim = NO_CLAIM
        elif isinstance(event, TextSaid):
            self.claim = claim_in(event.text, frame=event.frame)
