"""Before money is spent: what it would come to, told, and somebody's agreement."""

import select
import sys

from rich.text import Text

from proctor.attempt.model import DECIDE_S
from proctor.errors import InputError
from proctor.report.format_values import duration, legible, plural
from proctor.surface.cli.output import Output
from proctor.surface.cli.terminal_approvals import is_somebody_there
from proctor.surface.estimate import Estimate


def agree(told: Estimate) -> None:
    """InputError unless it costs nothing, or whoever is at the terminal agrees."""
    if not told.is_paid:
        return
    models = ", ".join(dict.fromkeys(flow.model for flow in told.flows if flow.is_paid))
    what = f"{plural(len(told.trials), 'trial')} on {models}: {_money(told)}"
    if not is_somebody_there():
        raise InputError("policy.spending", what)
    sys.stderr.write(f"{legible(what)}\nGo on? [y/N] ")
    sys.stderr.flush()
    ready, _, _ = select.select([sys.stdin], [], [], DECIDE_S)
    if not ready or sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise InputError("policy.spending", what)


def show(told: Estimate, *, as_json: bool, why_idle: str | None = None) -> int:
    """What a dry run says. `why_idle` is why there may be nothing to try."""
    output = Output(is_json=as_json)
    if as_json:
        output.json(told)
        return 0
    if why_idle is not None and not told.trials:
        output.text(f"Nothing to try: {why_idle}.\n\n")
    output.show(*(Text(f"  {legible(trial)}") for trial in told.trials), *map(Text, summary(told)))
    return 0


def summary(told: Estimate) -> list[str]:
    """Trials and attempts, time and cost, a line each."""
    most = plural(told.attempts_at_most, "attempt")
    return [
        f"{legible(told.campaign)}: {plural(len(told.trials), 'trial')}, {most} at most, nothing is run",
        f"time, if each attempt takes all it may: {duration(told.longest_ms)}, and waits, pauses, hooks and probes",
        f"cost: {_money(told)}",
    ]


def _money(told: Estimate) -> str:
    measured = sum(flow.measured for flow in told.flows)
    if told.usd is None:
        return "unknown: no attempt of every flow was measured here with prices"
    if not measured:
        return "nothing, as far as is known" if not told.is_paid else "unknown"
    return f"about ${told.usd:.2f}, if each costs what {plural(measured, 'attempt')} here did"
