"""The probe kind `stdout_golden`: each case's output equals its golden, which no program in the fence can read."""

from pathlib import Path
from typing import Any

import pytest

from proctor.canonical import encode
from proctor.contain.ladder import Variant
from proctor.evidence.artifacts import Judged
from proctor.evidence.secrets import Secret
from proctor.probe.kind import MAX_OUTPUT_BYTES
from proctor.probe.kinds.stdout_golden import normalize
from proctor.probe.model import Fault, Verdict
from proctor.spec.command_probes import Normalization, StdoutCase, StdoutGolden
from tests.probe.command_bench import CommandBench, describe, load_errors

GREET = "echo Hello, $1\n"


@pytest.fixture(params=[Variant.BUNDLED_BWRAP, Variant.UNSHARE])
def bench(request: pytest.FixtureRequest, tmp_path: Path) -> CommandBench:
    """A bench whose views are overlays, and one whose views are copies."""
    return CommandBench(tmp_path, variant=request.param)


@pytest.fixture
def overlays(tmp_path: Path) -> CommandBench:
    return CommandBench(tmp_path)


def one(command: str | list[str], *, normalize: list[Normalization] | None = None, **options: Any) -> StdoutGolden:
    timeout = options.pop("timeout", "30s")
    case = StdoutCase(command=command, golden="golden", **options)
    return StdoutGolden(cases=[case], normalize=normalize or [], timeout=timeout)


@pytest.mark.long
@pytest.mark.requirement("probe.kinds")
@pytest.mark.requirement("probe.outside")
def test_stdout_golden_compares_each_case_and_never_shows_the_golden(bench: CommandBench) -> None:
    spec = StdoutGolden(
        cases=[
            StdoutCase(command=["bash", "greet.sh", "Ada"], golden="ada"),
            StdoutCase(command="read name && bash greet.sh $name", stdin="Bob\n", golden="bob"),
            StdoutCase(command="echo gone >&2; exit 3", golden="empty", exit=3),
        ]
    )
    right = {"ada": b"Hello, Ada\n", "bob": b"Hello, Bob\n", "empty": b""}
    passed = bench.judge(spec, {"greet.sh": GREET}, goldens=right)
    assert (passed.verdict, passed.summary, passed.judged, bench.kept) == (
        Verdict.PASS,
        "3 cases passed",
        Judged.OUTSIDE,
        {},
    ), describe(passed)

    failed = bench.run(spec, goldens=right | {"bob": b"Hello, Robert\n"})
    assert (failed.verdict, failed.summary, failed.judged) == (
        Verdict.FAIL,
        "1 of 3 cases failed: case 2 exited 0 and printed 'Hello, Bob\\n'",
        Judged.OUTSIDE,
    )
    assert failed.argv == ("bash", "-c", "read name && bash greet.sh $name")
    assert bench.kept == {"probe-1-final-case-2-stdout.txt": b"Hello, Bob\n"}
    assert "Robert" not in encode(failed).decode()


@pytest.mark.requirement("probe.outside")
def test_stdout_golden_is_nowhere_in_the_fence(overlays: CommandBench) -> None:
    golden = b"what only the golden says 5127\n"
    # The parent folder of HOME is the one in which everything for this probe is made.
    search = (
        "cat /proc/*/environ /proc/*/cmdline; grep -rs 'say[s] 5127' . $HOME/.. /tmp /var/tmp /dev/shm; echo looked"
    )
    row = overlays.judge(one(search), {"look": ""}, goldens={"golden": golden})
    assert row.verdict is Verdict.FAIL
    assert row.stdout_tail.endswith("looked\n"), describe(row)
    assert b"says 5127" not in encode(row) + b"".join(overlays.kept.values())


@pytest.mark.requirement("probe.kinds")
def test_stdout_golden_cases_share_nothing(bench: CommandBench) -> None:
    look = "ls -A . $HOME $TMPDIR | grep -c left; touch left $HOME/left $TMPDIR/left; true"
    spec = StdoutGolden(cases=[StdoutCase(command=look, golden="golden") for _ in range(3)])
    row = bench.judge(spec, {}, goldens={"golden": b"0\n"})
    assert row.verdict is Verdict.PASS, describe(row)


@pytest.mark.long
def test_stdout_golden_names_every_failed_case(overlays: CommandBench) -> None:
    spec = StdoutGolden(cases=[StdoutCase(command=f"echo {number}", golden="golden") for number in range(7)])
    row = overlays.judge(spec, {}, goldens={"golden": b"0\n"})
    assert row.summary == ("6 of 7 cases failed: case 2 exited 0 and printed '1\\n'; also case 3, 4, 5 and 2 more")
    assert len(overlays.kept) == 6


def test_stdout_golden_compares_bytes_that_are_not_utf8(overlays: CommandBench) -> None:
    spec = one("printf 'caf\\xe9 \\x00\\xff\\n'")
    assert overlays.judge(spec, {}, goldens={"golden": b"caf\xe9 \x00\xff\n"}).verdict is Verdict.PASS
    row = overlays.run(spec, goldens={"golden": b"caf\xe8 \x00\xff\n"})
    assert (row.verdict, row.summary) == (
        Verdict.FAIL,
        "1 of 1 case failed: case 1 exited 0 and printed 'caf\ufffd \\x00\ufffd\\n'",
    )
    assert overlays.kept == {"probe-1-final-case-1-stdout.txt": b"caf\xe9 \x00\xff\n"}


@pytest.mark.long
@pytest.mark.requirement("probe.process")
def test_stdout_golden_bounds_output_of_100_mb(overlays: CommandBench) -> None:
    row = overlays.judge(one("yes | head -c 100000000"), {}, goldens={"golden": b"y\n"})
    assert (row.verdict, row.exit_code) == (Verdict.FAIL, 0)
    assert row.summary.endswith("… (1048576 bytes)")
    assert [len(content) for content in overlays.kept.values()] == [64 * 1024]


def test_stdout_golden_masks_a_secret_at_the_end_of_what_was_read(tmp_path: Path) -> None:
    secret = Secret(name="TOKEN", value="hunter2-hunter2-hunter2")
    bench = CommandBench(tmp_path, secrets=[secret])
    printed = b"x" * (MAX_OUTPUT_BYTES - 6) + secret.value.encode() * 2
    bench.judge(one(["cat", "printed"]), {"printed": printed}, goldens={"golden": b"x"})
    [kept] = bench.kept.values()
    assert b"hunter" not in kept
    row = bench.judge(one(["cat", "shown"]), {"shown": f"a {secret.value}"}, goldens={"golden": b"x"})
    assert "hunter" not in encode(row).decode()
    assert all(b"hunter" not in content for content in bench.kept.values())


def test_stdout_golden_fails_a_longer_output_that_begins_like_the_golden(overlays: CommandBench) -> None:
    row = overlays.judge(one("echo a; echo b"), {}, goldens={"golden": b"a\n"})
    assert row.verdict is Verdict.FAIL


def test_stdout_golden_fails_output_that_is_cut_where_it_equals_the_golden(overlays: CommandBench) -> None:
    spec = one(["cat", "printed"], normalize=[Normalization.TRAILING_SPACE])
    row = overlays.judge(spec, {"printed": b"a" + b" " * MAX_OUTPUT_BYTES + b"b"}, goldens={"golden": b"a"})
    assert row.verdict is Verdict.FAIL


@pytest.mark.requirement("probe.kinds")
def test_stdout_golden_fails_another_exit_code_whatever_is_printed(overlays: CommandBench) -> None:
    row = overlays.judge(one("echo a; exit 3"), {}, goldens={"golden": b"a\n"})
    assert (row.verdict, row.summary) == (Verdict.FAIL, "1 of 1 case failed: case 1 exited 3")


@pytest.mark.long
@pytest.mark.requirement("probe.process")
def test_stdout_golden_ends_a_case_at_its_deadline(overlays: CommandBench) -> None:
    row = overlays.judge(one("echo a; sleep 600 & sleep 600", timeout="1s"), {}, goldens={"golden": b"a\n"})
    assert (row.verdict, row.timed_out) == (Verdict.FAIL, True)
    assert row.summary == "1 of 1 case failed: case 1 did not end within 1 s"


def test_stdout_golden_without_its_program(overlays: CommandBench) -> None:
    absent = overlays.judge(one(["no-such-tool-here"]), {}, goldens={"golden": b""})
    assert (absent.verdict, absent.fault, absent.summary, absent.judged) == (
        Verdict.UNAVAILABLE,
        Fault.MACHINE,
        "1 of 1 case could not be judged: case 1 no-such-tool-here is not on this machine",
        None,
    )
    removed = overlays.run(one(["./run"]), goldens={"golden": b""})
    assert (removed.verdict, removed.fault) == (Verdict.FAIL, None)
    # One case that fails decides, whatever cannot be judged.
    cases = [StdoutCase(command=command, golden="golden") for command in (["no-such-tool-here"], ["false"])]
    assert overlays.run(StdoutGolden(cases=cases), goldens={"golden": b""}).verdict is Verdict.FAIL


def test_stdout_golden_string_runs_in_bash_and_a_list_does_not(overlays: CommandBench) -> None:
    text = overlays.judge(one("echo a && [[ $BASH ]] && echo b"), {}, goldens={"golden": b"a\nb\n"})
    words = overlays.run(one(["echo", "a", "&&", "b"]), goldens={"golden": b"a && b\n"})
    assert (text.verdict, words.verdict) == (Verdict.PASS, Verdict.PASS)


@pytest.mark.parametrize(
    ("how", "printed", "golden"),
    [
        ("line_endings", b"a\r\nb\rc\n", b"a\nb\nc\n"),
        ("trailing_space", b"a \t\n b\n  ", b"a\n b\n"),
        ("ansi", b"\x1b[1;31mred\x1b[0m \x1b]0;title\x07\x1b(Bx\x1b]8;;http://a\x1b\\", b"red x"),
    ],
)
def test_stdout_golden_normalizes_both_sides_only_where_declared(
    overlays: CommandBench, how: str, printed: bytes, golden: bytes
) -> None:
    one_sided, files = one(["cat", "printed"]), {"printed": printed}
    both = one(["cat", "printed"], normalize=[Normalization(how)])
    assert overlays.judge(one_sided, files, goldens={"golden": golden}).verdict is Verdict.FAIL
    assert overlays.run(both, goldens={"golden": golden}).verdict is Verdict.PASS
    assert overlays.run(both, goldens={"golden": printed}).verdict is Verdict.PASS
    assert overlays.run(both, goldens={"golden": golden + b"!"}).verdict is Verdict.FAIL


@pytest.mark.parametrize(
    "data",
    [b" " * 1_000_000 + b"x", b"\x1b[" * 500_000, b"\x1b]" * 500_000, b"\x1b[1" + b";" * 1_000_000],
    ids=["spaces", "sequences", "strings", "parameters"],
)
def test_normalization_takes_linear_time(data: bytes) -> None:
    # With a pattern that backtracks, this would take hours and reach the time limit of a test.
    assert len(normalize(data, list(Normalization))) <= len(data)


@pytest.mark.parametrize(
    ("probe", "fault"),
    [
        (
            "cases: [{command: [a], golden: ok.txt}, {command: [a], golden: goldens/b.txt}]",
            ("spec.missing-file", 8, "missions[0].probes[0].cases[1].golden", "`goldens/b.txt` does not exist"),
        ),
        ("cases: []", ("spec.type", 8, "missions[0].probes[0].cases", "expected a list of length >= 1")),
        (
            "cases: [{command: [], golden: ok.txt}]",
            ("spec.type", 8, "missions[0].probes[0].cases[0].command", "expected a list of length >= 1"),
        ),
    ],
)
def test_stdout_golden_errors_name_file_line_and_key(tmp_path: Path, probe: str, fault: tuple[Any, ...]) -> None:
    assert load_errors(tmp_path, f"stdout_golden, {probe}") == [fault]
