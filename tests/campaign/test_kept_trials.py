"""The places where campaigns keep trials that wait to be continued."""

import stat
from pathlib import Path

import pytest

from proctor import places
from proctor.campaign.kept_trials import KeepingCampaign, KeptTrials, find_kept
from proctor.evidence.layout import RootPaths
from proctor.ids import CampaignId, RuntimeId, TrialId

pytestmark = pytest.mark.requirement("session.continue-after-wait")

CAMPAIGN, TRIAL, RUNTIME = CampaignId("shop-1"), TrialId("fix.codex.r1"), RuntimeId("codex_app_server")


@pytest.fixture(autouse=True)
def _state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


def kept(tmp_path: Path, root: str = "a") -> KeptTrials:
    (tmp_path / root).mkdir(exist_ok=True)
    return KeptTrials.of(RootPaths(tmp_path / root), CAMPAIGN)


def test_kept_trials_of_two_roots_never_share_a_folder(tmp_path: Path) -> None:
    one, other = kept(tmp_path), kept(tmp_path, "b")
    assert one.folder != other.folder
    (tmp_path / "link").symlink_to(tmp_path / "a")
    assert kept(tmp_path, "link").folder == one.folder
    assert one.trial(TRIAL).agent != one.trial(TrialId("fix.codex.r2")).agent
    assert not places.trials_dir().exists(), "asking creates nothing"


def test_kept_trial_is_for_this_user_only_and_begins_empty(tmp_path: Path) -> None:
    trials = kept(tmp_path)
    trials.open()
    place = trials.trial(TRIAL)
    place.create(RUNTIME)
    (place.home(RUNTIME) / "session").touch()
    place.workspace.mkdir()
    place.create(RUNTIME)
    assert [each for each in place.agent.parent.rglob("*") if each.is_file()] == []
    assert not place.workspace.exists()
    for folder in (trials.folder, place.agent, place.sessions, place.home(RUNTIME)):
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700


def test_trial_whose_removal_was_cut_off_is_not_there_and_goes_with_the_next_one(tmp_path: Path) -> None:
    trials = kept(tmp_path)
    trials.open()
    place = trials.trial(TRIAL)
    place.create(RUNTIME)
    left = place.agent.with_name(".removed-agent")
    place.agent.rename(left)
    place.create(RUNTIME)
    assert not left.exists()
    place.agent.rename(left)
    trials.remove_except([])
    assert not trials.folder.exists()


def test_kept_trials_are_removed_except_those_that_may_be_continued(tmp_path: Path) -> None:
    trials = kept(tmp_path)
    trials.open()
    for name in ("fix.codex.r1", "fix.codex.r2"):
        trials.trial(TrialId(name)).create(RUNTIME)
    trials.remove_except([TRIAL])
    assert [each.name for each in trials.folder.iterdir() if each.is_dir()] == [TRIAL]
    assert list(find_kept()) == [
        (trials.folder, KeepingCampaign(root=str((tmp_path / "a").resolve()), campaign_id=CAMPAIGN))
    ]
    trials.remove_except([])
    assert list(find_kept()) == []
