"""A campaign's own folder is held against its attempts, by `validate` and by a signed `verify`, on the real agent's."""

import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec
import pytest

from proctor.canonical import digest_bytes
from proctor.evidence.layout import CampaignPaths
from proctor.report.campaign import CampaignReport
from proctor.report.markdown import render_markdown
from tests.attempt.forge import alter_json
from tests.keys import make_key, public
from tests.surface.conftest import Quickstart, ask

pytestmark = pytest.mark.real_agent

Damage = Callable[[CampaignPaths], object]
Told = set[tuple[str, str]]


def campaign_of(quickstart: Quickstart) -> CampaignPaths:
    [folder] = (quickstart.lab.root / "campaigns").iterdir()
    return CampaignPaths(folder)


def told(found: dict[str, Any]) -> Told:
    return {(finding["code"], finding["file"]) for each in found["examined"] for finding in each["findings"]}


def append(path: Path, text: str = "# more\n") -> None:
    path.write_text(path.read_text() + text)


def read(path: Path) -> dict[str, Any]:
    value: dict[str, Any] = msgspec.json.decode(path.read_bytes())
    return value


def forge_rows(paths: CampaignPaths, **changes: Any) -> None:
    """The report tells another ending, and RESULTS.md tells it too."""
    alter_json(paths.report, attempts=[_changed(row, changes) for row in read(paths.report)["attempts"]])
    render(paths)


def _changed(row: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    inner = {name: value for name, value in changes.items() if name in row["summary"]}
    return {**row, **changes} if not inner else {**row, "summary": {**row["summary"], **inner}}


def forge_whole(paths: CampaignPaths, **changes: Any) -> None:
    alter_json(paths.report, **changes)
    render(paths)


def render(paths: CampaignPaths) -> None:
    paths.results.write_text(render_markdown(msgspec.json.decode(paths.report.read_bytes(), type=CampaignReport)))


def forge_script(paths: CampaignPaths) -> None:
    """With the plan's word for it, so that only the attempts know better."""
    script = paths.spec_snapshot / "script-0.yaml"
    append(script)
    alter_json(paths.plan, snapshot={**read(paths.plan)["snapshot"], script.name: digest_bytes(script.read_bytes())})


def forge_limits(paths: CampaignPaths) -> None:
    plan = read(paths.plan)["plan"]
    alter_json(paths.plan, plan={**plan, "limits": {**plan["limits"], "attemptMs": 1}})


def change_ledger(sql: str) -> Damage:
    def change(paths: CampaignPaths) -> None:
        with closing(sqlite3.connect(paths.ledger)) as connection, connection:
            connection.execute(sql)

    return change


def link_report(paths: CampaignPaths) -> None:
    aside = paths.folder.parent.parent / "aside.json"
    paths.report.rename(aside)
    paths.report.symlink_to(aside)


REPORT = {("evidence.report", "report.json")}
PLAN = {("evidence.plan", "plan.json")}

DAMAGES: dict[str, tuple[Damage, Told]] = {
    "all are verified": (lambda paths: forge_rows(paths, verified=True), REPORT),
    "none claimed anything": (lambda paths: forge_rows(paths, claimed=None), REPORT),
    "another outcome": (lambda paths: forge_rows(paths, outcome="crashed"), REPORT),
    "a code": (lambda paths: forge_rows(paths, code="run.harness"), REPORT),
    "another detail": (lambda paths: forge_rows(paths, detail="all went well"), REPORT),
    "another verdict": (lambda paths: forge_whole(paths, exit=1, verdict="not as expected"), REPORT),
    "no attempts": (lambda paths: forge_whole(paths, attempts=[]), REPORT),
    "a report that is none": (lambda paths: paths.report.write_text("{"), {("evidence.syntax", "report.json")}),
    "a report elsewhere": (link_report, {("evidence.containment", "report.json")}),
    "no report": (lambda paths: paths.report.unlink(), {("evidence.missing-file", "report.json")}),
    "a line in RESULTS.md": (lambda paths: append(paths.results), {("evidence.report", "RESULTS.md")}),
    "another limit": (forge_limits, PLAN),
    "a space in the plan": (lambda paths: append(paths.plan, " "), PLAN),
    "a script and the plan": (forge_script, PLAN),
    "a ledger of another plan": (
        change_ledger("update campaign set plan = 'sha256:other'"),
        {("evidence.ledger", "ledger.db")},
    ),
    "no plan": (lambda paths: paths.plan.unlink(), {("evidence.missing-file", "plan.json")}),
    "a plan that is none": (lambda paths: paths.plan.write_text("{}"), {("evidence.schema", "plan.json")}),
    "a spec": (
        lambda paths: append(paths.spec_snapshot / "spec.yaml"),
        {("evidence.plan", "spec.snapshot/spec.yaml")},
    ),
    "a script": (
        lambda paths: append(paths.spec_snapshot / "script-0.yaml"),
        {("evidence.plan", "spec.snapshot/script-0.yaml")},
    ),
    "an index": (
        lambda paths: append(paths.spec_snapshot / "index.json", " "),
        {("evidence.plan", "spec.snapshot/index.json")},
    ),
    "no spec": (
        lambda paths: (paths.spec_snapshot / "spec.yaml").unlink(),
        {("evidence.missing-file", "spec.snapshot/spec.yaml")},
    ),
    "a stranger in the snapshot": (
        lambda paths: (paths.spec_snapshot / "script-9.yaml").write_text("version: 1\n"),
        {("evidence.extra-file", "spec.snapshot/script-9.yaml")},
    ),
    "a stranger beside the report": (
        lambda paths: (paths.folder / "RESULTS-2.md").write_text("# all is well\n"),
        {("evidence.extra-file", "RESULTS-2.md")},
    ),
    "another trial in the ledger": (
        change_ledger("update trial set digest = 'sha256:0' where mission = 'fix'"),
        {("evidence.ledger", "ledger.db")},
    ),
}


@pytest.fixture(scope="module")
def ada(tmp_path_factory: pytest.TempPathFactory) -> Path:
    key = make_key(tmp_path_factory.mktemp("ada"), "ada")
    key.with_name("allowed").write_text(f"ada@example.org {public(key)}\n")
    return key


@pytest.mark.requirement("evidence.integrity")
@pytest.mark.parametrize("name", DAMAGES)
def test_whatever_is_forged_in_a_campaigns_folder_is_told_with_its_code(quickstart: Quickstart, name: str) -> None:
    damage, due = DAMAGES[name]
    campaign = campaign_of(quickstart)
    damage(campaign)
    for words in (("--strict",), ("--strict", campaign.folder.name)):
        said = ask(quickstart.lab, "validate", *words, "--json")
        assert (said.code, said.json["status"], told(said.json)) == (5, "invalid", due)


@pytest.mark.requirement("evidence.signed")
def test_signed_attempts_do_not_make_a_forged_report_whole(quickstart: Quickstart, ada: Path) -> None:
    lab, campaign = quickstart.lab, campaign_of(quickstart)
    signed = ("--signed", "--allowed-signers", str(ada.with_name("allowed")))
    assert ask(lab, "sign", str(lab.root), "--key", str(ada)).code == 0
    assert ask(lab, "verify", campaign.folder.name, *signed).code == 0
    forge_rows(campaign, verified=True)
    said = ask(lab, "verify", campaign.folder.name, *signed, "--json")
    assert (said.code, told(said.json["evidence"])) == (5, REPORT)
    assert said.json["established"][0] == "invalid: nothing is established"


def forget_the_report(paths: CampaignPaths) -> None:
    paths.report.unlink()
    paths.results.unlink()


def never_try(paths: CampaignPaths) -> None:
    """As a kill leaves it between the plan and the first attempt."""
    forget_the_report(paths)
    change_ledger("delete from attempt")(paths)
    shutil.rmtree(paths.folder.parent.parent / "runs")


def never_plan(paths: CampaignPaths) -> None:
    never_try(paths)
    paths.plan.unlink()


def begin_the_ledger(paths: CampaignPaths) -> None:
    never_plan(paths)
    paths.ledger.write_bytes(b"")


UNTRIED = ("evidence.partial", "ledger.db")
NO_REPORT = ("evidence.partial", "report.json")
NO_PLAN = ("evidence.partial", "plan.json")

CUTS: dict[str, tuple[Damage, Told]] = {
    "before the report": (forget_the_report, {NO_REPORT}),
    "before RESULTS.md": (lambda paths: paths.results.unlink(), {("evidence.partial", "RESULTS.md")}),
    "before the first attempt": (never_try, {UNTRIED, NO_REPORT}),
    "before the plan": (never_plan, {UNTRIED, NO_REPORT, NO_PLAN}),
    "in the ledger's making": (begin_the_ledger, {UNTRIED, NO_REPORT, NO_PLAN}),
}


@pytest.mark.parametrize("name", CUTS)
def test_a_campaign_that_was_cut_off_is_partial_wherever_that_was(quickstart: Quickstart, name: str) -> None:
    cut, due = CUTS[name]
    campaign = campaign_of(quickstart)
    runs = [folder.name for folder in (quickstart.lab.root / "runs").iterdir()]
    cut(campaign)
    said = ask(quickstart.lab, "validate", "--strict", "--json")
    where = {(code, file.rpartition("/")[2]) for code, file in told(said.json)}
    assert (said.code, said.json["status"], where) == (4, "partial", due)
    said = ask(quickstart.lab, "validate", "--strict", campaign.folder.name, "--json")
    where = {(code, file.rpartition("/")[2]) for code, file in told(said.json)}
    assert (said.code, where - due) == (4, {("evidence.partial", run) for run in runs if name in _WITH_A_RUN})


_WITH_A_RUN = ("before the first attempt", "before the plan")
"""Where the ledger names a run of which nothing was recorded."""
