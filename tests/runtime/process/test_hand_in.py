"""What a command hands in while it runs, or leaves in a file: claims and notes, and everything that is neither."""

import json
import os
import shlex
from pathlib import Path

import anyio
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from proctor.event.model import NoteMade, ResultFound, WarningRaised
from proctor.event.outcome import Outcome
from proctor.evidence.artifacts import Feedback
from proctor.evidence.layout import AttemptPaths
from proctor.protocol.hand_in import MAX_MESSAGE_BYTES, MAX_MESSAGES, read_file_result, read_message
from proctor.runtime.process.hand_in_server import SOCKET, open_hand_in_server
from proctor.runtime.process.normalize import ProcessNormalizer
from proctor.runtime.process.result_file import ResultFile
from proctor.testing.agent_under_test import EventTap
from proctor.testing.clock import FakeClock
from tests.lab import Lab, jsonl, report_of
from tests.runtime.process.commands import flow, run_flows, run_long

LEAVE = "import json, os; json.dump({!r}, open(os.environ['PROCTOR_RESULT'], 'w'))"


def claim_of(paths: AttemptPaths) -> tuple[bool | None, str | None, object, str | None]:
    feedback = msgspec.json.decode(paths.feedback.read_bytes(), type=Feedback)
    return feedback.claimed, feedback.answer, feedback.result, feedback.problem


def leaving(value: object) -> str:
    return f"python3 -c {shlex.quote(LEAVE.format(value))}"


# ── while it runs ──


@pytest.mark.proctor_process
@pytest.mark.requirement("runtime.process")
@pytest.mark.requirement("evidence.claimed-vs-verified")
def test_the_last_feedback_is_the_claim_whatever_is_said_after_it_and_notes_are_in_the_transcript(lab: Lab) -> None:
    flows = {
        "both": flow(
            "proctor feedback --fail --answer no; proctor feedback --ok --answer 4 --json '[1, {}]'; echo bye"
        ),
        "named": flow('"$PROCTOR_BIN" note "half way"; "$PROCTOR_BIN" feedback --fail', sandbox="read-only"),
        "open": flow('proctor note --json "so far" >said.json; proctor feedback --ok', contain="none"),
        "word": flow("""echo 'PROCTOR-RESULT: {"done": true, "answer": "said"}'; proctor note done"""),
        "wrong": flow(
            "proctor feedback; proctor feedback --ok --json '{'\n"
            'proctor feedback --ok --answer "$(yes | head -c 70000)"'
        ),
        "none": flow("true"),
    }
    found = run_flows(lab, flows)

    assert {name: claim_of(paths) for name, paths in found.items()} == {
        "both": (True, "4", [1, {}], None),
        "named": (False, None, None, None),
        "open": (True, None, None, None),
        "word": (True, "said", None, None),
        "wrong": (None, None, None, None),
        "none": (None, None, None, None),
    }
    assert [row["text"] for row in jsonl(found["named"].transcript) if row["kind"] == "note"] == ["half way"]
    said = "".join(line[1:] for line in found["open"].workspace_diff.read_text().splitlines() if line[:2] != "++")
    assert json.loads(said[said.index("{") :]) == {"recorded": True, "text": "so far"}
    # A shell ends as its last command does: 2, because the mistake is the caller's.
    assert report_of(found["wrong"]).detail == "the command exited with code 2"


def test_outside_of_an_attempt_there_is_nobody_to_tell(lab: Lab) -> None:
    alone = lab.proctor("feedback", "--ok")
    gone = lab.proctor("note", "hello", PROCTOR_FEEDBACK=str(lab.folder / SOCKET))

    assert (alone.returncode, gone.returncode) == (3, 3)
    assert "PROCTOR_FEEDBACK is not set" in alone.stderr
    assert f"{lab.folder / SOCKET}: " in gone.stderr


async def say(folder: Path, data: bytes) -> dict[str, object]:
    """One message, as a program would say it that is not ours."""
    async with await anyio.connect_unix(folder / SOCKET) as stream:
        await stream.send(data)
        await stream.send_eof()
        answer = b"".join([chunk async for chunk in stream])
        return json.loads(answer) if answer else {}


def test_what_is_no_message_is_refused_and_on_record_and_the_next_one_is_taken(tmp_path: Path) -> None:
    bad = {
        b"": "Input data was truncated",
        b"\xff\xfe": "not UTF-8: invalid start byte at byte 0",
        b"[]": "Expected `object`, got `array`",
        b'{"kind": "feedback"}': "Object missing required field `done`",
        b'{"kind": "feedback", "done": "yes"}': "Expected `bool`, got `str` - at `$.done`",
        b'{"kind": "note", "text": "x", "more": 1}': "Object contains unknown field `more`",
        b'{"kind": "shout", "text": "x"}': "Invalid value 'shout' - at `$.kind`",
        b'{"kind": "feedback", "done": true, "result": %s}' % (b"[" * 500 + b"]" * 500): "nested too deep",
        b'{"kind": "note", "text": "%s"}' % (b"x" * MAX_MESSAGE_BYTES): f"over {MAX_MESSAGE_BYTES} bytes",
    }

    async def main() -> None:
        tap = EventTap(ProcessNormalizer())
        async with open_hand_in_server(tmp_path, tap, clock=FakeClock()):
            answers = [await say(tmp_path, data) for data in bad]
            async with await anyio.connect_unix(tmp_path / SOCKET):
                pass  # one that says nothing at all
            assert await say(tmp_path, b'{"kind": "note", "text": "good"}') == {"ok": True, "what": None}
        assert answers == [{"ok": False, "what": what} for what in bad.values()]
        refused = [f"message refused: {what}" for what in (*bad.values(), "Input data was truncated")]
        assert [event.text for event in tap.of(WarningRaised)] == refused
        assert [event.text for event in tap.of(NoteMade)] == ["good"]

    run_long(main)


@pytest.mark.long
def test_after_so_many_messages_the_rest_is_refused_and_that_is_said_once(tmp_path: Path) -> None:
    async def main() -> None:
        tap = EventTap(ProcessNormalizer())
        async with open_hand_in_server(tmp_path, tap, clock=FakeClock()):
            for at in range(MAX_MESSAGES + 2):
                await say(tmp_path, b'{"kind": "feedback", "done": true, "answer": "%d"}' % at)
            last = await say(tmp_path, b'{"kind": "note", "text": "one more"}')
        assert last == {"ok": False, "what": "more than 1000 messages"}
        assert [event.answer for event in tap.of(ResultFound)][-1] == "999"
        assert [event.text for event in tap.of(WarningRaised)] == [
            "message refused: more than 1000 messages: the rest is not kept"
        ]

    run_long(main)


LEAVES = st.none() | st.booleans() | st.integers() | st.text()
KEYS = st.sampled_from(["kind", "done", "answer", "result", "text"])
VALUES = st.recursive(LEAVES, lambda inner: st.lists(inner) | st.dictionaries(KEYS, inner))


@given(st.binary() | VALUES.map(msgspec.json.encode))
def test_any_bytes_are_a_message_or_a_value_error(data: bytes) -> None:
    for read in (read_message, read_file_result):
        try:
            message = read(data)
        except ValueError:
            continue
        assert read(msgspec.json.encode(message)) == message


# ── in a file ──


@pytest.mark.proctor_process
@pytest.mark.requirement("runtime.process")
def test_a_result_file_is_the_claim_and_what_is_none_is_a_problem_with_a_code(lab: Lab) -> None:
    to_file = {"result": {"file": "out/result.json"}}
    flows = {
        "left": flow(f"mkdir out; {leaving({'done': True, 'answer': '4', 'result': {'n': 4}})}", options=to_file),
        "reader": flow(leaving({"done": False}), options={"result": {"file": "result.json"}}, sandbox="read-only"),
        "missing": flow("true", options=to_file),
        "stale": flow("true", options={"result": {"file": "old.json"}}),
        "garbled": flow("mkdir out; echo '{' >out/result.json", options=to_file),
        "unknown": flow(f"mkdir out; {leaving({'ok': True})}", options=to_file),
        "marked": flow("""echo 'RESULT={"done": true, "answer": "5"}'""", options={"result": {"marker": "RESULT="}}),
        "mismarked": flow("echo 'RESULT=yes'", options={"result": {"marker": "RESULT="}}),
        "fed": flow("proctor feedback --ok", options=to_file),
    }
    found = run_flows(lab, flows, workspace={"old.json": '{"done": true}'})

    assert {name: claim_of(paths) for name, paths in found.items()} == {
        "left": (True, "4", {"n": 4}, None),
        "reader": (False, None, None, None),
        "missing": (None, None, None, "agent.result-missing: out/result.json does not exist"),
        "stale": (None, None, None, "agent.result-missing: old.json was not written in this turn"),
        "garbled": (None, None, None, "agent.result-invalid: out/result.json: Input data was truncated"),
        "unknown": (None, None, None, "agent.result-invalid: out/result.json: Object contains unknown field `ok`"),
        "marked": (True, "5", None, None),
        "mismarked": (
            *(None, None, None),
            "agent.result-invalid: the marker line is not readable: JSON is malformed: invalid character (byte 0)",
        ),
        "fed": (True, None, None, "agent.result-missing: out/result.json does not exist"),
    }
    assert {report_of(paths).outcome for paths in found.values()} == {Outcome.COMPLETED}


@pytest.mark.proctor_process
@pytest.mark.requirement("evidence.redaction")
def test_a_token_known_by_its_shape_that_is_handed_in_is_in_no_file(lab: Lab) -> None:
    # Put together by the command, so that it stands in no spec.
    lead, rest = "ghp_", "0123456789abcdefghijklmnopqrstuvwxyz"
    made = f"T=$(printf {lead}; printf {rest})"
    result = """ '{"done": true, "answer": "it is %s", "result": {"in": ["%s"]}}' $T $T"""
    flows = {
        "fed": flow(f"""{made}; proctor feedback --ok --answer "it is $T" --json "{{\\"in\\": [\\"$T\\"]}}" """),
        "left": flow(f"{made}; printf{result} >result.json", options={"result": {"file": "result.json"}}),
    }
    found = run_flows(lab, flows)

    masked = f"{lead}[redacted:scan:github]"
    assert {name: claim_of(paths) for name, paths in found.items()} == {
        name: (True, f"it is {masked}", {"in": [masked]}, None) for name in flows
    }
    evidence = found["fed"].folder.parents[1]
    files = [file for file in evidence.rglob("*") if file.is_file()]
    assert {paths.feedback for paths in found.values()} <= {*files}
    assert [file for file in files if f"{lead}{rest}".encode() in file.read_bytes()] == []


def test_a_result_is_read_by_no_link_and_from_nothing_but_a_file(tmp_path: Path) -> None:
    outside, inside = tmp_path / "outside", tmp_path / "inside"
    for folder in (outside, inside, inside / "real"):
        folder.mkdir()
    for folder in (outside, inside / "real"):
        (folder / "r.json").write_text('{"done": true}')
    (inside / "link.json").symlink_to(outside / "r.json")
    (inside / "away").symlink_to(outside)
    (inside / "long.json").write_text('{"done": true, "answer": "%s"}' % ("x" * MAX_MESSAGE_BYTES))

    os.mkfifo(inside / "fifo.json")

    found = {
        file: (read.done, read.problem)
        for file in ("real/r.json", "link.json", "away/r.json", "long.json", "fifo.json", "real")
        for read in [ResultFile(inside, file).read(before=None)]
    }

    assert found == {
        "real/r.json": (True, None),
        "link.json": (None, "link.json: Too many levels of symbolic links"),
        "away/r.json": (None, "away/r.json: Not a directory"),
        "long.json": (None, f"long.json: over {MAX_MESSAGE_BYTES} bytes"),
        "fifo.json": (None, "fifo.json: not a regular file"),
        "real": (None, "real: not a regular file"),
    }
