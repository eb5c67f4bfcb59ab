import os
import signal
import tracemalloc
from collections.abc import Callable, Sequence
from pathlib import Path

import anyio
import anyio.to_thread
import pytest

from proctor.contain.intent import open_intents, owner_folders
from proctor.contain.ladder import Containment, Variant
from proctor.contain.launch import LaunchPlan, new_marker, wrap
from proctor.errors import MachineError
from proctor.transport.process import ExitStatus, ProcessResult, run_once
from tests.background import ignoring

from .ways import WAYS

Plan = Callable[[str], LaunchPlan]
SettleAt = Callable[[int], Sequence[int]]

every_way = pytest.mark.parametrize("containment", WAYS, indirect=True)


def run(
    plan: LaunchPlan, spawns: Path, *, timeout_s: float = 20.0, max_output_bytes: int = 1000, stdin: bytes = b""
) -> ProcessResult:
    async def main() -> ProcessResult:
        async with open_intents(spawns) as book:
            return await run_once(
                plan, intents=book, timeout_s=timeout_s, max_output_bytes=max_output_bytes, stdin=stdin
            )

    finished = anyio.run(main)
    assert owner_folders(spawns) == []
    return finished


def test_a_command_gets_its_input_and_gives_its_output_and_exit(shell: Plan, tmp_path: Path) -> None:
    assert run(shell("cat; printf '\\377' >&2; exit 4"), tmp_path / "spawns", stdin=b"in\n") == ProcessResult(
        exit=ExitStatus(code=4), stdout=b"in\n", stderr=b"\xff", timed_out=False, stdout_cut=False, stderr_cut=False
    )


@every_way
@pytest.mark.requirement("probe.process")
def test_an_exit_status_is_read_though_proctor_was_started_with_sigchld_ignored(shell: Plan, tmp_path: Path) -> None:
    with ignoring(signal.SIGCHLD):
        assert run(shell("exit 4"), tmp_path / "spawns").exit == ExitStatus(code=4)


def test_input_that_nobody_reads_is_no_error(shell: Plan, tmp_path: Path) -> None:
    finished = run(shell("exit 0"), tmp_path / "spawns", stdin=b"x" * 1_000_000)

    assert finished.exit == ExitStatus(code=0)


@pytest.mark.long
@every_way
@pytest.mark.requirement("probe.process")
def test_at_the_deadline_the_whole_tree_is_killed_though_it_holds_the_pipes(
    shell: Plan, nap: str, settle_at: SettleAt, tmp_path: Path
) -> None:
    plan = shell(f"echo started; setsid env -i sleep {nap} & trap '' TERM; sleep {nap}")

    assert run(plan, tmp_path / "spawns", timeout_s=1.0) == ProcessResult(
        exit=None, stdout=b"started\n", stderr=b"", timed_out=True, stdout_cut=False, stderr_cut=False
    )
    settle_at(0)


def test_a_wrapper_that_has_not_started_the_command_at_the_deadline_is_no_timeout_of_the_command(
    nap: str, settle_at: SettleAt, tmp_path: Path
) -> None:
    script = tmp_path / "bwrap"
    script.write_text(f"#!/bin/sh\nsleep {nap}\n")
    script.chmod(0o755)
    hangs = Containment(variant=Variant.BWRAP, tools=(str(script),), catches=(), misses=())
    plan = wrap(hangs, ["true"], env={"PATH": os.environ["PATH"]}, cwd=tmp_path, marker=new_marker())

    with pytest.raises(MachineError, match=r"did not start .*true within 0\.3 s") as failed:
        run(plan, tmp_path / "spawns", timeout_s=0.3)

    assert failed.value.code == "machine.spawn-failed"
    settle_at(0)


@every_way
def test_what_a_finished_command_left_behind_neither_blocks_nor_survives(
    shell: Plan, nap: str, settle_at: SettleAt, tmp_path: Path
) -> None:
    plan = shell(f"setsid env -i sleep {nap} & echo done; exit 5")

    assert run(plan, tmp_path / "spawns") == ProcessResult(
        exit=ExitStatus(code=5), stdout=b"done\n", stderr=b"", timed_out=False, stdout_cut=False, stderr_cut=False
    )
    settle_at(0)


@pytest.mark.long
def test_a_pipe_handed_to_a_process_outside_the_tree_cannot_block_the_end(
    shell: Plan, nap: str, settle_at: SettleAt, tmp_path: Path
) -> None:
    held: list[int] = []

    def hold() -> None:
        [pid] = settle_at(1)
        held.append(os.open(f"/proc/{pid}/fd/1", os.O_WRONLY))
        os.kill(pid, signal.SIGKILL)

    async def main() -> None:
        async with open_intents(tmp_path / "spawns") as book, anyio.create_task_group() as tasks:
            tasks.start_soon(anyio.to_thread.run_sync, hold)
            plan = shell(f"echo said; sleep {nap}; exit 6")
            finished = await run_once(plan, intents=book, timeout_s=20, max_output_bytes=1000)
            assert (finished.exit, finished.stdout, finished.timed_out) == (ExitStatus(code=6), b"said\n", False)

    anyio.run(main)
    os.close(held[0])


@pytest.mark.requirement("probe.process")
def test_of_a_hundred_megabytes_only_the_first_bytes_are_kept(shell: Plan, tmp_path: Path) -> None:
    plan = shell("head -c 100000000 /dev/zero; echo end >&2")
    tracemalloc.start()
    try:
        finished = run(plan, tmp_path / "spawns", max_output_bytes=5000)
        peak_bytes = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()

    assert finished == ProcessResult(
        exit=ExitStatus(code=0),
        stdout=bytes(5000),
        stderr=b"end\n",
        timed_out=False,
        stdout_cut=True,
        stderr_cut=False,
    )
    assert peak_bytes < 10_000_000


def test_output_that_just_fits_is_not_cut(shell: Plan, tmp_path: Path) -> None:
    finished = run(shell("printf 12345"), tmp_path / "spawns", max_output_bytes=5)

    assert (finished.stdout, finished.stdout_cut) == (b"12345", False)


@every_way
def test_many_short_commands_at_once_each_have_their_own_exit(shell: Plan, tmp_path: Path) -> None:
    codes: dict[int, int | None] = {}

    async def main() -> None:
        async with open_intents(tmp_path / "spawns") as book, anyio.create_task_group() as tasks:

            async def one(code: int) -> None:
                finished = await run_once(shell(f"exit {code}"), intents=book, timeout_s=60, max_output_bytes=10)
                assert finished.exit is not None
                codes[code] = finished.exit.code

            for code in range(20):
                tasks.start_soon(one, code)

    anyio.run(main)
    assert codes == {code: code for code in range(20)}
