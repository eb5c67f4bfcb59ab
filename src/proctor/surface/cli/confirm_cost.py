"""Show the estimated cost of a run, and ask for confirmation before money is spent."""

import select
import sys

from rich.text import Text

from proctor.attempt.model import DECIDE_S
from proctor.errors import InputError
from proctor.report.format_values import duration, legible, plural
from proctor.surface.cli.output import Output
from proctor.surface.cli.terminal_approvals import is_interactive
from proctor.surface.estimate import Estimate


def confirm_cost(estimate: Estimate) -> None:
    """Ask the user to confirm the cost of a run, if it may cost money.

    Raises InputError if the user declines, does not answer in time, or there is no terminal.
    """
    if not estimate.is_paid:
        return
    models = ", ".join(dict.fromkeys(flow.model for flow in estimate.flows if flow.is_paid))
    what = f"{plural(len(estimate.trials), 'trial')} on {models}: {_money(estimate)}"
    if not is_interactive():
        raise InputError("policy.spending", what)
    sys.stderr.write(f"{legible(what)}\nContinue? [y/N] ")
    sys.stderr.flush()
    ready, _, _ = select.select([sys.stdin], [], [], DECIDE_S)
    if not ready or sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise InputError("policy.spending", what)


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
        return "unknown: not every flow has an attempt with a known cost in this evidence root"
    if not measured:
        return "none expected" if not estimate.is_paid else "unknown"
    return f"about ${estimate.usd:.2f}, based on {plural(measured, 'earlier attempt')}"
