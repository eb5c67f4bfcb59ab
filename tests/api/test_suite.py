"""A suite in a line of Python: the same missions on whatever runtime, and only those that are selected."""

from pathlib import Path

import anyio
import pytest

import proctor
from tests.lab import Lab, mission, say_done

pytestmark = pytest.mark.real_agent


@pytest.mark.requirement("surface.api", "suite.run")
def test_a_suite_is_run_on_the_runtime_that_is_named(lab: Lab) -> None:
    missions = [mission("one", say_done("1"), expect={"matches": "^1$"}), mission("two", say_done("2"))]
    spec = lab.write_spec(missions, flow={"runtime": ["claude_code"]})

    async def test() -> proctor.CampaignReport:
        with anyio.fail_after(120):
            return await proctor.run(spec, on=["codex_exec"], select=proctor.Select(ids=["one"]), root=lab.root)

    report = anyio.run(test)
    assert [(each.attempt_id, each.is_expected) for each in report.attempts] == [("one.codex-exec.r1.1", True)]


def test_who_names_no_runtime_is_told(tmp_path: Path) -> None:
    spec = {"version": 1, "campaign": "c", "missions": [{"id": "a", "prompt": "A"}]}

    async def test() -> None:
        await proctor.run(spec, on=["codex_exe"], root=tmp_path)

    with pytest.raises(proctor.InputError) as caught:
        anyio.run(test)
    assert (caught.value.code, caught.value.suggestion) == ("spec.unknown-runtime", "Did you mean `codex_exec`?")
