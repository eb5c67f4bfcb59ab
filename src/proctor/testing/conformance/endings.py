"""Cases in which the agent disappears or stops responding: typed outcome, complete evidence, no leftovers."""

import anyio

from proctor.campaign.scratch import scratch_of_runs
from proctor.contain.identity import is_alive
from proctor.event.model import TextSaid, TurnBegan, TurnEnded
from proctor.event.outcome import Outcome
from proctor.testing.conformance.case import must
from proctor.testing.conformance.processes import (
    kill,
    napping,
    new_nap,
    processes_with,
    spawned,
    strays_of,
    unsettled_intents,
    until,
    until_asleep,
    until_gone,
)
from proctor.testing.conformance.subject import DONE, Subject
from proctor.transport.fault import Cut, Delay, LineFault

NOT_FOUND = "the agent's process is not in the spawn intents, so the case shows nothing"
_KILL_AT = 12  # a row in the middle of the recorded turn


async def disconnect(subject: Subject) -> None:
    evidence = await subject.mission(
        {"say": DONE}, plan=[LineFault(at=subject.samples.is_of_turn, how=Cut(keep_bytes=9))]
    )
    evidence.must_end(Outcome.CRASHED, "peer.lost", "peer.hangup")
    must(bool(evidence.agents) is subject.has_process, NOT_FOUND)
    must(not any(map(is_alive, evidence.agents)), "the agent still runs after its channel was closed")


async def crash(subject: Subject) -> None:
    if not subject.has_process:
        evidence = await subject.mission({"run": "true"}, {"say": DONE}, options={"kill_at": _KILL_AT})
        must(
            bool(evidence.of(TurnBegan)) and not evidence.of(TurnEnded),
            "the attempt did not end in the middle of a turn",
        )
        evidence.must_end(Outcome.CRASHED, "peer.lost", "peer.hangup", "peer.killed")
        return
    nap, before = new_nap(), set(unsettled_intents())

    async def kill_the_agent() -> None:
        await until_asleep(nap)
        agents = spawned(but=before)
        must(len(agents) == 1, NOT_FOUND)
        kill(agents[0])

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(kill_the_agent)
        evidence = await subject.mission({"run": napping(nap)}, {"say": DONE})
    # The kernel does not record who sent a signal. If the agent's own commands can, it counts as the agent's.
    evidence.must_end(Outcome.CRASHED, "peer.lost", "peer.hangup", "peer.killed", "agent.killed")
    await until_gone(nap)


async def hang(subject: Subject) -> None:
    evidence = await subject.mission({"fault": "hang"}, limits={"stall": "1s"})
    evidence.must_end(Outcome.STALLED, "limit.stall")


async def teardown(subject: Subject) -> None:
    if not subject.has_process:
        await _nothing_started(subject)
        return
    nap = new_nap()
    before, strays = set(unsettled_intents()), strays_of(subject.program)
    kept_open = {"run": f"{napping(nap)} & setsid {napping(nap)} & {napping(nap)}"}
    async with subject.agent(is_own=True) as agent, agent.session(kept_open, name="left") as (session, _):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(session.turn, "Go on.")
            await until_asleep(nap)
            agents = spawned(but=before)
            tasks.cancel_scope.cancel()
        folder = agent.folder
    must(bool(agents), NOT_FOUND)
    must(not processes_with(nap), "a process that the agent started still runs")
    must(not any(map(is_alive, agents)) and strays_of(subject.program) <= strays, "the agent still runs")
    must(not folder.exists(), f"the scratch folder still exists in {scratch_of_runs()}")
    must(set(unsettled_intents()) <= before, "a spawn intent of the agent still exists")


async def _nothing_started(subject: Subject) -> None:
    """Check that a runtime without a process starts none and leaves nothing when it is closed during a turn."""
    late = LineFault(at=subject.samples.is_turn_end, how=Delay(delay_s=600))
    async with (
        subject.agent(is_own=True, plan=[late]) as agent,
        agent.session({"say": DONE}, name="left") as (session, tap),
    ):
        before = set(unsettled_intents())
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(session.turn, "Go on.")
            await until(lambda: bool(tap.of(TextSaid)), "the turn does not start")
            must(set(unsettled_intents()) <= before, "a process was spawned for a recorded turn")
            tasks.cancel_scope.cancel()
        folder = agent.folder
    must(not folder.exists(), f"the scratch folder still exists in {scratch_of_runs()}")
