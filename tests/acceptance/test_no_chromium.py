"""A machine without Chromium: a mission that needs it stops before work begins, or ends unverified."""

from typing import Any

import pytest

from tests.lab import Lab, mission, report_of, say_done
from tests.probe.page_bench import path_without_chromium

PROBE = {
    "kind": "browser_smoke",
    "file": "index.html",
    "steps": [{"open": "index.html", "shows": {"h1": "Hello"}}],
}


def spec_of(lab: Lab) -> str:
    workspace: dict[str, Any] = {"copy": lab.workspace("base", {"index.html": "<h1>Bye</h1>\n"})}
    fix = {"run": "echo '<h1>Hello</h1>' >index.html"}
    return str(lab.write_spec([mission("page", fix, say_done(), probes=[PROBE], workspace=workspace)]))


@pytest.mark.requirement("probe.process")
def test_run_without_chromium_stops_before_work_begins_and_names_it(lab: Lab) -> None:
    stopped = lab.proctor("run", spec_of(lab), PATH=path_without_chromium(lab.folder))
    assert stopped.returncode == 3
    assert "probe.cannot-run" in stopped.stderr
    assert "Chromium is not on this machine: install it" in " ".join(stopped.stderr.split())
    assert lab.attempts() == {}


@pytest.mark.long
@pytest.mark.real_agent
@pytest.mark.requirement("probe.process")
def test_run_without_chromium_ends_unverified_if_that_is_allowed(lab: Lab) -> None:
    done = lab.proctor("run", spec_of(lab), "--allow-unjudgeable", PATH=path_without_chromium(lab.folder))
    assert done.returncode == 4
    [paths] = lab.attempts().values()
    assert report_of(paths).verified is None
    lab.assert_all_evidence_is_valid()
