"""What a runtime sets itself no flow may set: it would be overridden, and nobody would know."""

import json
from pathlib import Path

import pytest

from proctor.runtime.claude_code import RUNTIME as CLAUDE_CODE
from proctor.runtime.claude_code.home import variables
from proctor.runtime.executable import identify
from proctor.runtime.process import RUNTIME as PROCESS
from proctor.testing.agent_under_test import EventTap, host_asked, session_asked
from tests.lab import Lab, mission, say_done
from tests.runtime.process.commands import NOWHERE, flow, run_flows, run_long

BASH = Path("/bin/bash")


def test_a_command_is_set_nothing_that_a_flow_might_have_set(tmp_path: Path) -> None:
    options = {"command": "true", "prompt": "file", "result": {"file": "result.json"}}

    async def main() -> list[str]:
        program = identify(BASH, source="system-path", install="bash")
        tap = EventTap(PROCESS.normalizer())
        ask = session_asked(tmp_path, name="a", base_url=NOWHERE, options=options)
        async with (
            host_asked(tmp_path, name="host", program=program) as host,
            PROCESS.open_host(host, tap) as opened,
            opened.open_session(ask, tap) as session,
        ):
            return list(session.facts["ownVariables"].value)

    assert {*run_long(main)} - {"PATH"} == PROCESS.reserved_variables


def test_claude_code_is_set_nothing_that_a_flow_might_have_set(tmp_path: Path) -> None:
    async def main() -> set[str]:
        program = identify(BASH, source="system-path", install="bash")
        async with host_asked(tmp_path, name="host", program=program) as host:
            return {*variables(host, session_asked(tmp_path, name="a", base_url=NOWHERE))}

    # Of these one is for a login by key, and none of the scripted model's.
    assert CLAUDE_CODE.reserved_variables - run_long(main) == {"CLAUDE_CODE_SHELL_PREFIX"}
    assert run_long(main) <= CLAUDE_CODE.reserved_variables


@pytest.mark.parametrize("name", ["TMPDIR", "OPENAI_BASE_URL"])
def test_a_flow_that_sets_one_is_refused_by_its_name(lab: Lab, name: str) -> None:
    lab.is_other_agent_allowed = True
    own = flow("true", env={name: "/elsewhere"})
    done = lab.proctor("run", str(lab.write_spec([mission("any", say_done())], flow=own)), "--json")
    error = json.loads(done.stdout)["error"]
    told = (done.returncode, error["code"], error["what"])
    assert told == (2, "policy.reserved-variable", f"process sets {name} itself")


def test_a_search_path_of_the_flows_own_is_searched(lab: Lab) -> None:
    [paths] = run_flows(lab, {"own": flow("echo $PATH", env={"PATH": "/no/such/folder:/usr/bin:/bin"})}).values()
    assert ":/no/such/folder:/usr/bin:/bin" in paths.transcript.read_text()
