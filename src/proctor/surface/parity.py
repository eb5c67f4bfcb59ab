"""Run a suite in two flows or runtimes and compare the results."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from proctor.config.load import load_config
from proctor.config.project import load_project_built, load_project_spec
from proctor.errors import Exit, InputError
from proctor.evidence.attempt_files import AttemptFiles
from proctor.evidence.layout import AttemptPaths
from proctor.ids import FlowId, MissionId, RuntimeId, runtime_id_of
from proctor.model.script import load_script
from proctor.report.campaign import CampaignReport
from proctor.report.parity import Pair, Parity, compare
from proctor.report.row import AttemptRow
from proctor.report.view import AttemptView, view_attempt
from proctor.runtime.registry import runtime_ids
from proctor.spec.choices import SCRIPTED
from proctor.spec.load import LoadedSpec
from proctor.spec.model import CampaignSpec, FlowSpec
from proctor.spec.suggest import nearest


def suite_of_two(suite: Path, left: str, right: str) -> LoadedSpec:
    """Return the suite with only two flows, each named by its id or a runtime.

    Raises InputError if there is no such flow or runtime.
    """
    if left == right:
        raise InputError("usage", f"A and B are both {left}", suggestion="Name two different flows or runtimes.")
    loaded = load_project_spec(suite)
    spec = loaded.spec
    runtimes = runtime_ids(load_config(loaded.folder))
    flows = [_flow(spec, name, runtimes=runtimes, file=str(suite)) for name in (left, right)]
    both = msgspec.structs.replace(spec, campaign=f"{spec.campaign}-parity", flows=flows)
    return load_project_built(both, name=suite.name, folder=loaded.folder)


def _flow(spec: CampaignSpec, name: str, *, runtimes: Sequence[RuntimeId], file: str) -> FlowSpec:
    """Return the suite's flow with that id, or its first flow on that runtime."""
    known = {flow.id: flow for flow in spec.flows}
    if FlowId(name) in known:
        return known[FlowId(name)]
    if (runtime_id := runtime_id_of(name)) in runtimes:
        return msgspec.structs.replace(spec.flows[0], id=FlowId(name.replace("_", "-")), runtime=[runtime_id])
    names = (*known, *runtimes)
    close = nearest(name, names)
    raise InputError(
        "spec.unknown-runtime",
        f"{name!r} is neither a flow of {file} nor a runtime (known: {', '.join(names)})",
        suggestion=f"Did you mean `{close}`?" if close else None,
    )


def compare_flows(loaded: LoadedSpec, report: CampaignReport) -> Parity:
    """Compare the results of the two flows. A pair without sealed evidence is a problem, not a difference."""
    left, right = (flow.id for flow in loaded.spec.flows)
    # With a real model, Proctor cannot explain a difference in usage.
    is_real = any((flow.model or loaded.spec.model).provider != SCRIPTED for flow in loaded.spec.flows)
    scripted = {each.id: is_real or _is_usage_scripted(loaded, each.id) for each in loaded.missions}
    pairs: list[Pair] = []
    problems: list[str] = []
    for one, other in side_by_side(report, left, right):
        if one is None or other is None:
            only = one or other
            assert only is not None, "a pair has at least one attempt"
            problems.append(f"{only.attempt_id} has no counterpart to compare with")
            continue
        views = [_view(row) for row in (one, other)]
        if incomplete := [row.attempt_id for row, view in zip((one, other), views, strict=True) if not view.is_whole]:
            problems.append(f"{' and '.join(incomplete)}: the evidence is not complete")
            continue
        assert one.mission_id is not None
        pairs.append(_pair(one, other, *views, is_usage_scripted=scripted[one.mission_id]))
    problems += [f"{trial} was not run" for trial in report.untried]
    is_alike = all(each.is_explained for pair in pairs for each in pair.compared)
    code = Exit.INFRASTRUCTURE if problems or not pairs else Exit.OK if is_alike else Exit.JUDGED_NO
    return Parity(exit=code, left=left, right=right, pairs=tuple(pairs), problems=tuple(problems))


def _view(row: AttemptRow) -> AttemptView:
    with AttemptFiles(AttemptPaths(Path(row.dir))) as files:
        return view_attempt(files)


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


def side_by_side(
    report: CampaignReport, left: FlowId, right: FlowId
) -> Iterator[tuple[AttemptRow | None, AttemptRow | None]]:
    """Yield the counted attempts of the two flows in pairs, by mission and repeat; None for a missing one."""
    rows: dict[tuple[str, str], dict[FlowId, AttemptRow]] = {}
    for row in report.counted_attempts:
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
