"""Attempts that were edited and then sealed again, so that only what they say is wrong."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from tests.tampering.case import Case, of_claim, of_fix, says, says_only
from tests.tampering.edits import Edit, Row, alter, alter_each_row, alter_rows, copy, reseal, sql, steps, write
from tests.tampering.names import (
    ATTEMPT,
    CLAIM,
    DIFF,
    FEEDBACK,
    FRAMES,
    PROBES,
    REPORT,
    RUNNER,
    TOOL_CALLS,
    Column,
    Field,
    Summary,
    Table,
)


def forged(file: str, changes: Mapping[str, Any] | Callable[[Row], Mapping[str, Any]]) -> Edit:
    """Fields of a file of the attempt `fix` get other values, and it is sealed again."""
    return steps(alter("{fix}/" + file, changes), reseal("{fix}"))


def forged_fact(name: str, changes: Mapping[str, Any] | None) -> Edit:
    """One fact about the agent becomes another, or is dropped."""

    def change(runner: Row) -> Row:
        facts = dict(runner[Field.FACTS])
        fact = facts.pop(name, {})
        return {Field.FACTS: facts if changes is None else {**facts, name: {**fact, **changes}}}

    return forged(RUNNER, change)


def metrics(**changes: Any) -> Callable[[Row], Row]:
    return lambda report: {Field.METRICS: {**report[Field.METRICS], **changes}}


FIELDS: tuple[tuple[str, Edit, str], ...] = (
    ("the feedback denies the claim", forged(FEEDBACK, {Field.CLAIMED: False}), f"evidence.derived {FEEDBACK}"),
    ("the feedback has another answer", forged(FEEDBACK, {Field.ANSWER: "Eve"}), f"evidence.derived {FEEDBACK}"),
    ("the feedback names another frame", forged(FEEDBACK, {Field.FRAME: 1}), f"evidence.derived {FEEDBACK}"),
    ("the report has no claim", forged(REPORT, {Field.CLAIMED: None}), f"evidence.derived {REPORT}"),
    ("the report has another outcome", forged(REPORT, {Field.OUTCOME: "failed"}), f"evidence.derived {REPORT}"),
    ("the report says not verified", forged(REPORT, {Field.VERIFIED: False}), f"evidence.gate {REPORT}"),
    ("the runner names another thread", forged(RUNNER, {Field.THREAD: "another"}), f"evidence.ids {RUNNER}"),
    ("another answer is expected", forged(ATTEMPT, {Field.EXPECT: {"matches": "^Eve"}}), f"evidence.derived {REPORT}"),
    (
        "fewer tool calls are expected",
        forged(ATTEMPT, {Field.EXPECT: {"trace": {"max_tool_calls": 1}}}),
        f"evidence.derived {REPORT}",
    ),
    (
        "another command is expected",
        forged(ATTEMPT, {Field.EXPECT: {"trace": {"commands": ["rm "]}}}),
        f"evidence.derived {REPORT}",
    ),
    (
        "an untouched file is expected",
        forged(ATTEMPT, {Field.EXPECT: {"workspace": {"untouched": ["greet.txt"]}}}),
        f"evidence.derived {REPORT}",
    ),
    ("nothing is expected", forged(ATTEMPT, {Field.EXPECT: {}}), f"evidence.derived {REPORT}"),
    (
        "the report has a violation that no tool call shows",
        forged(REPORT, {Field.VIOLATIONS: ["c1: web:search is not allowed"]}),
        f"evidence.derived {REPORT}",
    ),
    (
        "the policy denies what a tool call did",
        forged(ATTEMPT, {Field.TOOLS: {"deny": ["command:cat *"]}}),
        f"evidence.derived {REPORT}",
    ),
    ("the report has another reason", forged(REPORT, {Field.REASONS: ["the machine"]}), f"evidence.derived {REPORT}"),
    (
        "the report shows the failure of a probe that passed",
        forged(REPORT, {Field.FAILURE: {"probes": [], "probesLeftOut": 0, "diff": None}}),
        f"evidence.derived {REPORT}",
    ),
    ("the report denies a change of files", forged(REPORT, {Field.CHANGED_FILES: False}), f"evidence.derived {REPORT}"),
    ("a fact has another value", forged_fact("identity", {Field.VALUE: "forged"}), f"evidence.derived {RUNNER}"),
    ("a fact is left out", forged_fact("containment", None), f"evidence.derived {RUNNER}"),
    (
        "a fact has a stronger authority",
        forged_fact("capability", {Field.AUTHORITY: "verified"}),
        f"evidence.derived {RUNNER}",
    ),
    (
        "a fact is invented",
        forged_fact("signedOff", {Field.VALUE: "yes", Field.AUTHORITY: "verified", Field.SOURCE: "me"}),
        f"evidence.derived {RUNNER}",
    ),
    (
        "the tool calls are not what the frames give",
        steps(alter_each_row("{fix}/" + TOOL_CALLS, {Field.STATUS: "other"}), reseal("{fix}")),
        f"evidence.derived {TOOL_CALLS}",
    ),
)


def fields() -> Iterator[Case]:
    for name, edit, found in FIELDS:
        yield of_fix(f"sealed again: {name}", edit, says_only(5, found))


MORE = [
    of_fix(
        "sealed again: the report has no digest of the workspace",
        forged(REPORT, {Field.DIGEST_AFTER: None}),
        says(5, f"evidence.gate {REPORT}"),
    ),
    of_fix(
        "sealed again: the report counts warnings that the frames do not give",
        forged(REPORT, metrics(**{Field.WARNINGS: 7})),
        says_only(5, f"evidence.derived {REPORT}"),
        ("report", says(0, f"evidence.derived {REPORT}")),
        ("report --strict", says(5, f"evidence.derived {REPORT}")),
    ),
    of_fix(
        "chained again, but not sealed: every frame came a millisecond later",
        alter_rows("{fix}/" + FRAMES, lambda rows: [{**row, Field.AT: row[Field.AT] + 1} for row in rows]),
        says_only(5, f"evidence.digest {FRAMES}", f"evidence.chain {FRAMES}"),
    ),
    of_fix(
        "sealed again: the diff shows nothing of what was changed",
        steps(write("{fix}/" + DIFF), reseal("{fix}")),
        says(5, f"evidence.derived {DIFF}", f"evidence.derived {REPORT}"),
    ),
    of_claim(
        "sealed again: the diff shows edits where nothing was changed",
        steps(copy("{fix}/" + DIFF, "{claim}/" + DIFF), reseal("{claim}")),
        says_only(5, f"evidence.derived {DIFF}", f"evidence.derived {REPORT}"),
    ),
    of_fix(
        "sealed again: a probe has a verdict that there is not",
        steps(alter_each_row("{fix}/" + PROBES, {Field.VERDICT: "splendid"}), reseal("{fix}")),
        says(5, f"evidence.schema {PROBES}"),
    ),
    of_fix(
        "sealed again: the runtime is one that is not installed here",
        steps(alter("{fix}/" + ATTEMPT, {Field.RUNTIME: "goose"}), forged(RUNNER, {Field.RUNTIME: "goose"})),
        says_only(4, f"spec.unknown-runtime {ATTEMPT}"),
    ),
    of_fix(
        "sealed again: the report does not say whether the policy was looked at",
        forged(REPORT, {Field.VIOLATIONS: None}),
        says_only(5, f"evidence.derived {REPORT}"),
    ),
    of_claim(
        "sealed again: the claim is reported as verified",
        steps(alter("{claim}/" + REPORT, {Field.VERIFIED: True}), reseal("{claim}")),
        says_only(5, f"evidence.gate {REPORT}"),
    ),
    Case(
        name="sealed again: the claim is reported as verified, and the ledger says so too",
        edit=steps(
            alter("{claim}/" + REPORT, {Field.VERIFIED: True}),
            reseal("{claim}"),
            sql(
                f"update {Table.ATTEMPT} set {Column.SUMMARY} = "
                f"json_set({Column.SUMMARY}, '{Summary.VERIFIED}', json('true'), '{Summary.RESULT}', 'passed') "
                f"where {Column.ID} = '{CLAIM}'"
            ),
        ),
        validate=says(5, f"evidence.gate {REPORT}"),
        publish=says_only(5, "evidence.gate", "evidence.report"),
    ),
]

CASES = [*fields(), *MORE]
