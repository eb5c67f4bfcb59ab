"""Derived files are a function of the frames: another process at another time gives the sealed bytes."""

import os
import subprocess
import sys
from collections.abc import Iterable
from functools import partial
from itertools import pairwise
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from proctor.attempt import rederive as module
from proctor.attempt.derive import Derivation, DerivedResult
from proctor.attempt.recheck import FileStatus, restore
from proctor.attempt.rederive import rederive
from proctor.errors import EvidenceError
from proctor.event.model import Event, TextSaid, ToolEnded, TurnBegan, UsageReported
from proctor.event.row import Row
from proctor.evidence.attempt_files import AttemptFiles
from proctor.evidence.chain import ChainHead, chain_rows
from proctor.evidence.layout import FEEDBACK, REPORT, RUNNER_REF, TOOL_CALLS, TRANSCRIPT, AttemptPaths, RunPaths
from proctor.evidence.reader import Finding
from proctor.ids import AttemptId
from proctor.runtime.base import Normalizer
from proctor.runtime.codex_app_server import RUNTIME
from tests.attempt.recorded import examined, rechecked
from tests.lab import jsonl, rows_of, runner_ref_of

pytestmark = pytest.mark.real_agent

DERIVED = (TOOL_CALLS, TRANSCRIPT)

RESTORE = """
import sys
from pathlib import Path
import msgspec
from proctor.attempt.recheck import restore
from proctor.evidence.layout import AttemptPaths
sys.stdout.buffer.write(msgspec.json.encode([restore(AttemptPaths(Path(path))) for path in sys.argv[1:]]))
"""


def delete_derived(paths: AttemptPaths) -> dict[str, bytes]:
    sealed = {name: (paths.folder / name).read_bytes() for name in DERIVED}
    for name in DERIVED:
        (paths.folder / name).unlink()
    return sealed


# ── the same bytes ──


@pytest.mark.requirement("runtime.events.pure")
def test_another_process_restores_the_sealed_bytes_from_the_frames_alone(run: RunPaths) -> None:
    attempts = list(run.attempts())
    sealed = [delete_derived(paths) for paths in attempts]
    assert [examined(paths, is_strict=True).status for paths in attempts] == ["invalid"] * 3

    done = subprocess.run(
        [sys.executable, "-c", RESTORE, *(str(paths.folder) for paths in attempts)],
        env={**os.environ, "PYTHONHASHSEED": "7", "TZ": "Asia/Tokyo", "LC_ALL": "C"},
        capture_output=True,
        timeout=60,
    )

    assert done.stderr == b""
    both_back = {"files": {TOOL_CALLS: "restored", TRANSCRIPT: "restored"}, "findings": []}
    assert msgspec.json.decode(done.stdout) == [both_back] * 3
    assert [{name: (paths.folder / name).read_bytes() for name in DERIVED} for paths in attempts] == sealed
    assert [examined(paths, is_strict=True).status for paths in attempts] == ["valid"] * 3


@pytest.mark.requirement("evidence.trace")
def test_trace_rows_name_the_attempt_and_the_session_of_runner_ref(recorded: RunPaths) -> None:
    for paths in recorded.attempts():
        session = runner_ref_of(paths).session_id
        assert session is not None
        for row in jsonl(paths.tool_calls):
            assert (row["attempt"], row["session"]) == (paths.folder.name, session)


@pytest.mark.requirement("runtime.events.pure")
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(cuts=st.sets(st.integers(0, 60)))
def test_it_makes_no_difference_in_which_batches_the_rows_come(recorded: RunPaths, cuts: set[int]) -> None:
    for paths in recorded.attempts():
        rows = rows_of(paths)
        edges = [0, *sorted(cut for cut in cuts if cut < len(rows)), len(rows)]
        batches = [rows[start:end] for start, end in pairwise(edges)]
        with AttemptFiles(paths) as files:
            again = rederive(files)
        assert derived_from(AttemptId(paths.folder.name), batches) == (again.derived, again.files)


def derived_from(attempt: AttemptId, batches: Iterable[Iterable[Row]]) -> tuple[DerivedResult, dict[str, bytes]]:
    files = {name: bytearray() for name in DERIVED}
    heads = {name: ChainHead() for name in DERIVED}

    def append(name: str, rows: Iterable[Any]) -> None:
        files[name] += chain_rows(rows, head=heads[name])

    derivation = Derivation(
        RUNTIME.normalizer(),
        attempt=attempt,
        runtime_id=RUNTIME.id,
        trace=partial(append, TOOL_CALLS),
        transcript=partial(append, TRANSCRIPT),
    )
    for batch in batches:
        derivation.feed(batch)
    return derivation.finish(), {name: bytes(data) for name, data in files.items()}


# ── a normalizer that changed ──


class Mutant:
    """The real normalizer, with some of its events told otherwise."""

    def __init__(self, normalizer: Normalizer) -> None:
        self._normalizer = normalizer

    def feed(self, row: Row) -> list[Event]:
        return [told for event in self._normalizer.feed(row) for told in self.tell(event)]

    def tell(self, event: Event) -> Iterable[Event]:
        return (event,)


class SwapsOk(Mutant):
    def tell(self, event: Event) -> Iterable[Event]:
        yield msgspec.structs.replace(event, ok=not event.ok) if isinstance(event, ToolEnded) else event


class LosesMessages(Mutant):
    def tell(self, event: Event) -> Iterable[Event]:
        if not isinstance(event, TextSaid):
            yield event


class CountsTokensTwice(Mutant):
    def tell(self, event: Event) -> Iterable[Event]:
        if isinstance(event, UsageReported):
            tokens = msgspec.structs.replace(event.tokens, total=event.tokens.total * 2)
            yield msgspec.structs.replace(event, tokens=tokens)
        else:
            yield event


class Fails(Mutant):
    def tell(self, event: Event) -> Iterable[Event]:
        raise RecursionError("too deep for me")


class TellsTurnsTwice(Mutant):
    def tell(self, event: Event) -> Iterable[Event]:
        yield from [event, event] if isinstance(event, TurnBegan) else [event]


class _MutantRuntime:
    def __init__(self, mutant: type[Mutant]) -> None:
        self._mutant = mutant

    def normalizer(self) -> Normalizer:
        return self._mutant(RUNTIME.normalizer())


@pytest.mark.requirement("runtime.events.pure")
@pytest.mark.parametrize(
    ("mutant", "files"),
    [
        (SwapsOk, {TOOL_CALLS, TRANSCRIPT, REPORT}),
        (LosesMessages, {TRANSCRIPT, FEEDBACK, REPORT}),
        (CountsTokensTwice, {TRANSCRIPT, REPORT, RUNNER_REF}),
        (Fails, {"frames.jsonl"}),
    ],
)
def test_a_normalizer_that_changed_does_not_give_what_was_recorded(
    fix: AttemptPaths, monkeypatch: pytest.MonkeyPatch, mutant: type[Mutant], files: set[str]
) -> None:
    monkeypatch.setattr(module, "runtime_by_id", lambda _: _MutantRuntime(mutant))
    findings = rechecked(fix)

    assert {finding.code for finding in findings} == {"evidence.derived"}
    assert {finding.file for finding in findings} == files
    assert examined(fix, is_strict=True).status == "invalid"


def test_a_normalizer_that_breaks_the_grammar_of_events_is_found_at_the_row(
    fix: AttemptPaths, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "runtime_by_id", lambda _: _MutantRuntime(TellsTurnsTwice))
    [(law, line)] = [(each.detail, each.line) for each in rechecked(fix) if each.code == "evidence.laws"]

    assert law.endswith("began twice")
    assert line == next(row.seq for row in rows_of(fix) if b"turn/started" in bytes(row.frame or b""))


# ── putting back ──


def test_a_derived_file_that_is_there_is_never_written_to(fix: AttemptPaths) -> None:
    fix.transcript.write_bytes(b"edited\n")
    fix.tool_calls.unlink()

    assert restore(fix).files == {TOOL_CALLS: FileStatus.RESTORED, TRANSCRIPT: FileStatus.DIFFERS}
    assert fix.transcript.read_bytes() == b"edited\n"


def test_what_the_frames_no_longer_give_is_not_put_back(fix: AttemptPaths) -> None:
    delete_derived(fix)
    fix.frames.write_bytes(fix.frames.read_bytes().replace(b"Hello, world", b"Hello, moon!"))

    assert restore(fix).files == {TOOL_CALLS: FileStatus.DIFFERS, TRANSCRIPT: FileStatus.RESTORED}
    assert not fix.tool_calls.exists()


def test_without_a_seal_nothing_says_what_was_there(fix: AttemptPaths) -> None:
    fix.seal.unlink()
    fix.tool_calls.unlink()
    restored = restore(fix)

    assert restored.files == {TOOL_CALLS: FileStatus.ABSENT, TRANSCRIPT: FileStatus.SAME}
    assert restored.findings == (Finding(code="evidence.partial", file="seal.json", detail="no seal"),)
    assert not fix.tool_calls.exists()


def test_an_attempt_that_does_not_say_what_it_is_cannot_be_derived_again(fix: AttemptPaths) -> None:
    fix.attempt.write_bytes(b"{}")
    with pytest.raises(EvidenceError) as caught:
        restore(fix)
    assert (caught.value.code, caught.value.file) == ("evidence.schema", "attempt.json")
