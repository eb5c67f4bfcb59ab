import asyncio
import os
import signal
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

import anyio
import pytest

from proctor.contain.identity import descendants, is_alive
from proctor.contain.intent import Intent, open_intents, owner_folders, read_intents
from proctor.contain.ladder import Containment, Variant
from proctor.contain.launch import LaunchPlan, new_marker, wrap
from proctor.errors import HangupError, MachineError
from proctor.transport.process import AgentProcess, ExitStatus, StopDeadlines, open_process
from tests.background import ignored, ignoring

from .ways import WAYS

Plan = Callable[[str], LaunchPlan]
SettleAt = Callable[[int], Sequence[int]]

every_way = pytest.mark.parametrize("containment", WAYS, indirect=True)
WAIT_S = 20.0
LONG = StopDeadlines(eof_s=WAIT_S, term_s=WAIT_S)
SHORT = StopDeadlines(eof_s=0.1, term_s=0.1)


def drive(
    spawns: Path, plan: LaunchPlan, act: Callable[[AgentProcess], Awaitable[object]], deadlines: StopDeadlines = LONG
) -> object:
    """Open the process, await what `act` does with it, and see that no intent is left."""

    async def main() -> object:
        async with open_intents(spawns) as book:
            async with open_process(plan, intents=book, deadlines=deadlines) as process:
                with anyio.fail_after(WAIT_S):
                    result = await act(process)
            assert read_intents(book.folder) == []
            return result

    return anyio.run(main)


async def read_all(receive: Callable[[], Awaitable[bytes]]) -> bytes:
    got = b""
    while chunk := await receive():
        got += chunk
    return got


def test_what_is_sent_comes_back_and_closing_stdin_ends_it(shell: Plan, tmp_path: Path) -> None:
    async def act(process: AgentProcess) -> object:
        await process.send(b"caf\xe9 \xff\x00\n")
        await process.close_stdin()
        return (
            await read_all(process.receive),
            await read_all(process.receive_err),
            await process.wait(deadline_s=WAIT_S),
        )

    assert drive(tmp_path / "spawns", shell("cat; echo oops >&2; exit 3"), act) == (
        b"caf\xe9 \xff\x00\n",
        b"oops\n",
        ExitStatus(code=3),
    )


def test_the_child_sees_its_whole_environment_and_nothing_of_ours(
    containment: Containment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SECRET_OF_OURS", "x")
    plan = wrap(containment, ["env"], env={"A": "1"}, cwd=tmp_path, marker="m-env")

    async def act(process: AgentProcess) -> object:
        return sorted(line for line in (await read_all(process.receive)).splitlines() if not line.startswith(b"PWD="))

    assert drive(tmp_path / "spawns", plan, act) == [b"A=1", b"PROCTOR_SPAWN=m-env"]


# The bundled bwrap ignores SIGPIPE by itself, and is stated to.
@pytest.mark.parametrize("containment", [way for way in WAYS if way is not Variant.BUNDLED_BWRAP], indirect=True)
def test_the_agent_has_no_signal_ignored_or_blocked_by_us(shell: Plan, tmp_path: Path) -> None:
    async def act(process: AgentProcess) -> object:
        _, *masks = (await read_all(process.receive)).split()
        # 32 and 33 are the C library's own, which nobody can set back: `make` hands them down ignored.
        return [int(mask, 16) & 0x7FFFFFFF for mask in masks[::2]]

    plan = shell("exec grep -E '^Sig(Ign|Blk)' /proc/self/status")
    ours = (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGUSR1)

    with ignoring(*ours):
        assert drive(tmp_path / "spawns", plan, act) == [0, 0]
        assert set(ours) <= ignored(), "they are ours to ignore all the same"


@every_way
def test_the_agent_is_known_by_its_host_pid_and_the_intent_names_it(shell: Plan, tmp_path: Path) -> None:
    plan = shell("exec cat")

    async def main() -> None:
        async with (
            open_intents(tmp_path / "spawns") as book,
            open_process(plan, intents=book, deadlines=SHORT) as process,
        ):
            assert process.agent is not None
            if plan.cgroup is None:
                assert process.agent.pid in descendants(process.wrapper.pid)
            else:
                assert process.agent.pid == process.wrapper.pid, "the wrapper has become the agent"
            assert read_intents(book.folder) == [
                Intent(
                    marker=plan.marker,
                    argv=plan.bare_argv,
                    boot_id=process.agent.boot_id,
                    cgroup=None if plan.cgroup is None else str(plan.cgroup),
                    wrapper=process.wrapper,
                    agent=process.agent,
                )
            ]

    anyio.run(main)


@every_way
@pytest.mark.requirement("attempt.no-orphans")
def test_nothing_of_a_tree_is_left_when_stop_returns(
    shell: Plan, nap: str, settle_at: SettleAt, tmp_path: Path
) -> None:
    async def act(process: AgentProcess) -> object:
        settle_at(2)
        status = await process.stop()
        settle_at(0)
        return status

    plan = shell(f"sleep {nap} & setsid env -i sleep {nap} & cat")

    assert drive(tmp_path / "spawns", plan, act) == ExitStatus(code=0)


@every_way
@pytest.mark.requirement("attempt.no-orphans")
@pytest.mark.parametrize("end", ["error", "cancel", "task.cancel"])
def test_nothing_of_a_tree_is_left_however_the_block_ends(
    end: str, shell: Plan, nap: str, settle_at: SettleAt, tmp_path: Path
) -> None:
    plan = shell(f"sleep {nap} & setsid env -i sleep {nap} & exec sleep {nap}")

    async def block() -> None:
        async with open_intents(tmp_path / "spawns") as book, open_process(plan, intents=book, deadlines=SHORT):
            settle_at(3)
            if end == "error":
                raise ZeroDivisionError
            await anyio.sleep_forever()

    async def main() -> None:
        if end == "error":
            with pytest.raises(ZeroDivisionError):
                await block()
        elif end == "cancel":
            with anyio.move_on_after(0.1):
                await block()
        else:
            # As Ctrl-C does, and again while the stop is under way: a shield holds off neither.
            task = asyncio.ensure_future(block())
            await anyio.sleep(0.1)
            task.cancel()
            await anyio.sleep(0.05)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

    anyio.run(main)
    settle_at(0)
    assert owner_folders(tmp_path / "spawns") == []


def test_a_cancelled_block_still_lets_the_agent_end_by_itself(shell: Plan, tmp_path: Path) -> None:
    async def main() -> None:
        with anyio.CancelScope() as scope:
            async with (
                open_intents(tmp_path / "spawns") as book,
                open_process(shell("cat; sleep 0.1; echo done > last-words"), intents=book, deadlines=LONG),
            ):
                scope.cancel()
                await anyio.sleep_forever()

    anyio.run(main)
    assert (tmp_path / "last-words").read_text() == "done\n"


@every_way
def test_an_agent_that_ignores_eof_is_asked_by_sigterm(shell: Plan, tmp_path: Path) -> None:
    async def act(process: AgentProcess) -> object:
        assert await process.receive() == b"up\n"
        return await process.stop()

    plan = shell("trap 'exit 7' TERM; echo up; while :; do sleep 0.02; done")

    assert drive(tmp_path / "spawns", plan, act, StopDeadlines(eof_s=0.1, term_s=WAIT_S)) == ExitStatus(code=7)


@every_way
@pytest.mark.parametrize("obstacle", ["trap '' TERM; echo up; while :; do sleep 0.02; done", "echo up; exec cat"])
def test_an_agent_that_ignores_sigterm_or_is_stopped_is_killed(
    obstacle: str, shell: Plan, containment: Containment, tmp_path: Path
) -> None:
    async def act(process: AgentProcess) -> object:
        assert await process.receive() == b"up\n"
        assert process.agent is not None
        os.kill(process.agent.pid, signal.SIGSTOP)
        status = await process.stop()
        assert not is_alive(process.agent)
        return status

    assert drive(tmp_path / "spawns", shell(obstacle), act, SHORT) == (
        ExitStatus(code=137, signal=9, is_exact=False)
        if containment.variant is Variant.WARDEN
        else ExitStatus(signal=signal.SIGKILL)
    )


@every_way
def test_a_death_by_signal_is_told_as_far_as_the_wrapper_tells_it(
    shell: Plan, containment: Containment, tmp_path: Path
) -> None:
    async def act(process: AgentProcess) -> object:
        assert process.agent is not None
        os.kill(process.agent.pid, signal.SIGKILL)
        return await process.wait(deadline_s=WAIT_S)

    told = {
        Variant.UNSHARE: ExitStatus(code=1, is_exact=False),
        Variant.CGROUP: ExitStatus(signal=signal.SIGKILL),
    }
    assert drive(tmp_path / "spawns", shell("exec cat"), act) == told.get(
        containment.variant, ExitStatus(code=137, signal=9, is_exact=False)
    )


def test_waiting_ends_at_its_deadline_and_several_may_wait(shell: Plan, tmp_path: Path) -> None:
    async def act(process: AgentProcess) -> object:
        assert await process.wait(deadline_s=0.01) is None
        seen: list[ExitStatus | None] = []

        async def watch() -> None:
            seen.append(await process.wait(deadline_s=WAIT_S))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(watch)
            tasks.start_soon(watch)
            await anyio.wait_all_tasks_blocked()
            await process.close_stdin()
        return seen

    assert drive(tmp_path / "spawns", shell("exec cat"), act) == [ExitStatus(code=0)] * 2


def test_the_exit_is_known_while_somebody_holds_the_pipe_open(shell: Plan, tmp_path: Path) -> None:
    async def act(process: AgentProcess) -> object:
        assert process.agent is not None
        held = os.open(f"/proc/{process.agent.pid}/fd/1", os.O_WRONLY)
        try:
            return await process.stop()
        finally:
            os.close(held)

    assert drive(tmp_path / "spawns", shell("exec cat"), act) == ExitStatus(code=0)


def test_long_messages_of_several_senders_arrive_whole(shell: Plan, tmp_path: Path) -> None:
    messages = [bytes([byte]) * 300_000 for byte in b"abc"]

    async def act(process: AgentProcess) -> None:
        async def send_all() -> None:
            async with anyio.create_task_group() as senders:
                for message in messages:
                    senders.start_soon(process.send, message)
            await process.close_stdin()

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(send_all)
            got.extend(await read_all(process.receive))

    got = bytearray()
    drive(tmp_path / "spawns", shell("exec cat"), act)

    assert sorted(bytes(got[at : at + 300_000]) for at in range(0, len(got), 300_000)) == messages


def test_sending_to_one_that_has_ended_or_whose_stdin_we_closed_is_a_hangup(shell: Plan, tmp_path: Path) -> None:
    async def act(process: AgentProcess) -> object:
        await process.wait(deadline_s=WAIT_S)
        with pytest.raises(HangupError) as ended:
            await process.send(b"x")
        await process.close_stdin()
        with pytest.raises(HangupError) as closed:
            await process.send(b"x")
        return ended.value.code, closed.value.code

    assert drive(tmp_path / "spawns", shell("exit 0"), act) == ("peer.hangup", "peer.hangup")


def test_a_sender_that_waits_for_room_is_freed_when_the_process_is_stopped(shell: Plan, tmp_path: Path) -> None:
    async def act(process: AgentProcess) -> None:
        async def send() -> None:
            with pytest.raises(HangupError):
                await process.send(b"x" * 1_000_000)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(send)
            await anyio.wait_all_tasks_blocked()
            await process.stop()

    drive(tmp_path / "spawns", shell("exec sleep 300"), act, SHORT)


def test_a_reader_outside_the_block_sees_the_end_when_the_block_is_left(shell: Plan, tmp_path: Path) -> None:
    async def main() -> None:
        async with anyio.create_task_group() as readers, open_intents(tmp_path / "spawns") as book:
            async with open_process(shell("exec cat"), intents=book) as process:
                readers.start_soon(read_all, process.receive)
                await anyio.wait_all_tasks_blocked()
            assert await process.receive() == b""

    anyio.run(main)


@every_way
def test_a_program_that_cannot_be_executed_is_told_with_the_wrappers_words(
    containment: Containment, tmp_path: Path
) -> None:
    script = tmp_path / "agent"
    script.write_text("#!/no/such/interpreter\n")
    script.chmod(0o755)
    plan = wrap(containment, [str(script)], env={}, cwd=tmp_path, marker=new_marker())

    async def act(_: AgentProcess) -> object:
        raise AssertionError("it must not start")

    with pytest.raises(MachineError) as refused:
        drive(tmp_path / "spawns", plan, act)

    assert refused.value.code == "machine.spawn-failed"
    assert str(script) in refused.value.what
    assert owner_folders(tmp_path / "spawns") == []


def test_a_folder_that_is_not_there_is_told(shell: Plan, containment: Containment, tmp_path: Path) -> None:
    plan = wrap(containment, ["cat"], env=dict(os.environ), cwd=tmp_path / "gone", marker=new_marker())

    async def act(_: AgentProcess) -> object:
        raise AssertionError("it must not start")

    with pytest.raises(MachineError) as refused:
        drive(tmp_path / "spawns", plan, act)

    assert refused.value.code == "machine.spawn-failed"
    assert owner_folders(tmp_path / "spawns") == []


def test_an_agent_that_fails_at_once_is_an_exit_not_an_error(shell: Plan, tmp_path: Path) -> None:
    async def act(process: AgentProcess) -> object:
        status = await process.wait(deadline_s=WAIT_S)
        assert status is not None
        return status.code, await read_all(process.receive_err)

    assert drive(tmp_path / "spawns", shell("echo no >&2; exit 1"), act) == (1, b"no\n")


def command_line(pid: int) -> bytes:
    return Path(f"/proc/{pid}/cmdline").read_bytes()


def script_wrapper(folder: Path, line: str) -> Containment:
    """A containment whose bwrap is a shell script."""
    script = folder / "wrapper"
    script.write_text(f"#!/bin/sh\n{line}\n")
    script.chmod(0o755)
    return Containment(variant=Variant.BWRAP, tools=(str(script),), catches=(), misses=())


@pytest.mark.parametrize("line", ['exec bwrap "$@"', 'cat </dev/null; bwrap "$@"; exit $?'], ids=["exec", "child"])
@pytest.mark.usefixtures("containment")
def test_a_wrapper_script_and_the_wrapper_it_runs_are_not_taken_for_the_agent(line: str, tmp_path: Path) -> None:
    env = {"PATH": os.environ["PATH"]}
    plan = wrap(script_wrapper(tmp_path, line), ["cat"], env=env, cwd=tmp_path, marker=new_marker())

    async def act(process: AgentProcess) -> object:
        assert process.agent is not None
        return command_line(process.agent.pid)

    assert drive(tmp_path / "spawns", plan, act) == os.fsencode(f"{plan.bare_argv[0]}\0")


@pytest.mark.parametrize("end", ["returns", "raises"])
def test_a_wrapper_that_fails_late_is_an_error_however_the_block_ends(end: str, tmp_path: Path) -> None:
    # It ends with its input, which is closed only after it counts as started.
    containment = script_wrapper(tmp_path, "cat; echo 'bwrap: no namespaces' >&2; exit 1")
    plan = wrap(containment, ["cat"], env={"PATH": os.environ["PATH"]}, cwd=tmp_path, marker=new_marker())

    async def act(process: AgentProcess) -> None:
        await process.close_stdin()
        assert await process.receive() == b""
        if end == "raises":
            raise HangupError("peer.hangup", "the agent closed its output")

    with pytest.raises(MachineError) as failed:
        drive(tmp_path / "spawns", plan, act, StopDeadlines(appear_s=0.05, eof_s=WAIT_S))

    assert (failed.value.code, failed.value.what) == ("machine.spawn-failed", "bwrap: no namespaces")
    assert owner_folders(tmp_path / "spawns") == []
