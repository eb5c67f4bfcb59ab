"""Cases of an agent that goes away or falls silent: the outcome is typed, the record whole, and nothing is left."""

import anyio

from proctor.campaign.scratch import scratch_of_runs
from proctor.contain.identity import is_alive
from proctor.event.model import TextSaid, TurnBegan, TurnEnded
from proctor.event.outcome import Outcome
from proctor.testing.conformance.case import must
from proctor.testing.conformance.look import (
    booked,
    kill,
    napping,
    new_nap,
    processes_with,
    spawned,
    strays_of,
    until,
    until_asleep,
    until_gone,
)
from proctor.testing.conformance.subject import DONE, Subject
from proctor.transport.fault import Break, Cut, Delay

NOT_FOUND = "the agent's process is not on the books of what was spawned, so nothing could be shown"
_KILL_AT = 12  # a row in the middle of a turn on record


async def disconnect(subject: Subject) -> None:
    kept = await subject.mission({"say": DONE}, plan=[Break(at=subject.samples.is_of_turn, how=Cut(keep_bytes=9))])
    kept.must_end(Outcome.CRASHED, "peer.hangup")
    must(bool(kept.agents) is subject.has_process, NOT_FOUND)
    must(not any(map(is_alive, kept.agents)), "the agent that was cut off still runs")


async def crash(subject: Subject) -> None:
    if not subject.has_process:
        kept = await subject.mission({"run": "true"}, {"say": DONE}, options={"kill_at": _KILL_AT})
        must(bool(kept.of(TurnBegan)) and not kept.of(TurnEnded), "it did not end in the middle of a turn")
        kept.must_end(Outcome.CRASHED, "peer.hangup", "peer.killed")
        return
    nap, before = new_nap(), set(booked())

    async def kill_the_agent() -> None:
        await until_asleep(nap)
        agents = spawned(but=before)
        must(len(agents) == 1, NOT_FOUND)
        kill(agents[0])

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(kill_the_agent)
        kept = await subject.mission({"run": napping(nap)}, {"say": DONE})
    kept.must_end(Outcome.CRASHED, "peer.hangup", "peer.killed")
    await until_gone(nap)


async def hang(subject: Subject) -> None:
    kept = await subject.mission({"fault": "hang"}, limits={"stall": "1s"})
    kept.must_end(Outcome.STALLED, "limit.stall")


async def teardown(subject: Subject) -> None:
    if not subject.has_process:
        await _nothing_started(subject)
        return
    nap = new_nap()
    before, strays = set(booked()), strays_of(subject.program)
    kept_open = {"run": f"{napping(nap)} & setsid {napping(nap)} & {napping(nap)}"}
    async with subject.trial(is_own=True) as trial, trial.session(kept_open, name="left") as (session, _):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(session.turn, "Go on.")
            await until_asleep(nap)
            agents = spawned(but=before)
            tasks.cancel_scope.cancel()
        folder = trial.folder
    must(bool(agents), NOT_FOUND)
    must(not processes_with(nap), "what the agent started still runs")
    must(not any(map(is_alive, agents)) and strays_of(subject.program) <= strays, "the agent still runs")
    must(not folder.exists(), f"its scratch is still there, in {scratch_of_runs()}")
    must(set(booked()) <= before, "a spawn of it is still on the books")


async def _nothing_started(subject: Subject) -> None:
    """What is left in the middle of a turn that has no process leaves nothing, and had started nothing."""
    late = Break(at=subject.samples.is_turn_end, how=Delay(delay_s=600))
    async with (
        subject.trial(is_own=True, plan=[late]) as trial,
        trial.session({"say": DONE}, name="left") as (session, tap),
    ):
        before = set(booked())
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(session.turn, "Go on.")
            await until(lambda: bool(tap.of(TextSaid)), "its turn does not run")
            must(set(booked()) <= before, "a process was spawned for what is on record")
            tasks.cancel_scope.cancel()
        folder = trial.folder
    must(not folder.exists(), f"its scratch is still there, in {scratch_of_runs()}")
