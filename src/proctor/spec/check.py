"""What a well-formed spec may still get wrong, each fault with its place."""

import re
from collections.abc import Iterator, Sequence
from typing import Final

import msgspec

from proctor.errors import InputError
from proctor.spec.check_login import VARIABLE, is_of_a_model, login_faults, variable_faults
from proctor.spec.duration import parse_duration_s
from proctor.spec.expect import Verified
from proctor.spec.literal import INSTEAD, WRITTEN_OUT, literal_secrets
from proctor.spec.marked import Marked, nearest
from proctor.spec.model import AUTO, SCRIPTED, CampaignSpec, FlowSpec, Isolation, MissionSpec, Sandbox, WorkspaceSpec
from proctor.spec.running import MissionsFolder
from proctor.spec.struct import Duration
from proctor.spec.tree import child_path

_MAX_ID_CHARS: Final = 64  # two ids and a count make a folder's name
_ID = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")


def faults(marked: Marked[CampaignSpec]) -> Iterator[InputError]:
    """All faults that can be seen without looking at other files."""
    spec = marked.value
    yield from _id_faults(marked, "campaign", spec.campaign)
    missions = inline_missions(spec)
    yield from _unique_ids(marked, "missions", missions)
    yield from _unique_ids(marked, "flows", spec.flows)
    is_scripted = any((flow.model or spec.model).provider == SCRIPTED for flow in spec.flows)
    for at, mission in enumerate(missions):
        yield from _mission_faults(marked, f"missions[{at}]", mission, is_scripted=is_scripted)
    for at, flow in enumerate(spec.flows):
        yield from _flow_faults(marked, f"flows[{at}]", flow)
    yield from login_faults(marked)
    for key in ("attempt", "turn", "stall"):
        yield from _duration_faults(marked, f"limits.{key}", getattr(spec.limits, key))
    yield from _secret_faults(marked)


def inline_missions(spec: CampaignSpec) -> tuple[MissionSpec, ...]:
    """Those that the spec itself holds."""
    return () if isinstance(spec.missions, MissionsFolder) else tuple(spec.missions)


def _id_faults(marked: Marked[CampaignSpec], key: str, id_: str) -> Iterator[InputError]:
    if _ID.fullmatch(id_) and len(id_) <= _MAX_ID_CHARS:
        return
    what = f"an id is lower-case words, digits and single dashes, at most {_MAX_ID_CHARS} characters"
    slug = re.sub(r"[^a-z0-9]+", "-", id_.lower()).strip("-")[:_MAX_ID_CHARS].rstrip("-")
    yield marked.problem("spec.type", what, key=key, suggestion=f"Write `{slug}`." if slug else None)


def _unique_ids(
    marked: Marked[CampaignSpec], group: str, entries: Sequence[MissionSpec | FlowSpec]
) -> Iterator[InputError]:
    first: dict[str, str] = {}
    for at, entry in enumerate(entries):
        key = f"{group}[{at}].id"
        yield from _id_faults(marked, key, entry.id)
        if entry.id in first:
            line = marked.line_of(first[entry.id])
            yield marked.problem("spec.duplicate-id", f"`{entry.id}` is already on line {line}", key=key)
        first.setdefault(entry.id, key)


def _mission_faults(
    marked: Marked[CampaignSpec], key: str, mission: MissionSpec, *, is_scripted: bool
) -> Iterator[InputError]:
    if is_scripted and mission.script is None:
        what = "a scripted model needs the mission's `script`"
        suggestion = "Add `script: scripts/….yaml`, or give every flow a real model."
        yield marked.problem("spec.missing-key", what, key=f"{key}.script", suggestion=suggestion)
    if mission.expect.verified in (Verified.YES, Verified.NO) and not mission.probes:
        what = "without a probe nothing is ever verified, nor found wrong"
        suggestion = "Add a probe, or expect `unknown`."
        yield marked.problem("spec.unsupported", what, key=f"{key}.expect.verified", suggestion=suggestion)
    yield from _workspace_faults(marked, f"{key}.workspace", mission.workspace)
    for at, probe in enumerate(mission.probes):
        yield from _duration_faults(marked, f"{key}.probes[{at}].timeout", probe.timeout)


def _workspace_faults(marked: Marked[CampaignSpec], key: str, workspace: WorkspaceSpec) -> Iterator[InputError]:
    if workspace.git is not None and workspace.copy is not None:
        what = "a workspace is a copy of a folder or a clone of a repository"
        yield marked.problem("spec.unsupported", what, key=f"{key}.copy", suggestion="Keep `copy` or `git`.")
    if workspace.git is not None and workspace.ref is None:
        suggestion = "Add `ref:` with a branch, a tag or the id of a commit; HEAD is one."
        yield marked.problem("spec.missing-key", "a clone needs its `ref`", key=f"{key}.ref", suggestion=suggestion)
    if workspace.git is None and workspace.ref is not None:
        what = "only a repository has refs"
        yield marked.problem("spec.unsupported", what, key=f"{key}.ref", suggestion="Add `git:` with its path.")


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


def _duration_faults(marked: Marked[CampaignSpec], key: str, written: Duration) -> Iterator[InputError]:
    try:
        parse_duration_s(written)
    except ValueError as error:
        yield marked.problem("spec.type", str(error), key=key)


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
