"""A real run: every frame that came in is in an attempt or in its process, and nothing can be taken out unseen."""

import random
import shutil
from collections.abc import Callable

import msgspec
import pytest

from proctor.attempt.recheck import examine_run
from proctor.errors import CODES
from proctor.evidence.layout import FRAMES, SEAL, AttemptPaths, RunPaths, RuntimePaths
from proctor.evidence.reader import Finding
from proctor.evidence.validate import Validation
from tests.attempt.forge import Row, alter_json, alter_rows, derive_anew, reseal, reseal_process
from tests.attempt.recorded import CLAIM, FIX, NAP, codes

pytestmark = pytest.mark.real_agent

RECORD = "process.json"


def by_kind(run: RunPaths, *, is_strict: bool = True) -> tuple[Validation, dict[str, Validation], Validation]:
    """What was found about the run's folder, its attempts and its only process."""
    whole, *attempts, process = examine_run(run, is_strict=is_strict)
    assert (whole.kind, process.kind, {each.kind for each in attempts}) == ("run", "process", {"attempt"})
    assert {finding.code for each in (whole, *attempts, process) for finding in each.findings} <= set(CODES)
    return whole, {each.name: each for each in attempts}, process


@pytest.fixture
def process(run: RunPaths) -> RuntimePaths:
    [paths] = run.runtimes()
    return paths


@pytest.mark.requirement("runtime.events.lossless")
@pytest.mark.parametrize("is_strict", [True, False])
def test_a_recorded_run_is_valid_and_its_counts_add_up(recorded: RunPaths, is_strict: bool) -> None:
    whole, attempts, process = by_kind(recorded, is_strict=is_strict)

    assert {whole.status, process.status, *(each.status for each in attempts.values())} == {"valid"}
    assert set(attempts) == {FIX, CLAIM, NAP}
    assert whole.name == recorded.folder.name


def drop_one(rows: list[Row]) -> list[Row]:
    last = max(at for at, row in enumerate(rows) if row["dir"] == "in")
    return [row for at, row in enumerate(rows) if at != last]


@pytest.mark.requirement("runtime.events.lossless")
def test_a_frame_that_was_taken_out_of_an_attempt_is_missed_though_all_is_sealed_anew(run: RunPaths) -> None:
    claim = AttemptPaths(run.folder / "attempts" / CLAIM)
    alter_rows(claim.frames, drop_one)
    derive_anew(claim)
    reseal(claim)

    [finding] = by_kind(run)[2].findings
    assert (finding.code, finding.file) == ("evidence.counts", FRAMES)
    assert "frames came in" in finding.detail


@pytest.mark.requirement("runtime.events.lossless")
def test_a_frame_that_was_taken_out_of_the_process_is_missed_though_all_is_sealed_anew(
    run: RunPaths, process: RuntimePaths
) -> None:
    alter_rows(process.frames, drop_one)
    reseal_process(process)

    assert codes(by_kind(run)[2]) == {("evidence.counts", FRAMES)}


@pytest.mark.requirement("evidence.seal")
@pytest.mark.parametrize("name", [RECORD, FRAMES])
def test_one_flipped_byte_of_a_process_is_found(run: RunPaths, process: RuntimePaths, name: str) -> None:
    path = process.folder / name
    whole = path.read_bytes()
    chance = random.Random(name)
    for place in {0, len(whole) - 1, *chance.sample(range(len(whole)), 20)}:
        flipped = bytearray(whole)
        flipped[place] ^= 1 << chance.randrange(8)
        path.write_bytes(flipped)
        found = by_kind(run)[2]
        assert found.status == "invalid", f"byte {place}"
        assert name in {finding.file for finding in found.findings}, f"byte {place}"


def without_frames(process: RuntimePaths) -> tuple[str, str]:
    process.frames.unlink()
    return "evidence.missing-file", FRAMES


def with_another_file(process: RuntimePaths) -> tuple[str, str]:
    (process.folder / "notes").write_text("")
    return "evidence.extra-file", "notes"


def with_a_link(process: RuntimePaths) -> tuple[str, str]:
    shutil.move(process.frames, process.folder.parent.parent / "attempts" / FIX / "moved")
    process.frames.symlink_to(process.folder.parent.parent / "attempts" / FIX / "moved")
    return "evidence.containment", FRAMES


def of_another_name(process: RuntimePaths) -> tuple[str, str]:
    reseal_process(process, process_id="p-other")
    return "evidence.ids", RECORD


def miscounted(process: RuntimePaths) -> tuple[str, str]:
    reseal_process(process, rows={"in": 1})
    return "evidence.counts", FRAMES


def cut_short(process: RuntimePaths) -> tuple[str, str]:
    process.frames.write_bytes(b"".join(process.frames.read_bytes().splitlines(keepends=True)[:-1]))
    return "evidence.chain", FRAMES


@pytest.mark.parametrize(
    "spoil", [without_frames, with_another_file, with_a_link, of_another_name, miscounted, cut_short]
)
def test_whatever_is_wrong_with_a_process_gets_its_code(
    run: RunPaths, process: RuntimePaths, spoil: Callable[[RuntimePaths], tuple[str, str]]
) -> None:
    expected = spoil(process)
    found = by_kind(run)[2]

    assert found.status == "invalid"
    assert expected in codes(found)


@pytest.mark.requirement("evidence.validate")
def test_a_record_nested_as_deep_as_can_be_read_does_not_raise(run: RunPaths, process: RuntimePaths) -> None:
    record = msgspec.json.decode(process.record.read_bytes())
    for depth in range(850, 1000):
        nest = {"value": msgspec.Raw(b"[" * depth + b"]" * depth), "authority": "observed", "source": "a test"}
        process.record.write_bytes(msgspec.json.encode({**record, "facts": {"deep": nest}}))
        assert codes(by_kind(run, is_strict=False)[2]) == {("evidence.seal", RECORD)}


@pytest.mark.requirement("evidence.integrity")
def test_a_process_that_was_cut_off_is_partial(run: RunPaths, process: RuntimePaths) -> None:
    process.record.unlink()
    process.frames.write_bytes(process.frames.read_bytes()[:-3])
    whole, attempts, found = by_kind(run)

    assert found.status == "partial"
    assert codes(found) == {("evidence.partial", RECORD), ("evidence.torn", FRAMES)}
    assert {whole.status, *(each.status for each in attempts.values())} == {"valid"}


@pytest.mark.requirement("evidence.integrity")
def test_where_an_attempt_was_cut_off_nothing_is_counted(run: RunPaths) -> None:
    (run.folder / "attempts" / NAP / SEAL).unlink()
    _, attempts, process = by_kind(run)

    assert attempts[NAP].status == process.status == "partial"
    detail = f"the frames of {NAP} cannot be counted"
    assert process.findings == (Finding(code="evidence.partial", file=FRAMES, detail=detail),)


def test_a_process_that_is_gone_is_missed_by_its_attempts(run: RunPaths, process: RuntimePaths) -> None:
    shutil.rmtree(process.folder)
    whole, *attempts = examine_run(run, is_strict=True)

    assert whole.status == "invalid"
    assert codes(whole) == {("evidence.missing-file", f"runtimes/{process.folder.name}")}
    assert [each.status for each in attempts] == ["valid"] * 3


def test_a_run_of_another_name_is_told(run: RunPaths) -> None:
    moved = RunPaths(run.folder.rename(run.folder.with_name("elsewhere")))
    assert codes(by_kind(moved)[0]) == {("evidence.ids", f"attempts/{name}/attempt.json") for name in (FIX, CLAIM, NAP)}


def test_an_attempt_that_belongs_to_no_process_is_not_counted_with_any(run: RunPaths) -> None:
    nap = AttemptPaths(run.folder / "attempts" / NAP)
    alter_json(nap.runner_ref, processId=None)
    reseal(nap)
    assert codes(by_kind(run)[2]) == {("evidence.counts", FRAMES)}


def test_what_is_no_part_of_a_run_is_told(run: RunPaths) -> None:
    (run.folder / "notes").write_text("")
    (run.folder / "more").mkdir()
    (run.folder / "attempts" / "stray").write_text("")
    (run.folder / "attempts" / "link").symlink_to(FIX)
    assert codes(by_kind(run)[0]) == {
        ("evidence.extra-file", f"{run.folder.name}/notes"),
        ("evidence.extra-file", f"{run.folder.name}/more"),
        ("evidence.extra-file", "attempts/stray"),
        ("evidence.containment", "attempts/link"),
    }
