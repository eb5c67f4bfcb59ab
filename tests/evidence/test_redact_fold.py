"""What control saw and what the record says are one and the same, wherever secrets were planted."""

import json
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proctor.attempt.derive import Derivation, DerivedResult
from proctor.event.row import GENESIS, Direction, Row
from proctor.event.trace import ToolCall
from proctor.evidence.recorder import FrameLog
from proctor.evidence.redact import Redactor
from proctor.evidence.secrets import Secret, find_secrets
from proctor.ids import AttemptId
from proctor.runtime.codex_app_server import RUNTIME
from proctor.runtime.codex_app_server.route import Envelope, open_envelope
from proctor.testing.clock import FakeClock

SECRETS = [
    Secret(name="KEY", value="zk7-correct-horse"),
    Secret(name="ODD", value='pä"ss\\w0rd\n/x'),
    Secret(name="NUMBER", value="12345678"),
]
PLANTED = st.sampled_from(
    [
        *(secret.value for secret in SECRETS),
        f"key={SECRETS[0].value}!",
        "sk-proj-0123456789abcdefghijklmnop",
        'password="hunter2hunter2"',
        "completed",
        "failed",
        "",
    ]
)
NAMES = st.sampled_from(["type", "status", "method", "id", "item", "turn", "token"])
# A place that the model or a tool fills, with the protocol's own names in it.
ANYTHING = st.recursive(
    st.one_of(PLANTED, st.just(12345678), st.booleans(), st.none()),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(NAMES | PLANTED, inner, max_size=3),
    max_leaves=6,
)
ITEMS = st.one_of(
    st.fixed_dictionaries(
        {
            "type": st.just("commandExecution"),
            "command": PLANTED,
            "cwd": PLANTED,
            "status": st.sampled_from(["completed", "failed", "declined"]),
            "aggregatedOutput": PLANTED,
            "exitCode": st.sampled_from([None, 0, 1]),
        }
    ),
    st.fixed_dictionaries(
        {
            "type": st.just("mcpToolCall"),
            "server": PLANTED,
            "tool": PLANTED,
            "arguments": ANYTHING,
            "status": st.sampled_from(["completed", "failed"]),
            "result": st.none() | st.fixed_dictionaries({"content": ANYTHING, "isError": st.booleans()}),
            "error": st.none() | st.fixed_dictionaries({"message": PLANTED}),
        }
    ),
    st.fixed_dictionaries(
        {
            "type": st.just("agentMessage"),
            "text": PLANTED.map(lambda text: f"{text}\nPROCTOR-RESULT: " + json.dumps({"done": True, "answer": text})),
        }
    ),
)
ENDINGS = st.fixed_dictionaries(
    {
        "status": st.sampled_from(["completed", "failed", "interrupted"]),
        "error": st.none() | st.fixed_dictionaries({"message": PLANTED, "codexErrorInfo": st.just("other")}),
    }
)


def frames(items: list[dict[str, Any]], ending: dict[str, Any]) -> Iterator[tuple[Direction, Any]]:
    """One turn."""
    here = {"threadId": "t", "turnId": "u"}
    yield Direction.OUT, {"id": 1, "method": "thread/start", "params": {"cwd": "/w"}}
    yield Direction.IN, {"id": 1, "result": {"thread": {"id": "t"}, "model": "m"}}
    yield Direction.OUT, {"id": 2, "method": "turn/start", "params": {"threadId": "t", "input": [{"text": "Go."}]}}
    yield (
        Direction.IN,
        {"method": "turn/started", "params": {"threadId": "t", "turn": {"id": "u", "status": "inProgress"}}},
    )
    for number, item in enumerate(items):
        whole = {"id": f"i{number}", **item}
        yield Direction.IN, {"method": "item/started", "params": {**here, "item": whole}}
        ask = {"itemId": whole["id"], "command": item.get("command")}
        yield Direction.IN, {"id": 12345678 + number, "method": "item/commandExecution/requestApproval", "params": ask}
        yield Direction.OUT, {"id": 12345678 + number, "result": {"decision": "decline"}}
        yield Direction.IN, {"method": "item/completed", "params": {**here, "item": whole}}
    yield Direction.IN, {"method": "turn/completed", "params": {"threadId": "t", "turn": {"id": "u", **ending}}}


def derived(rows: list[Row]) -> tuple[DerivedResult, list[ToolCall]]:
    calls: list[ToolCall] = []
    derivation = Derivation(
        RUNTIME.normalizer(),
        attempt=AttemptId("a"),
        runtime_id=RUNTIME.id,
        trace=calls.extend,
        transcript=lambda _: None,
    )
    derivation.feed(rows)
    return derivation.finish(), calls


def meaning(rows: list[Row]) -> dict[str, Any]:
    """What a record comes to, without what was said in it."""
    whole, calls = derived(rows)
    metrics = msgspec.structs.asdict(whole.metrics)
    for counted_as_written in ("redacted_rows", "tool_output_bytes", "span_ms"):
        del metrics[counted_as_written]
    # Calls that differ only in how they spell a secret, such as "12345678" and 12345678, are equal once it is masked.
    for counted_by_equality in ("tool_retries", "distinct_calls", "longest_streak"):
        del metrics[counted_by_equality]
    return {
        "outcome": (whole.ending.outcome, whole.ending.code, whole.ending.frame),
        "claimed": whole.claim.claimed,
        "calls": [(call.kind, call.status, call.ok, call.exit_code, call.began_frame) for call in calls],
        "metrics": metrics,
    }


def control(envelope: Envelope) -> tuple[Any, ...]:
    """What a session and a connection act on."""
    return envelope.method, envelope.thread, envelope.turn, envelope.item, envelope.item_type, envelope.ended_streams


@pytest.mark.long
@pytest.mark.requirement("evidence.redaction")
@settings(max_examples=100, deadline=None)
@given(items=st.lists(ITEMS, max_size=3), ending=ENDINGS)
def test_the_outcome_of_the_raw_frames_is_the_outcome_of_the_recorded_ones(
    items: list[dict[str, Any]], ending: dict[str, Any]
) -> None:
    said = [(dir_, msgspec.json.encode(frame)) for dir_, frame in frames(items, ending)]
    raw = [
        Row(seq=seq, at_ms=0, dir=dir_, prev=GENESIS, frame=msgspec.Raw(line))
        for seq, (dir_, line) in enumerate(said, 1)
    ]
    with TemporaryDirectory() as folder:
        file = Path(folder) / "frames.jsonl"
        redactor = Redactor(SECRETS, private=RUNTIME.private_paths)
        with FrameLog(file, redactor=redactor, clock=FakeClock()) as log:
            for dir_, line in said:
                log.stage(dir_, line)
            recorded = list(log.commit())
        disk = file.read_bytes()

    assert meaning(recorded) == meaning(raw)
    for (dir_, line), row in zip(said, recorded, strict=True):
        if dir_ is Direction.IN and isinstance(row.frame, msgspec.Raw):
            assert control(open_envelope(bytes(row.frame))) == control(open_envelope(line))
    assert [secret.name for secret in SECRETS if secret.value.encode() in disk] == []


@given(st.sampled_from(sorted(word for word in RUNTIME.protocol_words if len(word) >= 8)), st.data())
def test_no_part_of_a_word_that_control_or_the_fold_reads_can_be_a_secret(word: str, data: st.DataObject) -> None:
    start = data.draw(st.integers(0, len(word) - 8))
    end = data.draw(st.integers(start + 8, len(word)))
    assert find_secrets({"API_KEY": word[start:end]}, declared=[], words=RUNTIME.protocol_words) == ()
