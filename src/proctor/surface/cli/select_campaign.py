"""Which campaign a command means."""

from collections.abc import Callable

from proctor.errors import EvidenceError, InputError
from proctor.evidence.layout import CampaignPaths, RootPaths
from proctor.report.find import find_place, first_command
from proctor.report.planned import read_plan
from proctor.report.query import campaigns_by_age

_RUN_ONE = "Run one: `proctor run SPEC`; or name the folder where it was run, with --root."


def is_no_canary(campaign: CampaignPaths) -> bool:
    try:
        return not read_plan(campaign).is_canary
    except EvidenceError:  # told by whoever reads on
        return True


def find_campaign(
    word: str | None, *, root: RootPaths, is_fit: Callable[[CampaignPaths], bool] = is_no_canary
) -> CampaignPaths:
    """The one that is named, whatever it is; else the latest that is fit. A canary is meant by its name only."""
    if word is not None:
        place = find_place(word, root=root)
        if isinstance(place, CampaignPaths):
            return place
        raise InputError("evidence.not-found", f"{word!r} is no campaign", suggestion="proctor campaign list")
    campaigns = campaigns_by_age(root)
    for campaign in reversed(campaigns):
        if is_fit(campaign):
            return campaign
    todo = "proctor campaign list" if campaigns else first_command() or _RUN_ONE
    raise InputError("evidence.not-found", f"there is no campaign under {root.folder}", suggestion=todo)
