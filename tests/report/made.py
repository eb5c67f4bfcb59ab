"""Ledgers and rows that are made, where no agent need have run."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import msgspec

from proctor.errors import advice
from proctor.event.metrics import Metrics
from proctor.event.model import Tokens, UsageAuthority
from proctor.event.outcome import Outcome
from proctor.event.usage import Usage
from proctor.evidence.artifacts import AttemptRecord, AttemptReport, Expectation, ExpectKey, PlanFile, RequiredProbe
from proctor.evidence.layout import CampaignPaths, RootPaths
from proctor.evidence.reader import Finding
from proctor.evidence.summary import AttemptSummary, summarize
from proctor.ids import AttemptId, CampaignId, Digest, FlowId, MissionId, RunId, RuntimeId, TrialId
from proctor.ledger import writer
from proctor.ledger.schema import LedgerReplacement
from proctor.plan.model import Limits, Plan, Trial
from proctor.report.campaign import CampaignReport, build_report, load_campaign
from proctor.report.campaign_state import CampaignState, load_state
from proctor.report.classify import INVALID
from proctor.report.row import AttemptRow
from proctor.spec.campaign_options import GatesSpec, ToolsSpec
from proctor.spec.choices import Approvals, Isolation, Sandbox
from proctor.spec.expect import ExpectSpec
from tests.plan.made import SCHEDULE

RUN = RunId("20260101-120000-bbbbbb")
LATER = RunId("20260101-130000-bbbbbb")
CAMPAIGN = CampaignId("made-20260101-120000-aaaaaa")
FIRST = AttemptId("fix.codex.r1.1")


def trial(mission: str) -> Trial:
    return Trial(
        id=TrialId(f"{mission}.codex.r1"),
        mission=MissionId(mission),
        flow=FlowId("codex"),
        repeat=1,
        digest=Digest("sha256:0"),
    )


def expectation(
    *, met: bool | None = None, unmet: tuple[str, ...] = (), keys: dict[ExpectKey, bool | None] | None = None
) -> Expectation:
    """Return an expectation: `met` is that of its outcome if no key is named."""
    named: dict[ExpectKey, bool | None] = {} if met is None else {"outcome": met}
    return Expectation(met=met, keys=named if keys is None else keys, unmet=unmet)


def report(attempt: AttemptId, **changes: Any) -> AttemptReport:
    counts: dict[str, Any] = dict.fromkeys(
        "events unrecognized replies tool_failures tool_output_bytes approvals_asked warnings errors "
        "redacted_rows tool_retries distinct_calls longest_streak".split(),
        0,
    )
    metrics = Metrics(
        **counts,
        frames={},
        turns=1,
        tool_calls=2,
        tool_calls_by_kind={},
        span_ms=None,
        usage=Usage(
            tokens=Tokens(input=5, output=2, total=7),
            scope="turn",
            basis="cumulative",
            authority=UsageAuthority.LIVE_THREAD_USAGE,
            turns=(),
        ),
        is_stuck=False,
        tool_ms=None,
        tool_p50_ms=None,
        tool_p95_ms=None,
    )
    fields: dict[str, Any] = {
        "outcome": Outcome.COMPLETED,
        "code": None,
        "detail": None,
        **advice(changes.get("code")),
        "claimed": True,
        "verified": True,
        "reasons": (),
        "reason_codes": (),
        "expectation": expectation(met=True),
        "metrics": metrics,
        "retry_after_ms": None,
        "workspace_digest_after": None,
        "has_changed_files": False,
        "policy_violations": (),
        "duration_ms": 1500,
    }
    return AttemptReport(attempt_id=attempt, **{**fields, **changes})


def record(attempt: AttemptId, **changes: Any) -> AttemptRecord:
    """Return attempt.json of an attempt that is named `mission.flow.repeat.n`."""
    mission, flow, repeat, n = attempt.split(".")
    some = Digest(f"sha256:{'0' * 64}")
    fields: dict[str, Any] = {
        "is_scripted": False,
        "trial": TrialId(f"{mission}.{flow}.{repeat}"),
        "n": int(n),
        "campaign_id": CAMPAIGN,
        "run_id": RUN,
        "mission_id": MissionId(mission),
        "flow_id": FlowId(flow),
        "repeat": int(repeat[1:]),
        "runtime_id": RuntimeId("fake"),
        "plan_digest": some,
        "plan_file_digest": None,
        "trial_digest": some,
        "prompt_digest": some,
        "workspace_digest": some,
        "required_probes": (),
        "expect": ExpectSpec(),
        "isolation": Isolation.PROCESS,
        "sandbox": Sandbox.WORKSPACE_WRITE,
        "approvals": Approvals.DENY,
        "limits": Limits(attempt_ms=1, turn_ms=1, stall_ms=1),
        "tools": ToolsSpec(),
        "secret_names": (),
        "created_at_ms": 1,
    }
    return AttemptRecord(attempt_id=attempt, **{**fields, **changes})


PROBE = RequiredProbe(digest=Digest(f"sha256:{'1' * 64}"), kind="headless_run", index=0, criterion="It works.")


def summary(
    attempt: AttemptId,
    *,
    runtime: str = "fake",
    has_probes: bool = True,
    continues: AttemptId | None = None,
    **changes: Any,
) -> AttemptSummary:
    """Return the summary of an attempt of a mission with a probe; `changes` are of its report."""
    probes = (PROBE,) if has_probes else ()
    made = record(attempt, runtime_id=RuntimeId(runtime), required_probes=probes, continues=continues)
    return summarize(made, report(attempt, **changes))


def campaign(
    root: Path, *missions: str, unsettled: tuple[str, ...] = (), untried: tuple[str, ...] = ()
) -> CampaignPaths:
    """A campaign whose ledger is all there is: every mission sealed but those that say otherwise."""
    paths = RootPaths(root).campaign(CAMPAIGN)
    paths.create()
    trials = [trial(mission) for mission in (*missions, *unsettled, *untried)]
    plan = Plan(
        campaign="made",
        digest=Digest("sha256:1"),
        flows=(),
        limits=Limits(attempt_ms=1, turn_ms=1, stall_ms=1),
        trials=tuple(trials),
        schedule=SCHEDULE,
        gates=GatesSpec(),
    )
    _write_plan(paths, plan, runtime="codex_app_server", tools={})
    with writer.open_ledger(paths.ledger) as book:
        book.begin(plan, run=RUN, at_ms=1, file="made.yaml", spec=Digest("sha256:s"))
        for each in trials:
            attempt = AttemptId(f"{each.id}.1")
            if each.mission not in untried:
                book.apply([writer.start_attempt(attempt, trial=each.id, n=1, run=RUN, at_ms=2)])
            if each.mission in missions:
                book.apply([writer.seal_attempt(attempt, summary(attempt, runtime="codex_app_server"), at_ms=3)])
    return paths


def _write_plan(paths: CampaignPaths, plan: Plan, *, runtime: str, tools: Mapping[str, ToolsSpec]) -> None:
    """Write plan.json with one flow for each that its trials name, as far as a report needs it."""
    spelled = msgspec.to_builtins(PlanFile(plan=plan, snapshot={}))
    spelled["plan"]["flows"] = [
        {
            "id": flow,
            "runtime": [runtime],
            "model": {"provider": "made", "name": None},
            "tools": msgspec.to_builtins(tools.get(flow, ToolsSpec())),
        }
        for flow in dict.fromkeys(each.flow for each in plan.trials)
    ]
    paths.plan.write_bytes(msgspec.json.encode(spelled))


_SUMMARY: dict[str, Any] = {"claimed": None, "verified": None, "reasons": (), "duration_ms": 0}


def row(**changes: Any) -> AttemptRow:
    """Return the row of a sealed attempt that completed and of which nothing else is known.

    Fields of the report (`outcome`, `verified`, `tool_calls`, …), `met` and `unmet` go into its summary.
    """
    fields: dict[str, Any] = {
        "attempt_id": AttemptId("fix.codex.r1.1"),
        "run_id": RUN,
        "campaign_id": CAMPAIGN,
        "mission_id": MissionId("fix"),
        "flow_id": FlowId("codex"),
        "runtime_id": RuntimeId("codex_app_server"),
        "state": "sealed",
        "dir": "runs/r/attempts/fix.codex.r1.1",
    }
    own = {name: value for name, value in changes.items() if name in AttemptRow.__struct_fields__}
    sealed = {name: value for name, value in changes.items() if name not in own}
    whole = {**fields, **own}
    if whole["state"] == "sealed":
        calls = sealed.pop("tool_calls", 0)
        expected = sealed.pop("expectation", None) or expectation(
            met=sealed.pop("met", None), unmet=sealed.pop("unmet", ())
        )
        made = summary(
            FIRST,
            **{**_SUMMARY, "code": own.get("code"), "detail": own.get("detail"), "expectation": expected, **sealed},
        )
        whole["summary"] = msgspec.structs.replace(made, tool_calls=calls)
    # An attempt's id is its trial's and a number.
    return AttemptRow(**{"trial": TrialId(whole["attempt_id"].rpartition(".")[0]), **whole})


Tries = Mapping[str, Sequence[Mapping[str, Any]]]
"""By `mission.flow.repeat`, what came of each attempt: changes of `report` (`usd` and `run` beside), `cut` by a code or
`running`."""


def tried(
    root: Path,
    tries: Tries,
    *,
    campaign_id: CampaignId = CAMPAIGN,
    gates: GatesSpec | None = None,
    tools: Mapping[str, ToolsSpec] | None = None,
    is_canary: bool = False,
    digest: str = "sha256:0",
    retries: int = 0,
    replacements: Mapping[str, Collection[int]] = MappingProxyType({}),
) -> CampaignPaths:
    """A campaign that is its ledger and its plan, each trial tried as often as it says.

    `replacements` are the numbers of the attempts from which on the result of a trial was replaced.
    """
    paths = RootPaths(root).campaign(campaign_id)
    paths.create()
    names = {TrialId(name): name.split(".") for name in tries}
    trials = tuple(
        Trial(
            id=id_,
            mission=MissionId(mission),
            flow=FlowId(flow),
            repeat=int(repeat[1:]),
            digest=Digest(f"{digest}{flow}"),
        )
        for id_, (mission, flow, repeat) in names.items()
    )
    plan = Plan(
        campaign="made",
        digest=Digest("sha256:1"),
        flows=(),
        limits=Limits(attempt_ms=1, turn_ms=1, stall_ms=1),
        trials=trials,
        schedule=msgspec.structs.replace(SCHEDULE, retries=retries),
        gates=gates or GatesSpec(),
        is_canary=is_canary,
    )
    _write_plan(paths, plan, runtime="fake", tools=tools or {})
    with writer.open_ledger(paths.ledger) as book:
        requests = [
            LedgerReplacement(trial=TrialId(id_), n=n, run=RUN, reason="to see", at_ms=n)
            for id_, numbers in replacements.items()
            for n in numbers
        ]
        spec = Digest("sha256:s")
        book.begin(plan, run=RUN, at_ms=1_767_268_800_000, file="made.yaml", spec=spec, replacements=requests)
        for later in sorted({what["run"] for each in tries.values() for what in each if "run" in what}):
            book.begin(plan, run=later, at_ms=1_767_268_800_001, file="made.yaml", spec=Digest("sha256:s"))
        statements: list[writer.Statement] = []
        for each in trials:
            for n, what in enumerate(tries[each.id], 1):
                attempt = AttemptId(f"{each.id}.{n}")
                statements.append(writer.start_attempt(attempt, trial=each.id, n=n, run=what.get("run", RUN), at_ms=2))
                if "cut" in what:
                    statements.append(writer.abandon_attempt(attempt, code=what["cut"], at_ms=3, usd=what.get("usd")))
                elif what.get("state") != "running":
                    sealed = summary(attempt, **{key: what[key] for key in what if key not in ("usd", "run")})
                    statements.append(writer.seal_attempt(attempt, sealed, at_ms=3, usd=what.get("usd")))
        book.apply(statements)
        book.end(RUN, at_ms=1_767_268_860_000)
    return paths


YES: dict[str, Any] = {"verified": True, "expectation": expectation()}
NO: dict[str, Any] = {"verified": False, "expectation": expectation()}
UNSURE: dict[str, Any] = {"verified": None, "expectation": expectation()}
STATED: dict[str, Any] = {
    "verified": None,
    "has_probes": False,
    "expectation": expectation(met=True, keys={"answer": True}),
}
NOT_STATED: dict[str, Any] = {**STATED, "expectation": expectation(met=False, unmet=("x",), keys={"answer": False})}
INFRA: dict[str, Any] = {**UNSURE, "outcome": Outcome.FAILED, "code": "provider.error"}
BUSY: dict[str, Any] = {**UNSURE, "outcome": Outcome.FAILED, "code": "provider.rate-limited"}
LOST: dict[str, Any] = {**UNSURE, "outcome": Outcome.CRASHED, "code": "peer.lost"}
CANCELLED: dict[str, Any] = {**UNSURE, "outcome": Outcome.CANCELLED, "code": "run.cancelled"}
CUT: dict[str, Any] = {"cut": "run.cut-off"}
FULL: dict[str, Any] = {"cut": "machine.disk-full"}
STILL: dict[str, Any] = {"state": "running"}


def reported(
    root: Path, tries: Tries, *, damage: Mapping[str, tuple[Finding, ...]] | None = None, **more: Any
) -> CampaignReport:
    """Return the report of a campaign. `damage` are attempts whose evidence is invalid; None checks nothing."""
    paths = tried(root, tries, **more)
    if damage is None:
        return load_campaign(paths, root=RootPaths(root))
    return build_report(damaged(load_state(paths, root=RootPaths(root)), damage))


def damaged(state: CampaignState, damage: Mapping[str, tuple[Finding, ...]]) -> CampaignState:
    """Return the state as if a check had found these attempts invalid and the others valid."""

    def check(row: AttemptRow) -> AttemptRow:
        is_invalid = row.attempt_id in damage
        return msgspec.structs.replace(
            row, evidence="invalid" if is_invalid else "valid", findings=damage.get(row.attempt_id, ())
        )

    trials = []
    for trial in state.trials:
        rows = tuple(map(check, trial.attempts))
        counted = next((row for row in rows if trial.counted_attempt and row.ref == trial.counted_attempt.ref), None)
        is_invalid = counted is not None and counted.evidence == "invalid" and trial.result is not None
        trials.append(
            msgspec.structs.replace(
                trial, attempts=rows, counted_attempt=counted, result=INVALID if is_invalid else trial.result
            )
        )
    return replace(state, fold=None, folded=tuple(trials), is_checked=True)


def repeats(mission: str, flow: str, *results: dict[str, Any]) -> dict[str, Sequence[dict[str, Any]]]:
    return {f"{mission}.{flow}.r{at}": [result] for at, result in enumerate(results, 1)}
