"""No cut of ours leaves a part of a secret, wherever it falls."""

from base64 import b64encode
from collections.abc import Callable
from pathlib import Path

import anyio
import pytest

from proctor.contain.intent import open_intents
from proctor.contain.ladder import choose, survey
from proctor.evidence.redact import Redactor
from proctor.evidence.secrets import Secret
from proctor.probe.kind import Judgement, ProbeWorkspace
from proctor.probe.model import Phase, ProbeRow, Verdict
from proctor.probe.run import run_probe
from proctor.probe.tail import TAIL_BYTES, head, tail
from proctor.probe.view import examine_subject
from proctor.spec.command_probes import HeadlessRun
from proctor.transport.process import ExitStatus, ProcessResult
from proctor.workspace.snapshot import snapshot

VALUE = "Zq81-päss/Word-xx77-kk"
REDACTOR = Redactor([Secret(name="MINE", value=VALUE)])
SPELLINGS = [VALUE, b64encode(VALUE.encode()).decode(), "sk-proj-0Aa1Bb2Cc3Dd4Ee5Ff6Gg7Hh8Ii9"]
SHOWN_CHARS = 200


def shows(text: str, spelling: str) -> bool:
    """Any 4 characters of it, but for what leads up to a token and stays readable."""
    body = spelling.removeprefix("sk-")
    return any(body[at : at + 4] in text for at in range(len(body) - 3))


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_a_tail_begins_with_no_end_of_a_secret(spelling: str) -> None:
    secret = spelling.encode()
    for after in range(TAIL_BYTES - len(secret) - 3, TAIL_BYTES + 4):
        said = tail(b"x" * 3000 + b" " + secret + b" " + b"." * after, redactor=REDACTOR)
        assert not shows(said, spelling), after


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_a_tail_of_nothing_but_secrets_shows_none(spelling: str) -> None:
    said = tail(f"{spelling} ".encode() * 1000, redactor=REDACTOR)
    assert not shows(said, spelling)


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_output_that_was_cut_ends_with_no_beginning_of_a_secret(spelling: str) -> None:
    secret = spelling.encode()
    for kept in range(len(secret) + 1):
        said = tail(b"before " + secret[:kept], redactor=REDACTOR, is_cut=True)
        assert not shows(said, spelling), kept
        assert said.startswith("before "), kept
        assert said.endswith("\n[output after this left out]"), kept


@pytest.mark.long
@pytest.mark.parametrize("spelling", SPELLINGS)
def test_a_head_ends_with_no_beginning_of_a_secret(spelling: str) -> None:
    for before in range(SHOWN_CHARS - len(spelling) - 3, SHOWN_CHARS + 4):
        data = f"{'.' * before} {spelling} {'.' * 20_000}".encode()
        assert not shows(head(data, redactor=REDACTOR, limit_chars=SHOWN_CHARS), spelling), before
    # What is masked takes less room, so that the end of what is looked at comes into view.
    for before in range(len(spelling) + 2):
        data = (" " * before + f"{spelling} " * 1000).encode()
        assert not shows(head(data, redactor=REDACTOR, limit_chars=20_000), spelling), before


def ended(stdout: bytes, *, is_cut: bool) -> ProcessResult:
    exit_status = ExitStatus(code=0, signal=None, is_exact=True)
    return ProcessResult(
        exit=exit_status, stdout=stdout, stderr=stdout, timed_out=False, stdout_cut=is_cut, stderr_cut=is_cut
    )


@pytest.fixture
def run(tmp_path: Path) -> Callable[..., ProbeRow]:
    (tmp_path / "scratch").mkdir()
    (tmp_path / "subject").mkdir()

    def run_now(command: str, **options: object) -> ProbeRow:
        async def main() -> ProbeRow:
            async def judged(spec: HeadlessRun, bench: ProbeWorkspace) -> Judgement:
                summary = "." * 490 + VALUE
                return Judgement(verdict=Verdict.FAIL, summary=summary, finished=ended(b"a Zq81-p\xc3", is_cut=True))

            kinds = {"kinds": {"headless_run": judged}} if command == "judged" else {}
            async with open_intents(tmp_path / "spawns") as intents:
                return await run_probe(
                    HeadlessRun(command=command, **options),  # type: ignore[arg-type]
                    index=0,
                    phase=Phase.FINAL,
                    subject=examine_subject(tmp_path / "subject", snapshot(tmp_path / "subject").digest),
                    scratch=tmp_path / "scratch",
                    containment=choose(survey()),
                    intents=intents,
                    redactor=REDACTOR,
                    **kinds,  # type: ignore[arg-type]
                )

        return anyio.run(main)

    return run_now


def test_a_summary_is_redacted_before_it_is_cut(run: Callable[..., ProbeRow]) -> None:
    row = run("judged")
    assert (row.summary, row.stdout_tail) == ("." * 490 + "[redacted:", "a \n[output after this left out]")
    assert row.stderr_tail == row.stdout_tail


def test_what_a_mismatch_shows_is_redacted_before_it_is_cut(run: Callable[..., ProbeRow]) -> None:
    row = run(f"printf %190s; echo '{VALUE}'", stdout="else")
    assert row.summary == f"exited 0 and printed {' ' * 190 + '[redacted:'!r}… ({190 + len(VALUE.encode()) + 1} bytes)"
