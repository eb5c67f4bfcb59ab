"""Show the estimated cost of a run, and ask for confirmation before money is spent."""

import select
import sys
from collections.abc import Iterator

from rich.text import Text

from proctor.attempt.model import DECIDE_S
from proctor.errors import InputError
from proctor.report.format_values import duration, legible, plural
from proctor.surface.cli.command import DeclinedError
from proctor.surface.cli.output import Output
from proctor.surface.cli.terminal_approvals import is_interactive
from proctor.surface.estimate import Estimate


def confirm_cost(estimate: Estimate) -> None:
    """Ask the user to confirm the cost of a run, if it may cost money.

    Raises DeclinedError if the user declines, and InputError if there is no terminal or no answer in time.
    """
    if not estimate.is_paid:
        return
    models = ", ".join(dict.fromkeys(flow.model for flow in estimate.flows if flow.is_paid))
    what = f"{plural(len(estimate.trials), 'trial')} on {models} may cost money: {_money(estimate)}"
    if not is_interactive():
        raise InputError("policy.spending", what)
    sys.stderr.write("\n".join([*map(legible, _question(estimate)), "Continue? [y/N] "]))
    sys.stderr.flush()
    ready, _, _ = select.select([sys.stdin], [], [], DECIDE_S)
    if not ready:
        raise InputError("policy.spending", f"{what}; there was no answer within {DECIDE_S:g} s")
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise DeclinedError


def _question(estimate: Estimate) -> Iterator[str]:
    """Yield what will run, on which model, and what it may cost, one line each."""
    most = plural(estimate.attempts_at_most, "attempt")
    yield f"{estimate.campaign}: {plural(len(estimate.trials), 'trial')}, {most} at most"
    width = max(len(flow.flow_id) for flow in estimate.flows)
    for flow in estimate.flows:
        yield f"  {flow.flow_id:{width}}  {flow.model}{'' if flow.is_paid else ' (free)'}"
    yield f"This may cost money: {_money(estimate)}"


def show(estimate: Estimate, *, as_json: bool, why_idle: str | None = None) -> int:
    """Print an estimate, as a dry run does. `why_idle` is the reason to print if there is no trial to run."""
    output = Output(is_json=as_json)
    if as_json:
        output.json(estimate)
        return 0
    if why_idle is not None and not estimate.trials:
        output.text(f"Nothing to run: {why_idle}.\n\n")
    output.show(*(Text(f"  {legible(trial)}") for trial in estimate.trials), *map(Text, summary(estimate)))
    return 0


def summary(estimate: Estimate) -> list[str]:
    """Return the estimate as text: trials and attempts, time, and cost, one line each."""
    most = plural(estimate.attempts_at_most, "attempt")
    return [
        f"{legible(estimate.campaign)}: {plural(len(estimate.trials), 'trial')}, {most} at most; nothing was run",
        f"longest duration: {duration(estimate.longest_ms)}, plus waits, retry pauses, hooks and probes",
        f"cost: {_money(estimate)}",
    ]


def _money(estimate: Estimate) -> str:
    measured = sum(flow.measured for flow in estimate.flows)
    if estimate.usd is None:
        return "no estimate, because not every flow has an attempt with a known cost in this evidence root"
    if not measured:
        return "none expected" if not estimate.is_paid else "no estimate"
    return f"about ${estimate.usd:.2f}, based on {plural(measured, 'earlier attempt')}"
