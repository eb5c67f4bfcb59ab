"""What a well-formed spec may still get wrong, each fault with its place."""

import re
from collections.abc import Iterator, Sequence

import msgspec

from proctor.errors import InputError
from proctor.spec.check_login import VARIABLE, is_of_a_model, login_faults, variable_faults
from proctor.spec.check_mission import NO_ID, id_like, is_id, mission_faults
from proctor.spec.duration import parse_duration_s
from proctor.spec.literal import INSTEAD, WRITTEN_OUT, literal_secrets
from proctor.spec.marked import Marked
from proctor.spec.missions import Written, written_inline
from proctor.spec.model import AUTO, SCRIPTED, CampaignSpec, FlowSpec, Isolation, Sandbox
from proctor.spec.near import nearest, suggest
from proctor.spec.select import places
from proctor.spec.struct import Duration
from proctor.spec.tree import child_path


def faults(
    marked: Marked[CampaignSpec], *, written: Sequence[Written] | None = None, has_own_flows: bool = True
) -> Iterator[InputError]:
    """All faults that can be seen without looking at other files but the missions' own.

    `written` are the missions, where they are not those that the spec itself holds.
    """
    spec = marked.value
    yield from _id_faults(marked, "campaign", spec.campaign)
    is_scripted = any((flow.model or spec.model).provider == SCRIPTED for flow in spec.flows)
    yield from mission_faults(written_inline(marked) if written is None else written, is_scripted=is_scripted)
    yield from _unique_flows(marked)
    for at, flow in enumerate(spec.flows):
        yield from _flow_faults(marked, f"flows[{at}]", flow)
    yield from login_faults(marked)
    for key, duration in _durations(spec):
        try:
            parse_duration_s(duration)
        except ValueError as error:
            yield marked.problem("spec.type", str(error), key=key)
    if has_own_flows:
        yield from _schedule_faults(marked)
    if spec.select.range is not None:
        try:
            places(spec.select.range)
        except InputError as error:
            yield marked.problem(error.code, error.what, key="select.range")
    yield from _secret_faults(marked)


def _durations(spec: CampaignSpec) -> Iterator[tuple[str, Duration]]:
    groups = (
        ("limits", spec.limits, ("attempt", "turn", "stall", "mission", "campaign")),
        ("schedule", spec.schedule, ("start_interval", "backoff", "longest_wait")),
        ("hooks", spec.hooks, ("timeout",)),
    )
    for group, struct, keys in groups:
        for key in keys:
            if (written := getattr(struct, key)) is not None:
                yield f"{group}.{key}", written


def _id_faults(marked: Marked[CampaignSpec], key: str, id_: str) -> Iterator[InputError]:
    if not is_id(id_):
        like = id_like(id_)
        yield marked.problem("spec.type", NO_ID, key=key, suggestion=f"Write `{like}`." if like else None)


def _unique_flows(marked: Marked[CampaignSpec]) -> Iterator[InputError]:
    first: dict[str, str] = {}
    for at, flow in enumerate(marked.value.flows):
        key = f"flows[{at}].id"
        yield from _id_faults(marked, key, flow.id)
        if flow.id in first:
            line = marked.line_of(first[flow.id])
            yield marked.problem("spec.duplicate-id", f"`{flow.id}` is already on line {line}", key=key)
        first.setdefault(flow.id, key)


def _schedule_faults(marked: Marked[CampaignSpec]) -> Iterator[InputError]:
    """Limits of what no flow uses: a misspelled one would limit nothing."""
    spec = marked.value
    strategies = {strategy for flow in spec.flows for strategy in flow.runtime}
    providers = {(flow.model or spec.model).provider for flow in spec.flows}
    for group, limited, used in (
        ("strategies", spec.schedule.strategies, set() if AUTO in strategies else strategies),
        ("providers", spec.schedule.providers, providers),
    ):
        for name in limited:
            if used and name not in used:
                where = child_path(f"schedule.{group}", name)
                hint = suggest(name, sorted(used), noun="Used here")
                yield marked.problem("spec.unknown-key", "no flow uses it", key=where, suggestion=hint)


def _flow_faults(marked: Marked[CampaignSpec], key: str, flow: FlowSpec) -> Iterator[InputError]:
    if flow.isolation is Isolation.SHARED and flow.sandbox is Sandbox.DANGER_FULL_ACCESS:
        what = "a shared server cannot clean up what one session left running"
        suggestion = "Write `isolation: process`."
        yield marked.problem("policy.shared-full-access", what, key=f"{key}.sandbox", suggestion=suggestion)
    for runtime in flow.options:
        if runtime == AUTO:
            what = "`auto` is no runtime, and has no options"
            suggestion = "Give them under the id of a runtime that it may come to."
            yield marked.problem("spec.unknown-key", what, key=f"{key}.options.{AUTO}", suggestion=suggestion)
        elif runtime not in flow.runtime and AUTO not in flow.runtime:
            close = nearest(runtime, flow.runtime)
            suggestion = f"Did you mean `{close}`?" if close else f"Its runtimes: {', '.join(flow.runtime)}."
            where = child_path(f"{key}.options", runtime)
            yield marked.problem("spec.unknown-key", "no runtime of this flow", key=where, suggestion=suggestion)
    yield from variable_faults(marked, key, flow)


def _secret_faults(marked: Marked[CampaignSpec]) -> Iterator[InputError]:
    # The value itself stays out of the message: messages are printed, logged and pasted.
    literal = list(literal_secrets(msgspec.to_builtins(marked.value)))
    for key in literal:
        instead = _instead(marked.value, key) or INSTEAD
        yield marked.problem("spec.secret-literal", WRITTEN_OUT, key=key, suggestion=instead)
    for at, name in enumerate(marked.value.secrets):
        key = f"secrets[{at}]"
        if isinstance(name, str) and key not in literal and not VARIABLE.fullmatch(name):
            what = "not the name of an environment variable"
            yield marked.problem("spec.type", what, key=key, suggestion=INSTEAD)


def _instead(spec: CampaignSpec, key: str) -> str | None:
    """How a variable's name is written where its value was."""
    if re.fullmatch(r"(flows\[[0-9]+\]\.)?token", key):
        return "Put the value in an environment variable and write the variable's name here."
    if (variable := re.match(r"flows\[[0-9]+\]\.env\b\W*(\w*)", key)) is not None:
        if is_of_a_model(variable[1], spec):
            return f"Take it out, set {variable[1]} for Proctor itself, and write `login: api-key`, which hands it on."
        return "Take it out, set the variable for Proctor itself, and list its name under the flow's `forward:`."
    return None
