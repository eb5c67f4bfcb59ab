"""A script that needs a tool which the agent does not offer ends as `script.unfit`, whatever the agent makes of it."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from proctor.event.outcome import Outcome
from tests.lab import Lab, mission, report_of, say_done
from tests.runtime.process.commands import flow

pytestmark = pytest.mark.trust

# Requests tools of its own, ignores the answer, and ends well.
CARELESS = """
import json, os, urllib.error, urllib.request
body = {"model": "m", "stream": True, "input": "Go on.", "tools": [{"type": "function", "name": "look"}]}
request = urllib.request.Request(os.environ["OPENAI_BASE_URL"] + "/responses", json.dumps(body).encode())
try:
    urllib.request.urlopen(request)
except urllib.error.HTTPError as error:
    print("Never mind:", error.code)
print('PROCTOR-RESULT: {"done": true, "answer": ""}')
"""


@pytest.mark.requirement("model.scripted")
@pytest.mark.parametrize(
    "flow",
    [
        pytest.param({"runtime": ["codex_app_server"]}, id="codex_app_server", marks=pytest.mark.real_agent),
        pytest.param({"runtime": ["codex_exec"]}, id="codex_exec", marks=pytest.mark.real_agent),
        pytest.param(
            {"runtime": ["claude_code"]},
            id="claude_code",
            marks=[pytest.mark.real_agent, pytest.mark.agent("claude_code")],
        ),
        pytest.param(flow(["python3", "-c", CARELESS]), id="process"),
    ],
)
def test_an_attempt_whose_agent_offers_no_such_tool_ends_as_script_unfit(
    tmp_path: Path, flow: Mapping[str, Any]
) -> None:
    lab = Lab(tmp_path)
    lab.run(lab.write_spec([mission("one", {"call": {"tool": "no_such_tool"}}, say_done())], flow=flow))
    [paths] = lab.attempts().values()
    report = report_of(paths)
    assert (report.outcome, report.code, report.bucket) == (Outcome.FAILED, "script.unfit", "harness")
    assert report.detail is not None
    assert report.detail.startswith("step 0 needs `call` of no_such_tool, but no offered tool can do that (offered: ")
    lab.assert_all_evidence_is_valid()
