"""The columns that lists, reports and Markdown pages show for an attempt. A new column is declared here, once."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from rich.text import Text

from proctor.evidence.artifacts import Judged
from proctor.evidence.summary import FAILED, PASSED
from proctor.report.classify import classify
from proctor.report.format_values import count, duration, legible, yes_no
from proctor.report.row import AttemptRow

NO: Final = "NO"
"""A negative finding of Proctor: in capitals, because without colour it must still catch the eye."""


@dataclass(frozen=True, slots=True)
class AttemptColumn:
    """A column: its heading and its value for an attempt. A bold value needs attention."""

    name: str
    value: Callable[[AttemptRow], Text]
    is_number: bool = False


def _unknown() -> Text:
    return Text("–", style="dim")


def ending(row: AttemptRow) -> Text:
    """Return how the attempt ended, or the state of its evidence. One that continues another is marked."""
    if row.evidence == "invalid":
        return Text("INVALID", style="bold red")
    if row.state == "sealed" and row.outcome is not None:
        word = row.outcome.value if row.degraded is None else f"{row.outcome.value}, degraded"
        continued = "" if row.continues is None else " (continued)"
        return Text(f"{word}{continued}", style="" if word == "completed" else "yellow")
    return Text(row.state, style="cyan" if row.state == "running" else "bold red")


def verified_word(value: bool | None, judged: Judged | None = None) -> Text:
    """Return a verdict of probes as a word. One that the product itself could forge is marked."""
    style = {True: "green", False: "bold red", None: "yellow"}[value]
    word = NO if value is False else yes_no(value, none="unknown")
    return Text(f"{word} (inside)" if judged is Judged.INSIDE else word, style=style)


def _verified(row: AttemptRow) -> Text:
    """Return whether the attempt is verified. Without a probe nothing can be."""
    summary = row.summary
    if summary is None:
        return verified_word(row.verified)
    return verified_word(row.verified, summary.judged) if summary.has_probes else Text("no probe", style="yellow")


def _passed(row: AttemptRow) -> Text:
    """Return whether the attempt passes; in brackets if no probe says so."""
    result = classify(row) if row.state == "sealed" else None
    if result == PASSED:
        return Text("yes", style="green") if row.verified else Text("(yes)", style="yellow")
    return Text(NO, style="bold red") if result == FAILED else _unknown()


def expected_word(value: bool | None) -> Text:
    """Return as a word whether something came out as expected."""
    if value is None:
        return _unknown()
    return Text("yes", style="green") if value else Text(NO, style="bold red")


def _reasoning(row: AttemptRow) -> Text:
    tokens = None if row.summary is None else row.summary.tokens
    return Text(count(None if tokens is None else tokens.reasoning_output))


COLUMNS: Final = (
    AttemptColumn("runtime", lambda row: Text(legible(row.runtime_id or "?"))),
    AttemptColumn("outcome", ending),
    AttemptColumn("claimed", lambda row: Text(yes_no(row.claimed, none="–"))),
    AttemptColumn("verified", _verified),
    AttemptColumn("passed", _passed),
    AttemptColumn("expected", lambda row: expected_word(row.is_expected)),
    AttemptColumn("tools", lambda row: Text(count(row.tool_calls)), is_number=True),
    AttemptColumn("tokens", lambda row: Text(count(row.tokens)), is_number=True),
    AttemptColumn("reasoning", _reasoning, is_number=True),
    AttemptColumn("time", lambda row: Text(duration(row.duration_ms)), is_number=True),
)

DROP_ORDER: Final = (
    "reasoning",
    "tokens",
    "time",
    "tools",
    "passed",
    "claimed",
    "runtime",
    "expected",
    "verified",
    "outcome",
)
"""Columns that a narrow terminal leaves out, the first to go first."""
