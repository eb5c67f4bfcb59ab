"""The streams of an attempt: each row fits its schema and its bounds, and each chain ends where it was sealed."""

from collections.abc import Iterator
from typing import Any

import msgspec

from proctor.event.bounds import PREVIEW_BYTES, TEXT_BYTES
from proctor.event.row import Row
from proctor.event.trace import ToolCall
from proctor.event.transcript import Line
from proctor.evidence.artifacts import Seal
from proctor.evidence.layout import FRAMES, PROBES, STREAMS, TOOL_CALLS, TRANSCRIPT, AttemptPaths
from proctor.evidence.reader import MAX_PROBLEMS, Problem, read_rows

# What a probe's row must hold is known above this layer; here it is only a row.
_TYPES: dict[str, Any] = {FRAMES: Row, TOOL_CALLS: ToolCall, TRANSCRIPT: Line, PROBES: dict}


def check_streams(paths: AttemptPaths, *, seal: Seal | None) -> Iterator[Problem]:
    """What is absent is not told here: whether it should be there depends on the seal."""
    for name in STREAMS:
        reading = read_rows(paths.folder / name, _TYPES[name])
        faults: list[Problem] = []
        for row in reading:
            fault = _fault(row)
            if fault is not None and len(faults) < MAX_PROBLEMS:
                code, detail = fault
                faults.append(Problem(code=code, file=name, line=reading.head.rows, detail=detail))
        problems = [problem for problem in reading.problems if problem.code != "evidence.missing-file"]
        yield from problems
        yield from faults
        is_read = len(problems) == len(reading.problems)
        if seal is not None and is_read and reading.head != seal.streams[name]:
            sealed = seal.streams[name].rows
            detail = f"ends with row {reading.head.rows}, and not as row {sealed} was sealed"
            yield Problem(code="evidence.chain", file=name, detail=detail)


def _fault(row: Any) -> tuple[str, str] | None:
    """What is wrong with a row whose schema is right."""
    match row:
        case Row(frame=frame, text=text) if isinstance(frame, msgspec.UnsetType) == (text is None):
            return "evidence.schema", "a row holds either a frame or a text"
        case ToolCall():
            return _call_fault(row)
        case Line(text=text) if _bytes(text) > TEXT_BYTES:
            return "evidence.bounds", f"a text of {_bytes(text)} bytes"
        case _:
            return None


def _call_fault(call: ToolCall) -> tuple[str, str] | None:
    is_cut_text = bool(call.cut_input_bytes) and isinstance(call.input, str)
    input_bytes = _bytes(call.input) if is_cut_text else len(msgspec.json.encode(call.input))
    if input_bytes > TEXT_BYTES:
        return "evidence.bounds", f"an input of {input_bytes} bytes"
    if call.output is None:
        return None
    output_bytes = _bytes(call.output)
    if output_bytes > PREVIEW_BYTES:
        return "evidence.bounds", f"an output of {output_bytes} bytes"
    if call.output_bytes != output_bytes + call.cut_output_bytes:
        return (
            "evidence.bounds",
            f"{output_bytes} bytes of output and {call.cut_output_bytes} cut, of {call.output_bytes}",
        )
    return None


def _bytes(text: str) -> int:
    return len(text.encode())
