"""A recorded attempt that happens again: the same evidence, whatever the chunks, and a typed end wherever it is cut."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proctor.errors import InputError, RefusedError
from proctor.event.model import TurnEnded
from proctor.event.outcome import Outcome
from proctor.event.row import Direction
from proctor.evidence.layout import AttemptPaths
from proctor.runtime.replay import RUNTIME
from proctor.testing.agent_under_test import EventTap, host_asked, session_asked
from tests.lab import Lab, jsonl, mission, report_of, rows_of, runner_ref_of, say_done
from tests.made_once import made_once
from tests.runtime.process.commands import flow, run_long

pytestmark = pytest.mark.real_agent

WORD = "correct horse battery"

CODEX = {"id": "codex", "runtime": ["codex_app_server"]}
# Blank and indented lines, one that is JSON, one that is no UTF-8, base64 over two lines, both pipes, a note, a claim.
SPEAKER = r"""
printf '  one\n\n{"a": 1}\n{"a": "\377"}\n'
printf '%064d\n%064d\n' 1 2; printf '%064d\n%064d\n' 3 4 >&2
proctor note "half way"; proctor feedback --ok --answer 4
"""


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> dict[str, AttemptPaths]:
    """Attempts of every kind of end, by mission and flow."""
    lab = Lab(made_once(tmp_path_factory, "recorded-for-replay", _record))
    return {name.rsplit(".", 2)[0]: paths for name, paths in lab.attempts().items()}


def _record(folder: Path) -> None:
    lab = Lab(folder)
    missions = [
        mission("works", {"run": "echo $((6 * 7))"}, {"run": "exit 3"}, say_done("42")),
        mission("tells", {"say": f"They say {WORD}, do they not?"}),
        mission("hangs", {"fault": "hang"}),
    ]
    flows = [CODEX, {"id": "speaks", **flow(SPEAKER)}, {"id": "naps", **flow("echo tired; sleep 300")}]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MY_WORD", WORD)
        spec = lab.write_spec(
            missions, flows=flows, limits={"stall": "6s"}, schedule={"parallel": 9}, secrets=["MY_WORD"]
        )
        lab.run(spec)
    lab.assert_all_evidence_is_valid()


def replay(lab: Lab, flows: Mapping[str, Mapping[str, Any]], *, prompt: str = "Do it.") -> dict[str, AttemptPaths]:
    """One attempt for each set of options; the evidence is checked."""
    rows = [
        {"id": id_, "runtime": ["replay"], "isolation": "process", "options": {"replay": options}}
        for id_, options in flows.items()
    ]
    spec = lab.write_spec([mission("m", say_done(), prompt=prompt)], flows=rows)
    lab.run(spec)
    lab.assert_all_evidence_is_valid()
    return {name.split(".")[1]: paths for name, paths in lab.attempts().items()}


def derived(paths: AttemptPaths) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """The trace and the transcript, without what another record at another time has of its own: its facts too."""
    own = {
        "seq",
        "prev",
        "attempt",
        "session",
        "atMs",
        "frame",
        "beganAtMs",
        "endedAtMs",
        "beganFrame",
        "endedFrame",
        "durationMs",
        "facts",
    }
    return tuple(  # type: ignore[return-value]
        [{key: value for key, value in row.items() if key not in own} for row in jsonl(file) if row["kind"] != "facts"]
        for file in (paths.tool_calls, paths.transcript)
    )


def said(paths: AttemptPaths) -> list[tuple[str, str | None, bytes | None]]:
    """What was on the channel, as it was recorded."""
    return [
        (row.dir.value, row.text, bytes(row.frame) if isinstance(row.frame, msgspec.Raw) else None)
        for row in rows_of(paths)
        if row.dir is not Direction.SELF
    ]


def ending(paths: AttemptPaths) -> tuple[Any, ...]:
    report, metrics = report_of(paths), report_of(paths).metrics
    counts = {name: count for name, count in metrics.frames.items() if name != "self"}
    return report.outcome, report.code, report.claimed, counts, metrics.usage, metrics.unrecognized


@pytest.mark.requirement("runtime.replay")
def test_a_replay_leaves_the_trace_the_transcript_and_the_end_of_what_was_recorded(
    recorded: dict[str, AttemptPaths], lab: Lab
) -> None:
    ends = {name: report_of(paths).outcome for name, paths in recorded.items()}
    assert (ends["works.codex"], ends["works.speaks"]) == (Outcome.COMPLETED, Outcome.COMPLETED)
    assert (ends["hangs.codex"], ends["hangs.naps"]) == (Outcome.STALLED, Outcome.STALLED)
    ways: dict[str, dict[str, Any]] = {"whole": {}, "bytes": {"chunk_bytes": 3}, "any": {"seed": 5}}
    names = {f"{name.replace('.', '-')}-{way}": (name, way) for name in recorded for way in ways}

    again = replay(
        lab, {id_: {"attempt": str(recorded[name].folder), **ways[way]} for id_, (name, way) in names.items()}
    )

    for id_, (name, _) in names.items():
        assert (derived(again[id_]), ending(again[id_])) == (derived(recorded[name]), ending(recorded[name])), id_
        assert said(again[id_]) == said(recorded[name]), id_
        assert WORD not in again[id_].frames.read_text()
    ref = runner_ref_of(again["tells-codex-whole"])
    assert (ref.runtime_id, ref.thread_id) == ("replay", runner_ref_of(recorded["tells.codex"]).thread_id)
    assert ref.facts["recording"].value["runtimeId"] == "codex_app_server"
    assert "identity" not in ref.facts


@pytest.mark.requirement("runtime.replay")
@settings(max_examples=6)
@given(data=st.data())
def test_wherever_the_agent_dies_and_however_it_is_cut_the_end_is_typed_and_the_counts_add_up(
    recorded: dict[str, AttemptPaths], tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    flows: dict[str, dict[str, Any]] = {}
    for at in range(8):
        paths = recorded[data.draw(st.sampled_from(sorted(recorded)))]
        rows = len(rows_of(paths))
        flows[f"f{at}"] = {
            "attempt": str(paths.folder),
            "seed": data.draw(st.integers(0, 1000)),
            "chunk_bytes": data.draw(st.integers(1, 300)),
            "kill_at": data.draw(
                st.integers(1, rows) | st.fixed_dictionaries({"byte": st.integers(0, paths.frames.stat().st_size // 3)})
            ),
        }
    again = replay(Lab(tmp_path_factory.mktemp("killed")), flows)
    # That the counts add up, and all the rest of it, is checked with the evidence.
    for paths in again.values():
        assert report_of(paths).outcome in (Outcome.CRASHED, Outcome.COMPLETED, Outcome.STALLED)


@pytest.mark.requirement("runtime.replay")
def test_a_kill_point_in_the_middle_of_a_turn_is_a_crash_and_says_what_did_not_come(
    recorded: dict[str, AttemptPaths], lab: Lab
) -> None:
    paths = recorded["works.codex"]
    middle = len(rows_of(paths)) // 2
    flows = {
        "row": {"attempt": str(paths.folder), "kill_at": middle},
        "byte": {"attempt": str(paths.folder), "kill_at": {"byte": 5000}, "chunk_bytes": 100},
        "late": {"attempt": str(paths.folder), "kill_at": 100_000},
    }
    again = replay(lab, flows)

    ends = {name: (report_of(each).outcome, report_of(each).code) for name, each in again.items()}
    assert ends == {
        "row": (Outcome.CRASHED, "peer.killed"),
        "byte": (Outcome.CRASHED, "peer.killed"),
        "late": (Outcome.COMPLETED, None),
    }
    assert [row.dir.value for row in rows_of(again["row"])].count("in") == [
        row.dir.value for row in rows_of(paths)[: middle - 1]
    ].count("in")
    total = len(rows_of(paths))
    assert warnings(again["row"]) == [f"not replayed: {total - middle + 1} of {total} rows"]
    assert warnings(again["late"]) == ["not replayed: the recording ends before kill_at"]
    heard = b"".join(bytes(row.frame) + b"\n" for row in rows_of(paths) if row.dir.value == "in")  # type: ignore[arg-type]
    [torn] = [row.text for row in rows_of(again["byte"]) if row.dir.value == "in" and row.text is not None]
    assert heard[:5000].endswith(torn.encode())


def warnings(paths: AttemptPaths) -> list[str]:
    return [row["text"] for row in jsonl(paths.transcript) if row["kind"] == "warning" and row["source"] == "protocol"]


def test_another_prompt_and_a_damaged_line_are_told_and_a_replay_can_be_replayed(
    recorded: dict[str, AttemptPaths], lab: Lab
) -> None:
    source = recorded["works.speaks"]
    damaged = lab.folder / "damaged"
    damaged.mkdir()
    (damaged / "attempt.json").write_bytes(source.attempt.read_bytes())
    (damaged / "frames.jsonl").write_bytes(source.frames.read_bytes() + b"{torn")
    flows = {
        "other": {"attempt": str(source.folder), "speed": "real"},
        "damaged": {"attempt": str(damaged)},
    }
    again = replay(lab, flows, prompt="Do something else.")

    assert warnings(again["other"]) == ["not replayed: the prompt: the recorded prompt is used instead"]
    [torn] = warnings(again["damaged"])
    assert torn.startswith("not replayed: frames.jsonl:")
    assert {report_of(paths).outcome for paths in again.values()} == {Outcome.COMPLETED}
    second = Lab(lab.folder / "second")
    second.folder.mkdir()
    [twice] = replay(second, {"twice": {"attempt": str(again["other"].folder)}}, prompt="Do something else.").values()
    assert (derived(twice), ending(twice)) == (derived(again["other"]), ending(again["other"]))


@pytest.mark.requirement("runtime.capability.contract")
def test_what_a_recording_cannot_do_is_refused_with_a_code(recorded: dict[str, AttemptPaths], tmp_path: Path) -> None:
    options = {"attempt": str(recorded["works.speaks"].folder)}

    async def main() -> list[str]:
        codes: list[str] = []
        tap = EventTap(RUNTIME.normalizer())
        asked = session_asked(tmp_path, name="again", base_url="", options=options)
        async with (
            host_asked(tmp_path, name="p", program=RUNTIME.locate(options)) as host_ask,
            RUNTIME.open_host(host_ask, tap) as host,
            host.open_session(asked, tap) as session,
        ):
            await session.turn("Do it.")
            assert [event.status for event in tap.of(TurnEnded)] == ["completed"]
            for ask in (session.steer("x"), session.compact(), session.read_history(), session.turn("Again.")):
                with pytest.raises(RefusedError) as refused:
                    await ask
                codes.append(refused.value.code)
            return codes

    assert run_long(main) == ["runtime.capability", "runtime.capability", "peer.refused", "peer.refused"]


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({}, "needs `attempt`"),
        ({"attempt": "/nowhere"}, "/nowhere is not the folder of an attempt"),
        ({"attempt": ".", "speed": 2}, "Invalid enum value 2"),
        ({"attempt": ".", "kill_at": {"bite": 1}}, "unknown field `bite`"),
        ({"attempt": ".", "chunk_bytes": 0}, ">= 1"),
    ],
)
def test_options_that_make_no_sense_are_refused(options: dict[str, Any], says: str) -> None:
    with pytest.raises(InputError, match=says):
        RUNTIME.check_options(options)
