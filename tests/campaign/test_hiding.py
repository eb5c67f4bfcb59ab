"""What agents see of the folders that hold what judges them."""

import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from proctor import places
from proctor.campaign.hiding import AgentSight, find_judging_paths, find_sight, hiding_fact, why_not_enforced
from proctor.contain.fences import Hiding
from proctor.contain.ladder import Containment, Variant
from proctor.errors import InputError
from proctor.plan.expand import resolve_flow
from proctor.plan.model import ResolvedFlow
from proctor.runtime import codex_app_server, process, replay
from proctor.runtime.base import Executable
from proctor.spec.choices import Approvals, Sandbox
from proctor.spec.fence import Contain
from proctor.spec.load import LoadedSpec, load_spec
from tests.lab import Lab, mission, say_done

pytestmark = pytest.mark.requirement("probe.sight")

BWRAP = Containment(variant=Variant.BWRAP, tools=("/bin/bwrap",), catches=(), misses=())
WARDEN = Containment(variant=Variant.WARDEN, tools=("/bin/python",), catches=(), misses=())


@pytest.fixture
def loaded(lab: Lab) -> LoadedSpec:
    return load_spec(lab.write_spec([mission("m", say_done())]))


def make(folder: Path, *files: str) -> None:
    for name in files:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("")


def flow_of(loaded: LoadedSpec, **changes: Any) -> ResolvedFlow:
    return msgspec.structs.replace(resolve_flow(loaded.spec.flows[0], spec=loaded.spec), **changes)


def sight_of(
    loaded: LoadedSpec,
    *,
    root: Path | None = None,
    hidden: Iterable[Path] = (),
    containment: Containment = BWRAP,
    flow: ResolvedFlow | None = None,
    **needs: Any,
) -> AgentSight:
    whole: dict[str, Any] = {"program": None, "options": {}, "env": {"PATH": "/usr/bin"}, "user_home": None, **needs}
    judging = find_judging_paths(loaded, root=root, hidden=hidden)
    return find_sight(judging, flow=flow or flow_of(loaded), containment=containment, **whole)


def program_at(path: Path) -> Executable:
    return Executable(path=str(path), real_path=str(path), sha256="", size_bytes=0, source="system-path")


# ── what is hidden ──


def test_spec_evidence_hidden_files_and_proctors_folders_are_hidden(loaded: LoadedSpec, tmp_path: Path) -> None:
    make(tmp_path, "hidden/test.py", "scripts/m.yaml")
    sight = sight_of(loaded, root=tmp_path / "not-yet", hidden=[tmp_path / "hidden"])

    assert sight.roles == ("spec", "scripts", "hiddenFiles", "proctor", "evidence")
    own = {places.cache_dir(), places.state_dir()}
    assert {loaded.folder, tmp_path / "not-yet", tmp_path / "hidden"} | own <= set(sight.hidden)
    hiding = sight.hiding(places.cache_dir() / "not-there")
    assert hiding is not None
    # What does not exist cannot be mounted over.
    assert set(hiding.hidden) == set(sight.hidden) - {tmp_path / "not-yet"}
    assert (hiding.writable, hiding.read_only) == ((), ())


def test_folder_of_a_conversation_stays_visible(loaded: LoadedSpec) -> None:
    assert "spec" not in find_judging_paths(loaded, root=None, is_conversation=True)


def test_workspaces_of_a_run_are_visible_in_proctors_cache(loaded: LoadedSpec) -> None:
    workspaces = places.cache_dir() / "runs" / "any" / "attempts"
    workspaces.mkdir(parents=True, exist_ok=True)
    hiding = sight_of(loaded).hiding(workspaces)
    assert hiding is not None
    assert (workspaces, "writable") in [(path, fence.value) for path, fence in hiding.rules()]


@pytest.mark.parametrize("containment", [WARDEN, BWRAP])
def test_nothing_is_hidden_where_it_cannot_be(loaded: LoadedSpec, containment: Containment) -> None:
    flow = flow_of(loaded, contain=Contain.NONE if containment is BWRAP else Contain.FENCED)
    sight = sight_of(loaded, containment=containment, flow=flow)
    assert (sight, sight.hiding()) == (AgentSight(), None)


# ── what stays visible ──


def test_programs_of_the_agent_stay_visible_in_the_specs_folder(
    loaded: LoadedSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = loaded.folder
    packages = ".venv/lib/python3.11/site-packages"
    make(
        spec,
        "bin/tool",
        f"{packages}/agent/bin/agent",
        f"{packages}/agent/resources/helper",
        "run.sh",
        "notes",
        "ca.pem",
    )
    monkeypatch.setattr(sys, "prefix", str(spec / ".venv"))
    sight = sight_of(
        loaded,
        env={"PATH": f"{spec}/bin:/usr/bin", "SSL_CERT_FILE": f"{spec}/ca.pem"},
        program=program_at(spec / packages / "agent/bin/agent"),
        options={"command": [f"{spec}/run.sh", "--fast", f"{spec}/not-there"], "line": f"cat {spec}/notes"},
    )
    hiding = sight.hiding()
    assert hiding is not None
    assert [
        (str(path.relative_to(spec)), fence.value) for path, fence in hiding.rules() if path.is_relative_to(spec)
    ] == [
        (".", "hidden"),
        (".venv", "read-only"),
        ("bin", "read-only"),
        ("ca.pem", "read-only"),
        ("run.sh", "read-only"),
    ]


def test_package_of_the_program_stays_visible_with_its_resources(loaded: LoadedSpec) -> None:
    package = loaded.folder / "env/lib/python3.11/site-packages/agent"
    make(package, "bin/agent", "resources/helper")
    assert package in sight_of(loaded, program=program_at(package / "bin/agent")).visible


def test_users_home_of_the_agent_and_its_tmpdir_stay_writable(loaded: LoadedSpec) -> None:
    home, tmp = loaded.folder / "home", loaded.folder / "tmp"
    for folder in (home, tmp):
        folder.mkdir()
    sight = sight_of(loaded, user_home=home, env={"TMPDIR": str(tmp)})
    hiding = sight.hiding()
    assert hiding is not None
    assert hiding.writable == (home, tmp)


# ── what cannot be hidden ──


@pytest.mark.parametrize(
    ("search_path", "judging"),
    [("{spec}", "{spec}"), ("{spec}/bin", "{spec}/bin/hidden"), ("{spec}/bin", "{spec}/lib")],
)
def test_what_lies_in_a_folder_that_the_agent_needs_is_refused(
    loaded: LoadedSpec, search_path: str, judging: str
) -> None:
    spec = loaded.folder
    make(spec, "bin/hidden/test.py", "lib/test.py")
    path = judging.format(spec=spec)
    with pytest.raises(InputError, match=rf"^{path} must be hidden from the agent") as refused:
        sight_of(loaded, hidden=[Path(path)], env={"PATH": search_path.format(spec=spec)})
    assert refused.value.code == "policy.judge-visible"
    # Nothing is hidden from this agent, so nothing is refused.
    sight_of(
        loaded,
        hidden=[Path(path)],
        env={"PATH": search_path.format(spec=spec)},
        flow=flow_of(loaded, contain=Contain.NONE),
    )


def test_spec_inside_the_environment_of_its_agent_is_hidden(
    loaded: LoadedSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The spec of `proctor demo` lies in the installed package."""
    monkeypatch.setattr(sys, "prefix", str(loaded.folder.parent))
    assert loaded.folder in sight_of(loaded, root=None).hidden


# ── whether it can be undone ──


def test_hiding_is_enforced_only_if_the_agent_cannot_undo_it(
    loaded: LoadedSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    def enforced(runtime: Any, *, uid: int) -> set[str]:
        monkeypatch.setattr("os.geteuid", lambda: uid)
        settings: dict[str, dict[str, Any]] = {
            "default": {},
            "full access": {"sandbox": Sandbox.DANGER_FULL_ACCESS},
            "no fences": {"contain": Contain.NONE},
            "accepts": {"approvals": Approvals.ACCEPT},
        }
        flows = {name: flow_of(loaded, **change) for name, change in settings.items()}
        assert not any(why_not_enforced(runtime, flow, WARDEN) is None for flow in flows.values())
        return {name for name, flow in flows.items() if why_not_enforced(runtime, flow, BWRAP) is None}

    # Root that has left its sandbox can unmount anything.
    assert enforced(codex_app_server.RUNTIME, uid=0) == {"default"}
    assert enforced(codex_app_server.RUNTIME, uid=1000) == {"default", "accepts"}
    assert enforced(process.RUNTIME, uid=0) == {"default", "accepts"}


def test_fact_is_unknown_for_a_runtime_that_does_not_say_how_it_starts_agents(loaded: LoadedSpec) -> None:
    fact = hiding_fact(AgentSight(), replay.RUNTIME, flow_of(loaded), BWRAP)
    assert (fact.value, fact.authority.value) == (None, "unknown")


def test_hiding_without_paths_changes_nothing() -> None:
    assert Hiding(writable=(Path("/work"),)).rules() == []
