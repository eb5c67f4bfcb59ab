"""The `codex_native_*` rows: written as their readers expect them, and read strictly, whatever a file holds."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from proctor.errors import EvidenceError, InputError
from proctor.event.model import Tokens, UsageAuthority
from proctor.event.outcome import Outcome
from proctor.event.transcript import Line
from proctor.event.usage import Usage
from proctor.evidence.artifacts import AttemptRecord, RunnerRef
from proctor.evidence.layout import AttemptPaths
from proctor.evidence.reader import Finding
from proctor.fact import Authority, Fact
from proctor.ids import AttemptId, ProcessId, RuntimeId, SessionId, ThreadId
from proctor.plan.model import Limits
from proctor.report.codex_export import export_codex_native
from proctor.report.codex_native import SkippedLine, read_codex_native
from proctor.report.view import AttemptView
from tests.report import made

ATTEMPT = AttemptId("fix.codex.r1.1")
THREAD = ThreadId("01a1")
AT_MS = 1776592800007
ENVELOPE = "parentUuid isSidechain userType cwd sessionId version gitBranch type uuid timestamp".split()
FACTS = {
    "version": "0.163.0",
    "persistence": "persistent",
    "history": "hydrated-verified",
    "usage": {"authority": "live-thread-usage"},
    "model": {"requested": "large", "effective": "medium"},
    "identity": {"version": "codex-cli 0.163.0", "source": "bundled-package"},
}


def line(kind: Any, text: str, **fields: Any) -> Line:
    return Line(kind=kind, at_ms=AT_MS, frame=1, text=text, **fields)


LINES = (
    line("facts", "…"),
    line("session", "thread", facts={"thread": THREAD, "cwd": "/w"}),
    line("warning", "Careful.", source="process", channel="stderr"),
    line("prompt", "Mend it."),
    line("message", "I look."),
    line("tool", "shell: ls"),
    line("message", "Done."),
    line("summary", "completed", status="completed"),
)


def view(
    *lines: Line, runtime_id: str = "codex_app_server", findings: tuple[Finding, ...] = (), **facts: Any
) -> AttemptView:
    record = msgspec.convert(
        {
            **dict.fromkeys(
                "trial campaignId runId missionId flowId planDigest trialDigest promptDigest workspaceDigest".split(),
                "x",
            ),
            "attemptId": ATTEMPT,
            "n": 1,
            "repeat": 1,
            "runtimeId": runtime_id,
            "isScripted": True,
            "planFileDigest": None,
            "requiredProbes": [],
            "expect": {},
            "tools": {},
            "isolation": "shared",
            "sandbox": "read-only",
            "approvals": "deny",
            "limits": msgspec.to_builtins(Limits(attempt_ms=1, turn_ms=1, stall_ms=1)),
            "secretNames": [],
            "createdAtMs": 0,
        },
        AttemptRecord,
    )
    runner = RunnerRef(
        attempt_id=ATTEMPT,
        runtime_id=RuntimeId(runtime_id),
        transport="stdio",
        process_id=ProcessId("p"),
        session_id=SessionId("s"),
        thread_id=THREAD,
        is_fresh_session=True,
        facts={
            name: Fact(value=value, authority=Authority.REPORTED, source="made")
            for name, value in {**FACTS, **facts}.items()
        },
    )
    usage = Usage(
        tokens=Tokens(input=12, output=2, total=14, cached_input=4),
        scope="turn",
        basis="cumulative",
        authority=UsageAuthority.LIVE_THREAD_USAGE,
        turns=(),
    )
    report = made.report(ATTEMPT)
    return AttemptView(
        paths=AttemptPaths(Path("x")),
        record=record,
        prompt=None,
        tool_calls=(),
        transcript=lines or LINES,
        runner=runner,
        feedback=None,
        probes=(),
        diff=None,
        report=msgspec.structs.replace(report, metrics=msgspec.structs.replace(report.metrics, usage=usage)),
        seal=None,
        findings=findings,
    )


def rows(data: bytes) -> list[dict[str, Any]]:
    return [json.loads(each) for each in data.splitlines()]


def beside(row: dict[str, Any]) -> dict[str, Any]:
    """What a row has beside its envelope."""
    return {key: value for key, value in row.items() if key not in ENVELOPE}


@pytest.mark.requirement("evidence.transcript")
def test_an_attempt_is_told_in_the_rows_and_the_order_that_readers_know() -> None:
    running, warning, first, last, summary, completed = rows(export_codex_native(view()))
    for row in (running, warning, first, last, summary, completed):
        assert list(row)[: len(ENVELOPE)] == ENVELOPE
        assert {key: row[key] for key in ENVELOPE if key not in ("uuid", "type", "parentUuid")} == {
            "isSidechain": False,
            "userType": "external",
            "cwd": "/w",
            "sessionId": "s",
            "version": "0.163.0",
            "gitBranch": "",
            "timestamp": "2026-04-19T10:00:00.007Z",
        }
    assert beside(running) == {
        "subtype": "codex_native_thread_status",
        "level": "info",
        "isMeta": False,
        "content": "Codex native thread started: 01a1",
        "codexNativeThreadStatus": "running",
        "codexNativeThreadId": "01a1",
    }
    assert beside(warning) == {
        "subtype": "codex_native_warning",
        "level": "warning",
        "isMeta": False,
        "content": "Careful.",
        "codexNativeWarningSource": "process",
        "codexNativeThreadId": "01a1",
    }
    assert (first["type"], first["parentUuid"], last["parentUuid"]) == ("assistant", None, first["uuid"])
    assert "usage" not in first["message"]
    assert last["message"] == {
        "role": "assistant",
        "model": "medium",
        "id": f"msg_{last['uuid']}",
        "type": "message",
        "stop_reason": "end_turn",
        "stop_sequence": None,
        # These readers add the cache to the input; ours has it inside.
        "usage": {"input_tokens": 8, "cache_read_input_tokens": 4, "output_tokens": 2},
        "content": [{"type": "text", "text": "Done."}],
    }
    assert last["requestId"] != first["requestId"]
    assert beside(summary) == {
        "subtype": "codex_native_execution_summary",
        "level": "info",
        "isMeta": False,
        "content": "Codex native execution summary: thread=01a1, completion=persistent, "
        "history=explicit-hydration-required, usageAuthority=live-thread-usage, binary=codex-cli 0.163.0",
        "codexNativeThreadId": "01a1",
        "codexNativeCompletionPolicy": "persistent",
        "codexNativeHistoryCompleteness": "explicit-hydration-required",
        "codexNativeFinalUsageAuthority": "live-thread-usage",
        "codexNativeExecutableSource": "bundled-package",
        "codexNativeExecutableVersion": "codex-cli 0.163.0",
        "proctorHistoryCompleteness": "hydrated-verified",
    }
    assert (completed["codexNativeThreadStatus"], completed["content"]) == (
        "completed",
        "Codex native thread completed: 01a1",
    )


@pytest.mark.requirement("evidence.transcript")
@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        ("live-only", "live-only"),
        ("explicit-hydration-required", "explicit-hydration-required"),
        ("hydrated", "explicit-hydration-required"),
        ("hydrated-divergent", "explicit-hydration-required"),
        ("truncated", "explicit-hydration-required"),
        ("unknown", "unknown"),
    ],
)
def test_our_words_for_a_history_have_an_alias_in_theirs(ours: str, theirs: str) -> None:
    [summary, _] = rows(export_codex_native(view(LINES[-1], history=ours)))
    assert (summary["codexNativeHistoryCompleteness"], summary["proctorHistoryCompleteness"]) == (theirs, ours)


@pytest.mark.parametrize(
    ("outcome", "state"),
    [(Outcome.CANCELLED, "interrupted"), (Outcome.STALLED, "failed"), (Outcome.UNKNOWN, "abandoned")],
)
def test_the_last_status_is_how_it_ended(outcome: Outcome, state: str) -> None:
    made_view = view(LINES[-1])
    assert made_view.report is not None
    ended = msgspec.structs.replace(made_view.report, outcome=outcome)
    assert rows(export_codex_native(replace(made_view, report=ended)))[-1]["codexNativeThreadStatus"] == state


def test_what_is_damaged_or_of_another_agent_is_not_exported() -> None:
    with pytest.raises(EvidenceError, match="changed"):
        export_codex_native(view(findings=(Finding(code="evidence.digest", file="frames.jsonl", detail="changed"),)))
    with pytest.raises(InputError, match="not an attempt of Codex: its runtime is claude_code"):
        export_codex_native(view(runtime_id="claude_code"))
    with pytest.raises(EvidenceError, match="is not a time"):
        export_codex_native(view(msgspec.structs.replace(LINES[1], at_ms=1 << 80)))


# ── reading ──


@pytest.mark.requirement("evidence.transcript")
def test_what_is_written_is_read_back_whole_and_written_again_is_the_same(tmp_path: Path) -> None:
    data, file = export_codex_native(view()), tmp_path / "session.jsonl"
    file.write_bytes(data)
    found = read_codex_native(file)
    assert (len(found.rows), found.skipped) == (6, ())
    assert b"".join(msgspec.json.encode(row) + b"\n" for row in found.rows) == data
    assert export_codex_native(view()) == data


@pytest.mark.requirement("evidence.transcript")
def test_every_line_that_gives_no_row_is_named_with_its_reason(tmp_path: Path) -> None:
    good = export_codex_native(view()).splitlines()[0]

    def changed(**fields: Any) -> bytes:
        return json.dumps({**json.loads(good), **fields}).encode()

    lines = [
        good,
        b"",
        b"# a comment",
        b"[1]",
        b'{"type":"user","uuid":"u"}',
        changed(subtype="codex_native_other"),
        changed(timestamp="yesterday"),
        changed(uuid=""),
        changed(codexNativeThreadStatus=None),
        changed(codexNativeThreadId=7),
        b"\xff\xfe",
        good[:40],
        b"[" * 100_000,
        good,
    ]
    file = tmp_path / "session.jsonl"
    file.write_bytes(b"\n".join(lines))
    found = read_codex_native(file)
    assert len(found.rows) == 2
    assert found.skipped == (
        SkippedLine(line=2, reason="empty"),
        SkippedLine(line=3, reason="JSON is malformed: invalid character (byte 0)"),
        SkippedLine(line=4, reason="expected an object, got list"),
        SkippedLine(line=5, reason="not a codex_native row: type 'user', subtype None"),
        SkippedLine(line=6, reason="not a codex_native row: type 'system', subtype 'codex_native_other'"),
        SkippedLine(line=7, reason="timestamp 'yesterday' is not a time"),
        SkippedLine(line=8, reason="no uuid"),
        SkippedLine(line=9, reason="Expected `str`, got `null` - at `$.codexNativeThreadStatus`"),
        SkippedLine(line=10, reason="Expected `str`, got `int` - at `$.codexNativeThreadId`"),
        SkippedLine(line=11, reason="JSON is malformed: invalid character (byte 0)"),
        SkippedLine(line=12, reason="JSON is malformed: invalid character (byte 40)"),
        SkippedLine(line=13, reason="maximum recursion depth exceeded while deserializing an object"),
    )


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from([*ENVELOPE, "subtype"]), inner),
    max_leaves=8,
)


@pytest.mark.requirement("evidence.transcript")
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.binary(max_size=40) | _JSON.map(lambda value: json.dumps(value).encode()), max_size=6))
def test_every_line_of_any_file_is_a_row_or_is_named(tmp_path: Path, lines: list[bytes]) -> None:
    data = b"\n".join([*lines, *export_codex_native(view()).splitlines()])
    file = tmp_path / "any.jsonl"
    file.write_bytes(data)
    found = read_codex_native(file)
    count = len(data.split(b"\n"))
    assert len(found.rows) + len(found.skipped) == count
    assert len(found.rows) >= 6


def test_what_is_no_file_is_an_error_with_a_code(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "none"):
        with pytest.raises(EvidenceError):
            read_codex_native(path)
