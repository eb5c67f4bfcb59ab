"""A Proctor to be killed: `python -m chaos.player SPEC ROOT BREAKS` runs or resumes, and prints a row for each step.

BREAKS is JSON: what to do to the streams of the agents it starts.
"""

import sys
import time
from collections.abc import Callable, Sequence
from itertools import count
from pathlib import Path

import anyio
import msgspec
from msgspec import field

from proctor.attempt.machine import State
from proctor.attempt.model import AttemptResult
from proctor.campaign.run import run_campaign
from proctor.campaign.watch import CampaignWatcher, RunStart
from proctor.errors import ProctorError
from proctor.evidence.layout import RootPaths
from proctor.ids import AttemptId, FlowId, RuntimeId
from proctor.spec.load import load_spec
from proctor.transport.channel import Channel
from proctor.transport.fault import Cut, Delay, FaultAction, FaultChannel, LineFault

REFUSED = 3


class Broken(msgspec.Struct, frozen=True, kw_only=True):
    """A fault at line `line` of the channel to the agent that is started as number `channel`."""

    channel: int
    line: int
    how: str  # "cut", "torn" or "delayed"


class PlayerRow(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A row that the player prints."""

    what: str
    of: str = ""
    how: str = ""
    at_s: float = field(default_factory=time.monotonic)  # the same clock in every process


def write_row(what: str, of: str = "", how: str = "") -> None:
    sys.stdout.buffer.write(msgspec.json.encode(PlayerRow(what=what, of=of, how=how)) + b"\n")
    sys.stdout.buffer.flush()


class PlayerWatcher(CampaignWatcher):
    def began(self, began: RunStart) -> None:
        write_row("began", began.campaign_id)

    def started(self, attempt: AttemptId, *, runtime_id: RuntimeId) -> None:
        write_row("started", attempt, runtime_id)

    def state_entered(self, attempt: AttemptId, state: State) -> None:
        write_row("entered", attempt, state.value)

    def settled(self, result: AttemptResult, *, usd: float | None, retry_at_ms: int | None, is_settled: bool) -> None:
        write_row("settled", result.attempt_id, "" if result.summary is None else result.summary.outcome)

    def ended(self, how: str) -> None:
        write_row("ended", how=how)


def breaker(breaks: Sequence[Broken]) -> Callable[[FlowId, Channel], Channel]:
    """Return a function that puts the faults into the channels to the agents."""
    channels = count(1)

    def between(flow: FlowId, channel: Channel) -> Channel:
        number = next(channels)
        # `codex exec` that closes its output and exits has crashed, which is a result and is not retried.
        hits = [each for each in breaks if each.channel == number and (flow != "exec" or each.how == "delayed")]
        plan = [_break(each, flow) for each in hits]
        return FaultChannel(channel, plan) if plan else channel

    return between


def _break(broken: Broken, flow: FlowId) -> LineFault:
    lines = count(1)
    hows: dict[str, FaultAction] = {
        # An agent that closes its channel and exits has crashed, which is a result: only a lost channel is retried.
        "cut": Cut(hides_exit=True),
        "torn": Cut(keep_bytes=20, hides_exit=True),
        "delayed": Delay(delay_s=0.3),
    }

    def hits(_: bytes) -> bool:
        if next(lines) != broken.line:
            return False
        write_row("broke", flow, broken.how)
        return True

    return LineFault(at=hits, how=hows[broken.how])


async def play(spec: Path, root: Path, breaks: Sequence[Broken]) -> None:
    campaigns = [each for each in RootPaths(root).campaigns() if each.plan.exists()]
    await run_campaign(
        load_spec(spec),
        root=root,
        watcher=PlayerWatcher(),
        between=breaker(breaks),
        resume=campaigns[0] if campaigns else None,
    )


def main() -> int:
    spec, root, breaks = sys.argv[1:]
    try:
        anyio.run(play, Path(spec), Path(root), msgspec.json.decode(breaks, type=list[Broken]))
    except ProctorError as error:
        write_row("error", error.code, str(error))
        return REFUSED
    return 0


if __name__ == "__main__":
    sys.exit(main())
