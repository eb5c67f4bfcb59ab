"""Generate the checklist for runtime authors from the conformance suite."""

from collections.abc import Iterator
from typing import Final

from proctor.model.dialects import GROUP
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
    async def run():
        async with open_subject("my_runtime") as subject:
            return await run_case(case, subject)

    verdict = anyio.run(run)
    assert verdict.result is not Result.FAILED, verdict.what
```"""


def onboarding() -> Iterator[str]:
    """Yield the parts of the page."""
    yield (
        "A runtime drives one agent program. This page lists what a runtime has to provide, and the cases that the "
        "conformance suite runs against it: with the real program, offline, and the scripted model."
    )
    yield "## What to provide"
    yield (
        "- [ ] A class that implements `Runtime` (`proctor.runtime.base`), and an entry point in the group "
        "`proctor.runtimes` that names it.\n"
        "- [ ] `capabilities`: only what it can do. Anything else is refused before it is sent, and reported as a "
        "gap, not a defect.\n"
        "- [ ] `normalizer()`: recorded rows in, events out, without files, clocks or randomness.\n"
        "- [ ] `open_host()` and its sessions, built on `proctor.runtime.line_process` if the program writes lines: "
        "each line is recorded before anything acts on it.\n"
        f"- [ ] `samples` (`proctor.runtime.samples`): {', '.join(f'`{name}`' for name in Samples.__slots__)}. The "
        "suite uses them to corrupt the program's output. An unknown request has the id "
        f"`{STRANGER}`. Without samples, the cases that need them are *not applicable*, which never counts as a pass.\n"
        "- [ ] `confinement` (`proctor.runtime.base.Confinement`), if fences or the program's own sandbox keep its "
        "commands from writing outside the workspace, the home and TMPDIR. Without it, a probe's program that changes "
        "during an attempt counts against the agent.\n"
        "- [ ] A dialect of the scripted model for the program's tools, and an entry point in the group "
        f"`{GROUP}` that has the runtime's id; or, if the program calls no model, a "
        "`Stage` (`proctor.testing.conformance.stage`) that makes it do what a script says."
    )
    yield "## What it has to prove"
    yield (
        "`proctor runtimes conformance ID` reports each case as *passed*, *failed*, *refused* (the capability is not "
        "declared, and using it anyway was refused with a typed error) or *not applicable* (the case could not be "
        "tried, with the reason). A pass proves the capability for the program with that sha256, and for no other; "
        "[the matrix](../reference/matrix.md) shows both."
    )
    for capability in (*WORDS, None):
        yield from _section(capability)
    yield "## In your own tests"
    yield (
        "The suite is data: `cases()` returns it, and `run_case` runs one case against a runtime. This is a complete "
        "pytest file:"
    )
    yield _EXAMPLE


def _section(capability: str | None) -> Iterator[str]:
    yield "### Every runtime" if capability is None else f"### `{capability}`: it can {WORDS[capability]}"
    yield "\n".join(_line(case) for case in cases() if case.proves == capability)


def _line(case: Case) -> str:
    return f"- [ ] **{case.id}**: {case.sentence} Supply: {case.supply}."
