"""The example a newcomer runs first."""

import subprocess
import sys
from pathlib import Path

from proctor.event.claim import claim_in
from proctor.model.script import Patch, load_script
from proctor.model.wire import Text
from proctor.spec.command_probes import HeadlessRun
from proctor.spec.expect import ExpectedVerdict
from proctor.spec.load import LoadedSpec, load_spec

EXAMPLES = Path(__file__).parents[2] / "examples"


def load() -> LoadedSpec:
    return load_spec(EXAMPLES / "quickstart.yaml")


def test_the_quickstart_expects_one_fix_to_be_real_and_one_to_be_only_claimed() -> None:
    assert {mission.id: mission.expect.verified for mission in load().missions} == {
        "ask": ExpectedVerdict.UNKNOWN,
        "shell": ExpectedVerdict.UNKNOWN,
        "fix": ExpectedVerdict.YES,
        "claim": ExpectedVerdict.NO,
    }


def test_every_script_of_the_quickstart_ends_with_a_claim_that_its_mission_expects() -> None:
    loaded = load()
    for mission in loaded.missions:
        assert mission.script is not None
        *_, last = load_script(loaded.scripts[mission.script]).steps[-1].intents()
        assert isinstance(last, Text)
        claim = claim_in(last.text, frame=0)
        assert (claim.claimed, claim.answer) == (True, mission.expect.answer)


def test_the_patch_of_the_quickstart_makes_its_probe_pass() -> None:
    loaded = load()
    steps = load_script(loaded.scripts["scripts/fix.yaml"]).steps
    (patch,) = [intent for step in steps for intent in step.intents() if isinstance(intent, Patch)]
    before = (loaded.workspaces["workspaces/greeting"] / patch.file).read_text()
    assert patch.old is not None
    assert patch.new is not None
    after = before.replace(patch.old, patch.new)
    (probe,) = next(mission.probes for mission in loaded.missions if mission.id == "fix")
    assert isinstance(probe, HeadlessRun)
    assert [greeting(before) == probe.stdout, greeting(after) == probe.stdout] == [False, True]


def greeting(source: str) -> str:
    return subprocess.run([sys.executable, "-c", source], capture_output=True, text=True, check=True, timeout=30).stdout
