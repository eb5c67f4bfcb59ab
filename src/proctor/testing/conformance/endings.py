"""Cases of an agent that goes away or falls silent: the outcome is typed, the record whole, and nothing is left."""

import anyio

from proctor import places
from proctor.campaign.scratch import scratch_of_runs
from proctor.event.outcome import Outcome
from proctor.testing.conformance.case import must
from proctor.testing.conformance.look import (
    agents_of,
    kill,
    napping,
    new_nap,
    parent_of,
    processes_with,
    until_asleep,
    until_gone,
)
from proctor.testing.conformance.subject import DONE, Subject
from proctor.transport.fault import Break, Cut


async def disconnect(subject: Subject) -> None:
    plan = [Break(at=subject.samples.is_of_turn, how=Cut(keep_bytes=9))]
    before = agents_of(subject.program)
    kept = await subject.mission({"say": DONE}, plan=plan)
    kept.must_end(Outcome.CRASHED, "peer.hangup")
    must(agents_of(subject.program) == before, "the agent that was cut off still runs")


async def crash(subject: Subject) -> None:
    nap = new_nap()
    before = set(agents_of(subject.program))

    async def kill_the_agent() -> None:
        await until_asleep(nap)
        agents = [pid for pid in agents_of(subject.program) or parent_of(nap) if pid not in before]
        must(bool(agents), "the agent's process is not to be found")
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
    nap = new_nap()
    before = set(agents_of(subject.program))
    kept_open = {"run": f"{napping(nap)} & setsid {napping(nap)} & {napping(nap)}"}
    async with subject.trial(is_own=True) as trial, trial.session(kept_open, name="left") as (session, _):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(session.turn, "Go on.")
            await until_asleep(nap)
            tasks.cancel_scope.cancel()
        name, folder = trial.folder.name, trial.folder
    must(not processes_with(nap), "what the agent started still runs")
    must(set(agents_of(subject.program)) <= before, "the agent still runs")
    must(not folder.exists(), f"its scratch is still there, in {scratch_of_runs()}")
    spawns = list((places.state_dir() / "spawns").glob(f"*/{name}*"))
    must(not spawns, "a spawn of it is still on the books")
