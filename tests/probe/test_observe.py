"""Programs in the fence observe, and Proctor decodes what they saw."""

from pathlib import Path

import anyio
import msgspec
import pytest

from proctor.contain.intent import open_intents
from proctor.contain.ladder import choose, survey
from proctor.evidence.redact import Redactor
from proctor.probe.inside.service import find_free_port
from proctor.probe.kind import Judgement, ProbeWorkspace
from proctor.probe.model import Phase, ProbeRow, Verdict
from proctor.probe.observe import observe
from proctor.probe.run import run_probe
from proctor.probe.view import examine_subject
from proctor.spec.command_probes import HeadlessRun
from proctor.workspace.snapshot import snapshot


class Nothing(msgspec.Struct):
    """A request without steps."""


async def judge(spec: HeadlessRun, workspace: ProbeWorkspace) -> Judgement:
    seen = await observe(workspace, "look", Nothing(), dict[str, str], timeout_s=20, records=spec.argv)
    return Judgement(verdict=Verdict.PASS, summary=repr(seen.value), argv=spec.argv, finished=seen.finished)


def run(folder: Path) -> ProbeRow:
    subject = folder / "subject"
    for each in (subject, folder / "scratch"):
        each.mkdir()

    async def main() -> ProbeRow:
        async with open_intents(folder / "spawns") as intents:
            return await run_probe(
                HeadlessRun(command=["true"]),
                index=0,
                phase=Phase.FINAL,
                subject=examine_subject(subject, snapshot(subject).digest),
                scratch=folder / "scratch",
                containment=choose(survey()),
                intents=intents,
                redactor=Redactor([]),
                kinds={"headless_run": judge},
            )

    return anyio.run(main)


LOOK = """\
import os

from .protocol import answer


def look(request):
    try:
        open(__file__, "w").close()
        access = "writable"
    except OSError:
        access = "read-only"
    print("this is not an observation")
    return {"access": access, "package": __package__}


def main():
    answer(look)
"""


@pytest.mark.requirement("probe.outside")
def test_program_in_the_fence_is_read_only_and_its_answer_is_decoded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    programs = tmp_path / "programs"
    programs.mkdir()
    for name, text in {
        "__init__": "",
        "look": LOOK,
        "protocol": (Path(find_free_port.__code__.co_filename).parent / "protocol.py").read_text(),
    }.items():
        (programs / f"{name}.py").write_text(text)
    monkeypatch.setattr("proctor.probe.observe._PROGRAMS", programs)
    row = run(tmp_path)
    assert (row.summary, row.stderr_tail) == (
        repr({"access": "read-only", "package": "inside"}),
        "this is not an observation\n",
    )
    assert [program.path.rpartition("/")[2] for program in row.programs] == ["true"]


def test_observations_that_do_not_parse_are_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    programs = tmp_path / "programs"
    programs.mkdir()
    (programs / "__init__.py").write_text("")
    (programs / "look.py").write_text("def main():\n    print(input(), '{\"access\": 1}', sep='\\n')\n")
    monkeypatch.setattr("proctor.probe.observe._PROGRAMS", programs)
    assert run(tmp_path).summary == "None"


@pytest.mark.requirement("probe.outside")
@pytest.mark.parametrize(
    ("program", "summary"),
    [
        ("print(input(), '{}', sep='\\n')", "{}"),
        ("print('{}')", "None"),
        ("print(input(), '{}', sep='\\n'); raise SystemExit(1)", "None"),
    ],
)
def test_answer_counts_only_with_the_word_of_its_request_and_if_the_program_exits_0(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, program: str, summary: str
) -> None:
    programs = tmp_path / "programs"
    programs.mkdir()
    (programs / "__init__.py").write_text("")
    (programs / "look.py").write_text(f"def main():\n    {program}\n")
    monkeypatch.setattr("proctor.probe.observe._PROGRAMS", programs)
    assert run(tmp_path).summary == summary
