"""Ledgers that cannot be read: not a database, or one that no Proctor can have written."""

from collections.abc import Iterator

from tests.tampering.case import REFUSES, Case, Step, says, says_only
from tests.tampering.edits import Edit, link, loose_sql, remove, rewrite, sql, steps, write
from tests.tampering.names import FIX, LEDGER, Column, Summary, Table

PATH = "{campaign}/" + LEDGER
UNREADABLE = says_only(5, "evidence.ledger")


def set_one(column: str, value: str) -> str:
    """SQL that changes the row of the attempt `fix`."""
    return f"update {Table.ATTEMPT} set {column} = {value} where {Column.ID} = '{FIX}'"


def set_summary(path: str, value: str) -> str:
    """SQL that changes one field in the summary of the attempt `fix`."""
    return set_one(Column.SUMMARY, f"json_set({Column.SUMMARY}, '{path}', {value})")


def set_all(table: str, column: str, value: str) -> str:
    return f"update {table} set {column} = {value}"


def move_trial(to: str) -> Edit:
    """A trial gets this id, and its attempt an id that agrees with it."""
    return sql(
        f"update {Table.TRIAL} set {Column.ID} = '{to}' where {Column.MISSION} = 'fix'",
        f"update {Table.ATTEMPT} set {Column.ID} = '{to}.1', {Column.TRIAL} = '{to}' where {Column.ID} = '{FIX}'",
    )


NEWER = "is of a newer version"
NOT_A_LEDGER: dict[str, Edit] = {
    "is empty": write(PATH),
    "is a text": write(PATH, b"no database at all"),
    "is zeros": write(PATH, b"\0" * 5000),
    "is the header of a database and nothing else": write(PATH, b"SQLite format 3\0" + b"\0" * 4096),
    "is the header of a database and then noise": write(PATH, b"SQLite format 3\0" + b"\xff" * 5000),
    "is gone": remove(PATH),
    "is a database of something else": steps(remove(PATH), sql("create table cookies (name text)")),
    "has a page of noise": rewrite(PATH, lambda data: data[:100] + b"\xff" * 3900 + data[4000:]),
    NEWER: sql("pragma user_version = 99"),
    "has the application id of another program": sql("pragma application_id = 7"),
}

IMPOSSIBLE: dict[str, Edit] = {
    "began before all time": sql(set_all(Table.CAMPAIGN, Column.BEGAN, "-1")),
    "has no runs": sql(f"delete from {Table.RUN}"),
    "has no table of runs": sql(f"drop table {Table.RUN}"),
    "has a state that there is not": sql(set_one(Column.STATE, "'done'")),
    "has an outcome that there is not": sql(set_one(Column.OUTCOME, "'victorious'")),
    "has attempts with other ids": sql(set_all(Table.ATTEMPT, Column.ID, f"'x.' || {Column.ID}")),
    "has a word where a number should be": loose_sql(set_one(Column.TOKENS, "'many'")),
    "has a truth value that is neither": sql(set_summary(Summary.VERIFIED, "2")),
    "has an attempt of a trial that there is not": sql(set_one(Column.TRIAL, "'none.codex.r1'")),
    "has an attempt of another trial": sql(set_one(Column.NUMBER, "2"), set_one(Column.TRIAL, "'ask.codex.r1'")),
    "has attempts of a run that there is not": sql(set_all(Table.ATTEMPT, Column.RUN, "'20200101-000000-abcdef'")),
    "has an infinite cost": sql(set_one(Column.USD, "9e999")),
    "has a negative cost": sql(set_one(Column.USD, "-0.01")),
    "has a negative count": sql(set_summary(Summary.TOOL_CALLS, "-5")),
    "has a negative duration": sql(set_summary(Summary.DURATION, "-5")),
    "has a time after the year 9999": sql(set_one(Column.ENDED, "9223372036854775807")),
    "has a summary with an unknown field": sql(set_summary("$.more", "1")),
    "has a summary that is not JSON": sql(set_one(Column.SUMMARY, "'{'")),
    "has an empty summary": sql(set_one(Column.SUMMARY, "'[]'")),
    "has a summary that is nested without end": sql(set_one(Column.SUMMARY, "printf('%.*c', 100000, '[')")),
    "has a time before 1970": sql(set_all(Table.RUN, Column.ENDED, "-1")),
}

REFUSED = ("has a state that there is not", "has an outcome that there is not", "has attempts with other ids")
"""Those that a resume refuses too."""


def unreadable() -> Iterator[Case]:
    """Every command that reads the ledger says so, and those that list many go on."""
    resume = dict.fromkeys(NOT_A_LEDGER, ("campaign resume {campaign} --spec {spec}", says_only(3, "machine.ledger")))
    resume |= dict.fromkeys(REFUSED, ("campaign resume {campaign}", REFUSES))
    for name, edit in {**NOT_A_LEDGER, **IMPOSSIBLE}.items():
        code = "evidence.version" if name == NEWER else "evidence.ledger"
        refuses = says_only(5, code)
        looks: tuple[Step, ...] = (
            ("campaign report", refuses),
            ("campaign report --strict", refuses),
            ("campaign status", refuses),
            ("campaign list", says(0, code)),
            ("attempt list", says(0, code)),
            ("compare codex codex", refuses),
        )
        yield Case(
            name=f"the ledger {name}",
            edit=edit,
            validate=says(5, code),
            publish=refuses,
            then=(*looks, resume[name]) if name in resume else looks,
        )


ELSEWHERE = [
    Case(
        name="the ledger is a link to a file elsewhere",
        edit=link(PATH),
        validate=says(5, f"evidence.containment CAMPAIGN/{LEDGER}"),
        publish=says_only(5, "evidence.containment"),
        then=(
            ("campaign report", says(5, "evidence.containment")),
            ("campaign report --strict", says(5, "evidence.containment")),
        ),
    ),
    Case(
        name="the ledger has an attempt above the root",
        edit=move_trial("../../.."),
        validate=says(5, "evidence.ledger"),
        publish=says_only(5, "evidence.ledger CAMPAIGN/ledger.db"),
        then=(("attempt list", says(0, "evidence.ledger")),),
    ),
    Case(
        name="the ledger has an attempt at an absolute path",
        edit=move_trial("/etc"),
        validate=says(5, "evidence.ledger"),
        publish=says_only(5, "evidence.ledger CAMPAIGN/ledger.db"),
        then=(("attempt list", says(0, "evidence.ledger")),),
    ),
    Case(
        name="the ledger has its run above the root",
        edit=sql(set_all(Table.ATTEMPT, Column.RUN, "'../..'"), set_all(Table.RUN, Column.ID, "'../..'")),
        validate=says(5, "evidence.containment"),
        publish=says_only(5, "evidence.containment"),
        then=(("attempt list", says(0, "evidence.containment")),),
    ),
    Case(
        name="the ledger has one more run, outside the root",
        edit=sql(f"insert into {Table.RUN} ({Column.ID}, {Column.BEGAN}) values ('../../outside', 1)"),
        validate=says(5, "evidence.containment"),
        publish=says(5, "evidence.containment"),
        then=(("gc --dry-run --older-than 30d", says_only(0)),),
    ),
]

CASES = [*unreadable(), *ELSEWHERE]
