"""A campaign's own folder: its report, its plan, the frozen spec, and what lies beside them."""

from typing import Any

from tests.tampering.case import Case, Expected, Step, says, says_only
from tests.tampering.edits import (
    Edit,
    alter,
    append,
    digest_of,
    link,
    read_json,
    remove,
    replace,
    sql,
    steps,
    write,
)
from tests.tampering.evidence import Evidence
from tests.tampering.names import (
    CAMPAIGN_REPORT,
    FIX,
    LEDGER,
    PLAN,
    RESULTS,
    SNAPSHOT,
    Column,
    Field,
    Table,
)

IN = "{campaign}/"
SPEC, SCRIPT, INDEX = (f"{SNAPSHOT}/{name}" for name in ("spec.yaml", "script-0.yaml", "index.json"))


def of_campaign(name: str, edit: Edit, found: Expected, *then: Step, publish: int = 5) -> Case:
    """The whole root and the campaign alone are answered alike."""
    return Case(
        name=name,
        edit=edit,
        validate=found,
        publish=says(publish),
        then=(("validate --strict {campaign}", found), *then),
    )


def report_as(**changes: object) -> Edit:
    """Every attempt in the campaign's report gets other values."""
    return alter(
        IN + CAMPAIGN_REPORT,
        lambda report: {Field.ATTEMPTS: [_changed(row, changes) for row in report[Field.ATTEMPTS]]},
    )


def _changed(row: dict[str, Any], changes: dict[str, object]) -> dict[str, Any]:
    """What the sealed files of an attempt say is in its summary, the rest beside it."""
    inner = {name: value for name, value in changes.items() if name in row[Field.SUMMARY]}
    return {**row, **changes} if not inner else {**row, Field.SUMMARY: {**row[Field.SUMMARY], **inner}}


def forge_the_script(evidence: Evidence) -> None:
    """The plan names its digest too, so that only the attempts know better."""
    script = evidence.path(IN + SCRIPT)
    append(IN + SCRIPT, "# more\n")(evidence)
    plan = evidence.path(IN + PLAN)
    snapshot = {**read_json(plan)[Field.SNAPSHOT], script.name: digest_of(script)}
    alter(IN + PLAN, {Field.SNAPSHOT: snapshot})(evidence)


def alter_plan(field: str, value: object) -> Edit:
    return alter(IN + PLAN, lambda file: {Field.PLAN: {**file[Field.PLAN], field: value}})


def shorten_the_limit(evidence: Evidence) -> None:
    limits = read_json(evidence.path(IN + PLAN))[Field.PLAN][Field.LIMITS]
    alter_plan(Field.LIMITS, {**limits, Field.ATTEMPT_LIMIT: 1})(evidence)


def delete_mission(mission: str) -> Edit:
    """Plan, ledger and disk say nothing of it any more; the plan of the other attempts had it."""

    def without(file: dict[str, Any]) -> dict[str, Any]:
        trials = [each for each in file[Field.PLAN][Field.TRIALS] if each[Field.MISSION] != mission]
        return {Field.PLAN: {**file[Field.PLAN], Field.TRIALS: trials}}

    return steps(
        alter(IN + PLAN, without),
        sql(
            f"delete from {Table.ATTEMPT} where {Column.TRIAL} like '{mission}.%'",
            f"delete from {Table.TRIAL} where {Column.MISSION} = '{mission}'",
        ),
        remove("{" + mission + "}", IN + CAMPAIGN_REPORT, IN + RESULTS),
    )


STRICT_REPORTS = ("campaign report --strict", "report --strict")


def as_validated(found: Expected) -> tuple[Step, ...]:
    """Strict reports answer as `validate --strict` of the campaign does."""
    return tuple((command, found) for command in STRICT_REPORTS)


NOT_THE_REPORT = says(5, f"evidence.report {CAMPAIGN_REPORT}")
NOT_THE_PLAN = says_only(5, f"evidence.plan {PLAN}")

REPORTS = [
    of_campaign(
        "the report says that all are verified, and so does RESULTS.md",
        steps(report_as(**{Field.VERIFIED: True}), replace(IN + RESULTS, "| **NO** |", "| yes |")),
        NOT_THE_REPORT,
        *as_validated(NOT_THE_REPORT),
    ),
    of_campaign("the report says that none claimed anything", report_as(**{Field.CLAIMED: None}), NOT_THE_REPORT),
    of_campaign("the report has another outcome", report_as(**{Field.OUTCOME: "crashed"}), NOT_THE_REPORT),
    of_campaign("the report has a code", report_as(**{Field.CODE: "peer.hangup"}), NOT_THE_REPORT),
    of_campaign("the report has another detail", report_as(**{Field.DETAIL: "all went well"}), NOT_THE_REPORT),
    of_campaign(
        "the report has another verdict, and so does RESULTS.md",
        steps(
            alter(IN + CAMPAIGN_REPORT, {Field.EXIT: 1, Field.VERDICT: "not as expected"}),
            replace(IN + RESULTS, "**ok** (exit 0)", "**not as expected** (exit 1)"),
        ),
        NOT_THE_REPORT,
    ),
    of_campaign(
        "the report is of no run, and has another verdict",
        alter(IN + CAMPAIGN_REPORT, {Field.RUNS: [], Field.EXIT: 1, Field.VERDICT: "not as expected"}),
        NOT_THE_REPORT,
    ),
    of_campaign("the report has no attempts", alter(IN + CAMPAIGN_REPORT, {Field.ATTEMPTS: []}), NOT_THE_REPORT),
    of_campaign(
        "the report is of another run",
        alter(
            IN + CAMPAIGN_REPORT,
            lambda report: {Field.RUNS: [{**report[Field.RUNS][0], Field.RUN: "another"}, *report[Field.RUNS]]},
        ),
        NOT_THE_REPORT,
    ),
    of_campaign(
        "the report is not JSON", write(IN + CAMPAIGN_REPORT, b"{"), says_only(5, f"evidence.syntax {CAMPAIGN_REPORT}")
    ),
    of_campaign(
        "the report is a link to a file elsewhere",
        link(IN + CAMPAIGN_REPORT),
        says_only(5, f"evidence.containment {CAMPAIGN_REPORT}"),
    ),
    of_campaign(
        "the report is gone, and RESULTS.md is not",
        remove(IN + CAMPAIGN_REPORT),
        says_only(5, f"evidence.missing-file {CAMPAIGN_REPORT}"),
    ),
    of_campaign(
        "RESULTS.md has one more line", append(IN + RESULTS, "# more\n"), says_only(5, f"evidence.report {RESULTS}")
    ),
]

PLANS = [
    of_campaign("the plan has another limit", shorten_the_limit, NOT_THE_PLAN, *as_validated(NOT_THE_PLAN)),
    Case(
        name="a mission is gone from plan, ledger, report and disk",
        edit=delete_mission("claim"),
        validate=says(5, f"evidence.plan {PLAN}"),
        publish=says(5, "evidence.plan"),
        then=as_validated(says(5, f"evidence.plan {PLAN}")),
    ),
    of_campaign("the plan has one more space", append(IN + PLAN, " "), NOT_THE_PLAN),
    of_campaign("a script was changed, and the plan names its new digest", forge_the_script, NOT_THE_PLAN),
    of_campaign(
        "the plan is gone",
        remove(IN + PLAN),
        says_only(5, f"evidence.missing-file {PLAN}"),
        ("campaign resume", says(2, "campaign.not-begun")),
    ),
    of_campaign("the plan is empty", write(IN + PLAN, b"{}"), says_only(5, f"evidence.schema {PLAN}")),
    of_campaign(
        "the frozen spec has one more line", append(IN + SPEC, "# more\n"), says_only(5, f"evidence.plan {SPEC}")
    ),
    of_campaign(
        "a frozen script has one more line", append(IN + SCRIPT, "# more\n"), says_only(5, f"evidence.plan {SCRIPT}")
    ),
    of_campaign(
        "the index of the snapshot has one more space", append(IN + INDEX, " "), says_only(5, f"evidence.plan {INDEX}")
    ),
    of_campaign("the frozen spec is gone", remove(IN + SPEC), says_only(5, f"evidence.missing-file {SPEC}")),
    of_campaign(
        "a file that is not a part of it is in the snapshot",
        write(IN + SNAPSHOT + "/script-9.yaml", b"version: 1\n"),
        says_only(5, f"evidence.extra-file {SNAPSHOT}/script-9.yaml"),
    ),
    of_campaign(
        "a file that is not a part of it is beside the report",
        write(IN + "RESULTS-2.md", b"# all is well\n"),
        says_only(5, "evidence.extra-file RESULTS-2.md"),
    ),
    Case(
        name="the plan says that it is a canary",
        edit=alter_plan(Field.CANARY, True),
        validate=NOT_THE_PLAN,
        publish=says_only(5, "publish.canary", "evidence.plan"),
    ),
]

NO_REPORT, NO_PLAN = f"evidence.partial {CAMPAIGN_REPORT}", f"evidence.partial {PLAN}"
UNTRIED, NO_RUN = f"evidence.partial {LEDGER}", "evidence.partial RUN"
NO_LEDGER = f"evidence.partial CAMPAIGN/{LEDGER}"

never_tried = steps(remove(IN + CAMPAIGN_REPORT, IN + RESULTS, "{root}/runs"), sql(f"delete from {Table.ATTEMPT}"))
never_planned = steps(never_tried, remove(IN + PLAN))

CUTS = [
    of_campaign(
        "the campaign was cut off before its report",
        remove(IN + CAMPAIGN_REPORT, IN + RESULTS),
        says_only(4, NO_REPORT),
        publish=4,
    ),
    of_campaign(
        "the campaign was cut off before RESULTS.md",
        remove(IN + RESULTS),
        says_only(4, f"evidence.partial {RESULTS}"),
        publish=4,
    ),
    Case(
        name="the campaign was cut off before its first attempt",
        edit=never_tried,
        validate=says_only(4, UNTRIED, NO_REPORT),
        publish=says(4),
        then=(("validate --strict {campaign}", says_only(4, UNTRIED, NO_REPORT, NO_RUN)),),
    ),
    Case(
        name="the campaign was cut off before its plan",
        edit=never_planned,
        validate=says_only(4, UNTRIED, NO_REPORT, NO_PLAN),
        publish=says(5),
        then=(("validate --strict {campaign}", says_only(4, UNTRIED, NO_REPORT, NO_PLAN, NO_RUN)),),
    ),
    Case(
        name="the campaign was cut off while its ledger was made",
        edit=steps(never_planned, write(IN + LEDGER)),
        validate=says_only(4, NO_LEDGER, NO_REPORT, NO_PLAN),
        publish=says(5),
        then=(("validate --strict {campaign}", says_only(4, NO_LEDGER, NO_REPORT, NO_PLAN)),),
    ),
    Case(
        name="the last trial was never tried",
        edit=steps(remove("{fix}"), sql(f"delete from {Table.ATTEMPT} where {Column.ID} = '{FIX}'")),
        validate=says(5),
        publish=says_only(5, "publish.incomplete", "evidence.report", "evidence.counts"),
    ),
]

CASES = [*REPORTS, *PLANS, *CUTS]
