"""The fences that an agent without a sandbox of its own gets for what a flow asks."""

from pathlib import Path
from typing import Any

import msgspec
import pytest

from proctor.contain.fences import Fence
from proctor.ids import FlowId, RuntimeId
from proctor.plan.expand import resolve_flow
from proctor.runtime import codex_app_server, process
from proctor.runtime.agent_fences import agent_fences, fences_fact, writes_only_own_folders
from proctor.runtime.defaults import RuntimeDefaults
from proctor.spec.choices import Approvals, Profile, Sandbox
from proctor.spec.fence import Contain, Network
from proctor.spec.model import CampaignSpec, FlowSpec
from proctor.testing.agent_under_test import session_asked


@pytest.fixture
def places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user's home that holds everything, as it does on most machines."""
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("agent-home", "evidence", "tools/bin"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "tools/bin/agent").write_text("")
    return tmp_path


def fates(places: Path, **ask: Any) -> dict[str, str] | None:
    """What becomes of each path below the home."""
    asked = session_asked(places, name="attempt", base_url="", hidden=(places / "evidence",), **ask)
    program = str(places / "tools/bin/agent")
    fences = agent_fences(asked, home=places / "agent-home", program=program, search_path="/usr/bin:/bin")
    if fences is None:
        return None
    assert fences.network is Network.HOST
    return {
        str(path.relative_to(places)): fence.value
        for path, fence in fences.rules()
        if path.is_relative_to(places) and fence is not Fence.HIDDEN
    }


@pytest.mark.requirement("attempt.contain")
def test_an_agent_writes_to_its_workspace_its_home_and_its_temporary_folder_and_reads_its_own_program(
    places: Path,
) -> None:
    assert fates(places) == {
        "agent-home": "writable",
        "attempt/tmp": "writable",
        "attempt/workspace": "writable",
        "tools/bin": "read-only",
    }


@pytest.mark.requirement("attempt.contain")
def test_agent_does_not_see_the_evidence_root_wherever_it_is(places: Path) -> None:
    elsewhere = Path("/usr/share")
    asked = session_asked(places, name="attempt", base_url="", hidden=(elsewhere,))
    fences = agent_fences(asked, home=places / "agent-home", search_path="/bin")
    assert fences is not None
    assert dict(fences.rules())[elsewhere.resolve()] is Fence.HIDDEN


def test_a_read_only_agent_sees_its_workspace_and_cannot_change_it(places: Path) -> None:
    assert fates(places, sandbox=Sandbox.READ_ONLY) == {
        "agent-home": "writable",
        "attempt/tmp": "writable",
        "attempt/workspace": "read-only",
        "tools/bin": "read-only",
    }


@pytest.mark.parametrize("lifted", [{"sandbox": Sandbox.DANGER_FULL_ACCESS}, {"contain": Contain.NONE}])
def test_a_flow_that_says_so_has_no_fences(places: Path, lifted: dict[str, Any]) -> None:
    assert fates(places, **lifted) is None


def test_what_was_raised_is_told_by_roles_and_never_by_paths(places: Path) -> None:
    def told(**ask: Any) -> Any:
        asked = session_asked(places, name="attempt", base_url="", **ask)
        home, login = places / "agent-home", places / "tools"
        more = (login, places / "evidence", places / "not-there")
        fences = agent_fences(asked, home=home, search_path="/usr/bin", writable=more)
        return fences_fact(fences, asked, home=home, login=login, settings=places / "not-there").value

    assert told() == {
        "writable": ["workspace", "tmp", "home", "login", "other"],
        "readOnly": [],
        "network": "host",
    }
    assert told(sandbox=Sandbox.READ_ONLY) == {
        "writable": ["tmp", "home", "login", "other"],
        "readOnly": ["workspace"],
        "network": "host",
    }
    assert told(contain=Contain.NONE) is None


def test_agent_is_confined_to_its_own_folders_only_if_that_is_certain() -> None:
    """The default flow, changed one setting at a time, for an agent behind fences and one with its own sandbox."""
    settings: dict[str, dict[str, Any]] = {
        "default": {},
        "full access": {"sandbox": Sandbox.DANGER_FULL_ACCESS},
        "no fences": {"contain": Contain.NONE},
        "accepts": {"approvals": Approvals.ACCEPT},
        "asks": {"approvals": Approvals.ASK},
        "own profile": {"profile": Profile.MINE},
    }
    asked = FlowSpec(id=FlowId("f"), runtime=[RuntimeId("process")])
    flow = resolve_flow(asked, spec=CampaignSpec(version=1, campaign="c", missions=[], flows=[asked]))

    def confined(runtime: Any) -> set[str]:
        return {
            name
            for name, change in settings.items()
            if writes_only_own_folders(runtime, msgspec.structs.replace(flow, **change))
        }

    assert confined(process.RUNTIME) == {"default", "accepts", "asks"}
    assert confined(codex_app_server.RUNTIME) == {"default", "no fences"}
    assert confined(RuntimeDefaults()) == set()
