"""Ledgers that can be read and say something else than the sealed attempts, the plan or the folders on disk."""

from collections.abc import Iterator

from tests.tampering.case import Case, Step, says, says_only
from tests.tampering.edits import Edit, copy, make_folder, make_pipe, move, remove, sql, steps
from tests.tampering.ledgers import set_all, set_one, set_summary
from tests.tampering.names import (
    ASK,
    CLAIM,
    FIX,
    LEDGER,
    LOCK,
    Column,
    State,
    Summary,
    Table,
)

WRONG = f"evidence.ledger {FIX}/{LEDGER}"
PLAN = f"evidence.ledger {LEDGER}"

COUNTED: dict[str, Edit] = {
    "counts other tool failures": sql(set_summary(Summary.TOOL_FAILURES, "7")),
    "counts a violation of the policy": sql(set_summary(Summary.VIOLATIONS, "1")),
    "names another runtime": sql(set_one(Column.RUNTIME, "'other'")),
    "has another verdict": sql(set_summary(Summary.VERIFIED, "json('false')")),
}

TIMES: dict[str, Edit] = {
    "begins before its run": sql(set_one(Column.STARTED, "1")),
    "begins after its files were written": sql(set_one(Column.STARTED, f"{Column.STARTED} + 3600000")),
    "ends before it begins": sql(set_one(Column.ENDED, f"{Column.STARTED} - 3600000")),
    "ends after its run": sql(set_one(Column.ENDED, f"{Column.ENDED} + 3600000")),
}

SAID: dict[str, Edit] = {
    "has a negative number of tokens": sql(set_one(Column.TOKENS, "-5")),
    "has more tokens than any agent can use": sql(set_one(Column.TOKENS, "9223372036854775807")),
    "has a retry after the end of time": sql(set_one(Column.RETRY, "9223372036854775807")),
}
"""What an agent or a provider says of itself never makes a ledger unreadable."""


def of_one_attempt() -> Iterator[Case]:
    for name, edit in {**COUNTED, **{f"says that an attempt {name}": edit for name, edit in TIMES.items()}}.items():
        strict: Step = ("campaign report --strict", says(5, "evidence.ledger"))
        yield Case(
            name=f"the ledger {name}",
            edit=edit,
            validate=says(5, WRONG),
            publish=says(5, "evidence.ledger"),
            then=(strict,),
        )
    for name, edit in SAID.items():
        looks: tuple[Step, ...] = (("campaign report", says_only(0)), ("attempt list", says_only(0)))
        yield Case(
            name=f"the ledger {name}",
            edit=edit,
            validate=says(5, WRONG),
            publish=says(5, "evidence.ledger"),
            then=looks,
        )


PLANNED = [
    Case(
        name="the ledger is of another plan",
        edit=sql(set_all(Table.CAMPAIGN, Column.PLAN, "'sha256:other'")),
        validate=says_only(5, PLAN),
        publish=says(5, "evidence.ledger"),
    ),
    Case(
        name="the ledger does not say which campaign it is of",
        edit=sql(f"delete from {Table.CAMPAIGN}"),
        validate=says(5, PLAN),
        publish=says(5, "evidence.ledger"),
        then=(("campaign report --strict", says(5, PLAN)),),
    ),
    Case(
        name="the ledger has another digest of a trial",
        edit=sql(set_all(Table.TRIAL, Column.DIGEST, "'sha256:0'") + f" where {Column.MISSION} = 'fix'"),
        validate=says_only(5, PLAN),
        publish=says(5, "evidence.ledger"),
    ),
    Case(
        name="the ledger has the missions of two trials swapped",
        edit=sql(
            f"update {Table.TRIAL} set {Column.MISSION} = "
            f"case {Column.MISSION} when 'fix' then 'claim' when 'claim' then 'fix' else {Column.MISSION} end"
        ),
        validate=says(5, "evidence.ledger"),
        publish=says(5, "evidence.ledger"),
        then=(
            ("report --strict", says(5, "evidence.ledger")),
            ("campaign report --strict", says(5, "evidence.ledger")),
        ),
    ),
    Case(
        name="the ledger has no trials and no attempts",
        edit=sql(f"delete from {Table.ATTEMPT}", f"delete from {Table.TRIAL}"),
        validate=says(5, PLAN),
        publish=says_only(5, "publish.vacuous", "publish.gate", "evidence.report", "evidence.ledger"),
    ),
    Case(
        name="the ledger names a spec that cannot be a file",
        edit=sql(set_all(Table.CAMPAIGN, Column.SPEC_FILE, "'a' || char(0)")),
        validate=says_only(0),
        publish=says_only(0),
        then=(("campaign resume {campaign}", says_only(2, "campaign.no-spec")),),
    ),
    Case(
        name="the lock of the campaign is a pipe",
        edit=steps(remove("{campaign}/" + LOCK), make_pipe("{campaign}/" + LOCK)),
        validate=says_only(0),
        publish=says_only(0),
        then=(
            ("campaign status", says_only(0)),
            ("campaign cancel {campaign}", says_only(2, "campaign.not-running")),
            ("campaign resume {campaign}", says_only(3, "machine.unwritable")),
        ),
    ),
]

UNKNOWN = ", ".join(
    f"{column} = null"
    for column in (Column.OUTCOME, Column.ENDED, Column.TOKENS, Column.SUMMARY, Column.RUNTIME, Column.USD)
)

STRANGE = ("m9.codex.r1.1", "ask.codex.r1.x", "ask.codex.r1.0", "ask.codex.r1")

FORGOTTEN = [
    Case(
        name="the ledger does not know yet how the attempts ended",
        edit=sql(f"update {Table.ATTEMPT} set {Column.STATE} = '{State.RUNNING}', {UNKNOWN}"),
        validate=says(5),
        publish=says(5),
        then=(
            ("campaign status", says_only(0)),
            ("campaign resume {campaign}", says_only(0)),
            ("validate --strict", says_only(0)),
        ),
    ),
    Case(
        name="the ledger does not know an attempt of which nothing is left but its folder",
        edit=steps(
            sql(f"delete from {Table.ATTEMPT} where {Column.ID} = '{CLAIM}'"), remove("{claim}"), make_folder("{claim}")
        ),
        validate=says(5, f"evidence.ledger RUN/{CLAIM}"),
        publish=says(5, "evidence.ledger"),
    ),
    Case(
        name="folders that are not attempts of the campaign are among them",
        edit=steps(*(make_folder("{run}/attempts/" + name) for name in STRANGE)),
        validate=says(5, *(f"evidence.ledger RUN/{name}" for name in STRANGE)),
        publish=says(5, "evidence.ledger"),
    ),
    Case(
        name="an attempt lies in another run, and an empty folder in its place",
        edit=steps(move("{ask}", "{root}/runs/twin/attempts/" + ASK), make_folder("{ask}")),
        validate=says(5, f"evidence.ledger twin/{ASK}"),
        publish=says(5, "evidence.ledger"),
    ),
    Case(
        name="the copy of an attempt has the name of another",
        edit=copy("{ask}", "{run}/attempts/claim.codex.r1.7"),
        validate=says(5, "evidence.ledger RUN/claim.codex.r1.7", "evidence.ids attempt.json"),
        publish=says(5, "evidence.ledger"),
    ),
    Case(
        name="a folder has the number of an attempt that no counter reaches",
        edit=make_folder("{run}/attempts/claim.codex.r1.99999999999999999999999"),
        validate=says(5, "evidence.ledger RUN/claim.codex.r1.99999999999999999999999"),
        publish=says(5, "evidence.ledger"),
    ),
]

CASES = [*of_one_attempt(), *PLANNED, *FORGOTTEN]
