"""Checks of an attempt's streams: each row fits its schema and bounds, and each chain ends as it was sealed."""

from collections.abc import Iterator
from typing import Any

import msgspec

from proctor.event.bounds import PREVIEW_BYTES, TEXT_BYTES
from proctor.event.row import Row
from proctor.event.trace import ToolCall
from proctor.event.transcript import Line
from proctor.evidence.artifacts import Seal
from proctor.evidence.attempt_files import AttemptFiles
from proctor.evidence.layout import FRAMES, PROBES, STREAMS, TOOL_CALLS, TRANSCRIPT
from proctor.evidence.reader import MAX_FINDINGS, Finding

# The struct of a probe's row belongs to a higher layer, so its fields are not checked here.
_TYPES: dict[str, Any] = {FRAMES: Row, TOOL_CALLS: ToolCall, TRANSCRIPT: Line, PROBES: dict}


def check_streams(files: AttemptFiles, *, seal: Seal | None) -> Iterator[Finding]:
    """Check every stream. Absent files are not reported: that depends on the seal."""
    for name in STREAMS:
        reading = files.rows(name, _TYPES[name])
        row_findings: list[Finding] = []
        for row in reading:
            reason = _check_row(row)
            if reason is not None and len(row_findings) < MAX_FINDINGS:
                code, detail = reason
                row_findings.append(Finding(code=code, file=name, line=reading.head.rows, detail=detail))
        findings = [finding for finding in reading.findings if finding.code != "evidence.missing-file"]
        yield from findings
        yield from row_findings
        is_present = len(findings) == len(reading.findings)
        if seal is not None and is_present and reading.head != seal.streams[name]:
            sealed = seal.streams[name].rows
            detail = f"its {reading.head.rows} rows do not end as sealed for {sealed} rows"
            yield Finding(code="evidence.chain", file=name, detail=detail)


def _check_row(row: Any) -> tuple[str, str] | None:
    """Return the code and detail of what is wrong with a row that fits its schema; None if nothing is."""
    match row:
        case Row(frame=frame, text=text) if isinstance(frame, msgspec.UnsetType) == (text is None):
            return "evidence.schema", "a row must have either a frame or a text"
        case ToolCall():
            return _check_call(row)
        case Line(text=text) if _bytes(text) > TEXT_BYTES:
            return "evidence.bounds", f"a text of {_bytes(text)} bytes exceeds {TEXT_BYTES}"
        case _:
            return None


def _check_call(call: ToolCall) -> tuple[str, str] | None:
    is_cut_text = bool(call.cut_input_bytes) and isinstance(call.input, str)
    input_bytes = _bytes(call.input) if is_cut_text else len(msgspec.json.encode(call.input))
    if input_bytes > TEXT_BYTES:
        return "evidence.bounds", f"an input of {input_bytes} bytes exceeds {TEXT_BYTES}"
    if call.output is None:
        return None
    output_bytes = _bytes(call.output)
    if output_bytes > PREVIEW_BYTES:
        return "evidence.bounds", f"an output of {output_bytes} bytes exceeds {PREVIEW_BYTES}"
    if call.output_bytes != output_bytes + call.cut_output_bytes:
        return (
            "evidence.bounds",
            f"{output_bytes} bytes of output and {call.cut_output_bytes} cut do not add up to {call.output_bytes}",
        )
    return None


def _bytes(text: str) -> int:
    return len(text.encode())
