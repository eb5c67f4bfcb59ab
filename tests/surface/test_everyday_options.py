"""The everyday options of `proctor run`: --flow, --repeats, --model, --failed and --fail-fast."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from proctor.ids import FlowId
from proctor.spec.load import SpecOverrides, load_spec
from tests.lab import Lab
from tests.surface.conftest import ask


def write_spec(lab: Lab, **top: Any) -> Path:
    """Two missions and two flows. The agent of `bad` solves only the mission `easy`; `good` solves both."""
    probe = {"kind": "headless_run", "command": ["test", "-s", "made"]}
    missions = [{"id": each, "prompt": each, "script": "unused.yaml", "probes": [probe]} for each in ("easy", "hard")]
    commands = {"good": "echo x >made", "bad": "if grep -q easy; then echo x >made; fi"}
    flows = [
        {"id": id_, "runtime": ["process"], "options": {"process": {"command": command}}}
        for id_, command in commands.items()
    ]
    schedule = {"parallel": 1, "retries": 0}
    whole = {"version": 1, "campaign": "daily", "missions": missions, "flows": flows, "schedule": schedule, **top}
    (lab.folder / "unused.yaml").write_text("version: 1\nsteps: [{say: hi}]\n")
    file = lab.folder / "daily.yaml"
    file.write_text(yaml.safe_dump(whole, sort_keys=False))
    return file


@pytest.fixture
def other_lab(lab: Lab) -> Lab:
    lab.is_other_agent_allowed = True
    return lab


def trials_of(report: dict[str, Any]) -> set[str]:
    return {row["trial"] for row in report["attempts"]}


@pytest.mark.long
@pytest.mark.trust
def test_run_selects_flows_and_sets_repeats_and_resume_keeps_them(other_lab: Lab) -> None:
    spec = str(write_spec(other_lab))
    said = ask(other_lab, "run", spec, "--flow", "good", "--repeats", "2", "--mission", "easy", "--json")
    assert said.code == 0, said.stderr
    assert trials_of(said.json) == {"easy.good.r1", "easy.good.r2"}
    again = ask(other_lab, "campaign", "resume", "--json")
    assert (again.code, trials_of(again.json)) == (0, trials_of(said.json))


@pytest.mark.parametrize(
    ("words", "key", "what"),
    [
        (("--flow", "god"), "--flow", "no flow has the id `god`; the flows are: good, bad"),
        (("--repeats", "0"), "--repeats", "0 repeats: the number is between 1 and 1000"),
        (("--model", "gpt-x"), "--model", "flow `good` uses the scripted model, which has no name"),
        (("--failed",), None, "there is no campaign `daily` in "),
    ],
)
def test_run_refuses_options_that_make_no_sense(lab: Lab, words: tuple[str, ...], key: str | None, what: str) -> None:
    said = ask(lab, "run", str(write_spec(lab)), *words, "--json")
    error = said.json["error"]
    assert (said.code, error["key"], error["what"][: len(what)]) == (2, key, what)


@pytest.mark.trust
def test_model_option_replaces_the_model_of_the_selected_flows(lab: Lab) -> None:
    flows = [
        {"id": "mine", "runtime": ["codex"], "model": {"provider": "openai", "name": "old"}, "login": "api-key"},
        {"id": "free", "runtime": ["codex"]},
    ]
    loaded = load_spec(write_spec(lab, flows=flows), overrides=SpecOverrides(flow_ids=[FlowId("mine")], model="new"))
    [flow] = loaded.spec.flows
    assert flow.model is not None
    assert (flow.model.provider, flow.model.name) == ("openai", "new")
    second = load_spec(write_spec(lab, flows=flows), overrides=SpecOverrides(flow_ids=[FlowId("free")]))
    assert second.line_of("flows[0].id") == load_spec(write_spec(lab, flows=flows)).line_of("flows[1].id")


@pytest.mark.long
@pytest.mark.trust
def test_failed_runs_only_failed_trials_as_a_campaign_that_cannot_be_published(other_lab: Lab) -> None:
    spec = str(write_spec(other_lab))
    first = ask(other_lab, "run", spec, "--json")
    assert (first.code, len(trials_of(first.json)), first.json["failedIn"]) == (1, 4, None)

    again = ask(other_lab, "run", spec, "--failed", "--json")
    assert trials_of(again.json) == {"hard.bad.r1"}
    assert again.json["campaignId"] != first.json["campaignId"]
    origin = first.json["campaignId"]
    assert again.json["failedIn"] == origin
    assert again.json["score"]["trials"] == 1

    report = ("campaign", "report", again.json["campaignId"])
    shown = [line.split(maxsplit=1) for line in ask(other_lab, *report).stdout.splitlines() if line.strip()]
    assert ["selected", f"failed in {origin}"] in shown
    for form in ("md", "junit"):
        assert f"failed in {origin}" in ask(other_lab, *report, "--format", form).stdout
    compared = ask(other_lab, "compare", f"{origin}:bad", again.json["campaignId"])
    assert f"B selected: failed in {origin}" in compared.stdout

    blocked = ask(other_lab, "campaign", "publish-check", again.json["campaignId"], "--json")
    assert blocked.code == 4
    assert [each["code"] for each in blocked.json["reasons"]] == ["publish.selected"]
    assert ask(other_lab, "validate", "--strict").code == 0
    assert ask(other_lab, "campaign", "resume", again.json["campaignId"]).code == 1, "nothing is left to run"

    passed = ask(other_lab, "run", spec, "--flow", "good", "--failed")
    nothing = f"Nothing to run: no selected trial failed in {again.json['campaignId']}\n"
    assert (passed.code, passed.stdout) == (0, nothing)
    as_json = ask(other_lab, "run", spec, "--flow", "good", "--failed", "--json")
    assert (as_json.code, as_json.json) == (0, {"failedIn": again.json["campaignId"], "trials": []})
    good = ask(other_lab, "run", spec, "--flow", "good", "--mission", "easy", "--json").json["campaignId"]
    assert ask(other_lab, "run", spec, "--failed").stdout == f"Nothing to run: no trial failed in {good}\n"


@pytest.mark.long
@pytest.mark.trust
def test_fail_fast_starts_nothing_after_a_trial_has_failed(other_lab: Lab) -> None:
    spec = str(write_spec(other_lab, repeats=3))
    said = ask(other_lab, "run", spec, "--fail-fast", "--json")
    assert said.code == 1
    assert [run["how"] for run in said.json["runs"]] == ["fail-fast"]
    assert trials_of(said.json) == {"easy.good.r1", "easy.bad.r1", "hard.good.r1", "hard.bad.r1"}
    assert json.loads(ask(other_lab, "campaign", "resume", "--json").stdout)["score"]["results"] == 12
