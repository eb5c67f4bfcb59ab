"""Real evidence: whole it is valid, cut off it is partial, and forged it is invalid for what it says."""

import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from proctor.evidence.layout import (
    FEEDBACK,
    FRAMES,
    PROBES,
    PROMPT,
    REPORT,
    RUNNER_REF,
    SEAL,
    TOOL_CALLS,
    TRANSCRIPT,
    WORKSPACE_DIFF,
    AttemptPaths,
    RunPaths,
)
from proctor.evidence.reader import Finding
from proctor.evidence.validate import Validation
from tests.attempt.forge import alter_json, alter_rows, reseal
from tests.attempt.recorded import CLAIM, FIX, NAP, codes, examined, strictly

pytestmark = pytest.mark.real_agent

# ── whole ──


@pytest.mark.requirement("evidence.validate")
@pytest.mark.parametrize("is_strict", [True, False])
@pytest.mark.parametrize("name", [FIX, CLAIM, NAP])
def test_what_was_recorded_is_valid(recorded: RunPaths, name: str, is_strict: bool) -> None:
    found = examined(AttemptPaths(recorded.folder / "attempts" / name), is_strict=is_strict)
    assert found == Validation(kind="attempt", name=name, status=found.status, findings=())
    assert found.status == "valid"


# ── forged: altered, then made whole again ──


@pytest.mark.requirement("evidence.seal")
def test_a_frame_that_was_edited_and_chained_anew_is_caught_by_the_seal(fix: AttemptPaths) -> None:
    alter_rows(fix.frames, lambda rows: [{**row, "atMs": row["atMs"] + 1} for row in rows])
    found = strictly(fix)

    assert found.status == "invalid"
    assert codes(found) == {("evidence.digest", FRAMES), ("evidence.chain", FRAMES)}


@pytest.mark.requirement("evidence.validate")
def test_a_derived_file_that_was_edited_and_sealed_anew_is_not_what_the_frames_give(fix: AttemptPaths) -> None:
    alter_rows(fix.tool_calls, lambda rows: [{**row, "status": "other"} for row in rows])
    reseal(fix)
    found = strictly(fix)

    assert found.status == "invalid"
    assert found.findings == (
        Finding(code="evidence.derived", file=TOOL_CALLS, detail="differs from what the frames give"),
    )


@pytest.mark.requirement("evidence.claimed-vs-verified")
@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (("feedback", {"claimed": False}), ("evidence.derived", FEEDBACK)),
        (("feedback", {"answer": "Eve"}), ("evidence.derived", FEEDBACK)),
        (("feedback", {"frame": 1}), ("evidence.derived", FEEDBACK)),
        (("report", {"claimed": None}), ("evidence.derived", REPORT)),
        (("report", {"outcome": "failed"}), ("evidence.derived", REPORT)),
        (("report", {"verified": False}), ("evidence.gate", REPORT)),
        (("report", {"workspaceDigestAfter": None}), ("evidence.gate", REPORT)),
        (("runner_ref", {"threadId": "another"}), ("evidence.ids", RUNNER_REF)),
        (("runner_ref", {"sessionId": "fix.native.r1.1/another"}), ("evidence.ids", RUNNER_REF)),
    ],
    ids=str,
)
def test_a_file_that_says_more_than_the_record_gives_is_found_though_sealed_anew(
    fix: AttemptPaths, change: tuple[str, Mapping[str, Any]], expected: tuple[str, str]
) -> None:
    file, fields = change
    alter_json(getattr(fix, file), **fields)
    reseal(fix)
    found = strictly(fix)

    assert found.status == "invalid"
    assert codes(found) == {expected}


@pytest.mark.requirement("evidence.claimed-vs-verified")
def test_a_claim_cannot_be_reported_as_verified(run: RunPaths) -> None:
    claim = AttemptPaths(run.folder / "attempts" / CLAIM)
    alter_json(claim.report, verified=True)
    reseal(claim)

    assert strictly(claim).findings == (
        Finding(code="evidence.gate", file=REPORT, detail="verified is True, but the probes give False"),
    )


@pytest.mark.requirement("evidence.validate")
def test_a_diff_that_shows_nothing_of_what_was_changed_is_found_though_sealed_anew(fix: AttemptPaths) -> None:
    assert fix.workspace_diff.read_bytes(), "something was"
    fix.workspace_diff.write_bytes(b"")
    reseal(fix)
    detail = "it has no edits, but the digests of the workspace say otherwise"
    assert Finding(code="evidence.derived", file=WORKSPACE_DIFF, detail=detail) in strictly(fix).findings


@pytest.mark.requirement("evidence.validate")
def test_a_diff_that_shows_edits_where_nothing_was_changed_is_found_though_sealed_anew(
    run: RunPaths, fix: AttemptPaths
) -> None:
    claim = AttemptPaths(run.folder / "attempts" / CLAIM)
    assert not claim.workspace_diff.read_bytes()
    claim.workspace_diff.write_bytes(fix.workspace_diff.read_bytes())
    reseal(claim)
    detail = "it has edits, but the digests of the workspace say otherwise"
    why = Finding(
        code="evidence.derived", file=REPORT, detail="why it failed is not what the probes and the workspace give"
    )
    assert strictly(claim).findings == (Finding(code="evidence.derived", file=WORKSPACE_DIFF, detail=detail), why)
    # What could not be read is reported though it may be the same; the report of the attempt did not have it.
    claim.workspace_diff.write_bytes(b"diff --git a/f b/f\nBinary files a/f and b/f differ\n")
    reseal(claim)
    assert strictly(claim).findings == (why,)


def test_a_probe_row_of_another_shape_is_found_though_sealed_anew(fix: AttemptPaths) -> None:
    alter_rows(fix.probes, lambda rows: [{**row, "verdict": "splendid"} for row in rows])
    reseal(fix)
    assert ("evidence.schema", PROBES) in codes(strictly(fix))


def test_evidence_of_a_runtime_that_is_not_here_is_not_called_invalid(fix: AttemptPaths) -> None:
    alter_json(fix.attempt, runtimeId="goose")
    alter_json(fix.runner_ref, runtimeId="goose")
    reseal(fix)
    found = strictly(fix)

    assert found.status == "partial"
    assert codes(found) == {("spec.unknown-runtime", "attempt.json")}


# ── cut off ──


def cut_before(paths: AttemptPaths, *gone: str) -> None:
    for name in (SEAL, *gone):
        (paths.folder / name).unlink()


def tear(path: Path, *, by: int = 5) -> None:
    path.write_bytes(path.read_bytes()[:-by])


@pytest.mark.requirement("evidence.integrity")
@pytest.mark.requirement("evidence.crash-safe")
@pytest.mark.parametrize("torn", [(), (FRAMES,), (TRANSCRIPT,), (FRAMES, TOOL_CALLS, TRANSCRIPT, PROBES)], ids=str)
def test_an_attempt_that_was_cut_off_is_partial_as_far_as_it_goes(fix: AttemptPaths, torn: tuple[str, ...]) -> None:
    cut_before(fix, REPORT, WORKSPACE_DIFF, FEEDBACK, RUNNER_REF)
    for name in torn:
        tear(fix.folder / name)
    (fix.folder / f".{RUNNER_REF}.tmp").write_bytes(b'{"half')
    found = strictly(fix)

    assert found.status == "partial"
    assert codes(found) == {("evidence.partial", SEAL), *(("evidence.torn", name) for name in torn)}


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(left=st.floats(0, 1))
def test_a_record_cut_anywhere_is_partial(recorded: RunPaths, tmp_path: Path, left: float) -> None:
    folder = shutil.copytree(recorded.folder / "attempts" / FIX, tmp_path / FIX)
    paths = AttemptPaths(folder)
    try:
        cut_before(paths, REPORT, WORKSPACE_DIFF, FEEDBACK, RUNNER_REF)
        size = paths.frames.stat().st_size
        os.truncate(paths.frames, round(size * left))
        assert strictly(paths).status == "partial"
    finally:
        shutil.rmtree(folder)


@pytest.mark.requirement("evidence.integrity")
def test_a_torn_row_under_a_seal_is_no_cut_off(fix: AttemptPaths) -> None:
    tear(fix.frames)
    found = strictly(fix)

    assert found.status == "invalid"
    assert {("evidence.torn", FRAMES), ("evidence.digest", FRAMES)} <= codes(found)


@pytest.mark.parametrize("name", [FRAMES, TOOL_CALLS, PROMPT, FEEDBACK])
def test_a_gap_is_no_cut_off(fix: AttemptPaths, name: str) -> None:
    cut_before(fix, REPORT, name)
    found = strictly(fix)

    assert found.status == "invalid"
    assert codes(found) == {("evidence.partial", SEAL), ("evidence.missing-file", name)}


def test_what_a_cut_off_attempt_tells_must_still_follow_from_its_frames(fix: AttemptPaths) -> None:
    cut_before(fix, REPORT)
    alter_rows(fix.transcript, lambda rows: [{**row, "text": "never said"} for row in rows])
    found = strictly(fix)

    assert found.status == "invalid"
    assert codes(found) == {("evidence.partial", SEAL), ("evidence.derived", TRANSCRIPT)}
