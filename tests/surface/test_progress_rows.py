"""The progress stream: rows for a program, however slow it reads."""

import json
import os
import threading
from pathlib import Path
from typing import Any

import anyio
import msgspec
import pytest

from proctor.attempt.machine import State
from proctor.errors import InputError, MachineError
from proctor.event.model import TurnBegan
from proctor.event.outcome import Outcome
from proctor.ids import AttemptId, TurnId
from proctor.surface.cli.progress import open_progress
from proctor.surface.cli.row_stream import TICK_S, RowStream, open_rows
from proctor.surface.progress_rows import AnyProgress
from proctor.testing.clock import FakeClock
from tests.event.streams import total
from tests.lab import Lab, mission, say_done
from tests.report.made import CAMPAIGN, RUN, summary
from tests.runtime.twin import run
from tests.surface.conftest import ask
from tests.surface.watching import ALL, CODEX, FIX, began, picture, sealed, tool


def rows_in(path: Path) -> list[dict[str, Any]]:
    lines = path.read_bytes().splitlines()
    msgspec.json.Decoder(list[AnyProgress]).decode(b"[" + b",".join(lines) + b"]")  # each is of the documented family
    return [json.loads(line) for line in lines]


class Told:
    """A stream into a file, and the picture that is told before it."""

    def __init__(self, path: Path, *, most_rows: int = 100) -> None:
        self.clock = FakeClock()
        self.picture = picture(self.clock)
        self.file = os.open(path, os.O_WRONLY | os.O_CREAT)
        self.rows = RowStream(self.file, view=self.picture, most_rows=most_rows)

    def __getattr__(self, name: str) -> Any:
        def both(*args: Any, **kwargs: Any) -> None:
            for each in (self.picture, self.rows):
                getattr(each, name)(*args, **kwargs)

        return both

    def close(self) -> None:
        async def last_words() -> None:
            with anyio.fail_after(10):
                await self.rows.close()

        anyio.run(last_words)
        os.close(self.file)


@pytest.mark.real_agent
@pytest.mark.requirement("surface.progress")
def test_of_a_real_run_stdout_holds_rows_alone_with_what_it_costs(lab: Lab) -> None:
    spec = lab.write_spec([mission("look", {"run": "ls"}, say_done())], prices="prices.yaml")
    prices = {"version": 1, "since": "2026-11-01", "models": {"scripted": {"input": 1000, "output": 1000}}}
    (spec.parent / "prices.yaml").write_text(json.dumps(prices))
    said = lab.proctor_process("run", str(spec), "--progress", "-", "--json")
    rows = [json.loads(line) for line in said.stdout.splitlines()]
    msgspec.convert(rows, list[AnyProgress])
    assert [row["type"] for row in rows if row["type"] in ("run.began", "attempt.started", "attempt.settled")] == [
        *("run.began", "attempt.started", "attempt.settled")
    ]
    assert (rows[-1]["type"], rows[-1]["how"], rows[-1]["settled"]) == ("run.ended", "done", 1)
    assert [row["doing"] for row in rows if row["type"] == "tool"] == ["ls"]
    usage = [row for row in rows if row["type"] == "usage"]
    assert usage
    assert all(row["usd"] is not None for row in usage)


@pytest.mark.requirement("surface.progress")
def test_a_program_reads_everything_that_matters_in_order(tmp_path: Path) -> None:
    told = Told(tmp_path / "rows.jsonl")
    now_ms = told.clock.wall_ms()
    told.began(began(tmp_path, trials=3, settled=1))
    told.scheduled((ALL,), waiting=2)
    told.started(FIX, runtime_id=CODEX)
    told.state_entered(FIX, State.TURN_RUNNING)
    told.event_recorded(FIX, TurnBegan(frame=2, at_ms=2, turn=TurnId("t")))
    told.event_recorded(FIX, tool("make test"))
    told.event_recorded(FIX, total(100, frame=3))
    told.stopping("finishing what runs")
    told.settled(
        sealed(FIX, outcome=Outcome.CRASHED, code="peer.hangup"), usd=0.5, retry_at_ms=now_ms + 4, is_settled=False
    )
    told.ended("drained")
    told.close()
    campaign = {"campaignId": CAMPAIGN, "runId": RUN, "dir": str(tmp_path / "campaigns" / CAMPAIGN)}
    summarized = json.loads(msgspec.json.encode(summary(FIX, outcome=Outcome.CRASHED, code="peer.hangup")))
    ending = {"state": "sealed", "code": "peer.hangup", "summary": summarized, "usd": 0.5, "retryAtMs": now_ms + 4}
    its = {"attemptId": FIX}
    limit = {"key": "all", "maximum": 8, "currentMaximum": 8, "taken": 2, "untilMs": None, "why": None}
    assert rows_in(tmp_path / "rows.jsonl") == [
        {"atMs": now_ms, **row}
        for row in (
            {"type": "run.began", "schemaVersion": 1, **campaign, "trials": 3, "settled": 1},
            {"type": "limits", "waiting": 2, "limits": [limit]},
            {"type": "attempt.started", **its, "runtimeId": CODEX},
            {"type": "attempt.phase", **its, "phase": "turn_running"},
            {"type": "tool", **its, "name": "shell", "doing": "make test", "calls": 1},
            {"type": "usage", **its, "tokens": 100, "usd": 0.01},
            {"type": "run.stopping", "how": "finishing what runs"},
            {"type": "attempt.settled", **its, **ending, "settled": 1, "trials": 3},
            {"type": "run.ended", "how": "drained", "settled": 1, "trials": 3},
        )
    ]


def test_of_what_comes_fast_the_first_and_the_latest_have_a_row(tmp_path: Path) -> None:
    told = Told(tmp_path / "rows.jsonl")
    told.began(began(tmp_path))
    told.event_recorded(FIX, TurnBegan(frame=1, at_ms=1, turn=TurnId("t")))
    for number in range(1, 1001):
        told.event_recorded(FIX, tool(f"step {number}"))
        told.event_recorded(FIX, total(number, frame=number))
    told.clock.advance(TICK_S)
    told.rows._put_due()
    told.close()
    rows = rows_in(tmp_path / "rows.jsonl")[1:]
    assert [(row["type"], row.get("doing", row.get("tokens")), row.get("calls")) for row in rows] == [
        ("tool", "step 1", 1),
        ("usage", 1, None),
        ("tool", "step 1000", 1000),
        ("usage", 1000, None),
    ]


@pytest.mark.requirement("surface.progress")
def test_the_end_of_a_run_is_its_last_row_and_what_was_due_is_written_before_it(tmp_path: Path) -> None:
    told = Told(tmp_path / "rows.jsonl")
    told.began(began(tmp_path))
    for waiting in (3, 2, 1):
        told.scheduled((ALL,), waiting=waiting)
    told.ended("done")
    told.clock.advance(TICK_S)
    told.rows._put_due()
    told.scheduled((ALL,), waiting=0)
    told.close()
    assert [(row["type"], row.get("waiting")) for row in rows_in(tmp_path / "rows.jsonl")] == [
        ("run.began", None),
        ("limits", 3),
        ("limits", 1),
        ("run.ended", None),
    ]


def test_what_a_slow_reader_missed_is_counted_in_its_place(tmp_path: Path) -> None:
    told = Told(tmp_path / "rows.jsonl", most_rows=3)
    told.began(began(tmp_path))
    for number in range(1, 6):
        told.started(AttemptId(f"fix.codex.r{number}.1"), runtime_id=CODEX)
    told.ended("done")
    told.close()
    told_rows = [(row["type"], row.get("attemptId") or row.get("rows")) for row in rows_in(tmp_path / "rows.jsonl")]
    assert told_rows == [
        ("run.began", None),
        ("attempt.started", "fix.codex.r1.1"),
        ("attempt.started", "fix.codex.r2.1"),
        ("left.out", 3),
        ("run.ended", None),
    ]


@pytest.mark.long
def test_a_reader_who_reads_nothing_holds_nobody_up(tmp_path: Path) -> None:
    async def work() -> None:
        pipe = tmp_path / "pipe"
        os.mkfifo(pipe)
        reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
        before = threading.active_count()
        with anyio.fail_after(20):
            async with open_progress("night", rows_to=pipe) as progress:
                for number in range(5000):  # more than a pipe holds
                    progress.started(AttemptId(f"fix.codex.r{number}.1"), runtime_id=CODEX)
                await anyio.lowlevel.checkpoint()
        os.close(reader)
        assert threading.active_count() <= before + 2, "idle threads of the pool may stay; none is stuck"

    run(work)


def test_the_last_rows_are_written_however_it_ended(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"

    async def work() -> None:
        async with open_progress("night", rows_to=path) as progress:
            progress.began(began(tmp_path))
            progress.ended("failed")
            raise MachineError("machine.disk-full", "no space left")

    with pytest.raises(ExceptionGroup):
        run(work)
    assert [row["type"] for row in rows_in(path)] == ["run.began", "run.ended"]


def test_a_reader_who_leaves_costs_nothing(tmp_path: Path) -> None:
    async def work() -> None:
        pipe = tmp_path / "pipe"
        os.mkfifo(pipe)
        reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
        with anyio.fail_after(20):
            async with open_progress("night", rows_to=pipe) as progress:
                os.close(reader)
                progress.began(began(tmp_path))

    run(work)


def test_rows_are_added_to_a_file_and_one_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text("earlier\n")
    with open_rows(path) as file:
        assert file is not None
        os.write(file, b"later\n")
    assert path.read_text() == "earlier\nlater\n"
    with pytest.raises(InputError) as caught, open_rows(tmp_path / "no" / "rows.jsonl"):
        pass
    assert (caught.value.code, caught.value.exit) == ("usage", 2)


@pytest.mark.requirement("surface.progress")
def test_a_disk_that_takes_no_more_rows_is_a_warning_of_the_run(tmp_path: Path) -> None:
    async def watch() -> tuple[str, ...]:
        with anyio.fail_after(10):
            async with open_progress("night", rows_to=Path("/dev/full")) as progress:
                progress.began(began(tmp_path))
                progress.ended("done")
            return tuple(progress.warnings())

    assert anyio.run(watch) == ("--progress /dev/full: No space left on device; later progress events are missing",)


def test_a_reader_who_leaves_is_no_warning(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "rows")
    reader = os.open(tmp_path / "rows", os.O_RDONLY | os.O_NONBLOCK)

    async def watch() -> tuple[str, ...]:
        with anyio.fail_after(10):
            async with open_progress("night", rows_to=tmp_path / "rows") as progress:
                os.close(reader)
                progress.began(began(tmp_path))
            return tuple(progress.warnings())

    assert anyio.run(watch) == ()


@pytest.mark.requirement("surface.progress")
def test_a_run_that_an_error_ends_says_so_in_its_last_row(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    model = {"provider": "openai", "name": "gpt-x", "base_url": "http://127.0.0.1:1/v1"}
    spec = lab.write_spec([mission("one")], model=model, login="api-key")
    said = ask(lab, "run", str(spec), "--progress", str(lab.folder / "rows"), "--json")
    assert said.json["error"]["code"] == "policy.login"
    [row] = rows_in(lab.folder / "rows")
    assert (row["type"], row["how"], row["settled"], row["trials"]) == ("run.ended", "policy.login", 0, 1)
