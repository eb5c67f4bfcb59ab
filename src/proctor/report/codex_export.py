"""Export a Codex attempt as `codex_native_*` rows, for tools that read only those."""

import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from proctor.errors import EvidenceError, InputError
from proctor.event.history import Completeness
from proctor.event.model import Tokens, UsageAuthority
from proctor.event.outcome import Outcome
from proctor.event.transcript import Line
from proctor.evidence.artifacts import AttemptRecord, AttemptReport, RunnerRef
from proctor.evidence.layout import TRANSCRIPT
from proctor.evidence.reader import Finding
from proctor.report.codex_native import (
    STATUS,
    SUMMARY,
    WARNING,
    AssistantRow,
    Message,
    MessageUsage,
    Row,
    StatusRow,
    SummaryRow,
    TextBlock,
    WarningRow,
)
from proctor.report.view import AttemptView

# These tools know two values besides the fallback, and none of them says that the history was read.
_HISTORY: dict[str, str] = {Completeness.LIVE_ONLY: "live-only", Completeness.UNKNOWN: "unknown"}
_RUN_STATES = {Outcome.COMPLETED: "completed", Outcome.CANCELLED: "interrupted", Outcome.UNKNOWN: "abandoned"}
_UNKNOWN_MODEL = "<unknown>"


def export_codex_native(view: AttemptView) -> bytes:
    """Return the rows of a Codex attempt as JSON Lines. The same attempt always gives the same bytes.

    Raises EvidenceError if the attempt is damaged or not sealed, and InputError if it is not an attempt of Codex.
    """
    record, runner, report = view.record, view.runner, view.report
    if view.findings or record is None or runner is None or report is None:
        finding = view.findings[0] if view.findings else Finding(code="evidence.partial", file="", detail="not sealed")
        raise EvidenceError(finding.code, finding.detail, file=str(view.paths.folder / finding.file))
    if not record.runtime_id.startswith("codex_"):
        raise InputError("usage", f"{record.attempt_id} is not an attempt of Codex: its runtime is {record.runtime_id}")
    export = _Export(record=record, runner=runner, report=report)
    return b"".join(msgspec.json.encode(row) + b"\n" for row in export.rows(view.transcript))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Export:
    record: AttemptRecord
    runner: RunnerRef
    report: AttemptReport

    def rows(self, transcript: tuple[Line, ...]) -> Iterator[Row]:
        messages = [line for line in transcript if line.kind == "message"]
        cwds = [line.facts.get("cwd") for line in transcript if line.kind == "session" and line.facts]
        make_envelope = self._envelope_maker(str((*cwds, "")[0] or ""))
        parent: str | None = None
        for number, line in enumerate(transcript):
            envelope = make_envelope(number, line.at_ms)
            match line.kind:
                case "session":
                    yield self._status(envelope, "running", "started")
                case "warning":
                    yield WarningRow(
                        **envelope,
                        type="system",
                        subtype=WARNING,
                        level="warning",
                        content=line.text,
                        codex_native_warning_source=line.source or "unclassified",
                        codex_native_thread_id=self.runner.thread_id or msgspec.UNSET,
                    )
                case "message":
                    row = self._message(envelope, line, parent=parent, is_last=line is messages[-1])
                    parent = row.uuid
                    yield row
                case "summary":
                    yield self._summary(envelope)
                    state = _RUN_STATES.get(self.report.outcome, "failed")
                    yield self._status(make_envelope(number + 1, line.at_ms), state, state)

    def _envelope_maker(self, cwd: str) -> Callable[[int, int], dict[str, Any]]:
        """Return a function that makes the envelope of a row from the row's number and time."""
        # Two attempts with the same transcript must not share row ids.
        seed = uuid.uuid5(
            uuid.NAMESPACE_OID, f"{self.record.run_id}/{self.record.attempt_id}/{self.record.trial_digest}"
        )

        def make_envelope(number: int, at_ms: int) -> dict[str, Any]:
            return {
                "is_sidechain": False,
                "user_type": "external",
                "cwd": cwd,
                "session_id": self.runner.session_id or self.record.attempt_id,
                "version": str(self._value("version") or "unknown"),
                "git_branch": "",
                "uuid": str(uuid.uuid5(seed, str(number))),
                "timestamp": _time(at_ms),
            }

        return make_envelope

    def _status(self, envelope: dict[str, Any], status: str, word: str) -> StatusRow:
        thread = self.runner.thread_id or ""
        return StatusRow(
            **envelope,
            type="system",
            subtype=STATUS,
            level="info",
            content=f"Codex native thread {word}: {thread}",
            codex_native_thread_status=status,
            codex_native_thread_id=thread,
        )

    def _message(self, envelope: dict[str, Any], line: Line, *, parent: str | None, is_last: bool) -> AssistantRow:
        usage = self.report.metrics.usage
        message = Message(
            model=str(self._value("model", "effective") or self._value("model", "requested") or _UNKNOWN_MODEL),
            id=f"msg_{envelope['uuid']}",
            # Only the total of all messages is known, and readers add up the messages: the last one carries it.
            usage=_message_usage(usage.tokens) if is_last and usage is not None and usage.tokens else msgspec.UNSET,
            content=(TextBlock(text=line.text),),
        )
        return AssistantRow(
            **envelope, parent_uuid=parent, type="assistant", request_id=f"req_{envelope['uuid']}", message=message
        )

    def _summary(self, envelope: dict[str, Any]) -> SummaryRow:
        history = str(self._value("history") or Completeness.UNKNOWN)
        exported_history = _HISTORY.get(history, "explicit-hydration-required")
        policy = str(self._value("persistence") or "unknown")
        authority = str(self._value("usage", "authority") or UsageAuthority.NONE)
        version = self._value("identity", "version") or self._value("version")
        thread = self.runner.thread_id or ""
        content = (
            f"Codex native execution summary: thread={thread}, completion={policy}, history={exported_history}, "
            f"usageAuthority={authority}, binary={version or 'unknown'}"
        )
        return SummaryRow(
            **envelope,
            type="system",
            subtype=SUMMARY,
            level="info",
            content=content,
            codex_native_thread_id=thread,
            codex_native_completion_policy=policy,
            codex_native_history_completeness=exported_history,
            codex_native_final_usage_authority=authority,
            codex_native_executable_source=str(self._value("identity", "source") or "not-found"),
            codex_native_executable_version=None if version is None else str(version),
            proctor_history_completeness=history,
        )

    def _value(self, name: str, part: str | None = None) -> Any:
        fact = self.runner.facts.get(name)
        value = None if fact is None else fact.value
        if part is None:
            return value
        return value.get(part) if isinstance(value, dict) else None


def _time(at_ms: int) -> str:
    """Format a time as ISO 8601 in UTC. Raises EvidenceError if the number is out of range.

    >>> _time(1776592800007)
    '2026-04-19T10:00:00.007Z'
    """
    try:
        time = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=at_ms)
    except OverflowError as error:
        raise EvidenceError("evidence.schema", f"atMs {at_ms} is not a time", file=TRANSCRIPT) from error
    return time.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _message_usage(tokens: Tokens) -> MessageUsage:
    """Return tokens in the form of these rows, where cached input is not part of the input.

    >>> _message_usage(Tokens(input=12, output=2, total=14, cached_input=4))
    MessageUsage(input_tokens=8, cache_read_input_tokens=4, output_tokens=2)
    """
    cached = tokens.cached_input or 0
    return MessageUsage(input_tokens=tokens.input - cached, cache_read_input_tokens=cached, output_tokens=tokens.output)
