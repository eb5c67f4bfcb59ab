"""The defects of the harness before us, each by its number in their list: what was seen there does not happen here."""

import os
from pathlib import Path
from typing import Any

import msgspec
import pytest

from proctor.errors import InputError
from proctor.event.model import TextSaid, TextStreamed, ToolEnded, TurnEnded
from proctor.event.outcome import NOT_ENDED, Outcome
from proctor.event.row import GENESIS, Direction, Row
from proctor.event.transcript import TranscriptFold
from proctor.evidence.artifacts import Feedback
from proctor.ids import ItemId, RuntimeId, TurnId
from proctor.runtime.codex_app_server import RUNTIME as CODEX
from tests.lab import Lab, jsonl, mission, processes_with, report_of, rows_of, say_done
from tests.runtime.process.commands import flow, open_command, run_flows, run_long

BURST = "for i in $(seq 100); do printf '%0599d\\n' $i; done"


@pytest.mark.long
@pytest.mark.requirement("runtime.process")
def test_r1_a_burst_of_60_000_bytes_was_shortened_in_9_of_40_runs_and_is_never(tmp_path: Path) -> None:
    async def main() -> list[int]:
        async with open_command(tmp_path, BURST) as (session, tap):
            for _ in range(40):
                await session.turn("Go on.")
            assert [event.status for event in tap.of(TurnEnded)] == ["completed"] * 40
            return [len(event.text) + 1 for event in tap.of(TextSaid)]

    assert run_long(main) == [60_000] * 40


@pytest.mark.requirement("runtime.process")
def test_r3_the_blanks_of_each_delta_were_stripped_and_every_one_is_kept(lab: Lab) -> None:
    fold = TranscriptFold(RuntimeId("r"))
    for at, piece in enumerate(["The answer", " is ", "forty", "  two\n", "\tand "], 1):
        fold.feed(TextStreamed(turn=TurnId("t"), item=ItemId("i"), text=piece, frame=at, at_ms=at))
    [draft, _] = fold.finish(NOT_ENDED, summary="", facts={})
    assert draft.text == "The answer is forty  two\n\tand "

    [paths] = run_flows(lab, {"one": flow(r"printf '  The answer\n\n\n is \n\tforty two and '")}).values()
    [said] = [row["text"] for row in jsonl(paths.transcript) if row["kind"] == "message"]
    assert said == "  The answer\n\n\n is \n\tforty two and "


@pytest.mark.requirement("evidence.claimed-vs-verified")
def test_r4_the_way_to_hand_in_a_result_was_ignored_and_a_turn_with_some_text_was_ok_and_neither_is_so(
    lab: Lab,
) -> None:
    to_file = {"result": {"file": "result.json"}}
    flows = {
        "text": flow("echo 'I fixed everything!'"),
        "nothing": flow("echo 'I fixed everything!'", options=to_file),
        "left": flow("""echo '{"done": false, "answer": "no"}' >result.json""", options=to_file),
    }
    claims = {
        name: msgspec.json.decode(paths.feedback.read_bytes(), type=Feedback)
        for name, paths in run_flows(lab, flows).items()
    }
    assert {name: (claim.claimed, claim.answer) for name, claim in claims.items()} == {
        "text": (None, None),
        "nothing": (None, None),
        "left": (False, "no"),
    }
    unknown = {"id": "f", **flow("true", options={"min_turn": 3})}
    with pytest.raises(InputError, match="process has no option 'min_turn'"):
        lab.run(lab.write_spec([mission("m", say_done())], flows=[unknown]))


@pytest.mark.long
@pytest.mark.requirement("evidence.validate")
def test_r11_a_line_over_64_kib_broke_the_report_and_one_of_20_mb_is_kept_whole(lab: Lab) -> None:
    sizes = {"long": 70_000, "longer": 20_000_000}
    found = run_flows(lab, {name: flow(f"head -c {size} /dev/zero | tr '\\0' x") for name, size in sizes.items()})

    assert {
        name: [len(row.text or "") for row in rows_of(paths) if row.dir is Direction.IN]
        for name, paths in found.items()
    } == {name: [size] for name, size in sizes.items()}
    assert {report_of(paths).outcome for paths in found.values()} == {Outcome.COMPLETED}
    reported = lab.proctor("report", "--json")
    assert (reported.returncode, reported.stderr) == (0, "")
    assert lab.proctor("attempt", "explain", "m.longer.r1.1").returncode == 0


@pytest.mark.long
@pytest.mark.requirement("attempt.clocks")
def test_r12_a_command_outlived_its_limit_by_7_seconds_and_is_gone_at_it_with_all_its_children(lab: Lab) -> None:
    nap = f"8.{os.getpid()}"
    flows = {
        "group": flow(["sh", "-c", f"sleep {nap}; true"]),
        "escaped": flow(["sh", "-c", f"setsid env -i sleep {nap} & trap '' TERM; sleep {nap}; sleep {nap}"]),
        "open": flow(["sh", "-c", f"setsid sleep {nap} & sleep {nap}; true"], contain="none"),
    }
    found = run_flows(lab, flows, limits={"turn": "1s"})

    ends = {(report_of(paths).outcome, report_of(paths).code) for paths in found.values()}
    assert ends == {(Outcome.TIMED_OUT, "limit.turn")}
    assert processes_with(nap) == []


@pytest.mark.requirement("evidence.trace")
def test_r15_an_mcp_call_that_failed_was_recorded_as_ok_and_is_not() -> None:
    item: dict[str, Any] = {"id": "c", "type": "mcpToolCall", "server": "files", "tool": "read", "arguments": {}}
    item |= {"status": "completed", "result": {"content": [], "isError": True}}
    frame = {"method": "item/completed", "params": {"threadId": "t", "turnId": "1", "item": item}}
    row = Row(seq=1, at_ms=0, dir=Direction.IN, prev=GENESIS, frame=msgspec.Raw(msgspec.json.encode(frame)))

    [ended] = CODEX.normalizer().feed(row)

    assert isinstance(ended, ToolEnded)
    assert (ended.kind, ended.name, ended.ok) == ("mcp", "files/read", False)


@pytest.mark.long
@pytest.mark.requirement("runtime.events.lossless")
def test_r18_a_sync_for_each_event_stalled_four_streams_of_3_000_and_here_they_share_a_few(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[int] = []

    really_sync = os.fsync

    def counted(descriptor: int) -> None:
        synced.append(descriptor)
        really_sync(descriptor)

    monkeypatch.setattr(os, "fsync", counted)
    talker = flow("for i in $(seq 3000); do echo delta $i; done")
    found = run_flows(lab, {f"f{at}": talker for at in range(4)}, limits={"stall": "8s"})

    assert {report_of(paths).outcome for paths in found.values()} == {Outcome.COMPLETED}
    assert [report_of(paths).metrics.frames["in"] for paths in found.values()] == [3000] * 4
    assert 0 < len(synced) < 200
