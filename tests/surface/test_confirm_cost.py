"""Nobody pays without having agreed, and a dry run tells what there is to agree to. Nothing is run here."""

import json
import os
import select
import sys
import termios
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from proctor.event.model import Tokens
from proctor.ids import AttemptId
from proctor.spec.load import load_spec
from proctor.surface.cli.app import answer
from proctor.surface.pricing import price_of
from tests.lab import Lab, mission
from tests.report.made import NO, STILL, tried
from tests.report.made import YES as DONE
from tests.surface.conftest import ask

PAID = {"provider": "openai", "name": "gpt-x"}
HERE = {**PAID, "base_url": "http://127.0.0.1:1/v1"}


def spec_of(lab: Lab, *, model: dict[str, Any], **more: Any) -> str:
    missions = [mission("one"), mission("two")]
    return str(lab.write_spec(missions, model=model, login="api-key", repeats=2, **more))


@pytest.mark.parametrize("words", [("run",), ("campaign", "run"), ("campaign", "canary")])
def test_what_may_cost_money_is_refused_where_nobody_can_agree(lab: Lab, words: tuple[str, ...]) -> None:
    said = ask(lab, *words, spec_of(lab, model=PAID), "--json")
    assert (said.code, said.json["error"]["code"]) == (2, "policy.spending")
    trials = 1 if "canary" in words else 4
    unknown = "no estimate, because not every flow has an attempt with a known cost in this evidence root"
    assert said.json["error"]["what"] == f"{trials} trial{'s' * (trials > 1)} on openai/gpt-x may cost money: {unknown}"
    assert not lab.root.exists()


UNKNOWN = "no estimate, because not every flow has an attempt with a known cost in this evidence root"


def spec_of_two(lab: Lab) -> str:
    """One flow that costs money, and one that does not."""
    flows = [
        {"id": "dear", "runtime": ["codex_app_server"], "model": PAID},
        {"id": "free", "runtime": ["codex_app_server"], "model": HERE},
    ]
    return str(lab.write_spec([mission("one"), mission("two")], flows=flows, login="api-key"))


def test_two_flows_are_not_compared_for_money_before_somebody_agreed(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    words = ("parity", "dear", "free", spec_of_two(lab), "--json")
    error = ask(lab, *words).json["error"]
    assert (error["code"], error["what"]) == ("policy.spending", f"4 trials on openai/gpt-x may cost money: {UNKNOWN}")
    assert ask(lab, *words, "--yes").json["error"]["code"] == "policy.login", "the next thing that is looked at"
    dry = ask(lab, *words, "--dry-run")
    assert (dry.code, len(dry.json["trials"]), dry.json["usd"]) == (0, 4, None)
    assert not lab.root.exists()


REPLACE = ("--replace", "--reason", "the probe was wrong")
TRIED = {"one.dear.r1": [DONE], "one.free.r1": [NO], "two.dear.r1": [STILL], "two.free.r1": []}


@pytest.mark.parametrize(
    ("words", "trials"),
    [
        (("campaign", "resume"), 2),
        (("retry", "--only", "unscored"), 2),
        (("retry", "--only", "one", *REPLACE), 2),
        (("retry", "--only", "two.dear.r1"), 1),
    ],
)
def test_what_is_left_of_a_campaign_is_gone_on_with_for_money_when_somebody_agreed_to_that(
    lab: Lab, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], trials: int
) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    tried(lab.root, TRIED)
    words = (*words, "--spec", spec_of_two(lab), "--json")
    error = ask(lab, *words).json["error"]
    counted = f"{trials} trial{'s' * (trials > 1)}"
    assert (error["code"], error["what"]) == ("policy.spending", f"{counted} on openai/gpt-x may cost money: {UNKNOWN}")
    assert ask(lab, *words, "--yes").json["error"]["code"] == "policy.login", "the next thing that is looked at"


@pytest.mark.parametrize(
    ("words", "tries"),
    [
        (("campaign", "resume"), {"one.dear.r1": [DONE], "one.free.r1": [NO]}),
        (("retry", "--only", "infra"), {"one.dear.r1": [DONE], "one.free.r1": [NO]}),
        (("campaign", "resume"), {**TRIED, "two.dear.r1": [DONE]}),
        (("retry", "--only", "one.free.r1", *REPLACE), TRIED),
    ],
)
def test_where_nothing_that_costs_money_is_left_nobody_need_agree(
    lab: Lab, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], tries: dict[str, Any]
) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    tried(lab.root, tries)
    said = ask(lab, *words, "--spec", spec_of_two(lab), "--json")
    assert said.json["error"]["code"] == "policy.login", "the next thing that is looked at"


@pytest.mark.parametrize("model", [PAID, HERE])
def test_what_is_agreed_to_or_on_this_machine_goes_on(
    lab: Lab, monkeypatch: pytest.MonkeyPatch, model: dict[str, Any]
) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    agreed = () if model is HERE else ("--yes",)
    said = ask(lab, "run", spec_of(lab, model=model), *agreed, "--json")
    assert said.json["error"]["code"] == "policy.login", "the next thing that is looked at"


def test_what_runs_is_priced_by_the_model_of_its_flow(lab: Lab) -> None:
    flows = [
        {"id": name, "runtime": ["codex_app_server"], "model": {**HERE, "name": name}} for name in ("dear", "cheap")
    ]
    models = {f"openai/{name}": {"input": usd, "output": usd} for name, usd in (("dear", 9), ("cheap", 1))}
    file = lab.write_spec([mission("one")], flows=flows, login="api-key", repeats=2, prices="prices.yaml")
    (file.parent / "prices.yaml").write_text(json.dumps({"version": 1, "since": "2026-11-01", "models": models}))
    price = price_of(load_spec(file))
    used = Tokens(input=1_000_000, output=0, total=1_000_000)
    priced = [price(AttemptId(f"one.{name}.1"), used) for name in ("dear.r1", "dear.r2", "cheap.r2", "gone.r1")]
    assert priced == [9.0, 9.0, 1.0, None]


def test_a_dry_run_tells_trials_attempts_and_time_at_full_length_and_runs_nothing(lab: Lab) -> None:
    more = {"schedule": {"parallel": 3, "retries": 1}, "limits": {"attempt": "60s", "mission": "90s"}}
    said = ask(lab, "run", spec_of(lab, model=PAID, **more), "--dry-run", "--json")
    assert said.code == 0
    assert said.json == {
        "campaign": "lab",
        "trials": [f"{name}.codex.r{repeat}" for repeat in (1, 2) for name in ("one", "two")],
        "flows": [{"flowId": "codex", "model": "openai/gpt-x", "isPaid": True, "measured": 0, "usdEach": None}],
        "attemptsAtMost": 8,
        "longestMs": 2 * 90_000,
        "usd": None,
    }
    assert not lab.root.exists()
    told = ask(lab, "run", spec_of(lab, model=PAID, **more), "--dry-run").stdout
    assert "lab: 4 trials, 8 attempts at most; nothing was run\n" in told


@pytest.mark.parametrize(
    ("schedule", "longest_ms"),
    [
        ({}, 60_000),
        ({"runtimes": {"codex_app_server": 2}}, 2 * 60_000),
        ({"providers": {"openai": 1}}, 4 * 60_000),
        ({"per_credential": 1}, 4 * 60_000),
        ({"start_interval": "30s"}, 3 * 30_000 + 60_000),
    ],
)
def test_the_time_is_that_of_the_narrowest_limit(lab: Lab, schedule: dict[str, Any], longest_ms: int) -> None:
    more = {"schedule": {"parallel": 4, "retries": 0, **schedule}, "limits": {"attempt": "60s"}}
    said = ask(lab, "run", spec_of(lab, model=PAID, **more), "--dry-run", "--json")
    assert said.json["longestMs"] == longest_ms
    assert "at worst" not in ask(lab, "run", spec_of(lab, model=PAID, **more), "--dry-run").stdout


def trials_of(said: Any) -> tuple[list[str], int, float | None]:
    return said["trials"], said["attemptsAtMost"], said["usd"]


@pytest.mark.parametrize(
    ("words", "trials"),
    [
        (("campaign", "resume"), ["two.dear.r1", "two.free.r1"]),
        (("retry", "--only", "two"), ["two.dear.r1", "two.free.r1"]),
        (("retry", "--only", "one.free.r1", *REPLACE), ["one.free.r1"]),
        (("retry", "--only", "infra"), []),
    ],
)
def test_a_dry_run_of_what_goes_on_with_a_campaign_tells_what_it_would_try(
    lab: Lab, words: tuple[str, ...], trials: list[str]
) -> None:
    paths = tried(lab.root, {**TRIED, "two.dear.r1": []})
    before = sorted(paths.folder.rglob("*"))
    words = (*words, "--spec", spec_of_two(lab), "--dry-run")
    said = ask(lab, *words, "--json")
    is_dear = any("dear" in trial for trial in trials)
    assert (said.code, trials_of(said.json)) == (0, (trials, len(trials), None if is_dear else 0.0))
    assert ("Nothing to run: " in ask(lab, *words).stdout) == (not trials)
    assert sorted(paths.folder.rglob("*")) == before


@pytest.mark.parametrize(
    ("words", "trials"),
    [
        (("campaign", "canary", "SPEC"), ["one.codex.r1"]),
        (("campaign", "canary", "SPEC", "--missions", "2"), ["one.codex.r1", "two.codex.r1"]),
        (
            ("suite", "run", "SPEC", "--on", "codex_exec", "--mission", "two"),
            ["two.codex-exec.r1", "two.codex-exec.r2"],
        ),
    ],
)
def test_every_dry_run_tells_the_same_of_what_it_would_run(lab: Lab, words: tuple[str, ...], trials: list[str]) -> None:
    spec = spec_of(lab, model=PAID, limits={"attempt": "60s"})
    words = tuple(spec if word == "SPEC" else word for word in words)
    said = ask(lab, *words, "--dry-run", "--json")
    assert (said.code, trials_of(said.json)) == (0, (trials, len(trials), None))
    told = ask(lab, *words, "--dry-run").stdout
    assert f"lab: {len(trials)} trial{'s' * (len(trials) > 1)}, {len(trials)} attempt" in told
    assert f"cost: {UNKNOWN}\n" in told
    assert not lab.root.exists()


def test_the_plan_of_a_suite_tells_time_and_cost_like_a_dry_run(lab: Lab) -> None:
    spec = spec_of(lab, model=PAID, limits={"attempt": "60s"})
    words = ("suite", "plan", spec, "--on", "codex_exec")
    dry = ask(lab, "suite", "run", *words[2:], "--dry-run", "--json").json
    said = ask(lab, *words, "--json").json
    assert {key: said[key] for key in ("trials", "attemptsAtMost", "longestMs", "usd")} == {
        key: dry[key] for key in ("trials", "attemptsAtMost", "longestMs", "usd")
    }
    lines = ask(lab, "suite", "run", *words[2:], "--dry-run").stdout.splitlines()[-3:]
    assert ask(lab, *words).stdout.splitlines()[-3:] == lines
    nowhere = ask(lab, "suite", "plan", spec, "--json").json
    assert (nowhere["trials"], nowhere["attemptsAtMost"], nowhere["longestMs"], nowhere["usd"]) == (
        [],
        None,
        None,
        None,
    )
    assert "cost: " not in ask(lab, "suite", "plan", spec).stdout


@contextmanager
def terminal(monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """Put a terminal without echo in place of stdin and stderr, and yield the other end of it."""
    other, ours = os.openpty()
    settings = termios.tcgetattr(ours)
    settings[3] &= ~termios.ECHO  # the kernel may echo at any moment, also after the last output
    termios.tcsetattr(ours, termios.TCSANOW, settings)
    with os.fdopen(os.dup(ours)) as stdin, os.fdopen(ours, "w") as stderr, monkeypatch.context() as patch:
        patch.setattr(sys, "stdin", stdin)
        patch.setattr(sys, "stderr", stderr)
        yield other
    os.close(other)


@pytest.mark.trust
@pytest.mark.parametrize("answered", [b"n\n", b"\n", b"\x04"], ids=["n", "enter", "end of file"])
def test_declining_the_cost_exits_0_and_runs_nothing(
    lab: Lab, answered: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = spec_of(lab, model=PAID)
    with terminal(monkeypatch) as other:
        os.write(other, answered)
        code = answer(["run", spec, "--root", str(lab.root)])
        said = ""
        while select.select([other], [], [], 0)[0]:
            said += os.read(other, 10_000).decode().replace("\r", "")
    assert code == 0, said
    assert "lab: 4 trials, 4 attempts at most\n  codex  openai/gpt-x\nThis may cost money: no estimate" in said
    assert said.endswith("Continue? [y/N] Nothing was run.\n")
    assert "error" not in said
    assert not lab.root.exists()
