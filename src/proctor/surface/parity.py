"""A suite of missions through two flows or runtimes, and the two compared."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from proctor.config.load import load_config
from proctor.errors import Exit, InputError
from proctor.evidence.layout import AttemptPaths
from proctor.ids import FlowId, MissionId, RuntimeId
from proctor.model.script import load_script
from proctor.report.parity import Pair, Parity, compare
from proctor.report.row import AttemptRow, Report
from proctor.report.trials import speakers
from proctor.report.view import AttemptView, view_attempt
from proctor.runtime.registry import runtime_ids
from proctor.spec.load import LoadedSpec, load_built, load_spec
from proctor.spec.model import SCRIPTED, CampaignSpec, FlowSpec
from proctor.spec.suggest import nearest


def suite_of_two(suite: Path, left: str, right: str) -> LoadedSpec:
    """The suite with these two flows alone. InputError where there is neither such a flow nor such a runtime."""
    if left == right:
        raise InputError("usage", f"{left} cannot differ from itself", suggestion="Name two flows, or two runtimes.")
    loaded = load_spec(suite)
    spec = loaded.spec
    runtimes = runtime_ids(load_config(loaded.folder))
    flows = [_flow(spec, name, runtimes=runtimes, file=str(suite)) for name in (left, right)]
    both = msgspec.structs.replace(spec, campaign=f"{spec.campaign}-parity", flows=flows)
    return load_built(both, name=suite.name, folder=loaded.folder)


def _flow(spec: CampaignSpec, name: str, *, runtimes: Sequence[RuntimeId], file: str) -> FlowSpec:
    """The suite's flow of that id, else its first flow with another runtime."""
    known = {flow.id: flow for flow in spec.flows}
    if FlowId(name) in known:
        return known[FlowId(name)]
    if RuntimeId(name) in runtimes:
        return msgspec.structs.replace(spec.flows[0], id=FlowId(name.replace("_", "-")), runtime=[RuntimeId(name)])
    there = (*known, *runtimes)
    close = nearest(name, there)
    raise InputError(
        "spec.unknown-runtime",
        f"{file} has no flow {name!r}, and no runtime is called so: {', '.join(there)}",
        suggestion=f"Did you mean `{close}`?" if close else None,
    )


def compare_flows(loaded: LoadedSpec, report: Report) -> Parity:
    """What came of it. A pair of which one has no sealed evidence is a problem, not a difference."""
    left, right = (flow.id for flow in loaded.spec.flows)
    # A real model's figures are its own: nothing of ours explains why they differ.
    is_real = any((flow.model or loaded.spec.model).provider != SCRIPTED for flow in loaded.spec.flows)
    scripted = {each.id: is_real or _is_usage_scripted(loaded, each.id) for each in loaded.missions}
    pairs: list[Pair] = []
    problems: list[str] = []
    for one, other in side_by_side(report, left, right):
        if one is None or other is None:
            there = one or other
            assert there is not None, "of a pair at least one is there"
            problems.append(f"{there.attempt_id} has nothing to be compared with")
            continue
        views = [view_attempt(AttemptPaths(Path(row.dir))) for row in (one, other)]
        if lacking := [row.attempt_id for row, view in zip((one, other), views, strict=True) if not view.is_whole]:
            problems.append(f"{' and '.join(lacking)}: no whole evidence to compare")
            continue
        assert one.mission_id is not None
        pairs.append(_pair(one, other, *views, is_usage_scripted=scripted[one.mission_id]))
    problems += [f"{trial} was not tried" for trial in report.missing_trials]
    is_alike = all(each.is_explained for pair in pairs for each in pair.compared)
    code = Exit.INFRASTRUCTURE if problems or not pairs else Exit.OK if is_alike else Exit.JUDGED_NO
    return Parity(exit=code, left=left, right=right, pairs=tuple(pairs), problems=tuple(problems))


def _pair(
    one: AttemptRow, other: AttemptRow, left: AttemptView, right: AttemptView, *, is_usage_scripted: bool
) -> Pair:
    assert one.mission_id is not None
    assert left.record is not None
    return Pair(
        mission_id=one.mission_id,
        repeat=left.record.repeat,
        left=one.attempt_id,
        right=other.attempt_id,
        compared=compare(left, right, is_usage_scripted=is_usage_scripted),
    )


def side_by_side(report: Report, left: FlowId, right: FlowId) -> Iterator[tuple[AttemptRow | None, AttemptRow | None]]:
    """The attempts that speak, by mission and repeat; None where one of the two was not tried."""
    rows: dict[tuple[str, str], dict[FlowId, AttemptRow]] = {}
    for row in speakers(report.attempts):
        if row.trial is not None and row.mission_id is not None and row.flow_id is not None:
            rows.setdefault((row.mission_id, row.trial.rpartition(".")[2]), {})[row.flow_id] = row
    for flows in rows.values():
        yield flows.get(left), flows.get(right)


def _is_usage_scripted(loaded: LoadedSpec, mission: MissionId) -> bool:
    script = next(each.script for each in loaded.missions if each.id == mission)
    if script is None:
        return False
    steps = load_script(loaded.scripts[script]).steps
    tries = [each for step in steps for each in (step.tries or [step])]
    return all(each.usage is not None for each in tries if not each.replaces_reply)
