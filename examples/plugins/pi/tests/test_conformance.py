"""Proctor's conformance suite on the real pi, enabled by a config as a user would enable it."""

from pathlib import Path

import anyio
import pytest

from proctor.runtime.base import Executable
from proctor.testing.conformance import CaseVerdict, Result, open_subject, run_suite


@pytest.mark.long
@pytest.mark.timeout(600)  # a case takes seconds, because node starts again for every session
def test_pi_proves_what_it_declares_and_refuses_the_rest(
    program: Executable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "proctor.toml").write_text('plugins = ["pi"]\n')
    monkeypatch.chdir(tmp_path)

    async def tried() -> tuple[str, tuple[CaseVerdict, ...]]:
        # Each session has its own process in any case, so one isolation is enough.
        async with open_subject("pi", isolation="process") as subject:
            return subject.digest, await run_suite(subject)

    digest, verdicts = anyio.run(tried)
    assert digest == program.sha256
    assert {each.case: each.what for each in verdicts if each.result is Result.FAILED} == {}
    refused = {each.case for each in verdicts if each.result is Result.REFUSED}
    giving = {"history", "history-resumed", "start-instructions", "turn-instructions"}
    assert refused == {"dynamic-tools", "compaction", "structured-output", *giving}
    assert {each.case for each in verdicts if each.result is Result.NOT_APPLICABLE} == {"context-use"}
