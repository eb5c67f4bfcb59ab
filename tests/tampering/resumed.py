"""Campaigns with costs, or that were killed: what tampering with them does to a resume, and to what comes after it."""

from collections.abc import Iterator

from tests.tampering.case import Case, says, says_only
from tests.tampering.edits import Edit, copy, make_folder, remove, replace, rewrite, sql, steps, tear, write
from tests.tampering.evidence import Evidence
from tests.tampering.names import (
    CAMPAIGN_REPORT,
    FIRST,
    LEDGER,
    RESULTS,
    SEAL,
    SECOND,
    SNAPSHOT,
    Column,
    State,
    Summary,
    Table,
)

OF_SECOND = f" where {Column.ID} = '{SECOND}'"
CUT_OFF = f"{Column.STATE} = '{State.ABANDONED}', {Column.OUTCOME} = 'unknown', {Column.CODE} = 'run.cut-off'"
RESUME = "campaign resume {campaign} --yes"

COSTS: dict[str, str] = {
    "another cost": f"{Column.USD} = 0.5",
    "an unknown cost": f"{Column.USD} = null",
    "no cost": f"{Column.USD} = 0",
    "a time to try again": f"{Column.RETRY} = {Column.ENDED} + 1000",
}


def costs() -> Iterator[Case]:
    for what, changes in COSTS.items():
        yield Case(
            name=f"the ledger of a campaign with prices has {what} for an attempt",
            base="priced",
            edit=sql(f"update {Table.ATTEMPT} set {changes} {OF_SECOND}"),
            validate=says(5, f"evidence.ledger {SECOND}/{LEDGER}"),
            publish=says(5, "evidence.ledger"),
        )


def put_back_after_a_retry(*names: str) -> Edit:
    """A trial is tried once more, and then these files of the campaign are as they were before."""

    def edit(evidence: Evidence) -> None:
        files = [evidence.path("{campaign}/" + name) for name in names]
        before = [path.read_bytes() for path in files]
        assert evidence.ask("retry --only first {campaign} --yes --replace --reason why").exit == 0
        for path, data in zip(files, before, strict=True):
            path.write_bytes(data)

    return edit


def retry_as_infrastructure(evidence: Evidence) -> None:
    """A failed attempt becomes one of the machine's, so that a retry counts in its place without `--replace`."""
    failed = f"{Column.OUTCOME} = 'crashed', {Column.CODE} = 'machine.disk-full'"
    edits = f"'{Summary.OUTCOME}', 'crashed', '{Summary.CODE}', 'machine.disk-full', '{Summary.RESULT}', 'infra'"
    summary = f"json_set({Column.SUMMARY}, {edits})"
    sql(f"update {Table.ATTEMPT} set {failed}, {Column.SUMMARY} = {summary} where {Column.ID} = '{FIRST}'")(evidence)
    answer = evidence.ask("retry --only first {campaign} --yes")
    assert answer.exit == 0, answer.output


def forget_a_replaced_attempt(evidence: Evidence) -> None:
    """Of a trial that was tried twice, ledger, report and disk know only the second attempt."""
    assert evidence.ask("retry --only first {campaign} --yes --replace --reason why").exit == 0
    remove("{first}", "{campaign}/" + CAMPAIGN_REPORT, "{campaign}/" + RESULTS)(evidence)
    sql(f"delete from {Table.ATTEMPT} where {Column.ID} = '{FIRST}'", f"delete from {Table.REPLACEMENT}")(evidence)


PRICED = [
    Case(
        name="the ledger calls a failed attempt infrastructure, and its retry counts",
        base="priced",
        edit=retry_as_infrastructure,
        validate=says(5, f"evidence.ledger {FIRST}/{LEDGER}"),
        publish=says(5, "evidence.ledger"),
        then=(("campaign report --strict", says(5, "evidence.ledger")), ("report --strict", says(5))),
    ),
    Case(
        name="the first attempt of a trial is gone from ledger, report and disk",
        base="priced",
        edit=forget_a_replaced_attempt,
        validate=says(5, f"evidence.ledger {LEDGER}"),
        publish=says(5, "evidence.ledger"),
        then=(("campaign report --strict", says(5, f"evidence.ledger {LEDGER}")),),
    ),
    Case(
        name="the frozen prices are gone, and nothing is said of costs",
        base="priced",
        edit=remove("{campaign}/" + SNAPSHOT + "/file-0.yaml"),
        validate=says_only(5, f"evidence.missing-file {SNAPSHOT}/file-0.yaml"),
        publish=says(5, "evidence.missing-file"),
    ),
    Case(
        name="the frozen prices cannot be read, and nothing is said of costs",
        base="priced",
        edit=replace("{campaign}/" + SNAPSHOT + "/file-0.yaml", "since", "[redacted:B]"),
        validate=says_only(5, f"evidence.plan {SNAPSHOT}/file-0.yaml"),
        publish=says(5, "evidence.plan"),
    ),
    Case(
        name="the ledger says of sealed attempts that they were cut off",
        base="priced",
        edit=sql(f"update {Table.ATTEMPT} set {CUT_OFF}"),
        validate=says(5, *(f"evidence.ledger {attempt}/{LEDGER}" for attempt in (FIRST, SECOND))),
        publish=says(5, "evidence.ledger"),
    ),
    Case(
        name="the ledger says when attempts without a seal are due",
        base="priced",
        edit=sql(
            f"update {Table.ATTEMPT} set {CUT_OFF}",
            f"update {Table.ATTEMPT} set {Column.RETRY} = 5, {Column.CODE} = 'machine.disk-full'",
        ),
        validate=says(5, *(f"evidence.ledger {attempt}/{LEDGER}" for attempt in (FIRST, SECOND))),
        publish=says(5, "evidence.ledger"),
    ),
    Case(
        name="the report is that of the runs before the last one",
        base="priced",
        edit=put_back_after_a_retry(CAMPAIGN_REPORT, RESULTS),
        validate=says(4, f"evidence.partial {CAMPAIGN_REPORT}"),
        publish=says(1, "publish.replaced", "evidence.partial"),
    ),
    Case(
        name="the ledger is that of the runs before the last one, and a resume knows it again",
        base="priced",
        edit=put_back_after_a_retry(LEDGER),
        validate=says(5, "evidence.ledger"),
        publish=says(5, "evidence.ledger"),
        then=((RESUME, says_only(0)), ("validate --strict", says_only(0))),
    ),
    Case(
        name="the disk was full at one seal, and another is torn: the ledger is right",
        base="priced",
        edit=steps(
            sql(
                f"update {Table.ATTEMPT} set {CUT_OFF}",
                f"update {Table.ATTEMPT} set {Column.CODE} = 'machine.disk-full' where {Column.ID} = '{FIRST}'",
            ),
            tear("{second}/" + SEAL, by=9),
        ),
        validate=says_only(5, f"evidence.report {CAMPAIGN_REPORT}", f"evidence.seal {SEAL}"),
        publish=says(5, "publish.incomplete", "evidence.seal"),
    ),
    Case(
        name="the seal of an attempt that the ledger calls running is torn, and a resume tries it again",
        base="priced",
        edit=steps(
            tear("{second}/" + SEAL, by=9),
            sql(f"update {Table.ATTEMPT} set {Column.STATE} = '{State.RUNNING}' {OF_SECOND}"),
        ),
        validate=says(5, f"evidence.seal {SEAL}"),
        publish=says(5, "evidence.seal"),
        then=((RESUME, says_only(0)), ("validate --strict", says(5, f"evidence.seal {SEAL}"))),
    ),
    Case(
        name="the copy of an attempt is not a result of another, and a resume tries that again",
        base="priced",
        edit=copy("{first}", "{run}/attempts/second.f.r1.7"),
        validate=says(5, "evidence.ledger RUN/second.f.r1.7"),
        publish=says(5, "evidence.ledger"),
        then=((RESUME, says_only(0)), ("validate --strict", says(5))),
    ),
    Case(
        name="the ledger does not know an attempt of which only the folder is left, and a resume tries it again",
        base="priced",
        edit=steps(sql(f"delete from {Table.ATTEMPT} {OF_SECOND}"), remove("{second}"), make_folder("{second}")),
        validate=says(5, f"evidence.ledger RUN/{SECOND}"),
        publish=says(5, "evidence.ledger"),
        then=((RESUME, says_only(0)),),
    ),
]

LOG = "{campaign}/" + LEDGER + "-wal"
LOST: dict[str, Edit] = {
    "gone": remove(LOG),
    "empty": write(LOG),
    "noise": write(LOG, b"no log at all" * 4000),
    "cut by a third": rewrite(LOG, lambda data: data[: len(data) * 2 // 3]),
}


def lost_logs() -> Iterator[Case]:
    for how, edit in LOST.items():
        yield Case(
            name=f"the log of a ledger is {how} after a kill",
            base="killed",
            edit=edit,
            validate=says(5, "evidence.ledger RUN/m2.f.r1.1"),
            publish=says(5),
            then=((RESUME, says_only(0)), ("validate --strict", says(0))),
        )


CASES = [*costs(), *PRICED, *lost_logs()]
