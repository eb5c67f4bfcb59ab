"""The check of the fast tier: what it refuses, what it lets pass, and that a refused test fails."""

import subprocess
import sys
from pathlib import Path

import pytest

from proctor.contain.bundled import CODEX_WHEEL, bundled_file
from tests.tiers import kind_of_slow, take_refusals

CODEX = str(bundled_file(CODEX_WHEEL, "bin/codex"))
AGENT, PROCTOR = "a real agent", "a Proctor process"
ORCHESTRATOR = str(Path(__file__).parent / "transport" / "orchestrator.py")
FENCER = str(Path(__file__).parent.parent / "src/proctor/contain/fencer.py")


@pytest.mark.parametrize(
    ("argv", "kind"),
    [
        ([CODEX, "exec"], AGENT),
        ([CODEX, "--version"], None),
        ([CODEX, "app-server", "generate-json-schema", "--out", "folder"], None),
        (["bwrap", "--dev-bind", "/", "/", "--", CODEX, "app-server"], AGENT),
        ([f"{Path(CODEX).parent.parent}/codex-resources/bwrap", "--", "true"], None),
        (["codex", "--version"], None),
        (["/usr/local/bin/proctor", "doctor"], PROCTOR),
        ([sys.executable, "-m", "proctor", "doctor"], PROCTOR),
        (["setpriv", "--", sys.executable, "-I", "-m", "tests.killed"], PROCTOR),
        ([sys.executable, "-c", "import sys, proctor; print(proctor)"], PROCTOR),
        ([sys.executable, "-c", "import sys; from proctor.clock import SYSTEM_CLOCK"], PROCTOR),
        ([sys.executable, ORCHESTRATOR, "spawns"], PROCTOR),
        (["sh", "-c", "echo bye; proctor note left"], PROCTOR),
        ([sys.executable, "-I", "-S", FENCER, "none"], None),
        ([sys.executable, "-m", "http.server"], None),
        ([sys.executable, "-c", "print('proctor')"], None),
        (["git", "status", "--", ":!/.proctor"], None),
        (["bash", "-c", "cat proctor.yaml"], None),
    ],
)
def test_the_fast_tier_refuses_agents_and_proctor_processes(argv: list[str], kind: str | None) -> None:
    assert kind_of_slow(argv) == kind


def test_a_symlink_to_an_agent_is_an_agent(tmp_path: Path) -> None:
    (tmp_path / "other-name").symlink_to(CODEX)
    assert kind_of_slow([str(tmp_path / "other-name")]) == AGENT


def test_a_fast_test_that_starts_an_agent_fails_even_if_the_code_under_test_catches_it() -> None:
    with pytest.raises(pytest.fail.Exception, match="a fast test started a real agent"):
        subprocess.run([CODEX, "--help"])
    with pytest.raises(pytest.fail.Exception, match="a fast test started a real agent"):
        subprocess.run(["harmless", "--help"], executable=CODEX)
    assert len(take_refusals()) == 2


def test_a_test_without_a_mark_is_in_the_fast_tier(request: pytest.FixtureRequest) -> None:
    assert request.node.get_closest_marker("fast") is not None


@pytest.mark.proctor_process
def test_a_marked_test_may_start_a_proctor_process(request: pytest.FixtureRequest) -> None:
    assert request.node.get_closest_marker("fast") is None
    assert subprocess.run([sys.executable, "-m", "proctor", "--version"], capture_output=True).returncode == 0
