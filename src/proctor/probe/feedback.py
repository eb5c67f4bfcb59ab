"""What an agent is shown about its work before its next turn: criteria and observations, never expectations. Pure."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

import msgspec

from proctor.evidence.artifacts import CriterionDecision, GateReason
from proctor.probe.expected_values import ExpectedValues
from proctor.probe.gate import Decision
from proctor.probe.model import Phase, ProbeRow, Verdict

MAX_CRITERION_CHARS: Final = 500
_TAMPERED: Final = "tampered: "
# Durations and addresses differ between two equal runs.
_VOLATILE: Final = re.compile(r"\b[0-9]+(?:\.[0-9]+)? ?(?:ms|s|seconds?)\b|\b0x[0-9a-fA-F]{6,}\b")
_REASONS: Final = {
    GateReason.TAMPERED: "a program that the check runs was changed",
    GateReason.MUTATED: "the workspace changed while the check ran",
    GateReason.UNSTABLE: "the check failed and passed on the same files",
    GateReason.NOT_RUN: "the check was not run",
    GateReason.UNCHANGED: "nothing was changed",
}


class Detail(StrEnum):
    """How much of an observation an agent is shown."""

    COUNTS = "counts"
    """How many tests failed, or how the command ended. Nothing that the command printed."""
    SUMMARY = "summary"
    """The summary of each probe."""
    TAIL = "tail"
    """The summary of each probe and the end of its output."""


class CheckState(StrEnum):
    """The result for one criterion."""

    PASSES = "passes"
    """Its probes verify it."""
    FAILS = "fails"
    """At least one of its probes does not."""
    UNKNOWN = "unknown"
    """Its probes could not decide."""


class CheckChange(StrEnum):
    """How the result for a criterion differs from that of the last round."""

    NEW = "new"
    """There was no result in the last round."""
    SAME = "same"
    """The same was observed."""
    CHANGED = "changed"
    """Something else was observed."""
    NOW_PASSES = "now_passes"
    """It did not pass in the last round, and passes now."""


class CheckFeedback(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """What an agent is shown about one criterion."""

    criterion: str
    """The criterion, in words; its position, such as `criterion 2`, if the words carry an expected value."""
    state: CheckState
    """The result: passes, fails or unknown."""
    change: CheckChange
    """How that differs from the last round: new, same, changed or now_passes."""
    observed: tuple[str, ...] = ()
    """What was observed, one text per probe that does not pass. At most 500 characters each."""
    output: str = ""
    """The end of what the probes printed. Empty with hidden files, and if the criterion passes."""


class AgentFeedback(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """What an agent is shown about its work before its next turn."""

    checks: tuple[CheckFeedback, ...]
    """The criteria of the mission in their order, without those that are waived."""

    @property
    def text(self) -> str:
        """The feedback as text for an agent."""
        return "\n".join(_lines(self.checks))


@dataclass(frozen=True, slots=True, kw_only=True)
class FeedbackOptions:
    """What may be shown, and what must not."""

    expected: ExpectedValues
    """The expected values of the mission's probes (`ProbeOptions.expected_values`), with the content of its goldens
    and hidden files. Lines that carry one are left out."""
    has_hidden_files: bool
    """Whether the mission has hidden files, so that what a command prints may quote them."""
    detail: Detail | None = None
    """How much is shown. With hidden files `tail` has the effect of `summary`. Default: `counts` with hidden files,
    otherwise `tail`."""
    tail_chars: int = 2000
    """How much of the output of each criterion is shown."""

    @property
    def shown(self) -> Detail:
        """How much is shown."""
        if self.detail is None:
            return Detail.COUNTS if self.has_hidden_files else Detail.TAIL
        return Detail.SUMMARY if self.has_hidden_files and self.detail is Detail.TAIL else self.detail


def make_feedback(
    decision: Decision, rows: Sequence[ProbeRow], *, previous: AgentFeedback | None = None, options: FeedbackOptions
) -> AgentFeedback:
    """Make the feedback on one round of work.

    `rows` are the rows that `decision` was made from, in the order of recording. Of each probe, the last run on the
    agent's workspace counts. `previous` is the feedback of the last round.
    """
    last = {row.index: row for row in rows if row.phase is Phase.FINAL}
    before = {} if previous is None else {each.criterion: each for each in previous.checks}
    reasons = {each.probe.index: each.reason_code for each in decision.per_probe}
    checks = []
    for number, criterion in enumerate(decision.criteria, start=1):
        if criterion.waived_by is not None:
            continue
        check = _check(criterion, number, rows=last, reasons=reasons, options=options)
        checks.append(msgspec.structs.replace(check, change=_compare(before.get(check.criterion), check)))
    return AgentFeedback(checks=tuple(checks))


def _check(
    criterion: CriterionDecision,
    number: int,
    *,
    rows: dict[int, ProbeRow],
    reasons: dict[int, GateReason | None],
    options: FeedbackOptions,
) -> CheckFeedback:
    words = " ".join(criterion.criterion.split())[:MAX_CRITERION_CHARS]
    label = f"criterion {number}" if options.expected.carries(criterion.criterion) else words
    if criterion.verified:
        return CheckFeedback(criterion=label, state=CheckState.PASSES, change=CheckChange.NEW)
    state = CheckState.UNKNOWN if criterion.verified is None else CheckState.FAILS
    # Of a criterion with several probes, only those that do not verify it.
    open_ = [index for index in criterion.probes if reasons.get(index) is not None]
    observed = tuple(_observe(rows.get(index), reasons[index], options) for index in open_)
    output = ""
    if options.shown is Detail.TAIL:
        texts = (_output(rows[index], options.expected) for index in open_ if index in rows)
        output = _end("\n".join(text for text in texts if text), options.tail_chars)
    return CheckFeedback(criterion=label, state=state, change=CheckChange.NEW, observed=observed, output=output)


def _observe(row: ProbeRow | None, reason: GateReason | None, options: FeedbackOptions) -> str:
    """Return what was observed of one probe that does not verify its criterion."""
    if row is None or row.verdict is Verdict.PASS:
        fixed = _REASONS.get(reason) if reason is not None else None
        return fixed or "the check could not judge the workspace"
    counts = _count(row, is_open=not options.has_hidden_files)
    # What a protected file is called is known to the agent: it changed the file.
    is_shown = options.shown is not Detail.COUNTS or row.summary.startswith(_TAMPERED)
    if not is_shown or not row.summary or options.expected.carries(row.summary):
        return counts
    return row.summary


def _count(row: ProbeRow, *, is_open: bool = True) -> str:
    """Return the result of a probe in numbers. Unless it is open, without those that the product chooses freely.

    >>> from proctor.ids import Digest
    >>> from proctor.probe.model import TestsRecord
    >>> digest = Digest("sha256:0")
    >>> row = ProbeRow(phase=Phase.FINAL, index=0, kind="unit_tests", probe_digest=digest, criterion="it works",
    ...     workspace_digest=digest, verdict=Verdict.FAIL, summary="", exit_code=1,
    ...     tests=TestsRecord(passed=4, failed=2, errors=1, skipped=0))
    >>> _count(row), _count(msgspec.structs.replace(row, tests=None))
    ('3 of 7 tests fail', 'the command exited with 1')
    """
    if row.verdict is Verdict.UNAVAILABLE:
        return "the check could not judge the workspace"
    if row.tests is not None:
        bad = row.tests.failed + row.tests.errors
        skipped = f", {row.tests.skipped} skipped" if row.tests.skipped else ""
        return f"{bad} of {bad + row.tests.passed} tests fail{skipped}"
    if row.timed_out:
        return "the command did not end in time"
    if not is_open:
        return "the check fails"
    if row.exit_code:
        return f"the command exited with {row.exit_code}"
    if row.signal is not None:
        return f"the command was ended by signal {row.signal}"
    return "the check fails"


def _output(row: ProbeRow, expected: ExpectedValues) -> str:
    # Filtered before it is shortened: a piece of a value may not be recognized.
    parts = (expected.leave_out(tail) for tail in (row.stdout_tail, row.stderr_tail))
    return "\n".join(part.rstrip("\n") for part in parts if part.strip())


def _end(text: str, limit_chars: int) -> str:
    """Return the last lines of a text, of at most `limit_chars` together.

    >>> _end("one\\ntwo\\nthree", 9)
    'two\\nthree'
    """
    if len(text) <= limit_chars:
        return text
    _, _, rest = text[-limit_chars - 1 :].partition("\n")
    return rest or text[-limit_chars:]


def _compare(before: CheckFeedback | None, now: CheckFeedback) -> CheckChange:
    if before is None:
        return CheckChange.NEW
    if now.state is CheckState.PASSES and before.state is not CheckState.PASSES:
        return CheckChange.NOW_PASSES
    is_same = before.state is now.state and _stable(before) == _stable(now)
    return CheckChange.SAME if is_same else CheckChange.CHANGED


def _stable(check: CheckFeedback) -> tuple[str, ...]:
    return tuple(_VOLATILE.sub("", text) for text in (*check.observed, check.output))


# ── text ──

_STATES: Final = {
    CheckState.PASSES: "passes",
    CheckState.FAILS: "fails",
    CheckState.UNKNOWN: "could not be judged",
}
_CHANGES: Final = {
    CheckChange.NEW: "",
    CheckChange.SAME: ", as in the last round",
    CheckChange.CHANGED: ", and the result has changed since the last round",
    CheckChange.NOW_PASSES: " now",
}


def _lines(checks: Sequence[CheckFeedback]) -> Iterator[str]:
    failed = sum(each.state is CheckState.FAILS for each in checks)
    unknown = sum(each.state is CheckState.UNKNOWN for each in checks)
    yield f"{failed} of {len(checks)} checks fail" + (f", {unknown} could not be judged" if unknown else "")
    for number, check in enumerate(checks, start=1):
        yield ""
        yield f"{number}. {check.criterion}"
        yield f"   {_STATES[check.state]}{_CHANGES[check.change]}"
        for text in check.observed:
            yield from _indent("observed: ", text)
        if check.output:
            yield "   end of the output:"
            yield from _indent("| ", check.output)


def _indent(before: str, text: str) -> Iterator[str]:
    for at, line in enumerate(text.split("\n")):
        yield f"   {before if at == 0 or before == '| ' else ' ' * len(before)}{line}"
