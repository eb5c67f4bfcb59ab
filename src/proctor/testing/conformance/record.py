"""Cases of the record: no secret is in it, and what is derived from it is derived again to the byte."""

from secrets import token_hex

from proctor.attempt.rederive import rederive
from proctor.event.model import TextStreamed, ToolStreamed
from proctor.event.outcome import Outcome
from proctor.testing.conformance.case import must
from proctor.testing.conformance.subject import DONE, Subject

_FILE, _NAME = "planted.env", "CONFORMANCE_TOKEN"


async def canary(subject: Subject) -> None:
    planted = f"zq-{token_hex(12)}"
    file = subject.folder / _FILE
    file.write_text(f"{_NAME}={planted}\n")
    kept = await subject.mission(
        {"run": f"printf '%s\\n' {planted}"},
        {"say": {"text": f"It is {planted}.\n{DONE}", "chunk_chars": 3}},
        prompt=f"The password is {planted}; keep it.",
        secrets=[{"file": str(file)}],
    )
    kept.must_end(Outcome.COMPLETED)
    told = [path for path in kept.root.rglob("*") if path.is_file() and planted.encode() in path.read_bytes()]
    must(not told, f"the secret stands in {', '.join(path.name for path in told)}")
    pieces = [event.text for event in kept.of(TextStreamed)], [event.text for event in kept.of(ToolStreamed)]
    is_split = any(planted in "".join(each) for each in pieces)
    must(not is_split, "the secret can be put together from the pieces of a text")
    masked = f"[redacted:{_FILE}:{_NAME}]".encode()
    by_calls = (kept.paths.tool_calls,) if subject.has_calls else ()
    for path in (kept.paths.prompt, kept.paths.frames, kept.paths.transcript, *by_calls):
        must(masked in path.read_bytes(), f"the secret never came by {path.name}, so nothing was shown")


async def rederived(subject: Subject) -> None:
    kept = await subject.mission({"run": "echo out; false"}, {"say": DONE})
    kept.must_end(Outcome.COMPLETED)
    for name, data in rederive(kept.paths).files.items():
        must((kept.paths.folder / name).read_bytes() == data, f"{name} is not what its frames give")
