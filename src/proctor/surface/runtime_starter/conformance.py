"""Run cases of Proctor's conformance suite on mynah, offline, with the scripted model."""

from pathlib import Path

import anyio
import pytest

from proctor.testing.conformance import CaseVerdict, Result, case_by_id, open_subject, run_case

FOLDER = Path(__file__).parent


# Add each case when it passes. `proctor runtimes conformance mynah` runs all of them.
@pytest.mark.parametrize("case", ["one-turn", "tool-call"])
def test_mynah_passes(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(FOLDER.parent)  # its proctor.toml enables the plugin
    monkeypatch.setenv("PROCTOR_MYNAH", str(FOLDER / "stand_in.py"))  # delete this line to test the real program

    async def run() -> CaseVerdict:
        async with open_subject("mynah") as subject:
            return await run_case(case_by_id(case), subject)

    verdict = anyio.run(run)
    assert verdict.result is Result.PASSED, verdict.what
