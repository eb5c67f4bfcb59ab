"""The name of an agent means its default runtime, wherever a runtime is named."""

from pathlib import Path

import pytest
import yaml

from proctor.campaign.suite import flows_on
from proctor.config.load import load_config
from proctor.errors import InputError
from proctor.plan.expand import resolve_flow
from proctor.spec.load import load_spec
from proctor.surface.parity import suite_of_two

ROOT = Path(__file__).parents[2]


def spec(folder: Path, options: dict[str, object]) -> Path:
    flow = {"id": "f", "runtime": ["claude", "codex", "codex_exec"], "isolation": "process", "options": options}
    mission = {"id": "m", "prompt": "Do it.", "script": "script.yaml"}
    (folder / "script.yaml").write_text("version: 1\nsteps: [{say: hi}]\n")
    file = folder / "spec.yaml"
    whole = {"version": 1, "campaign": "c", "missions": [mission], "flows": [flow]}
    file.write_text(yaml.safe_dump({**whole, "schedule": {"runtimes": {"codex": 2}}}))
    return file


@pytest.mark.trust
def test_agent_name_in_a_spec_becomes_its_default_runtime(tmp_path: Path) -> None:
    loaded = load_spec(spec(tmp_path, {"codex": {"transport": "stdio"}}))
    flow = resolve_flow(loaded.spec.flows[0], spec=loaded.spec)
    assert flow.runtime == ("claude_code", "codex_app_server", "codex_exec")
    assert flow.options == {"codex_app_server": {"transport": "stdio"}}
    assert loaded.spec.schedule.runtimes == {"codex_app_server": 2}


def test_agent_name_and_its_runtime_may_not_both_have_options(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="name the same runtime"):
        load_spec(spec(tmp_path, {"codex": {}, "codex_app_server": {}}))


@pytest.mark.trust
def test_agent_name_on_the_command_line_becomes_its_default_runtime(tmp_path: Path) -> None:
    [codex, chain] = flows_on(["codex", "claude+codex_exec"], config=load_config(tmp_path))
    assert (codex.runtime, chain.runtime) == (["codex_app_server"], ["claude_code", "codex_exec"])
    two = suite_of_two(ROOT / "examples/parity/suite.yaml", "codex", "codex_exec")
    assert [flow.runtime for flow in two.spec.flows] == [["codex_app_server"], ["codex_exec"]]
