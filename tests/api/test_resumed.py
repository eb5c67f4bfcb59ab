"""`proctor.run(resume=…)`: which campaign it takes up, and where it looks for it."""

import sys
import threading
from pathlib import Path
from typing import Any

import anyio
import pytest

import proctor
from tests.report.made import CAMPAIGN, YES, tried

SPEC: dict[str, Any] = {"version": 1, "campaign": "made", "missions": [], "flows": []}


def refused(root: Path, id_: str) -> proctor.InputError:
    with pytest.raises(proctor.InputError) as caught:
        anyio.run(lambda: proctor.run(SPEC, root=root, resume=id_))
    return caught.value


@pytest.mark.parametrize(
    "id_", ["../elsewhere", f"./{CAMPAIGN}", f"../campaigns/{CAMPAIGN}", ".", "", "/", CAMPAIGN[:9]]
)
def test_what_is_no_id_of_a_campaign_is_not_found_though_it_leads_to_a_folder(tmp_path: Path, id_: str) -> None:
    tried(tmp_path, {"fix.codex.r1": [YES]})
    (tmp_path / "elsewhere").mkdir()
    error = refused(tmp_path, id_)
    assert (error.code, error.key) == ("evidence.not-found", "resume")
    # By its id it is found, and the spec looked at.
    assert refused(tmp_path, CAMPAIGN).code != "evidence.not-found"


def test_the_evidence_of_a_campaign_is_looked_at_outside_the_loop(tmp_path: Path) -> None:
    tried(tmp_path, {"fix.codex.r1": [YES]})
    looked: list[tuple[str, int]] = []
    is_over = False

    def hear(event: str, args: tuple[Any, ...]) -> None:
        if not is_over and event in ("open", "os.listdir", "os.scandir") and str(args[0]).startswith(str(tmp_path)):
            looked.append((event, threading.get_ident()))

    sys.addaudithook(hear)  # for as long as the process lives
    try:
        refused(tmp_path, CAMPAIGN)
    finally:
        is_over = True
    assert {event for event, _ in looked} >= {"open"}
    assert threading.get_ident() not in {thread for _, thread in looked}
