"""`proctor compare`."""

from pathlib import Path

from proctor.errors import InputError
from proctor.evidence.layout import RootPaths
from proctor.ids import FlowId
from proctor.report.campaign_state import CampaignState, read_trials
from proctor.report.compare import SideSelection, compare
from proctor.report.compare_text import comparison_markdown, comparison_text
from proctor.report.find import root_of
from proctor.surface.cli.command import JSON, ROOT, Command, argument, evidence_root
from proctor.surface.cli.output import Output
from proctor.surface.cli.select_campaign import find_campaign


def compare_two(*, a: str, b: str, within: str | None, format_: str, root: Path | None, as_json: bool) -> int:
    """Compare two flows of a campaign, or two campaigns, on the same missions.

    A and B are flows of the latest campaign, or of the one that --in names; or campaigns, as ID or
    ID:FLOW. Mission and repeat make a pair. Only pairs that both scored are compared: McNemar's exact
    test says whether the difference is more than chance.
    Exits 0 where there is no significant difference or B is better, 1 where B is significantly worse
    than A, 4 where nothing can be compared.
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


def _no_flow(standing: CampaignState, word: str, *, what: str = "") -> InputError:
    flows = ", ".join(sorted(_flows(standing)))
    told = f"{standing.campaign_id} has no flow {word!r}{what}"
    return InputError("usage", told, suggestion=f"Its flows are {flows}.")


def _campaigns(*sides: tuple[CampaignState, FlowId | None]) -> tuple[SideSelection, SideSelection]:
    """All flows of both, where they have the same; else the one that is named, or the only one."""
    if any(flow is not None for _, flow in sides) or len({frozenset(_flows(standing)) for standing, _ in sides}) > 1:
        sides = tuple((standing, flow or _only_flow(standing)) for standing, flow in sides)
    left, right = (_chosen(standing, flow) for standing, flow in sides)
    return left, right


def _only_flow(standing: CampaignState) -> FlowId:
    first, *others = sorted(_flows(standing)) or [FlowId("")]
    if others:
        what = f"{standing.campaign_id} has several flows, and it is not clear which is meant"
        raise InputError("usage", what, suggestion=f"Name one, as in {standing.campaign_id}:{first}.")
    return first


def _campaign(word: str, *, root: RootPaths) -> tuple[CampaignState, FlowId | None]:
    """A campaign and, where one is named, its flow."""
    name, colon, flow = word.rpartition(":")
    standing = _read(name if colon else word, root=root)
    if colon and flow not in _flows(standing):
        raise _no_flow(standing, flow)
    return standing, FlowId(flow) if colon else None


def _read(word: str | None, *, root: RootPaths) -> CampaignState:
    place = find_campaign(word, root=root)
    return read_trials(place, root=root_of(place))


def _flows(standing: CampaignState) -> set[FlowId]:
    return {result.trial.flow for result in standing.trials}


def _chosen(standing: CampaignState, flow: FlowId | None) -> SideSelection:
    return SideSelection(
        name=f"{standing.campaign_id}:{flow}" if flow is not None else standing.campaign_id,
        campaign_id=standing.campaign_id,
        flow_id=flow,
        trials={
            (None if flow is not None else result.trial.flow, result.trial.mission, result.trial.repeat): result
            for result in standing.trials
            if flow in (None, result.trial.flow)
        },
    )


COMMANDS = {
    "compare": Command(
        call=compare_two,
        example="proctor compare codex claude",
        arguments=(
            argument("a", metavar="A", help="A flow, a campaign, or ID:FLOW."),
            argument("b", metavar="B", help="What is held against it."),
            argument("--in", dest="within", metavar="ID", default=None, help="The campaign that has the two flows."),
            argument(
                "--format",
                dest="format_",
                choices=("text", "json", "md"),
                default="text",
                help="What to write: text, JSON or Markdown.",
            ),
            ROOT,
            JSON,
        ),
    )
}
