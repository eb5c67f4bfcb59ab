"""Expand a spec into its plan: missions × flows × repeats = trials, each with a digest of its content."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from msgspec import Struct, structs
from msgspec.structs import asdict

from proctor.canonical import digest
from proctor.ids import Digest, TrialId
from proctor.plan.model import Limits, Plan, ResolvedFlow, ResolvedModel, Schedule, Trial
from proctor.spec.campaign_options import LimitsSpec
from proctor.spec.duration import parse_duration_s
from proctor.spec.model import CampaignSpec, FlowSpec, MissionSpec
from proctor.spec.size import parse_evidence_limit_bytes
from proctor.spec.struct import Duration
from proctor.spec.template import AS_WRITTEN, Prompts


@dataclass(frozen=True, slots=True, kw_only=True)
class Contents:
    """Digests of scripts, files for probes and folders with hidden files, by their path in the spec, and of workspaces
    by `WorkspaceSpec.key`."""

    scripts: Mapping[str, Digest]
    workspaces: Mapping[str, Digest]
    sources: Mapping[str, Digest] = field(default_factory=dict)
    overlays: Mapping[str, Digest] = field(default_factory=dict)


def expand(
    spec: CampaignSpec,
    *,
    missions: Sequence[MissionSpec],
    digests: Contents,
    prompts: Prompts = AS_WRITTEN,
    only: Collection[TrialId] = (),
    is_canary: bool = False,
) -> Plan:
    """Return the plan of a spec for the selected missions, or for `only` these trials.

    `prompts` are the prompts after templates.
    """
    limits = resolve_limits(spec.limits)
    flows = {flow.id: resolve_flow(flow, spec=spec) for flow in spec.flows}
    trials = tuple(
        Trial(
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
                is_continued_after_wait=spec.schedule.continue_after_wait,
            ),
        )
        for id_, mission, flow, repeat in name_trials(spec, missions=missions, only=only)
    )
    return Plan(
        campaign=spec.campaign,
        digest=digest({"campaign": spec.campaign, "trials": [trial.digest for trial in trials]}),
        flows=tuple(flows.values()),
        limits=limits,
        trials=trials,
        schedule=resolve_schedule(spec),
        gates=spec.gates,
        is_canary=is_canary,
    )


def name_trials(
    spec: CampaignSpec, *, missions: Sequence[MissionSpec], only: Collection[TrialId] = ()
) -> Iterator[tuple[TrialId, MissionSpec, FlowSpec, int]]:
    """Yield the id, mission, flow and repeat of every trial, or of `only` these if it is not empty.

    Repeats are the outermost loop, so that a campaign that is cut off has tried everything once.
    """
    for repeat in range(1, spec.repeats + 1):
        for mission in missions:
            for flow in spec.flows:
                id_ = TrialId(f"{mission.id}.{flow.id}.r{repeat}")
                if not only or id_ in only:
                    yield id_, mission, flow, repeat


def resolve_schedule(spec: CampaignSpec) -> Schedule:
    """Return the schedule, with every duration in milliseconds."""
    schedule, limits = spec.schedule, spec.limits
    return Schedule(
        parallel=schedule.parallel,
        runtimes=schedule.runtimes,
        providers=schedule.providers,
        per_credential=schedule.per_credential,
        start_interval_ms=0 if schedule.start_interval is None else _ms(schedule.start_interval),
        retries=schedule.retries,
        backoff_ms=_ms(schedule.backoff),
        longest_wait_ms=_ms(schedule.longest_wait),
        mission_ms=None if limits.mission is None else _ms(limits.mission),
        campaign_ms=None if limits.campaign is None else _ms(limits.campaign),
        usd=limits.usd,
        continue_after_wait=schedule.continue_after_wait,
    )


def resolve_flow(flow: FlowSpec, *, spec: CampaignSpec) -> ResolvedFlow:
    """Return the flow with the campaign's model, login and token in place of missing ones."""
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
        context=flow.context,
    )


def resolve_limits(limits: LimitsSpec) -> Limits:
    """Return the limits of an attempt, with every duration in milliseconds.

    >>> resolve_limits(LimitsSpec(attempt="2m", turn=90, stall="1500ms"))
    Limits(attempt_ms=120000, turn_ms=90000, stall_ms=1500, tokens=None, evidence_bytes=1073741824)
    """
    return Limits(
        attempt_ms=_ms(limits.attempt),
        turn_ms=_ms(limits.turn),
        stall_ms=_ms(limits.stall),
        tokens=limits.tokens,
        evidence_bytes=parse_evidence_limit_bytes(limits.evidence),
    )


def _ms(duration: Duration) -> int:
    return round(parse_duration_s(duration) * 1000)


def _digest(
    mission: MissionSpec,
    flow: ResolvedFlow,
    *,
    limits: Limits,
    repeat: int,
    digests: Contents,
    is_continued_after_wait: bool,
) -> Digest:
    # The digest covers the content of files, not their paths: a folder that was only moved is the same work.
    # The script counts only for the scripted model, because no other model reads it.
    script = mission.script if flow.model.is_scripted else None
    workspace = mission.workspace.key
    return digest(
        {
            "mission": mission.id,
            "prompt": mission.prompt,
            "probes": [_all_fields(probe) for probe in mission.probes],
            "files": [digests.sources[path] for probe in mission.probes for path in probe.files.values()],
            "overlay": None if mission.overlay is None else digests.overlays[mission.overlay],
            "waive": [_all_fields(waiver) for waiver in mission.waive],
            "protect": mission.protect,
            "expect": _all_fields(mission.expect),
            "hooks": None if mission.hooks is None else _all_fields(mission.hooks),
            "workspace": None if workspace is None else digests.workspaces[workspace],
            "script": None if script is None else digests.scripts[script],
            "flow": flow,
            "limits": limits,
            "repeat": repeat,
            # Only if it is set: the digests of all other trials stay as they are.
            **({"continue_after_wait": True} if is_continued_after_wait else {}),
        }
    )


def _all_fields(struct: Struct) -> dict[str, Any]:
    """Return all fields of a struct, including defaults, so that a changed default changes the digest."""
    fields = {name: _all_fields(each) if isinstance(each, Struct) else each for name, each in asdict(struct).items()}
    tag = type(struct).__struct_config__.tag
    return fields if tag is None else {"kind": tag, **fields}
