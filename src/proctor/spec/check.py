"""Check the meaning of a decoded spec. Each error names its file, line and key."""

import re
from collections.abc import Iterator, Sequence

import msgspec

from proctor.errors import InputError
from proctor.spec.check_login import VARIABLE, is_model_credential, login_errors, variable_errors
from proctor.spec.check_mission import is_id, mission_errors, not_an_id, suggest_id
from proctor.spec.choices import SCRIPTED, Isolation, Sandbox
from proctor.spec.duration import parse_duration_s
from proctor.spec.fence import Contain
from proctor.spec.literal import LITERAL_MESSAGE, LITERAL_SUGGESTION, literal_secrets
from proctor.spec.missions import MissionSource, inline_mission_sources
from proctor.spec.model import AUTO, CampaignSpec, FlowSpec
from proctor.spec.select import parse_range
from proctor.spec.size import parse_evidence_limit_bytes
from proctor.spec.source_file import SourceFile
from proctor.spec.struct import Duration
from proctor.spec.suggest import nearest, suggest
from proctor.spec.tree import child_path


def find_errors(
    source_file: SourceFile[CampaignSpec],
    *,
    mission_sources: Sequence[MissionSource] | None = None,
    has_own_flows: bool = True,
) -> Iterator[InputError]:
    """Yield all errors of a spec that can be found without reading other files.

    `mission_sources` are the missions; by default those in the spec itself. `has_own_flows` is False if the caller
    replaced the spec's flows, so that `schedule` may name others.
    """
    spec = source_file.value
    yield from _id_errors(source_file, "campaign", spec.campaign)
    is_scripted = any((flow.model or spec.model).provider == SCRIPTED for flow in spec.flows)
    yield from mission_errors(
        inline_mission_sources(source_file) if mission_sources is None else mission_sources, is_scripted=is_scripted
    )
    yield from _unique_flows(source_file)
    for at, flow in enumerate(spec.flows):
        yield from _flow_errors(source_file, f"flows[{at}]", flow)
    for each in mission_sources or ():
        yield from _overlay_errors(each, spec)
    yield from login_errors(source_file)
    for key, duration in _durations(spec):
        try:
            parse_duration_s(duration)
        except ValueError as error:
            yield source_file.error("spec.type", str(error), key=key)
    try:
        parse_evidence_limit_bytes(spec.limits.evidence)
    except ValueError as error:
        yield source_file.error("spec.type", str(error), key="limits.evidence")
    if has_own_flows:
        yield from _schedule_errors(source_file)
    if spec.select.range is not None:
        try:
            parse_range(spec.select.range)
        except InputError as error:
            yield source_file.error(error.code, error.what, key="select.range")
    yield from _secret_errors(source_file)


def _durations(spec: CampaignSpec) -> Iterator[tuple[str, Duration]]:
    groups = (
        ("limits", spec.limits, ("attempt", "turn", "stall", "mission", "campaign")),
        ("schedule", spec.schedule, ("start_interval", "backoff", "longest_wait")),
        ("hooks", spec.hooks, ("timeout",)),
    )
    for group, struct, keys in groups:
        for key in keys:
            if (duration := getattr(struct, key)) is not None:
                yield f"{group}.{key}", duration


def _id_errors(source_file: SourceFile[CampaignSpec], key: str, id_: str) -> Iterator[InputError]:
    if not is_id(id_):
        like = suggest_id(id_)
        suggestion = f"Write `{like}`." if like else None
        yield source_file.error("spec.type", not_an_id(id_), key=key, suggestion=suggestion)


def _unique_flows(source_file: SourceFile[CampaignSpec]) -> Iterator[InputError]:
    first: dict[str, str] = {}
    for at, flow in enumerate(source_file.value.flows):
        key = f"flows[{at}].id"
        yield from _id_errors(source_file, key, flow.id)
        if flow.id in first:
            line = source_file.line_of(first[flow.id])
            yield source_file.error("spec.duplicate-id", f"the id `{flow.id}` is already used on line {line}", key=key)
        first.setdefault(flow.id, key)


def _schedule_errors(source_file: SourceFile[CampaignSpec]) -> Iterator[InputError]:
    """Yield an error for each limit of a runtime or provider that no flow uses, because it would limit nothing."""
    spec = source_file.value
    runtimes = {runtime_id for flow in spec.flows for runtime_id in flow.runtime}
    providers = {(flow.model or spec.model).provider for flow in spec.flows}
    for group, limited, used in (
        ("runtimes", spec.schedule.runtimes, set() if AUTO in runtimes else runtimes),
        ("providers", spec.schedule.providers, providers),
    ):
        for name in limited:
            if used and name not in used:
                where = child_path(f"schedule.{group}", name)
                hint = suggest(name, sorted(used), noun="The flows use")
                yield source_file.error("spec.unknown-key", f"no flow uses `{name}`", key=where, suggestion=hint)


def _flow_errors(source_file: SourceFile[CampaignSpec], key: str, flow: FlowSpec) -> Iterator[InputError]:
    if flow.isolation is Isolation.SHARED and flow.sandbox is Sandbox.DANGER_FULL_ACCESS:
        what = "`danger-full-access` needs `isolation: process`: a shared server cannot end escaped processes"
        suggestion = "Write `isolation: process`."
        yield source_file.error("policy.shared-full-access", what, key=f"{key}.sandbox", suggestion=suggestion)
    for runtime in flow.options:
        if runtime == AUTO:
            what = "`auto` is not a runtime, so it has no options"
            suggestion = "Write the options under the id of a runtime."
            yield source_file.error("spec.unknown-key", what, key=f"{key}.options.{AUTO}", suggestion=suggestion)
        elif runtime not in flow.runtime and AUTO not in flow.runtime:
            close = nearest(runtime, flow.runtime)
            suggestion = f"Did you mean `{close}`?" if close else f"The flow's runtimes: {', '.join(flow.runtime)}."
            where = child_path(f"{key}.options", runtime)
            yield source_file.error(
                "spec.unknown-key", f"the flow does not use the runtime `{runtime}`", key=where, suggestion=suggestion
            )
    if flow.context is not None and flow.context.complete is not None:
        what = "an engine of a flow cannot call a model: the limits and the cost of a trial would not cover that"
        suggestion = "Remove `complete`: every engine works without a model."
        yield source_file.error("spec.unsupported", what, key=f"{key}.context.complete", suggestion=suggestion)
    yield from variable_errors(source_file, key, flow)


def _overlay_errors(source: MissionSource, spec: CampaignSpec) -> Iterator[InputError]:
    """Yield an error for each flow from whose agent the mission's hidden files cannot be hidden."""
    for flow in spec.flows if source.mission.overlay is not None else ():
        for key, word in (("sandbox", Sandbox.DANGER_FULL_ACCESS), ("contain", Contain.NONE)):
            if getattr(flow, key) is word:
                what = (
                    f"hidden files cannot be hidden from the agent of flow `{flow.id}`, which has `{key}: {word.value}`"
                )
                suggestion = f"Remove `overlay`, or `{key}` from the flow."
                yield source.error("policy.hidden-files", what, key="overlay", suggestion=suggestion)


def _secret_errors(source_file: SourceFile[CampaignSpec]) -> Iterator[InputError]:
    # The message must not contain the value, because messages are printed, logged and pasted.
    literal = list(literal_secrets(msgspec.to_builtins(source_file.value)))
    for key in literal:
        suggestion = _literal_suggestion(source_file.value, key) or LITERAL_SUGGESTION
        yield source_file.error("spec.secret-literal", LITERAL_MESSAGE, key=key, suggestion=suggestion)
    for at, name in enumerate(source_file.value.secrets):
        key = f"secrets[{at}]"
        if isinstance(name, str) and key not in literal and not VARIABLE.fullmatch(name):
            what = "this is not the name of an environment variable"
            yield source_file.error("spec.type", what, key=key, suggestion=LITERAL_SUGGESTION)


def _literal_suggestion(spec: CampaignSpec, key: str) -> str | None:
    """Return how to pass the secret at `key` as a variable; None if `secrets:` is the place for it."""
    if re.fullmatch(r"(flows\[[0-9]+\]\.)?token", key):
        return "Put the value in an environment variable and write the variable's name here."
    if (variable := re.match(r"flows\[[0-9]+\]\.env\b\W*(\w*)", key)) is not None:
        if is_model_credential(variable[1], spec):
            return f"Remove it, set {variable[1]} in Proctor's environment, and write `login: api-key` to pass it on."
        return "Remove it, set the variable in Proctor's environment, and list its name under the flow's `forward:`."
    return None
