"""The agent processes of a run: shared or one an attempt, replaced when they are no good, never left behind."""

from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field

import anyio
import anyio.lowlevel
import pytest

from proctor.attempt.model import Lease
from proctor.campaign import hosts
from proctor.campaign.hosts import HostPool
from proctor.errors import MachineError, PeerError, ProctorError
from proctor.fact import Fact
from proctor.ids import FlowId, ProcessId
from proctor.runtime.base import Session, SessionRequest, Tap
from proctor.spec.choices import Isolation
from tests.runtime.twin import run

FLOW = FlowId("codex")


@dataclass(slots=True)
class FakeHost:
    """As much of a host as a pool looks at."""

    is_alive: bool = True
    failure: ProctorError | None = None
    facts: Mapping[str, Fact] = field(default_factory=dict)
    frames_in: int = 0

    def open_session(self, request: SessionRequest, tap: Tap) -> AbstractAsyncContextManager[Session]:
        raise AssertionError("a pool opens no session")


def lease_of(process: ProcessId, host: FakeHost) -> Lease:
    return Lease(process=process, host=host, rows=lambda: 0, failure=lambda: host.failure)


@dataclass(slots=True)
class Machine:
    """Opens hosts, and remembers which of them run."""

    opened: list[str] = field(default_factory=list)
    running: list[str] = field(default_factory=list)
    hosts: dict[str, FakeHost] = field(default_factory=dict)
    error: ProctorError | None = None
    may_start: anyio.Event = field(default_factory=anyio.Event)

    @asynccontextmanager
    async def open(self, process: ProcessId) -> AsyncIterator[Lease]:
        self.opened.append(process)
        self.running.append(process)
        try:
            await self.may_start.wait()
            if self.error is not None:
                raise self.error
            host = self.hosts[process] = FakeHost()
            yield lease_of(process, host)
        finally:
            with anyio.CancelScope(shield=True):
                await anyio.lowlevel.checkpoint()
            self.running.remove(process)


@dataclass(slots=True)
class Bench:
    """A pool on a machine."""

    machine: Machine
    pool: HostPool

    def lease(self, isolation: Isolation = Isolation.SHARED, flow: FlowId = FLOW) -> AbstractAsyncContextManager[Lease]:
        return self.pool.lease(flow, isolation, self.machine.open)


@asynccontextmanager
async def bench(*, is_slow: bool = False) -> AsyncIterator[Bench]:
    """On leaving the pool is done with, and nothing may be running any more."""
    machine = Machine()
    if not is_slow:
        machine.may_start.set()
    names = (ProcessId(f"p{number}") for number in range(1, 100))
    async with anyio.create_task_group() as tasks:
        pool = HostPool(tasks, new_id=lambda: next(names))
        yield Bench(machine, pool)
        pool.retire_all()
    assert machine.running == []


@pytest.mark.requirement("schedule.isolation")
def test_a_shared_flow_has_one_process_for_everybody_one_after_the_other_too() -> None:
    async def test() -> list[str]:
        async with bench() as on:
            async with on.lease() as first, on.lease() as second:
                assert first is second
            async with on.lease() as third:
                assert third is first
            assert on.machine.running == ["p1"], "it stays for the next one"
            return on.machine.opened

    assert run(test) == ["p1"]


def test_each_flow_has_a_process_of_its_own() -> None:
    async def test() -> None:
        async with bench() as on, on.lease() as one, on.lease(flow=FlowId("other")) as other:
            assert (one.process, other.process) == ("p1", "p2")

    run(test)


def test_everybody_who_waits_for_the_first_start_gets_the_same_process() -> None:
    async def test() -> list[str]:
        got: list[str] = []
        async with bench(is_slow=True) as on, anyio.create_task_group() as tasks:

            async def attempt() -> None:
                async with on.lease() as lease:
                    got.append(lease.process)

            for _ in range(5):
                tasks.start_soon(attempt)
            await anyio.wait_all_tasks_blocked()
            on.machine.may_start.set()
        return got

    assert run(test) == ["p1"] * 5


@pytest.mark.requirement("schedule.isolation")
def test_an_isolated_attempt_has_its_own_process_which_is_gone_when_the_lease_ends() -> None:
    async def test() -> None:
        async with bench() as on:
            async with on.lease(Isolation.PROCESS) as one, on.lease(Isolation.PROCESS) as other:
                assert (one.process, other.process) == ("p1", "p2")
                assert on.machine.running == ["p1", "p2"]
            assert on.machine.running == []

    run(test)


@pytest.mark.requirement("schedule.recovery")
def test_a_process_that_is_no_good_any_more_is_replaced_for_the_next_who_asks() -> None:
    async def test() -> None:
        async with bench() as on:
            async with on.lease():
                on.machine.hosts["p1"].is_alive = False
                async with on.lease() as second:
                    assert second.process == "p2"
                assert on.machine.running == ["p1", "p2"], "whoever uses the first one may still end with it"
            assert on.machine.running == ["p2"], "its last user ends it"
            async with on.lease() as third:
                assert third is second

    run(test)


def test_a_process_whose_own_record_cannot_be_kept_is_replaced_as_well() -> None:
    async def test() -> None:
        async with bench() as on, on.lease():
            on.machine.hosts["p1"].failure = MachineError("machine.disk-full", "No space left on device")
            async with on.lease() as second:
                assert second.process == "p2"

    run(test)


def test_a_record_that_cannot_be_closed_is_told_by_the_pool_when_nobody_waits_for_it_any_more() -> None:
    full = MachineError("machine.disk-full", "No space left on device")

    @asynccontextmanager
    async def open_host(process: ProcessId) -> AsyncIterator[Lease]:
        yield lease_of(process, FakeHost())
        raise full

    async def test() -> ProctorError | None:
        async with bench() as on:
            async with on.pool.lease(FLOW, Isolation.PROCESS, open_host):
                assert on.pool.failure is None
            return on.pool.failure

    assert run(test) is full


def test_a_process_that_was_replaced_ends_with_its_last_user_though_it_answers_again() -> None:
    async def test() -> None:
        async with bench() as on:
            async with on.lease():
                on.machine.hosts["p1"].is_alive = False
                async with on.lease():
                    pass
                on.machine.hosts["p1"].is_alive = True
            assert on.machine.running == ["p2"]

    run(test)


@pytest.mark.requirement("schedule.recovery")
def test_a_process_that_dies_while_nobody_uses_it_is_ended_when_it_is_replaced() -> None:
    async def test() -> None:
        async with bench() as on:
            async with on.lease():
                pass
            on.machine.hosts["p1"].is_alive = False
            async with on.lease() as second:
                await anyio.wait_all_tasks_blocked()
                assert (second.process, on.machine.running) == ("p2", ["p2"])

    run(test)


@pytest.mark.parametrize("isolation", list(Isolation))
def test_a_start_that_fails_reaches_everybody_who_waits_and_the_next_one_tries_again(isolation: Isolation) -> None:
    refusal = MachineError("machine.binary-too-old", "Codex 0.1 is older")

    async def test() -> list[ProctorError]:
        found: list[ProctorError] = []
        async with bench(is_slow=True) as on:
            on.machine.error = refusal

            async def attempt() -> None:
                try:
                    async with on.lease(isolation):
                        pass
                except ProctorError as error:
                    found.append(error)

            async with anyio.create_task_group() as tasks:
                for _ in range(3):
                    tasks.start_soon(attempt)
                await anyio.wait_all_tasks_blocked()
                on.machine.may_start.set()
            on.machine.error = None
            async with on.lease(isolation) as lease:
                assert lease.process == ("p2" if isolation is Isolation.SHARED else "p4")
        return found

    assert run(test) == [refusal] * 3


def test_a_start_that_fails_inside_task_groups_is_told_as_what_it_is() -> None:
    @asynccontextmanager
    async def open_host(process: ProcessId) -> AsyncIterator[Lease]:
        async with anyio.create_task_group(), anyio.create_task_group():
            if process:
                raise PeerError("peer.hangup", "gone")
        yield lease_of(process, FakeHost())

    async def test() -> str:
        async with bench() as on:
            with pytest.raises(PeerError) as refused:
                async with on.pool.lease(FLOW, Isolation.SHARED, open_host):
                    pass
            return refused.value.code

    assert run(test) == "peer.hangup"


def test_a_process_that_never_gets_ready_ends_by_a_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hosts, "START_S", 0.02)

    async def test() -> str:
        async with bench(is_slow=True) as on:
            with pytest.raises(PeerError) as late:
                async with on.lease():
                    pass
            assert on.machine.running == []
            return late.value.code

    assert run(test) == "peer.deadline"


def test_a_process_that_got_ready_is_held_to_no_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hosts, "START_S", 0.02)

    async def test() -> None:
        async with bench() as on, on.lease():
            with anyio.move_on_after(0.05):
                await anyio.Event().wait()
            assert on.machine.running == ["p1"]

    run(test)


@pytest.mark.parametrize("is_slow", [True, False], ids=["while it starts", "while it is used"])
def test_a_cancelled_isolated_attempt_leaves_nothing_behind(is_slow: bool) -> None:
    async def test() -> None:
        async with bench(is_slow=is_slow) as on:
            async with anyio.create_task_group() as tasks:

                async def attempt() -> None:
                    async with on.lease(Isolation.PROCESS):
                        await anyio.Event().wait()

                tasks.start_soon(attempt)
                await anyio.wait_all_tasks_blocked()
                assert on.machine.running == ["p1"]
                tasks.cancel_scope.cancel()
            assert on.machine.running == []

    run(test)


def test_a_shared_process_outlives_a_cancelled_attempt() -> None:
    async def test() -> None:
        async with bench() as on:
            async with anyio.create_task_group() as tasks:

                async def attempt() -> None:
                    async with on.lease():
                        await anyio.Event().wait()

                tasks.start_soon(attempt)
                await anyio.wait_all_tasks_blocked()
                tasks.cancel_scope.cancel()
            async with on.lease() as lease:
                assert (lease.process, on.machine.running) == ("p1", ["p1"])

    run(test)


def test_retiring_ends_also_what_is_still_starting_and_gives_out_nothing_retired() -> None:
    async def test() -> None:
        async with bench(is_slow=True) as on:
            async with anyio.create_task_group() as tasks:

                async def attempt() -> None:
                    with pytest.raises(PeerError):
                        async with on.lease():
                            pass

                tasks.start_soon(attempt)
                await anyio.wait_all_tasks_blocked()
                on.pool.retire_all()
            on.machine.may_start.set()
            async with on.lease() as lease:
                assert lease.process == "p2"
            on.pool.retire_all()
            async with on.lease() as lease:
                assert lease.process == "p3"

    run(test)


def test_cancelling_the_whole_run_leaves_nothing_behind() -> None:
    async def test() -> list[str]:
        machine = Machine()
        names = iter([ProcessId("p1"), ProcessId("p2"), ProcessId("p3")])
        async with anyio.create_task_group() as tasks:
            pool = HostPool(tasks, new_id=lambda: next(names))

            async def attempt(isolation: Isolation) -> None:
                async with pool.lease(FLOW, isolation, machine.open):
                    await anyio.Event().wait()

            tasks.start_soon(attempt, Isolation.SHARED)
            tasks.start_soon(attempt, Isolation.PROCESS)
            await anyio.wait_all_tasks_blocked()
            machine.may_start.set()
            await anyio.wait_all_tasks_blocked()
            tasks.start_soon(attempt, Isolation.PROCESS)
            machine.may_start = anyio.Event()
            await anyio.wait_all_tasks_blocked()
            assert machine.running == ["p1", "p2", "p3"]
            tasks.cancel_scope.cancel()
        return machine.running

    assert run(test) == []
