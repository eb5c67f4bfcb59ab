"""The checklist for whoever brings a runtime, written from the conformance suite itself."""

from collections.abc import Iterator
from typing import Final

from proctor.runtime.capability import WORDS
from proctor.runtime.samples import STRANGER, Samples
from proctor.testing.conformance import Case, cases

_EXAMPLE: Final = """\
```python
import anyio
import pytest
from proctor.testing.conformance import Result, cases, open_subject, run_case


@pytest.mark.parametrize("case", cases(), ids=lambda case: case.id)
def test_my_runtime(case):
    async def tried():
        async with open_subject("my_runtime") as subject:
            return await run_case(case, subject)

    verdict = anyio.run(tried)
    assert verdict.result is not Result.FAILED, verdict.what
```"""


def onboarding() -> Iterator[str]:
    """The parts of the page."""
    yield (
        "A runtime is a way to drive one agent program. This is what it has to bring, and what the conformance suite "
        "then asks of it: the real program, offline, beside the scripted model."
    )
    yield "## What to bring"
    yield (
        "- [ ] A class that is a `Runtime` (`proctor.runtime.base`), and an entry point of the group "
        "`proctor.runtimes` that names it.\n"
        "- [ ] `claims`: only what it can do. What it cannot is refused before anything is sent; it is a gap that is "
        "told, and no defect.\n"
        "- [ ] `normalizer()`: recorded rows in, events out; no file, clock or chance.\n"
        "- [ ] `open_host()` and its sessions, on `proctor.runtime.talk` where the program speaks lines: each line is "
        "on record before anybody acts on it.\n"
        f"- [ ] `samples` (`proctor.runtime.samples`): {', '.join(f'`{name}`' for name in Samples.__slots__)}. They "
        "let the suite break what the program says. A request that nobody knows has the id "
        f"`{STRANGER}`. Without samples the cases that need them are *not applicable*, which is never a pass.\n"
        "- [ ] A dialect of the scripted model for the tools that the program offers; or, where it asks no model, a "
        "`Stage` (`proctor.testing.conformance.stage`) that makes it do what a script says."
    )
    yield "## What it has to show"
    yield (
        "`proctor runtimes conformance ID` tells of each case: *passed*, *failed*, *refused* (its claim is not made, "
        "and asking for it all the same was refused, typed) or *not applicable* (it could not be tried, and why). "
        "A pass proves the claim for the program with that sha256, and for no other; "
        "[the matrix](../reference/matrix.md) shows both."
    )
    for claim in (*WORDS, None):
        yield from _section(claim)
    yield "## In your own tests"
    yield (
        "The suite is data: `cases()` gives it, `run_case` puts one to a runtime. This file is the whole of it, "
        "for pytest:"
    )
    yield _EXAMPLE


def _section(claim: str | None) -> Iterator[str]:
    yield "### Whatever it claims" if claim is None else f"### `{claim}`: it can {WORDS[claim]}"
    yield "\n".join(_line(case) for case in cases() if case.proves == claim)


def _line(case: Case) -> str:
    return f"- [ ] **{case.id}**: {case.sentence} Supply: {case.supply}."
