"""The cost of attempts by the prices that were frozen with the campaign."""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass

from proctor.canonical import digest_bytes
from proctor.errors import EvidenceError, InputError
from proctor.event.model import Tokens
from proctor.evidence.layout import CampaignPaths
from proctor.evidence.mask import is_masked
from proctor.evidence.reader import read_bytes
from proctor.ids import FlowId
from proctor.report.planned import PlannedModel, PlanSummary, ReadFile, SnapshotIndex
from proctor.spec.prices import Prices, decode_prices, usd_of
from proctor.spec.tree import read_tree


@dataclass(frozen=True, slots=True, kw_only=True)
class Costs:
    """Frozen prices and the model of each flow."""

    models: Mapping[FlowId, PlannedModel]
    prices: Prices | None
    has_meter: bool
    """Whether attempts were also priced while they ran, which no file records."""

    def agree(self, usd: float | None, *, flow: FlowId, tokens: Tokens | None) -> bool:
        """Whether an attempt can have cost that. What cannot be known is possible."""
        model = self.models.get(flow)
        if model is None or (model.name is not None and is_masked(model.name)):
            return True
        try:
            due = usd_of(self.prices, provider=model.provider, name=model.name, tokens=tokens)
        except OverflowError:  # no agent uses so many tokens
            return True
        if due is None:
            return usd is None or self.has_meter
        return usd == due


def read_costs(
    campaign: CampaignPaths, *, plan: PlanSummary | None, frozen: SnapshotIndex, read: ReadFile = read_bytes
) -> Costs | None:
    """Read the frozen prices; None if the frozen files do not say, because they are gone or masked. Never raises."""
    if plan is None or frozen.spec is None:
        return None
    with suppress(EvidenceError, InputError, UnicodeError):
        models = {flow.id: flow.model for flow in plan.flows}
        prices = _prices(campaign, frozen, read)
        return Costs(models=models, prices=prices, has_meter=plan.schedule.usd is not None)
    return None


def _prices(campaign: CampaignPaths, frozen: SnapshotIndex, read: ReadFile) -> Prices | None:
    """Return the prices, if there were any. Raises EvidenceError if it is unknown whether there were, or which."""
    if not frozen.files:
        return None
    spec = read(campaign.spec_snapshot / "spec.yaml")
    root, _ = read_tree(spec.decode(), file="spec.yaml")
    top = root.value if root is not None else None
    named = top.get("prices") if isinstance(top, dict) else None
    name = None if named is None else str(named.value)
    if name is None and digest_bytes(spec) == frozen.spec:
        return None
    if name is None or name not in frozen.names or name not in frozen.files:
        raise EvidenceError("evidence.plan", "it does not say which file has the prices", file="spec.yaml")
    data = read(campaign.spec_snapshot / frozen.names[name])
    if digest_bytes(data) != frozen.files[name]:
        raise EvidenceError("evidence.plan", "not the file that was read", file=frozen.names[name])
    return decode_prices(data, file=name)
