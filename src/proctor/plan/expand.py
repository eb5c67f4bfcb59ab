"""Missions × flows × repeats = cells, each addressed by its content."""

from collections.abc import Iterator, Sequence
from typing import Any

from msgspec import Struct, structs
from msgspec.structs import asdict

from proctor.canonical import digest
from proctor.ids import CellId, Digest
from proctor.plan.model import Cell, Contents, Limits, Plan, ResolvedFlow, ResolvedModel, Schedule
from proctor.spec.duration import parse_duration_s
from proctor.spec.model import CampaignSpec, FlowSpec, MissionSpec
from proctor.spec.running import LimitsSpec
from proctor.spec.struct import Duration
from proctor.spec.template import AS_WRITTEN, Prompts


def expand(
    spec: CampaignSpec,
    *,
    missions: Sequence[MissionSpec],
    digests: Contents,
    prompts: Prompts = AS_WRITTEN,
    is_canary: bool = False,
) -> Plan:
    """The plan of a spec and the missions it comes to, each asked what `prompts` make of it."""
    limits = resolve_limits(spec.limits)
    flows = {flow.id: resolve_flow(flow, spec=spec) for flow in spec.flows}
    cells = tuple(
        Cell(
            id=id_,
            mission=mission.id,
            flow=flow.id,
            repeat=repeat,
            digest=_digest(
                structs.replace(mission, prompt=prompts.of(mission, flow.id), hooks=mission.hooks or spec.hooks),
                flows[flow.id],
                limits=limits,
                repeat=repeat,
                digests=digests,
            ),
        )
        for id_, mission, flow, repeat in name_cells(spec, missions=missions)
    )
    return Plan(
        campaign=spec.campaign,
        digest=digest({"campaign": spec.campaign, "cells": [cell.digest for cell in cells]}),
        flows=tuple(flows.values()),
        limits=limits,
        cells=cells,
        schedule=resolve_schedule(spec),
        gates=spec.gates,
        is_canary=is_canary,
    )


def name_cells(
    spec: CampaignSpec, *, missions: Sequence[MissionSpec]
) -> Iterator[tuple[CellId, MissionSpec, FlowSpec, int]]:
    """What every cell is called, and what it is of. Repeats go outermost: cut short, a campaign has tried all once."""
    for repeat in range(1, spec.repeats + 1):
        for mission in missions:
            for flow in spec.flows:
                yield CellId(f"{mission.id}.{flow.id}.r{repeat}"), mission, flow, repeat


def resolve_schedule(spec: CampaignSpec) -> Schedule:
    """What decides when cells run, with every duration in milliseconds."""
    schedule, limits = spec.schedule, spec.limits
    return Schedule(
        parallel=schedule.parallel,
        strategies=schedule.strategies,
        providers=schedule.providers,
        per_credential=schedule.per_credential,
        start_interval_ms=0 if schedule.start_interval is None else _ms(schedule.start_interval),
        retries=schedule.retries,
        backoff_ms=_ms(schedule.backoff),
        longest_wait_ms=_ms(schedule.longest_wait),
        mission_ms=None if limits.mission is None else _ms(limits.mission),
        campaign_ms=None if limits.campaign is None else _ms(limits.campaign),
        usd=limits.usd,
    )


def resolve_flow(flow: FlowSpec, *, spec: CampaignSpec) -> ResolvedFlow:
    """The flow with the campaign's model, login and token where it has none of its own."""
    model = flow.model or spec.model
    return ResolvedFlow(
        id=flow.id,
        runtime=tuple(flow.runtime),
        isolation=flow.isolation,
        sandbox=flow.sandbox,
        approvals=flow.approvals,
        model=ResolvedModel(provider=model.provider, name=model.name, base_url=model.base_url),
        login=flow.login or spec.login,
        token=flow.token or spec.token,
        profile=flow.profile,
        persistence=flow.persistence,
        contain=flow.contain,
        options=flow.options,
        env=flow.env,
        forward=tuple(flow.forward),
        tools=flow.tools,
    )


def resolve_limits(limits: LimitsSpec) -> Limits:
    """
    >>> resolve_limits(LimitsSpec(attempt="2m", turn=90, stall="1500ms"))
    Limits(attempt_ms=120000, turn_ms=90000, stall_ms=1500, tokens=None)
    """
    return Limits(
        attempt_ms=_ms(limits.attempt), turn_ms=_ms(limits.turn), stall_ms=_ms(limits.stall), tokens=limits.tokens
    )


def _ms(written: Duration) -> int:
    return round(parse_duration_s(written) * 1000)


def _digest(mission: MissionSpec, flow: ResolvedFlow, *, limits: Limits, repeat: int, digests: Contents) -> Digest:
    # Paths stand for what they lead to: a folder that moved unchanged is the same work.
    # A real model never reads the script, so it decides nothing there.
    script = mission.script if flow.model.is_scripted else None
    workspace = mission.workspace.key
    return digest(
        {
            "mission": mission.id,
            "prompt": mission.prompt,
            "probes": [_whole(probe) for probe in mission.probes],
            "expect": _whole(mission.expect),
            "hooks": None if mission.hooks is None else _whole(mission.hooks),
            "workspace": None if workspace is None else digests.workspaces[workspace],
            "script": None if script is None else digests.scripts[script],
            "flow": flow,
            "limits": limits,
            "repeat": repeat,
        }
    )


def _whole(struct: Struct) -> dict[str, Any]:
    """With its defaults written out, so that a default that changes with Proctor changes the digest."""
    fields = {name: _whole(each) if isinstance(each, Struct) else each for name, each in asdict(struct).items()}
    tag = type(struct).__struct_config__.tag
    return fields if tag is None else {"kind": tag, **fields}
