"""Text lines for a running campaign: attempts, concurrency limits and waits."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rich.cells import cell_len, set_cell_size
from rich.console import Console, ConsoleOptions, RenderResult
from rich.text import Text

from proctor.evidence.live import Live, LiveAttempt, LiveLimit
from proctor.report.format_values import count, duration, legible, money, one_line, plural

_MOST_NAME = 36


@dataclass(frozen=True, slots=True)
class RunningLines:
    """Running attempts, one per line: phase, tool, tokens, cost and time since the last event. At most `most` lines.

    Not a rich table: rendering one of 64 rows takes 60 ms, five times a second, during which the attempts have to wait.
    """

    running: Sequence[LiveAttempt]
    now_ms: int
    most: int | None = None

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        shown = self.running[: self.most]
        if not shown:
            return
        names = [legible(each.attempt_id) for each in shown]
        name_width = min(max(map(cell_len, names)), _MOST_NAME)
        phase_width = max(cell_len(each.phase) for each in shown)
        for name, each in zip(names, shown, strict=True):
            age = f"{duration(max(0, self.now_ms - each.heard_at_ms))} ago"
            facts = (
                f"  {count(each.tokens) + ' tokens':>14}  {'$?' if each.usd is None else money(each.usd):>8}  {age:>12}"
            )
            left = options.max_width - 2 - name_width - 2 - phase_width - 2 - len(facts)
            yield Text.assemble(
                f"  {set_cell_size(name, name_width)}  ",
                (set_cell_size(legible(each.phase), phase_width), "cyan"),
                f"  {_cut(one_line(each.doing, limit=200), max(0, left))}",
                (facts, "dim"),
                no_wrap=True,
                overflow="crop",
            )
        if len(shown) < len(self.running):
            yield Text(f"  and {len(self.running) - len(shown)} more", style="dim")


def _cut(text: str, width: int) -> str:
    """Pad or cut a text to a width. Text that is cut ends with an ellipsis."""
    return (
        set_cell_size(text, width) if cell_len(text) <= width else set_cell_size(text, max(0, width - 1)) + "…"[:width]
    )


def waits(live: Live, *, now_ms: int) -> Iterator[Text]:
    """Yield one line per concurrency limit, and one for waiting trials, pending retries and the cost so far."""
    for each in live.limits:
        yield Text(f"  {limit_line(each, now_ms=now_ms)}", style="yellow" if each.until_ms is not None else "dim")
    parts = [plural(live.waiting, "trial") + " waiting"] if live.waiting else []
    if live.retrying:
        first = "" if live.retry_at_ms is None else f", the first {_when(live.retry_at_ms, now_ms=now_ms)}"
        retries = "1 retry waits" if live.retrying == 1 else f"{live.retrying:,} retries wait"
        parts.append(f"{retries}{first}")
    if live.usd is not None:
        parts.append(f"{money(live.usd)} so far")
    if parts:
        yield Text(f"  {'; '.join(parts)}", style="dim")


def limit_line(limit: LiveLimit, *, now_ms: int) -> str:
    """Return the state of a concurrency limit: used slots, total slots, and for how long it is closed.

    >>> limit_line(LiveLimit(key="provider:openai", maximum=8, current_maximum=4, taken=4), now_ms=0)
    'provider:openai  running now: 4 (at most 4 at once, normally 8)'
    >>> closed = LiveLimit(key="all", maximum=2, current_maximum=2, taken=0, until_ms=61_000, why="asked to wait")
    >>> limit_line(closed, now_ms=1000)
    'running now: 0 (at most 2 at once), closed for 1 min 00 s: asked to wait'
    """
    name = "" if limit.key == "all" else f"{legible(limit.key)}  "
    usual = "" if limit.current_maximum == limit.maximum else f", normally {limit.maximum}"
    line = f"{name}running now: {limit.taken} (at most {limit.current_maximum} at once{usual})"
    if limit.until_ms is not None:
        line += f", closed for {duration(max(0, limit.until_ms - now_ms))}"
    return line if limit.why is None else f"{line}: {one_line(limit.why)}"


def _when(at_ms: int, *, now_ms: int) -> str:
    return "now" if at_ms <= now_ms else f"in {duration(at_ms - now_ms)}"


def age(ms: int) -> str:
    """Return an age as text, in days from two days on.

    >>> age(90_000), age(3 * 86_400_000)
    ('1 min 30 s', '3 days')
    """
    return duration(max(0, ms)) if ms < 48 * 3_600_000 else f"{ms // 86_400_000:,} days"
