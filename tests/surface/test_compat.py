"""A program that is too old or incompatible is found by lint, doctor, list and preflight, before anything runs."""

import json
from pathlib import Path
from typing import Any

import pytest

from proctor.evidence.layout import RootPaths
from tests.lab import Lab, mission, say_done

pytestmark = pytest.mark.requirement("runtime.compat")

# A Codex that prints its version, and a schema without any method.
LACKING = """\
#!/bin/sh
if [ "$1" = --version ]; then exec echo codex-cli 9.9.9; fi
[ "$2" = generate-json-schema ] || exit 1
for last; do :; done
for name in ClientRequest ServerNotification ServerRequest; do echo '{"oneOf": []}' > "$last/$name.json"; done
echo '{}' > "$last/codex_app_server_protocol.schemas.json"
"""

CASES = {
    "codex_app_server": ("PROCTOR_CODEX", "#!/bin/sh\necho codex-cli 0.162.9\n", "openai-codex-cli-bin==", "too-old"),
    "codex_exec": ("PROCTOR_CODEX", "#!/bin/sh\necho codex-cli 0.99.0\n", "openai-codex-cli-bin==", "too-old"),
    "claude_code": ("PROCTOR_CLAUDE", "#!/bin/sh\necho '2.0.9 (Claude Code)'\n", "claude-agent-sdk==", "too-old"),
    "lacking": ("PROCTOR_CODEX", LACKING, "openai-codex-cli-bin==", "incompatible"),
}


@pytest.fixture(params=CASES)
def unusable(request: pytest.FixtureRequest, lab: Lab) -> tuple[str, str, str]:
    """Install a program that cannot be used. Return the runtime, the error code, and what the error says to install."""
    variable, text, install, problem = CASES[request.param]
    program = lab.folder / "agent"
    program.write_text(text)
    program.chmod(0o755)
    lab.env[variable] = str(program)
    runtime = "codex_app_server" if request.param == "lacking" else request.param
    return runtime, f"machine.binary-{problem}", install


def spec_for(lab: Lab, *runtimes: str) -> str:
    return str(lab.write_spec([mission("any", say_done())], flow={"runtime": list(runtimes), "isolation": "process"}))


def in_json(lab: Lab, *words: str) -> tuple[int, Any]:
    done = lab.proctor(*words, "--json")
    return done.returncode, json.loads(done.stdout)


def test_lint_finds_a_program_that_cannot_be_used(lab: Lab, unusable: tuple[str, str, str]) -> None:
    runtime, code, install = unusable
    exit_code, said = in_json(lab, "campaign", "lint", spec_for(lab, runtime))
    [finding] = said["findings"]
    assert (exit_code, finding["code"]) == (3, code)
    assert f"install {install}" in finding["what"]


def test_run_is_refused_before_a_campaign_exists(lab: Lab, unusable: tuple[str, str, str]) -> None:
    runtime, code, install = unusable
    exit_code, said = in_json(lab, "run", spec_for(lab, runtime))
    assert (exit_code, said["error"]["code"]) == (3, code)
    assert f"install {install}" in said["error"]["what"]
    assert [*RootPaths(lab.root).campaigns(), *RootPaths(lab.root).runs()] == []


def test_doctor_and_list_name_a_program_that_cannot_be_used(lab: Lab, unusable: tuple[str, str, str]) -> None:
    runtime, code, install = unusable
    exit_code, said = in_json(lab, "doctor")
    [check] = [each for each in said["checks"] if each["name"] == runtime]
    # Only a default runtime is necessary.
    is_default = runtime == "codex_app_server"
    assert check["status"] == ("fail" if is_default else "warn")
    assert f"install {install}" in check["what"]
    assert exit_code == 3 or not is_default
    _, listed = in_json(lab, "runtimes", "list")
    [problem] = [each["problem"] for each in listed["runtimes"] if each["id"] == runtime]
    assert problem["code"] == code


def test_lint_and_list_name_the_version_of_a_program_that_can_be_used(lab: Lab) -> None:
    exit_code, said = in_json(lab, "campaign", "lint", spec_for(lab, "codex_app_server"))
    assert (exit_code, said["findings"]) == (0, [])
    _, listed = in_json(lab, "runtimes", "list")
    [program] = [each["program"] for each in listed["runtimes"] if each["id"] == "codex_app_server"]
    assert program["version"] == "codex-cli 0.163.0"
    assert "codex-cli 0.163.0" in lab.proctor("runtimes", "list").stdout


def test_next_runtime_of_the_chain_is_used_after_one_that_is_too_old(lab: Lab, tmp_path: Path) -> None:
    old = tmp_path / "claude"
    old.write_text("#!/bin/sh\necho '2.0.9 (Claude Code)'\n")
    old.chmod(0o755)
    lab.env["PROCTOR_CLAUDE"] = str(old)
    exit_code, said = in_json(lab, "campaign", "lint", spec_for(lab, "claude_code", "codex_app_server"))
    assert (exit_code, said["findings"]) == (0, [])
    [warning] = said["warnings"]
    assert warning.startswith("flow `codex`: runtime `claude_code` would be skipped: Claude Code 2.0.9 is older than")
