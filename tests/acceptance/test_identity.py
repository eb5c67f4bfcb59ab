"""Which program ran, and that it was still the same when it had."""

import shlex
from pathlib import Path

import pytest

from proctor.campaign.watch import CampaignWatcher
from proctor.event.model import Event, TurnBegan
from proctor.ids import AttemptId
from proctor.runtime.codex.program import OVERRIDE, locate
from tests.lab import Lab, mission, runner_ref_of, say_done

pytestmark = pytest.mark.real_agent


class _Rewrites(CampaignWatcher):
    """Somebody updates the program while it runs."""

    def __init__(self, program: Path) -> None:
        self._program = program

    def event_recorded(self, attempt: AttemptId, event: Event) -> None:
        if isinstance(event, TurnBegan):
            self._program.write_text(self._program.read_text() + "# newer\n")


@pytest.mark.requirement("runtime.identity")
def test_a_shim_is_followed_and_a_program_that_changed_while_it_ran_is_told(
    lab: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program, shim = tmp_path / "codex-wrapped", tmp_path / "codex"
    native = locate().real_path
    program.write_text(f'#!/bin/sh\nexec {shlex.quote(native)} "$@"\n')
    program.chmod(0o755)
    shim.symlink_to(program)
    monkeypatch.setenv(OVERRIDE, str(shim))
    lab.run(lab.write_spec([mission("m", say_done())]), watcher=_Rewrites(program))

    [paths] = lab.attempts().values()
    facts = runner_ref_of(paths).facts
    identity = facts["identity"].value
    assert (identity["path"], identity["realPath"], identity["shims"]) == (str(shim), native, [str(program)])
    assert identity["launcher"]["path"] == str(program)
    assert (identity["source"], facts["identity"].authority) == ("env-override", "observed")
    assert facts["versions"].value == {
        "--version": "codex-cli 0.163.0",
        "initialize.userAgent": "0.163.0",
        "agree": True,
    }
    assert facts["identityAfter"].value.startswith("changed: ")
    lab.assert_all_evidence_is_valid()
