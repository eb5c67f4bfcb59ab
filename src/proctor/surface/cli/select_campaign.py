"""Find the campaign that a command refers to."""

from collections.abc import Callable

from proctor.errors import EvidenceError, InputError
from proctor.evidence.layout import CampaignPaths, RootPaths
from proctor.report.campaign_state import campaigns_by_age
from proctor.report.find import RUN_ONE, find_place, first_command
from proctor.report.planned import read_plan


def is_no_canary(campaign: CampaignPaths) -> bool:
    """Return whether a campaign is not a canary. One whose plan cannot be read counts as not a canary."""
    try:
        return not read_plan(campaign).is_canary
    except EvidenceError:  # the caller reads the plan again and reports the error
        return True


def find_campaign(
    word: str | None, *, root: RootPaths, is_fit: Callable[[CampaignPaths], bool] = is_no_canary
) -> CampaignPaths:
    """Return the campaign named `word`, or without a name the latest one that `is_fit` accepts, by default no canary.

    Raises InputError if there is no such campaign.
    """
    if word is not None:
        place = find_place(word, root=root)
        if isinstance(place, CampaignPaths):
            return place
        raise InputError("evidence.not-found", f"{word!r} is not a campaign", suggestion="proctor campaign list")
    campaigns = campaigns_by_age(root)
    for campaign in reversed(campaigns):
        if is_fit(campaign):
            return campaign
    todo = "proctor campaign list" if campaigns else first_command() or RUN_ONE
    raise InputError("evidence.not-found", f"there is no campaign in {root.folder}", suggestion=todo)
