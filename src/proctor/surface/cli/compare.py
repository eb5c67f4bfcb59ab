"""`proctor compare`."""

from pathlib import Path

from proctor.errors import InputError
from proctor.evidence.layout import RootPaths
from proctor.ids import CampaignId, FlowId
from proctor.report.campaign_state import CampaignState, load_state
from proctor.report.compare import SideSelection, compare
from proctor.report.compare_text import comparison_markdown, comparison_text
from proctor.report.find import root_of
from proctor.surface.cli.command import JSON, ROOT, Command, argument, evidence_root
from proctor.surface.cli.output import Output
from proctor.surface.cli.select_campaign import find_campaign


def compare_two(*, a: str, b: str, within: str | None, format_: str, root: Path | None, as_json: bool) -> int:
    """Compare two flows, or two campaigns, on the same missions (paired significance test).

    A and B are flows of the latest campaign, or of the one named by --in; or campaigns, as ID or
    ID:FLOW. The pass rates of each mission that both sides scored are compared: with McNemar's exact
    test if there is one result per mission and side, else with a test that is clustered by mission.
    Missions without probes are compared separately.
    Exits 0 if there is no significant difference or B is better, 1 if B is significantly worse than A,
    4 if nothing can be compared.
    """
    output = Output(is_json=as_json)
    found = compare(*_sides(a, b, within=within, root=RootPaths(evidence_root(root))))
    if as_json or format_ == "json":
        output.json(found)
    else:
        output.text(comparison_markdown(found) if format_ == "md" else comparison_text(found))
    return found.exit


def _sides(a: str, b: str, *, within: str | None, root: RootPaths) -> tuple[SideSelection, SideSelection]:
    one = None if within is None and next(root.campaigns(), None) is None else _read(within, root=root)
    flows = set() if one is None else _flows(one)
    if one is not None and {a, b} <= flows:
        return _chosen(one, FlowId(a)), _chosen(one, FlowId(b))
    if one is not None and (within is not None or flows & {a, b}):
        raise _no_flow(one, a if a not in flows else b)
    try:
        return _campaigns(_campaign(a, root=root), _campaign(b, root=root))
    except InputError as error:
        if one is None or ":" in a + b or error.code != "evidence.not-found":
            raise
        raise _no_flow(one, a, what=f", and {error.what}") from error


def _no_flow(state: CampaignState, word: str, *, what: str = "") -> InputError:
    flows = ", ".join(sorted(_flows(state)))
    message = f"{state.campaign_id} has no flow {word!r}{what}"
    return InputError("usage", message, suggestion=f"Name one of its flows: {flows}")


def _campaigns(*sides: tuple[CampaignState, FlowId | None]) -> tuple[SideSelection, SideSelection]:
    """Select all flows of both if they have the same; otherwise the named flow, or the only one."""
    if any(flow is not None for _, flow in sides) or len({frozenset(_flows(state)) for state, _ in sides}) > 1:
        sides = tuple((state, flow or _only_flow(state)) for state, flow in sides)
    left, right = (_chosen(state, flow) for state, flow in sides)
    return left, right


def _only_flow(state: CampaignState) -> FlowId:
    first, *others = sorted(_flows(state)) or [FlowId("")]
    if others:
        what = f"{state.campaign_id} has several flows"
        raise InputError("usage", what, suggestion=f"Name one, as in {state.campaign_id}:{first}.")
    return first


def _campaign(word: str, *, root: RootPaths) -> tuple[CampaignState, FlowId | None]:
    """Load a campaign; return it with the flow that is named, if any."""
    name, colon, flow = word.rpartition(":")
    state = _read(name if colon else word, root=root)
    if colon and flow not in _flows(state):
        raise _no_flow(state, flow)
    return state, FlowId(flow) if colon else None


def _read(word: str | None, *, root: RootPaths) -> CampaignState:
    place = find_campaign(word, root=root)
    return load_state(place, root=root_of(place))


def _flows(state: CampaignState) -> set[FlowId]:
    return {trial.flow for trial in state.trials if trial.flow is not None}


def _chosen(state: CampaignState, flow: FlowId | None) -> SideSelection:
    return SideSelection(
        name=f"{state.campaign_id}:{flow}" if flow is not None else str(state.campaign_id),
        campaign_id=state.campaign_id or CampaignId(""),
        flow_id=flow,
        failed_in=state.frozen.failed_in,
        trials={
            (None if flow is not None else trial.flow, trial.mission, trial.repeat): trial
            for trial in state.trials
            if flow in (None, trial.flow)
        },
    )


COMMANDS = {
    "compare": Command(
        call=compare_two,
        example="proctor compare codex claude",
        arguments=(
            argument("a", metavar="A", help="A flow, a campaign, or ID:FLOW."),
            argument("b", metavar="B", help="What to compare it with."),
            argument("--in", dest="within", metavar="ID", default=None, help="The campaign that has the two flows."),
            argument(
                "--format",
                dest="format_",
                choices=("text", "json", "md"),
                default="text",
                help="Output format: text, JSON or Markdown.",
            ),
            ROOT,
            JSON,
        ),
    )
}
