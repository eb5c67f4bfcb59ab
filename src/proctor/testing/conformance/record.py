"""Cases of the evidence: it contains no secret, and derived files can be derived again byte for byte."""

from secrets import token_hex

from proctor.attempt.rederive import rederive
from proctor.event.model import TextStreamed, ToolStreamed
from proctor.event.outcome import Outcome
from proctor.evidence.attempt_files import AttemptFiles
from proctor.testing.conformance.case import must
from proctor.testing.conformance.subject import DONE, Subject

_FILE, _NAME = "planted.env", "CONFORMANCE_TOKEN"


async def tripwire(subject: Subject) -> None:
    planted = f"zq-{token_hex(12)}"
    file = subject.folder / _FILE
    file.write_text(f"{_NAME}={planted}\n")
    evidence = await subject.mission(
        {"run": f"printf '%s\\n' {planted}"},
        {"say": {"text": f"It is {planted}.\n{DONE}", "chunk_chars": 3}},
        prompt=f"The password is {planted}; keep it.",
        secrets=[{"file": str(file)}],
    )
    evidence.must_end(Outcome.COMPLETED)
    leaking = [path for path in evidence.root.rglob("*") if path.is_file() and planted.encode() in path.read_bytes()]
    must(not leaking, f"the secret is in {', '.join(path.name for path in leaking)}")
    pieces = [event.text for event in evidence.of(TextStreamed)], [event.text for event in evidence.of(ToolStreamed)]
    is_split = any(planted in "".join(each) for each in pieces)
    must(not is_split, "the secret can be put together from the pieces of a text")
    masked = f"[redacted:{_FILE}:{_NAME}]".encode()
    by_calls = (evidence.paths.tool_calls,) if subject.has_calls else ()
    for path in (evidence.paths.prompt, evidence.paths.frames, evidence.paths.transcript, *by_calls):
        must(
            masked in path.read_bytes(),
            f"{path.name} has no redaction mark: the secret never reached it, so the case shows nothing",
        )


async def rederived(subject: Subject) -> None:
    evidence = await subject.mission({"run": "echo out; false"}, {"say": DONE})
    evidence.must_end(Outcome.COMPLETED)
    with AttemptFiles(evidence.paths) as files:
        derived = rederive(files).files
    for name, data in derived.items():
        must((evidence.paths.folder / name).read_bytes() == data, f"{name} is not what its frames derive to")
