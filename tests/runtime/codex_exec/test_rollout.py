"""The file that Codex keeps of a thread, whatever stands in it or in its place."""

import os
from pathlib import Path
from typing import Any

import msgspec
import pytest

from proctor.event.history_item import HistoryItem
from proctor.event.model import Tokens
from proctor.fact import Authority, Fact, settle
from proctor.ids import ThreadId
from proctor.runtime.base import ContextUse
from proctor.runtime.codex.stored_threads import find_rollout
from proctor.runtime.codex_exec.rollout import Rollout, read_rollout
from proctor.runtime.codex_exec.session_facts import session_facts
from tests.runtime.twin import session_ask

THREAD = ThreadId("01a1e25f-d177-7d92-b886-5d5369682cdf")


def breakdown(total: int) -> dict[str, int]:
    return {"input_tokens": total - 1, "output_tokens": 1, "total_tokens": total}


def tokens(total: int) -> Tokens:
    return Tokens(input=total - 1, output=1, total=total)


def event(type_: str, **fields: Any) -> dict[str, Any]:
    return {"type": "event_msg", "payload": {"type": type_, **fields}}


ROWS: list[dict[str, Any]] = [
    {"type": "session_meta", "payload": {"id": THREAD, "cli_version": "0.163.0"}},
    {"type": "turn_context", "payload": {"turn_id": "a", "model": "first", "approval_policy": "never"}},
    event("item_completed", item={"type": "UserMessage", "content": [{"type": "text", "text": "Go."}]}),
    event("token_count", info=None),
    {"type": "token_usage_record", "payload": {"turn_id": "a", "turn_token_usage": breakdown(10)}},
    {"type": "token_usage_record", "payload": {"turn_id": "a", "turn_token_usage": breakdown(20)}},
    event(
        "token_count",
        info={"total_token_usage": breakdown(20), "last_token_usage": breakdown(10), "model_context_window": 100},
    ),
    event("item_completed", item={"type": "NewerThanThis", "content": "what?"}),
    {"type": "turn_context", "payload": {"turn_id": "b", "model": "second", "approval_policy": {"granular": {}}}},
    # Of a turn whose process was killed there is this, and nothing in the total.
    {"type": "token_usage_record", "payload": {"turn_id": "b", "turn_token_usage": breakdown(5)}},
    {"type": "newer_than_this", "payload": 7},
]
KEPT = Rollout(
    total=tokens(20),
    context=ContextUse(window_tokens=100, used_tokens=10),
    turns={"a": tokens(20), "b": tokens(5)},
    items=[HistoryItem(kind="prompt", text="Go."), HistoryItem(kind="other")],
    thread=THREAD,
    version="0.163.0",
    model="second",
    approvals={"granular": {}},
)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    folder = tmp_path / "sessions" / "2026" / "11" / "16"
    folder.mkdir(parents=True)
    return folder / f"rollout-2026-11-16T03-21-32-{THREAD}.jsonl"


def test_what_a_thread_cost_is_read_also_past_lines_that_are_torn_or_strange(file: Path, tmp_path: Path) -> None:
    lines = [msgspec.json.encode(row) for row in ROWS]
    odd = [b"[1, 2", b"\xff\x00", b'{"type":7}', b'{"type":"session_meta","payload":[]}', b"[" * 5000]
    file.write_bytes(b"\n".join([*odd, *lines, lines[0][:20]]))
    assert find_rollout(tmp_path, THREAD) == file
    assert read_rollout(file) == KEPT
    assert [find_rollout(tmp_path, ThreadId(odd)) for odd in ("another", "*", THREAD[:-1] + "?")] == [None] * 3


def test_what_is_no_plain_file_is_not_read(file: Path, tmp_path: Path) -> None:
    (tmp_path / "secret").write_bytes(msgspec.json.encode(ROWS[0]))
    file.symlink_to(tmp_path / "secret")
    assert read_rollout(file) is None
    file.unlink()
    os.mkfifo(file)
    assert read_rollout(file) is None
    assert read_rollout(tmp_path / "absent") is None


def test_what_the_file_says_stands_beside_what_others_say_and_disagreement_is_kept() -> None:
    facts = session_facts(session_ask(is_persistent=True), KEPT, thread=THREAD)
    said = Fact(value="0.164.0", authority=Authority.REPORTED, source="--version")
    version = Fact(value="0.163.0", authority=Authority.REPORTED, source="rollout session_meta")
    assert settle(said, facts["version"]) == msgspec.structs.replace(version, conflicts=(said,))
    assert facts["model"].value == {"provider": "scripted", "requested": "scripted", "effective": "second"}
    assert facts["approvals"].value["effective"] == {"granular": {}}
    asked = Fact(value="persistent", authority=Authority.DECLARED, source="flow")
    lost = settle(asked, session_facts(session_ask(is_persistent=True), None, thread=THREAD)["persistence"])
    assert (lost.value, lost.conflicts) == ("ephemeral", (asked,)), "it was to be kept, and is not"
    assert list(session_facts(session_ask(), None, thread=None)) == ["approvals"]
