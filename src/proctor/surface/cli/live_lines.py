"""A picture of a running campaign in lines for people: attempts, limits and waits."""

from collections.abc import Iterable, Iterator

from rich.table import Table
from rich.text import Text

from proctor.evidence.live import Live, LiveAttempt, LiveLimit
from proctor.report.words import count, duration, legible, one_line, plural


def running_table(running: Iterable[LiveAttempt], *, now_ms: int) -> Table:
    """A line for each: phase, tool, tokens, cost, how long ago it was last heard."""
    table = Table.grid(padding=(0, 2), pad_edge=True)
    table.add_column(no_wrap=True, max_width=36)
    table.add_column(style="cyan", no_wrap=True)
    table.add_column(ratio=1, no_wrap=True, overflow="ellipsis")
    for _ in range(3):
        table.add_column(justify="right", no_wrap=True, style="dim")
    for each in running:
        age = f"{duration(max(0, now_ms - each.heard_at_ms))} ago"
        tokens = f"{count(each.tokens)} tokens"
        table.add_row(legible(each.attempt_id), legible(each.phase), legible(each.doing), tokens, money(each.usd), age)
    return table


def waits(live: Live, *, now_ms: int) -> Iterator[Text]:
    """A line for each limit, and one for what waits."""
    for each in live.limits:
        yield Text(f"  {limit_line(each, now_ms=now_ms)}", style="yellow" if each.until_ms is not None else "dim")
    told = [plural(live.waiting, "cell") + " waiting"] if live.waiting else []
    if live.retrying:
        first = "" if live.retry_at_ms is None else f", the first {_when(live.retry_at_ms, now_ms=now_ms)}"
        retries = "1 retry waits" if live.retrying == 1 else f"{live.retrying:,} retries wait"
        told.append(f"{retries}{first}")
    if live.usd is not None:
        told.append(f"{money(live.usd)} so far")
    if told:
        yield Text(f"  {'; '.join(told)}", style="dim")


def limit_line(limit: LiveLimit, *, now_ms: int) -> str:
    """
    >>> limit_line(LiveLimit(key="provider:openai", most=8, now=4, taken=4), now_ms=0)
    'provider:openai  4 of 4 (8 at most)'
    >>> limit_line(LiveLimit(key="all", most=2, now=2, taken=0, until_ms=61_000, why="asked to wait"), now_ms=1000)
    'all  0 of 2, shut for 1 min 00 s: asked to wait'
    """
    line = f"{legible(limit.key)}  {limit.taken} of {limit.now}"
    if limit.now != limit.most:
        line += f" ({limit.most} at most)"
    if limit.until_ms is not None:
        line += f", shut for {duration(max(0, limit.until_ms - now_ms))}"
    return line if limit.why is None else f"{line}: {one_line(limit.why)}"


def _when(at_ms: int, *, now_ms: int) -> str:
    return "now" if at_ms <= now_ms else f"in {duration(at_ms - now_ms)}"


def age(ms: int) -> str:
    """
    >>> age(90_000), age(3 * 86_400_000)
    ('1 min 30 s', '3 days')
    """
    return duration(max(0, ms)) if ms < 48 * 3_600_000 else f"{ms // 86_400_000:,} days"


def money(usd: float | None) -> str:
    """
    >>> money(None), money(0.0), money(0.01234), money(12.5)
    ('$?', '$0.00', '$0.0123', '$12.50')
    """
    if usd is None:
        return "$?"
    return f"${usd:,.4f}" if 0 < usd < 1 else f"${usd:,.2f}"
