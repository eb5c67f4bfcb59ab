"""The probe kind `sim_trace`: seeded simulations, their traces and the laws that hold for them."""

import json
import math
import resource
import sys
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from proctor.contain.bundled import bundled_bwrap
from proctor.contain.intent import open_intents
from proctor.contain.ladder import Variant, choose, survey
from proctor.errors import InputError
from proctor.evidence.artifacts import Judged
from proctor.evidence.redact import Redactor
from proctor.probe.model import Fault, Phase, ProbeRow, Verdict
from proctor.probe.run import run_probe
from proctor.probe.trace_laws import TraceReader, check_rows
from proctor.probe.view import examine_subject
from proctor.spec.load import load_spec
from proctor.spec.trace_probes import LawDirection, SimTrace, TraceLaw
from proctor.workspace.snapshot import snapshot

LAWS = [
    TraceLaw(changes="/a"),
    TraceLaw(monotone="/tick", strictly=True),
    TraceLaw(within="/a", min=0, max=10),
    TraceLaw(conserved=["/a", "/b"]),
]
SIM = """\
import json, random, sys

seed, ticks = int(sys.argv[1]), int(sys.argv[2])
chance = random.Random(seed)
a = 5
for tick in range(ticks):
    a = min(10, max(0, a + chance.choice((-1, 1))))
    print(json.dumps({"tick": tick, "a": a, "b": 10 - a}))
"""
PYTHON = str(Path(sys.executable).resolve())
COMMAND = [PYTHON, "sim.py", "{seed}", "{ticks}"]

Run = Callable[..., ProbeRow]


@pytest.fixture(params=[Variant.BUNDLED_BWRAP])
def run(request: pytest.FixtureRequest, tmp_path: Path) -> Run:
    """Run a simulation, whose source is given, in the fence."""
    containment = choose(each for each in survey(bundled_bwrap=bundled_bwrap()) if each.variant is request.param)
    subject, keep = tmp_path / "subject", tmp_path / "kept"
    for each in (subject, keep, tmp_path / "scratch"):
        each.mkdir()

    def run_now(source: str, *, command: list[str] | str = COMMAND, **options: Any) -> ProbeRow:
        (subject / "sim.py").write_text(source)
        digest = snapshot(subject).digest
        spec = SimTrace(command=command, **{"laws": LAWS, **options})

        async def main() -> ProbeRow:
            async with open_intents(tmp_path / "spawns") as intents:
                return await run_probe(
                    spec,
                    index=0,
                    phase=Phase.FINAL,
                    subject=examine_subject(subject, digest),
                    scratch=tmp_path / "scratch",
                    containment=containment,
                    intents=intents,
                    redactor=Redactor([]),
                    keep=keep,
                )

        row = anyio.run(main)
        assert list((tmp_path / "scratch").iterdir()) == []
        assert snapshot(subject).digest == digest
        return row

    return run_now


def describe(row: ProbeRow) -> str:
    return f"{row.summary}\n{row.stdout_tail}{row.stderr_tail}"


@pytest.mark.long
@pytest.mark.requirement("probe.kinds")
@pytest.mark.parametrize("run", [Variant.BUNDLED_BWRAP, Variant.UNSHARE], indirect=True)
def test_sim_trace_passes_for_a_seeded_simulation_and_fails_for_one_that_breaks_a_law(run: Run) -> None:
    good = run(SIM)
    bad = run(SIM.replace('"b": 10 - a', '"b": 10 - a + tick // 50'))

    summary = "100 ticks with each of two seeds, and the same trace again with the first"
    assert (good.verdict, good.summary, good.judged) == (Verdict.PASS, summary, Judged.OUTSIDE), describe(good)
    assert good.argv == (PYTHON, "sim.py", "1", "100")
    assert len(good.programs) == len(set(good.programs)) > 0
    assert good.artifacts == ()
    assert (bad.verdict, bad.judged) == (Verdict.FAIL, Judged.OUTSIDE)
    assert bad.summary == "tick 51: the sum of /a and /b is 11, after 10 at tick 1", describe(bad)


REPLAY = """\
import os, pathlib, subprocess, sys, time

text = "".join(f'{{"tick": {tick}, "a": {(time.time_ns() >> 10) % 10}, "b": 0}}\\n' for tick in range(100))
for place in (".", os.environ["HOME"], os.environ["TMPDIR"], OUT, "/tmp", "/var/tmp", "/dev/shm"):
    file = pathlib.Path(place, f"cached-{sys.argv[1]}")
    try:
        if file.exists():
            text = file.read_text()
        file.write_text(text)
    except OSError:
        pass
print(text, end="")
""".replace("OUT", 'os.path.join(os.path.dirname(os.environ["HOME"]), "out")')
CHANGES = [TraceLaw(changes="/a")]
SIMULATIONS: dict[str, tuple[str, dict[str, Any], str]] = {
    "canned-trace": (SIM.replace("Random(seed)", "Random(1)"), {}, "two different seeds give the same trace"),
    "unseeded": (SIM.replace("Random(seed)", "Random()"), {}, "two runs with the same seed differ"),
    "replayed-from-an-earlier-run": (REPLAY, {"laws": CHANGES}, "two runs with the same seed differ"),
    "lawful-with-one-seed-only": (SIM.replace('"b": 10 - a', '"b": 10 - a if seed == 1 else 10'), {}, "the sum of /a"),
    "one-row-missing": (SIM.replace("range(ticks)", "range(ticks - 1)"), {}, "the trace has 99 rows"),
    "one-row-more": (SIM.replace("range(ticks)", "range(ticks + 1)"), {}, "more rows than the 100 ticks"),
    "no-output": ("", {}, "the trace has 0 rows"),
    "exit-code": (f"{SIM}\nsys.exit(3)\n", {}, "exited 3"),
    "killed": (f"{SIM}\nsys.stdout.flush()\nimport os\nos.kill(os.getpid(), 15)\n", {}, "was killed by signal 15"),
    "nan": (SIM.replace('"b": 10 - a', '"b": float("nan")'), {}, "tick 1: the row is not a JSON object"),
    "infinity": (SIM.replace('"b": 10 - a', '"b": float("inf")'), {}, "tick 1: the row is not a JSON object"),
    "text": (
        SIM.replace('"a": a', '"a": str(a) if tick == 6 else a'),
        {"laws": LAWS[2:]},
        "tick 7: /a is not a finite",
    ),
    "missing-pointer": (
        SIM.replace('"tick": tick', '"tick" if tick < 9 else "t": tick'),
        {},
        "tick 10: there is no",
    ),
    "not-utf-8": ('import sys\nsys.stdout.buffer.write(b\'{"a": "\\xff"}\\n\')\n', {}, "tick 1: the row is not UTF-8"),
    "deep": ("print('{\"a\": ' + '[' * 500_000 + ']' * 500_000 + '}')\n", {}, "tick 1: the row is nested too deeply"),
    "long-row": ("print('{\"a\": \"' + 'x' * 3_000_000 + '\"}')\n", {}, "tick 1: the row is longer than 1 MiB"),
    "blank-row": ("print()\n", {}, "tick 1: the row is not a JSON object"),
    "huge-integer": (SIM.replace('"b": 10 - a', '"b": 10 ** 400'), {}, "tick 1: /b is not a finite number"),
}


@pytest.mark.long
@pytest.mark.requirement("probe.outside")
@pytest.mark.parametrize(("source", "options", "summary"), SIMULATIONS.values(), ids=SIMULATIONS)
def test_sim_trace_fails_for_a_simulation_that_deceives_or_prints_something_else(
    run: Run, source: str, options: dict[str, Any], summary: str, tmp_path: Path
) -> None:
    row = run(source, **options)
    assert (row.verdict, row.judged) == (Verdict.FAIL, Judged.OUTSIDE), describe(row)
    assert summary in row.summary, describe(row)
    kept = [tmp_path / "kept" / each.file for each in row.artifacts]
    assert kept
    assert all(each.is_file() for each in kept)


@pytest.mark.long
@pytest.mark.requirement("probe.outside")
@pytest.mark.parametrize("run", [Variant.UNSHARE], indirect=True)
def test_sim_trace_cannot_be_replayed_where_views_are_copies(run: Run) -> None:
    row = run(REPLAY, laws=CHANGES)
    assert row.verdict is Verdict.FAIL, describe(row)
    assert "two runs with the same seed differ" in row.summary


@pytest.mark.long
@pytest.mark.requirement("probe.process")
def test_sim_trace_of_endless_output_fails_at_its_timeout_in_bounded_memory(run: Run) -> None:
    before_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    row = run("while True:\n    print('{\"a\": 1}' * 10_000)\n", timeout="3s")
    assert (row.verdict, row.timed_out, row.summary) == (Verdict.FAIL, True, "the runs did not end within 3 s")
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before_kib < 64 * 1024


@pytest.mark.long
@pytest.mark.requirement("probe.process")
def test_sim_trace_shares_one_timeout_among_its_runs(run: Run) -> None:
    slow = SIM.replace("seed, ticks", "import time\ntime.sleep(1.2)\nseed, ticks", 1)
    row = run(slow, timeout="2s")
    assert (row.verdict, row.summary) == (Verdict.FAIL, "the runs did not end within 2 s"), describe(row)
    assert row.duration_ms < 10_000


@pytest.mark.long
@pytest.mark.requirement("probe.outside")
def test_sim_trace_of_a_million_ticks_is_judged_in_bounded_memory(run: Run) -> None:
    source = (
        "import sys\nseed, ticks = map(int, sys.argv[1:])\n"
        'sys.stdout.writelines(f\'{{"t": {tick}, "x": {seed}}}\\n\' for tick in range(ticks))\n'
    )
    before_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    laws = [TraceLaw(monotone="/t", strictly=True)]
    row = run(source, ticks=1_000_000, laws=laws, timeout="200s")
    assert row.verdict is Verdict.PASS, describe(row)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before_kib < 64 * 1024


@pytest.mark.requirement("probe.outside")
def test_sim_trace_larger_than_its_limit_fails_with_the_tick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("proctor.probe.trace_laws.MAX_TRACE_BYTES", 1024 * 1024)
    reader = TraceReader([TraceLaw(changes="/a")], ticks=10)
    for _ in range(3):
        reader.feed(json.dumps({"a": "x" * 500_000}).encode() + b"\n")
    assert reader.end() == "tick 3: the trace is larger than 1 MiB"


@pytest.mark.requirement("probe.process")
def test_sim_trace_without_its_program_is_unavailable_or_fails(run: Run) -> None:
    tool, file = run(SIM, command=["sim-that-is-not-here", "{seed}"]), run(SIM, command=["./sim", "{seed}"])
    assert (tool.verdict, tool.fault) == (Verdict.UNAVAILABLE, Fault.MACHINE)
    assert (file.verdict, file.summary) == (Verdict.FAIL, "./sim is not in the workspace")


# ── the laws ──

numbers = st.integers(-100, 100) | st.floats(-100, 100)
values = numbers | st.none() | st.booleans() | st.text(max_size=3)
rows_of_values = st.lists(st.fixed_dictionaries({"x": values}, optional={"y": values}), min_size=1, max_size=8)


def is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


@pytest.mark.requirement("probe.kinds")
@given(
    rows=rows_of_values, low=numbers, high=numbers, tolerance=st.floats(0, 10), direction=st.sampled_from(LawDirection)
)
def test_sim_trace_laws_hold_exactly_if_their_definitions_do(
    rows: list[dict[str, Any]], low: float, high: float, tolerance: float, direction: LawDirection
) -> None:
    xs = [row["x"] for row in rows]
    pairs = list(pairwise(xs))
    are_numbers = all(map(is_number, xs))
    have_both = are_numbers and all(is_number(row.get("y")) for row in rows)
    sums = [math.fsum((row["x"], row["y"])) for row in rows] if have_both else []
    is_up = direction is LawDirection.UP
    expected = {
        TraceLaw(changes="/x"): any(x != xs[0] for x in xs),
        TraceLaw(monotone="/x", direction=direction): are_numbers
        and all(a <= b if is_up else a >= b for a, b in pairs),
        TraceLaw(monotone="/x", direction=direction, strictly=True): are_numbers
        and all(a < b if is_up else a > b for a, b in pairs),
        TraceLaw(within="/x", min=low): are_numbers and all(x >= low for x in xs),
        TraceLaw(within="/x", max=high): are_numbers and all(x <= high for x in xs),
        TraceLaw(within="/x", min=low, max=high): are_numbers and all(low <= x <= high for x in xs),
    }
    for law, holds in expected.items():
        assert (check_rows([law], rows) is None) is holds, law
    conserved = TraceLaw(conserved=["/x", "/y"], tolerance=tolerance)
    assert (check_rows([conserved], rows) is None) is (have_both and all(abs(s - sums[0]) <= tolerance for s in sums))


@pytest.mark.requirement("probe.kinds")
@given(rows=rows_of_values, data=st.data())
def test_sim_trace_is_read_the_same_in_whatever_pieces_it_arrives(
    rows: list[dict[str, Any]], data: st.DataObject
) -> None:
    text = "\n".join(map(json.dumps, rows)).encode() + data.draw(st.sampled_from([b"", b"\n"]))
    laws = [TraceLaw(changes="/x"), TraceLaw(within="/y", min=0)]
    reader = TraceReader(laws, ticks=len(rows))
    while text:
        size = data.draw(st.integers(1, len(text)))
        reader.feed(text[:size])
        text = text[size:]
    assert reader.end() == check_rows(laws, rows)


@pytest.mark.requirement("probe.kinds")
@given(trace=st.binary(max_size=200))
def test_sim_trace_of_any_bytes_raises_nothing(trace: bytes) -> None:
    reader = TraceReader(LAWS, ticks=2)
    reader.feed(b'{"tick": 1, "a": 1, "b": 1}\n' + trace)
    reader.end()


# ── the spec ──


@pytest.mark.requirement("probe.kinds")
@pytest.mark.parametrize(
    ("keys", "errors"),
    [
        ("command: [./sim], laws: [{changes: /a}]", ["command: the command does not contain `{seed}`"]),
        (
            "command: './sim {seed}', seed: 4, other_seed: 4, laws: [{changes: /a}]",
            ["other_seed: 4 is the same as `seed`"],
        ),
        (
            "command: './sim {seed}', ticks: 1, laws: [{}, {changes: /a, monotone: b}, {within: /a}]",
            [
                "laws[0]: it has no rule",
                "laws[1]: it has `changes` and `monotone`",
                "laws[1].monotone: `b` is not a JSON pointer",
                "laws[1].changes: nothing changes within 1 tick",
                "laws[2].within: `within` needs the key `min` or `max`",
            ],
        ),
        (
            "command: './sim {seed}', laws: [{within: /a, min: 2, max: 1}, {conserved: [/a, /~2], tolerance: -1}]",
            [
                "laws[0].min: 2 is greater than `max`",
                "laws[1].conserved[1]: `/~2` is not a JSON pointer",
                "laws[1].tolerance: -1 is less than 0",
            ],
        ),
        (
            "command: './sim {seed}', laws: [{changes: /a, direction: down, tolerance: 1}]",
            [
                "laws[0].direction: `direction` has no effect without `monotone`",
                "laws[0].tolerance: `tolerance` has no effect without `conserved`",
            ],
        ),
        ("command: './sim {seed}', laws: []", ["laws: expected a list of length >= 1"]),
        ("command: './sim {seed}', ticks: 1000001, laws: [{changes: /a}]", ["ticks: expected an integer <= 1000000"]),
    ],
)
def test_sim_trace_that_cannot_be_judged_is_an_error_of_the_spec(tmp_path: Path, keys: str, errors: list[str]) -> None:
    spec = tmp_path / "spec.yaml"
    spec.write_text(
        "version: 1\ncampaign: c\nmissions:\n"
        f"  - {{id: m, prompt: p, script: s, probes: [{{kind: sim_trace, {keys}}}]}}\n"
        "flows: [{id: f, runtime: [process]}]\n"
    )
    (tmp_path / "s").write_text("steps: []\n")
    with pytest.raises(InputError) as raised:
        load_spec(spec)
    found = [each for each in raised.value.all_errors if each.key is not None and "probes" in each.key]
    texts = [f"{each.key}: {each.what}".removeprefix("missions[0].probes[0].") for each in found]
    assert [text[: len(error)] for text, error in zip(texts, errors, strict=True)] == errors
    assert {each.line for each in found} == {4}


@pytest.mark.requirement("probe.kinds")
@pytest.mark.parametrize("number", [math.nan, math.inf, 10**400], ids=["nan", "inf", "huge"])
def test_sim_trace_built_in_python_refuses_limits_that_are_not_finite(number: float) -> None:
    spec = SimTrace(command="./sim {seed}", laws=[TraceLaw(within="/a", max=number)])
    assert [problem.key for problem in spec.problems()] == ["laws[0].max"]
