"""What a campaign's attempts cost by the prices that were frozen with it, as far as they can be read there."""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass

import msgspec

from proctor.canonical import digest_bytes
from proctor.errors import EvidenceError, InputError
from proctor.event.model import Tokens
from proctor.evidence.layout import CampaignPaths
from proctor.evidence.mask import is_masked
from proctor.evidence.reader import read_artifact, read_bytes
from proctor.ids import Digest, FlowId
from proctor.report.planned import PlannedModel, read_plan
from proctor.spec.prices import Prices, decode_prices, usd_of
from proctor.spec.tree import read_tree


class _Index(msgspec.Struct, frozen=True):
    """index.json of the snapshot, as far as it leads to the price file."""

    spec: Digest
    files: dict[str, Digest]
    names: dict[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Costs:
    """`has_meter` is whether attempts were priced as they ran, which stands nowhere else."""

    models: Mapping[FlowId, PlannedModel]
    prices: Prices | None
    has_meter: bool

    def agree(self, usd: float | None, *, flow: FlowId, tokens: Tokens | None) -> bool:
        """Whether an attempt may have cost that. Where it cannot be known, it may."""
        model = self.models.get(flow)
        if model is None or (model.name is not None and is_masked(model.name)):
            return True
        try:
            due = usd_of(self.prices, provider=model.provider, name=model.name, tokens=tokens)
        except OverflowError:  # nobody used so many
            return True
        if due is None:
            return usd is None or self.has_meter
        return usd == due


def read_costs(campaign: CampaignPaths) -> Costs | None:
    """None where the frozen files do not say: they are gone or were masked. Never raises."""
    with suppress(EvidenceError, InputError, UnicodeError):
        plan = read_plan(campaign)
        index = read_artifact(campaign.snapshot_index, _Index)
        models = {flow.id: flow.model for flow in plan.flows}
        return Costs(models=models, prices=_prices(campaign, index), has_meter=plan.schedule.usd is not None)
    return None


def _prices(campaign: CampaignPaths, index: _Index) -> Prices | None:
    """EvidenceError where it cannot be told whether there were any, or which."""
    if not index.files:
        return None
    spec = read_bytes(campaign.spec_snapshot / "spec.yaml")
    root, _ = read_tree(spec.decode(), file="spec.yaml")
    top = root.value if root is not None else None
    named = top.get("prices") if isinstance(top, dict) else None
    spelled = None if named is None else str(named.value)
    if spelled is None and digest_bytes(spec) == index.spec:
        return None
    if spelled is None or spelled not in index.names or spelled not in index.files:
        raise EvidenceError("evidence.plan", "it does not say which file has the prices", file="spec.yaml")
    data = read_bytes(campaign.spec_snapshot / index.names[spelled])
    if digest_bytes(data) != index.files[spelled]:
        raise EvidenceError("evidence.plan", "not the file that was read", file=index.names[spelled])
    return decode_prices(data, file=spelled)
