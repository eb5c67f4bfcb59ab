"""The probe kind `output_fixture_diff`: two runs write the same files, and these equal their goldens."""

from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from proctor.canonical import encode
from proctor.contain.ladder import Variant
from proctor.evidence.artifacts import Judged
from proctor.probe.model import Fault, Verdict, ViewKind
from proctor.probe.output_formats import UnreadableOutput, read_output
from proctor.spec.command_probes import OutputFile, OutputFixtureDiff, OutputFormat
from proctor.spec.json_value import is_same_json
from tests.probe.command_bench import CommandBench, Files, describe, load_errors

MAKE = "mkdir -p build; cat names >build/greeting; cat names >$1/copy\n"
SPEC = OutputFixtureDiff(
    command="bash make.sh {out}",
    outputs=[OutputFile(path="build/greeting", golden="a"), OutputFile(path="{out}/copy", golden="b")],
)
GOLDENS = {"a": b"Ada\xff\n", "b": b"Ada\xff\n"}
FILES: Files = {"make.sh": MAKE, "names": b"Ada\xff\n"}


@pytest.fixture(params=[Variant.BUNDLED_BWRAP, Variant.UNSHARE])
def bench(request: pytest.FixtureRequest, tmp_path: Path) -> CommandBench:
    """A bench whose views are overlays, and one whose views are copies."""
    return CommandBench(tmp_path, variant=request.param)


@pytest.fixture
def overlays(tmp_path: Path) -> CommandBench:
    return CommandBench(tmp_path)


def one(command: str | list[str], path: str = "made", **options: Any) -> OutputFixtureDiff:
    timeout, code = options.pop("timeout", "30s"), options.pop("exit", 0)
    output = OutputFile(path=path, golden="golden", **options)
    return OutputFixtureDiff(command=command, outputs=[output], timeout=timeout, exit=code)


@pytest.mark.long
@pytest.mark.requirement("probe.kinds")
@pytest.mark.requirement("probe.outside")
def test_output_fixture_diff_compares_files_in_the_workspace_and_outside(bench: CommandBench) -> None:
    passed = bench.judge(SPEC, FILES, goldens=GOLDENS)
    assert (passed.verdict, passed.summary, passed.judged, passed.argv) == (
        Verdict.PASS,
        "2 outputs compared in 2 runs",
        Judged.OUTSIDE,
        ("bash", "-c", "bash make.sh {out}"),
    ), describe(passed)
    assert (bench.kept, len({passed.view, ViewKind.COPY})) == ({}, 1 if bench.variant is Variant.UNSHARE else 2)

    failed = bench.run(SPEC, goldens=GOLDENS | {"b": b"Robert\n"})
    assert (failed.verdict, failed.summary) == (Verdict.FAIL, "{out}/copy contains 'Ada\ufffd\\n'")
    assert bench.kept == {"probe-1-final-output-2-run-1.bin": b"Ada\xff\n"}
    assert "Robert" not in encode(failed).decode()


@pytest.mark.long
@pytest.mark.requirement("probe.kinds")
def test_output_fixture_diff_does_not_count_a_file_that_was_there_before(bench: CommandBench) -> None:
    old = {"made": "right\n", "build/made": "right\n"}
    for path in old:
        row = bench.judge(one(["true"], path), old, goldens={"golden": b"right\n"})
        assert (row.verdict, row.summary) == (
            Verdict.FAIL,
            f"{path} was not written as a regular file by run 1",
        )
    touched = bench.run(one(["touch", "made"]), goldens={"golden": b"right\n"})
    assert (touched.verdict, touched.summary) == (Verdict.FAIL, "made contains ''")
    written = bench.run(one("echo right >made"), goldens={"golden": b"right\n"})
    assert written.verdict is Verdict.PASS, describe(written)


def test_output_fixture_diff_does_not_count_an_old_file_behind_a_link(bench: CommandBench) -> None:
    bench.subject.mkdir()
    (bench.subject / "build").symlink_to("store")
    row = bench.judge(one(["true"], "build/made"), {"store/made": "right\n"}, goldens={"golden": b"right\n"})
    assert row.verdict is Verdict.FAIL, describe(row)


@pytest.mark.parametrize(
    "command",
    [
        "ln -s $PWD/secret made",
        "ln -s /etc/hostname made",
        "mkfifo made",
        "mkdir made",
        "rm -rf build; ln -s /etc build",
        "true",
    ],
)
@pytest.mark.parametrize("path", ["made", "{out}/made", "build/hostname"])
def test_output_fixture_diff_reads_only_regular_files_of_its_folders(
    bench: CommandBench, command: str, path: str
) -> None:
    there = "cd {out}; " if path.startswith("{out}") else ""
    golden = Path("/etc/hostname").read_bytes()
    row = bench.judge(one(there + command, path), {"secret": golden, "build/x": ""}, goldens={"golden": golden})
    assert (row.verdict, row.summary) == (Verdict.FAIL, f"{path} was not written as a regular file by run 1")


@pytest.mark.requirement("probe.kinds")
def test_output_fixture_diff_runs_share_nothing(bench: CommandBench) -> None:
    # What the first run writes anywhere would be found by the second one.
    command = "ls -A . $HOME $TMPDIR {out} | grep -c left >made; touch left $HOME/left $TMPDIR/left {out}/left; true"
    row = bench.judge(one(command), {}, goldens={"golden": b"0\n"})
    assert row.verdict is Verdict.PASS, describe(row)


@pytest.mark.long
@pytest.mark.requirement("probe.kinds")
def test_output_fixture_diff_fails_if_two_runs_differ(overlays: CommandBench) -> None:
    command = """printf '{"id": "%s", "sum": 3}' $(cat /proc/sys/kernel/random/uuid) >made"""
    golden = {"golden": b'{"sum": 3, "id": "x"}'}
    row = overlays.judge(one(command, format=OutputFormat.JSON), {}, goldens=golden)
    assert row.verdict is Verdict.FAIL
    assert row.summary.startswith('made differs between two runs: \'{"id": ')
    assert sorted(overlays.kept) == [f"probe-1-final-output-1-run-{run}.json" for run in (1, 2)]
    ignored = overlays.run(one(command, format=OutputFormat.JSON, ignore=["/id"]), goldens=golden)
    assert ignored.verdict is Verdict.PASS, describe(ignored)
    wrong = overlays.run(one(command, format=OutputFormat.JSON, ignore=["/id"]), goldens={"golden": b'{"sum": 4}'})
    assert (wrong.verdict, "4" in wrong.summary.partition("sum")[2]) == (Verdict.FAIL, False)


@pytest.mark.parametrize(
    ("options", "written", "golden", "is_equal"),
    [
        ({"format": "bytes"}, b"\xff\n", b"\xff\n", True),
        ({"format": "bytes"}, b"a\r\n", b"a\n", False),
        ({"format": "text"}, b"a\r\nb\r", b"a\nb\n", True),
        ({"format": "text"}, b"a\n", b"a\n\n", False),
        ({"format": "json"}, b' {"a": 1.0, "b": [1e2, "\\u0061"]}\n', b'{"b":[100,"a"],"a":1}', True),
        ({"format": "json"}, b"[1]", b"[true]", False),
        ({"format": "json"}, b"[0]", b"[false]", False),
        ({"format": "json"}, b"[0.1]", b"[0.10000000000000001]", False),
        ({"format": "json"}, b"[1, 2]", b"[2, 1]", False),
        ({"format": "json"}, b'{"a": null}', b"{}", False),
        ({"format": "json", "ignore": ["/a"]}, b'{"a": null}', b"{}", True),
        ({"format": "json", "ignore": ["/a/1", "/b~1c"]}, b'{"a": [1, 2, 3], "b/c": 1}', b'{"a": [1, 9, 3]}', True),
        ({"format": "json", "ignore": ["/a/1"]}, b'{"a": [1, 2, 3]}', b'{"a": [1, 2, 4]}', False),
        ({"format": "json", "ignore": ["/a/b"]}, b'{"a": 1}', b'{"a": 2}', False),
        ({"format": "jsonl"}, b'{"a": 1}\r\n\n{"a":2}', b'{"a":1}\n{"a":2}\n', True),
        ({"format": "jsonl"}, b'{"a":2}\n{"a":1}\n', b'{"a":1}\n{"a":2}\n', False),
        ({"format": "jsonl", "ignore": ["/t"]}, b'{"a":1,"t":5}\n{"a":2}\n', b'{"a":1}\n{"t":0,"a":2}\n', True),
        ({"format": "csv"}, b'a,b\r\n"1",2\r\n', b"a,b\n1,2\n", True),
        ({"format": "csv"}, b"a,b\n1,2\n", b"b,a\n2,1\n", False),
        ({"format": "csv", "ignore": ["b"]}, b"a,b,c\n1,2,3\n4\n", b"a,b,c\n1,x,3\n4\n", True),
        ({"format": "csv", "ignore": ["b"]}, b"a,b,c\n1,2,3\n", b"a,b,c\n1,2,4\n", False),
    ],
)
def test_output_fixture_diff_formats_say_what_counts(
    options: dict[str, Any], written: bytes, golden: bytes, is_equal: bool
) -> None:
    output = OutputFile(path="a", golden="b", **options | {"format": OutputFormat(options["format"])})
    assert is_same_json(read_output(written, output), read_output(golden, output)) is is_equal


@pytest.mark.parametrize(
    ("format_", "written"),
    [
        ("text", b"\xff"),
        ("json", b"\xff"),
        ("json", b""),
        ("json", b"[NaN]"),
        ("json", b"[1e99999999999999999999999]"),
        ("json", b"[" * 100_000),
        ("json", b"{} {}"),
        ("jsonl", b"{}\n{"),
        ("csv", b'a,b\n"1'),
        ("csv", b"a" * 200_000),
        ("csv", b"\xff"),
    ],
)
def test_output_fixture_diff_refuses_what_does_not_have_its_format(format_: str, written: bytes) -> None:
    with pytest.raises(UnreadableOutput):
        read_output(written, OutputFile(path="a", golden="b", format=OutputFormat(format_)))


def test_json_numbers_of_any_length_are_read_exactly() -> None:
    output = OutputFile(path="a", golden="b", format=OutputFormat.JSON)
    assert read_output(b"1" * 10_000, output) == Decimal("1" * 10_000)


def test_output_fixture_diff_says_that_an_output_does_not_have_its_format(overlays: CommandBench) -> None:
    row = overlays.judge(one("printf '\\xff{' >made", format=OutputFormat.JSON), {}, goldens={"golden": b"{}"})
    assert (row.verdict, row.summary) == (Verdict.FAIL, "made is not UTF-8: '\ufffd{'")
    assert overlays.kept == {"probe-1-final-output-1-run-1.json": b"\xff{"}


def test_output_fixture_diff_cannot_judge_with_a_golden_of_another_format(overlays: CommandBench) -> None:
    row = overlays.judge(one("echo {} >made", format=OutputFormat.JSON), {}, goldens={"golden": b"what"})
    assert (row.verdict, row.fault, row.summary) == (
        Verdict.UNAVAILABLE,
        Fault.MACHINE,
        "the golden of output 1 is not JSON",
    )


@pytest.mark.long
@pytest.mark.requirement("probe.process")
def test_output_fixture_diff_bounds_outputs_of_100_mb(overlays: CommandBench) -> None:
    command = "head -c 100000000 /dev/zero | tee made"
    row = overlays.judge(one(command), {}, goldens={"golden": b"\0"})
    assert (row.verdict, row.summary, overlays.kept) == (Verdict.FAIL, "made is larger than 16 MiB", {})
    # An output that is far larger than its golden is not parsed.
    many = "(printf '['; yes '[],' | head -c 6000000; printf '[]]') >made"
    row = overlays.run(one(many, format=OutputFormat.JSON), goldens={"golden": b"[]"})
    assert (row.verdict, row.summary[:26]) == (Verdict.FAIL, "made has 6,000,004 bytes: ")


@pytest.mark.long
@pytest.mark.requirement("probe.process")
def test_output_fixture_diff_ends_a_run_at_its_deadline(overlays: CommandBench) -> None:
    row = overlays.judge(one("echo a >made; sleep 600 & sleep 600", timeout="1s"), {}, goldens={"golden": b"a\n"})
    assert (row.verdict, row.timed_out, row.summary) == (Verdict.FAIL, True, "run 1 did not end within 1 s")


def test_output_fixture_diff_fails_another_exit_code_whatever_is_written(overlays: CommandBench) -> None:
    row = overlays.judge(one("echo a >made && false"), {}, goldens={"golden": b"a\n"})
    assert (row.verdict, row.summary) == (Verdict.FAIL, "run 1 exited 1")
    assert overlays.run(one("echo a >made && false", exit=1), goldens={"golden": b"a\n"}).verdict is Verdict.PASS


def test_output_fixture_diff_without_its_program(overlays: CommandBench) -> None:
    absent = overlays.judge(one(["no-such-tool-here"]), {}, goldens={"golden": b""})
    assert (absent.verdict, absent.fault) == (Verdict.UNAVAILABLE, Fault.MACHINE)
    removed = overlays.run(one(["./run"]), goldens={"golden": b""})
    assert (removed.verdict, removed.summary) == (Verdict.FAIL, "run 1 ./run is not in the workspace")


@pytest.mark.parametrize(
    ("outputs", "fault"),
    [
        (
            "{path: a, golden: goldens/a.txt}",
            ("spec.missing-file", 8, "outputs[0].golden", "`goldens/a.txt` does not exist"),
        ),
        (
            "{path: ../a, golden: ok.txt}",
            ("spec.type", 8, "outputs[0].path", "`../a` is not a path inside the workspace or below `{out}/`"),
        ),
        (
            "{path: '{out}/../a', golden: ok.txt}",
            ("spec.type", 8, "outputs[0].path", "`{out}/../a` is not a path inside the workspace or below `{out}/`"),
        ),
        (
            "{path: a, golden: ok.txt, ignore: [/a]}",
            ("spec.unsupported", 8, "outputs[0].ignore", "`ignore` has no effect on the format `bytes`"),
        ),
        (
            "{path: a, golden: ok.txt, format: json, ignore: [/a, b]}",
            (
                *("spec.type", 8, "outputs[0].ignore[1]"),
                "`b` is not a JSON pointer, such as `/created` or `/items/0/id`",
            ),
        ),
    ],
)
def test_output_fixture_diff_errors_name_file_line_and_key(
    tmp_path: Path, outputs: str, fault: tuple[str, int, str, str]
) -> None:
    code, line, key, what = fault
    found = load_errors(tmp_path, f"output_fixture_diff, command: [a], outputs: [{outputs}]")
    assert found == [(code, line, f"missions[0].probes[0].{key}", what)]
