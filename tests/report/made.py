"""Ledgers and rows that are made, where no agent need have run."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from proctor.campaign import ledger
from proctor.event.metrics import Metrics
from proctor.event.model import Tokens, UsageAuthority
from proctor.event.outcome import Outcome
from proctor.event.usage import Usage
from proctor.evidence.artifacts import AttemptReport, Expectation, PlanFile
from proctor.evidence.layout import CampaignPaths, RootPaths
from proctor.ids import AttemptId, CampaignId, CellId, Digest, FlowId, MissionId, RunId, StrategyId
from proctor.plan.model import Cell, Limits, Plan
from proctor.report.campaign import CampaignReport, report_campaign
from proctor.report.row import ReportRow
from proctor.report.standing import Damage, read_cells
from proctor.spec.running import GatesSpec, ToolsSpec
from tests.plan.made import SCHEDULE

RUN = RunId("20260101-120000-bbbbbb")
LATER = RunId("20260101-130000-bbbbbb")
CAMPAIGN = CampaignId("made-20260101-120000-aaaaaa")


def cell(mission: str) -> Cell:
    return Cell(
        id=CellId(f"{mission}.codex.r1"),
        mission=MissionId(mission),
        flow=FlowId("codex"),
        repeat=1,
        digest=Digest("sha256:0"),
    )


def report(attempt: AttemptId, **changes: Any) -> AttemptReport:
    counts: dict[str, Any] = dict.fromkeys(
        "events unrecognized replies turns tool_failures tool_output_bytes approvals_asked warnings errors "
        "redacted_rows".split(),
        0,
    )
    metrics = Metrics(
        **counts,
        frames={},
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
    )
    fields: dict[str, Any] = {
        "outcome": Outcome.COMPLETED,
        "code": None,
        "detail": None,
        "claimed": True,
        "verified": True,
        "reasons": (),
        "expectation": Expectation(met=True, misses=()),
        "metrics": metrics,
        "workspace_digest_after": None,
        "duration_ms": 1500,
    }
    return AttemptReport(attempt_id=attempt, **{**fields, **changes})


def campaign(
    root: Path, *missions: str, unsettled: tuple[str, ...] = (), untried: tuple[str, ...] = ()
) -> CampaignPaths:
    """A campaign whose ledger is all there is: every mission sealed but those that say otherwise."""
    paths = RootPaths(root).campaign(CAMPAIGN)
    paths.create()
    cells = [cell(mission) for mission in (*missions, *unsettled, *untried)]
    plan = Plan(
        campaign="made",
        digest=Digest("sha256:1"),
        flows=(),
        limits=Limits(attempt_ms=1, turn_ms=1, stall_ms=1),
        cells=tuple(cells),
        schedule=SCHEDULE,
        gates=GatesSpec(),
    )
    paths.plan.write_text(
        '{"plan": {"flows": [{"id": "codex", "runtime": ["codex_app_server"]}], "schedule": {"retries": 2}}}'
    )
    with ledger.open_ledger(paths.ledger) as book:
        book.begin(plan, run=RUN, at_ms=1, file="made.yaml", spec=Digest("sha256:s"))
        for each in cells:
            attempt = AttemptId(f"{each.id}.1")
            if each.mission not in untried:
                book.apply([ledger.claim(attempt, cell=each.id, n=1, run=RUN, at_ms=2)])
            if each.mission in missions:
                book.apply([ledger.settle(attempt, report(attempt), at_ms=3)])
    return paths


def row(**changes: Any) -> ReportRow:
    """A row of a sealed attempt that completed and of which nothing else is known."""
    fields: dict[str, Any] = {
        "attempt_id": AttemptId("fix.codex.r1.1"),
        "run_id": RUN,
        "campaign_id": CAMPAIGN,
        "mission_id": MissionId("fix"),
        "flow_id": FlowId("codex"),
        "runtime": StrategyId("codex_app_server"),
        "state": "sealed",
        "outcome": Outcome.COMPLETED,
        "dir": "runs/r/attempts/fix.codex.r1.1",
    }
    whole = {**fields, **changes}
    # An attempt's id is its cell's and a number.
    return ReportRow(**{"cell": CellId(whole["attempt_id"].rpartition(".")[0]), **whole})


Tries = Mapping[str, Sequence[Mapping[str, Any]]]
"""By `mission.flow.repeat`, what came of each attempt: changes of `report` (`usd` and `run` beside), `cut` by a code or
`claimed`."""


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
) -> CampaignPaths:
    """A campaign that is its ledger and its plan, each cell tried as often as it says."""
    paths = RootPaths(root).campaign(campaign_id)
    paths.create()
    names = {CellId(name): name.split(".") for name in tries}
    cells = tuple(
        Cell(
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
        cells=cells,
        schedule=msgspec.structs.replace(SCHEDULE, retries=retries),
        gates=gates or GatesSpec(),
        is_canary=is_canary,
    )
    spelled = msgspec.to_builtins(PlanFile(plan=plan, snapshot={}))
    flows = dict.fromkeys(each.flow for each in cells)
    spelled["plan"]["flows"] = [
        {"id": flow, "runtime": ["fake"], "tools": msgspec.to_builtins((tools or {}).get(flow, ToolsSpec()))}
        for flow in flows
    ]
    paths.plan.write_bytes(msgspec.json.encode(spelled))
    with ledger.open_ledger(paths.ledger) as book:
        book.begin(plan, run=RUN, at_ms=1_767_268_800_000, file="made.yaml", spec=Digest("sha256:s"))
        for later in sorted({what["run"] for each in tries.values() for what in each if "run" in what}):
            book.begin(plan, run=later, at_ms=1_767_268_800_001, file="made.yaml", spec=Digest("sha256:s"))
        statements: list[ledger.Statement] = []
        for each in cells:
            for n, what in enumerate(tries[each.id], 1):
                attempt = AttemptId(f"{each.id}.{n}")
                statements.append(ledger.claim(attempt, cell=each.id, n=n, run=what.get("run", RUN), at_ms=2))
                if "cut" in what:
                    statements.append(ledger.abandon(attempt, code=what["cut"], at_ms=3, usd=what.get("usd")))
                elif "claimed" not in what or what["claimed"] != "still":
                    told = report(attempt, **{key: what[key] for key in what if key not in ("usd", "run")})
                    settled = ledger.settle(attempt, told, at_ms=3, strategy=StrategyId("fake"), usd=what.get("usd"))
                    statements.append(settled)
        book.apply(statements)
        book.end(RUN, at_ms=1_767_268_860_000)
    return paths


YES: dict[str, Any] = {"verified": True, "expectation": Expectation(met=None, misses=())}
NO: dict[str, Any] = {"verified": False, "expectation": Expectation(met=None, misses=())}
UNSURE: dict[str, Any] = {"verified": None, "expectation": Expectation(met=None, misses=())}
INFRA: dict[str, Any] = {**UNSURE, "outcome": Outcome.FAILED, "code": "provider.error"}
BUSY: dict[str, Any] = {**UNSURE, "outcome": Outcome.FAILED, "code": "provider.rate-limited"}
HANGUP: dict[str, Any] = {**UNSURE, "outcome": Outcome.CRASHED, "code": "peer.hangup"}
CANCELLED: dict[str, Any] = {**UNSURE, "outcome": Outcome.CANCELLED, "code": "run.cancelled"}
CUT: dict[str, Any] = {"cut": "run.cut-off"}
FULL: dict[str, Any] = {"cut": "machine.disk-full"}
STILL: dict[str, Any] = {"claimed": "still"}


def reported(root: Path, tries: Tries, *, damage: Damage | None = None, **more: Any) -> CampaignReport:
    paths = tried(root, tries, **more)
    return report_campaign(read_cells(paths, root=RootPaths(root), damage=damage), damage=damage)


def repeats(mission: str, flow: str, *results: dict[str, Any]) -> dict[str, Sequence[dict[str, Any]]]:
    return {f"{mission}.{flow}.r{at}": [result] for at, result in enumerate(results, 1)}
