"""The probe kind `test_suite_parity`: what passed before the work passes after it, and nothing is lost."""

import shlex
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proctor.contain.ladder import Variant
from proctor.errors import InputError
from proctor.evidence.artifacts import Judged
from proctor.probe.junit import ReportedTest
from proctor.probe.junit import TestState as State
from proctor.probe.kinds.test_suite_parity import find_wrong
from proctor.probe.model import Fault, ProbeRow, Verdict
from proctor.probe.model import TestsRecord as Record
from proctor.probe.suite_run import count_tests
from proctor.spec.criterion import Role
from proctor.spec.load import load_spec
from proctor.spec.suite_probes import TestSuiteParity as SuiteParity
from tests.lab import Lab, mission, say_done
from tests.probe.test_unit_tests import (
    BOTH,
    CHECKS,
    CONTROL_FILES,
    CONTROLS,
    FORGE_HOOK,
    SETTINGS,
    Bench,
    Files,
    containment_of,
    describe,
    write,
)

SHOP = """\
def total(prices):
    result = 0
    for price in prices:
        result = result + price
    return result


def parse(text):
    return int(text)
"""
CLEAN = "def total(prices):\n    return sum(prices)\n\n\nparse = int\n"
BROKEN = SHOP.replace("result + price", "price")
TESTS = """\
import pytest

import shop


def test_total():
    assert shop.total([1, 2]) == 3


def test_none():
    assert shop.total([]) == 0


def test_parse_sum():
    assert shop.parse("1 + 2") == 3


@pytest.mark.skip
def test_elsewhere():
    pass
"""
PROJECT = {"shop.py": SHOP, "tests/test_shop.py": TESTS, "pytest.ini": SETTINGS}
PARITY = SuiteParity(paths=["tests"], python=sys.executable)


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path, containment_of(Variant.BUNDLED_BWRAP), PROJECT)


@pytest.fixture(scope="module")
def untouched(tmp_path_factory: pytest.TempPathFactory) -> ProbeRow:
    """The row of the project before the agent starts."""
    bench = Bench(tmp_path_factory.mktemp("untouched"), containment_of(Variant.BUNDLED_BWRAP), PROJECT)
    return bench.untouched(PARITY)


@pytest.mark.long
@pytest.mark.requirement("probe.kinds")
@pytest.mark.parametrize("variant", [Variant.BUNDLED_BWRAP, Variant.UNSHARE])
def test_parity_passes_on_the_untouched_tree_and_after_a_refactoring_and_fails_when_a_test_newly_fails(
    tmp_path: Path, variant: Variant
) -> None:
    bench = Bench(tmp_path, containment_of(variant), PROJECT)
    before = bench.untouched(PARITY)
    after = bench.judge({"shop.py": CLEAN}, PARITY, baseline=before, protect=["tests/**"])
    broken = bench.judge({"shop.py": BROKEN}, PARITY, baseline=before, protect=["tests/**"])

    passed = "2 tests passed, 1 failed, 1 skipped"
    assert [(row.verdict, row.summary) for row in (before, after, broken)] == [
        (Verdict.PASS, passed),
        (Verdict.PASS, passed),
        (Verdict.FAIL, "1 test newly failed: tests.test_shop::test_total"),
    ], "\n".join(map(describe, (before, after, broken)))
    assert [(row.role, row.judged, row.controls) for row in (before, after, broken)] == [
        (Role.GUARD, Judged.INSIDE, BOTH)
    ] * 3
    recorded = [row.tests and (len(row.tests.failed_tests), len(row.tests.skipped_tests)) for row in (before, after)]
    assert recorded == [(1, 1), (0, 0)]


ADDED = TESTS + "\n\ndef test_new():\n    assert False\n"
FIXED = SHOP.replace("int(text)", "sum(map(int, text.split('+')))")
CHANGES: dict[str, tuple[Files, Verdict, str]] = {
    "test-deleted": (
        {"tests/test_shop.py": TESTS.replace("def test_none", "def none")},
        Verdict.FAIL,
        "1 test of the untouched workspace missing in the report",
    ),
    "test-renamed": (
        {"tests/test_shop.py": TESTS.replace("def test_none", "def test_empty")},
        Verdict.FAIL,
        "1 test of the untouched workspace missing in the report",
    ),
    "skipped-test-deleted": (
        {"tests/test_shop.py": TESTS.replace("def test_elsewhere", "def elsewhere")},
        Verdict.FAIL,
        "1 test of the untouched workspace missing in the report",
    ),
    "test-newly-skipped": (
        {"tests/test_shop.py": TESTS.replace("def test_none", "@pytest.mark.skip\ndef test_none")},
        Verdict.FAIL,
        "1 test newly skipped: tests.test_shop::test_none",
    ),
    "failing-test-newly-skipped": (
        {"tests/test_shop.py": TESTS.replace("def test_parse", "@pytest.mark.skip\ndef test_parse")},
        Verdict.FAIL,
        "1 test newly skipped: tests.test_shop::test_parse_sum",
    ),
    "file-skipped": (
        {"shop.py": f"import pytest\n\npytest.skip('no', allow_module_level=True)\n{SHOP}"},
        Verdict.FAIL,
        "4 tests of the untouched workspace missing in the report",
    ),
    "file-that-cannot-be-imported": (
        {"shop.py": "1 / 0\n"},
        Verdict.FAIL,
        "4 tests of the untouched workspace missing in the report",
    ),
    "skipped-test-runs-and-fails": (
        {"tests/test_shop.py": TESTS.replace("@pytest.mark.skip\n", "").replace("    pass", "    assert False")},
        Verdict.FAIL,
        "1 test newly failed: tests.test_shop::test_elsewhere",
    ),
    "skipped-test-runs-and-passes": (
        {"tests/test_shop.py": TESTS.replace("@pytest.mark.skip\n", "")},
        Verdict.PASS,
        "3 tests passed, 1 failed",
    ),
    "failing-test-added": ({"tests/test_shop.py": ADDED}, Verdict.PASS, "2 tests passed, 2 failed, 1 skipped"),
    "failing-test-fixed": ({"shop.py": FIXED}, Verdict.PASS, "3 tests passed, 1 skipped"),
    "conftest-hook": ({"shop.py": BROKEN, "conftest.py": FORGE_HOOK}, Verdict.FAIL, "1 test newly failed: "),
    "product-patches-pytest": (
        {"shop.py": f"import _pytest.python\n\n_pytest.python.Function.runtest = lambda self: None\n{BROKEN}"},
        Verdict.FAIL,
        "tampered: a control test that fails is not reported as failed",
    ),
    "os-exit": ({"shop.py": f"import os\n\nos._exit(0)\n{SHOP}"}, Verdict.FAIL, "exited 0, and there is no report"),
}


@pytest.mark.long
@pytest.mark.requirement("probe.outside")
@pytest.mark.parametrize(("files", "verdict", "summary"), CHANGES.values(), ids=CHANGES)
def test_parity_compares_each_test_with_how_it_ended_before(
    bench: Bench, untouched: ProbeRow, files: Files, verdict: Verdict, summary: str
) -> None:
    row = bench.judge(files, PARITY, baseline=untouched)
    assert row.verdict is verdict, describe(row)
    assert row.summary.startswith(summary), describe(row)


@pytest.mark.long
@pytest.mark.requirement("probe.tamper")
def test_parity_fails_as_tampered_if_a_protected_test_was_changed(bench: Bench, untouched: ProbeRow) -> None:
    row = bench.judge({"tests/test_shop.py": ADDED}, PARITY, baseline=untouched, protect=["tests/**"])
    assert (row.verdict, row.summary) == (Verdict.FAIL, "tampered: tests/test_shop.py changed")


@pytest.mark.long
@pytest.mark.requirement("probe.kinds")
def test_parity_of_a_file_that_could_not_be_imported_accepts_its_tests_in_its_place(bench: Bench) -> None:
    late = "import later\n\n\ndef test_later():\n    assert later.value\n"
    for folder in (bench.base, bench.subject):
        write(folder, {"tests/test_later.py": late})
    before = bench.untouched(PARITY)
    rows = [
        bench.judge({"later.py": text}, PARITY, baseline=before)
        for text in ("value = 1\n", "value = 0\n", "import pytest\n\npytest.skip('no', allow_module_level=True)\n")
    ]
    gone = bench.judge({"tests/test_later.py": None}, PARITY, baseline=before)
    assert [(row.verdict, row.summary) for row in (before, *rows, gone)] == [
        (Verdict.PASS, "2 tests passed, 2 failed, 1 skipped"),
        (Verdict.PASS, "3 tests passed, 1 failed, 1 skipped"),
        (Verdict.PASS, "2 tests passed, 2 failed, 1 skipped"),
        (Verdict.FAIL, "1 test newly skipped: tests.test_later"),
        (Verdict.FAIL, "1 test of the untouched workspace missing in the report"),
    ]


@pytest.mark.long
@pytest.mark.requirement("probe.kinds")
def test_parity_fails_on_an_untouched_tree_in_which_no_test_passes(bench: Bench) -> None:
    write(bench.base, {"shop.py": "1 / 0\n"})
    failing = bench.untouched(PARITY)
    write(bench.base, {"tests/test_shop.py": "import pytest\n"})
    empty = bench.untouched(PARITY)
    assert [(row.verdict, row.summary) for row in (failing, empty)] == [
        (Verdict.FAIL, "none of 1 test passed"),
        (Verdict.FAIL, "none of 0 tests passed"),
    ]


@pytest.mark.long
@pytest.mark.requirement("probe.kinds")
def test_parity_is_unavailable_without_the_tests_of_the_untouched_tree(bench: Bench, untouched: ProbeRow) -> None:
    unknown = bench.untouched(SuiteParity(paths=["tests"], python="python-that-is-not-here"))
    rows = [bench.judge({"shop.py": CLEAN}, PARITY, baseline=baseline) for baseline in (None, unknown)]
    assert unknown.fault is Fault.MACHINE
    assert [(row.verdict, row.fault, row.summary) for row in rows] == [
        (Verdict.UNAVAILABLE, Fault.MACHINE, "the tests of the untouched workspace are not known")
    ] * 2


@pytest.mark.long
@pytest.mark.requirement("probe.kinds")
def test_parity_of_any_command_reads_the_report_that_it_writes(tmp_path: Path) -> None:
    bench = Bench(tmp_path, containment_of(Variant.BUNDLED_BWRAP), {**CHECKS, "shop.py": SHOP})
    python = shlex.quote(str(Path(sys.executable).resolve()))
    spec = SuiteParity(command=f"{python} run.py {{out}}/report.xml", report="{out}/report.xml", controls=CONTROL_FILES)
    before = bench.untouched(spec, sources=CONTROLS)
    rows = [
        bench.judge({"shop.py": text}, spec, sources=CONTROLS, baseline=before)
        for text in (CLEAN, BROKEN.replace("= price", "= 0"))
    ]
    assert [(row.verdict, row.summary) for row in (before, *rows)] == [
        (Verdict.PASS, "1 test passed"),
        (Verdict.PASS, "1 test passed"),
        (Verdict.FAIL, "1 test newly failed: shop::check_total"),
    ], "\n".join(map(describe, (before, *rows)))


# ── the comparison ──

NAMES = ("a::one", "a::two", "b::one", "c")
reports = st.lists(
    st.builds(
        lambda name, state: ReportedTest(
            classname=name.partition("::")[0] if "::" in name else "",
            name=name.rpartition("::")[2],
            state=state,
        ),
        st.sampled_from(NAMES),
        st.sampled_from(State),
    ),
    max_size=6,
)


def record_of(tests: list[ReportedTest]) -> Record:
    return count_tests(tests, is_baseline=True, has_states=True)


@pytest.mark.requirement("probe.kinds")
@given(tests=reports, added=reports)
def test_parity_holds_for_an_equal_report_and_for_one_with_added_tests(
    tests: list[ReportedTest], added: list[ReportedTest]
) -> None:
    names = {test.full_name for test in tests}
    new = [test for test in added if test.full_name not in names]
    assert find_wrong([*tests, *new], before=record_of(tests)) is None


@pytest.mark.requirement("probe.kinds")
@given(tests=reports, which=st.sampled_from(NAMES), state=st.sampled_from(State))
def test_parity_holds_for_one_changed_test_only_if_it_did_not_become_worse(
    tests: list[ReportedTest], which: str, state: State
) -> None:
    states: dict[str, State] = {}
    for test in tests:
        states[test.full_name] = max(test.state, states.get(test.full_name, State.PASSED))
    if which not in states:
        return
    after = [test for test in tests if test.full_name != which]
    now = ReportedTest(classname=which.rpartition("::")[0], name=which.rpartition("::")[2], state=state)
    was_bad, is_bad = (each in (State.FAILED, State.ERROR) for each in (states[which], state))
    is_newly_skipped = state is State.SKIPPED and states[which] is not State.SKIPPED
    expected = (is_bad and not was_bad) or is_newly_skipped
    assert (find_wrong([*after, now], before=record_of(tests)) is not None) is expected


# ── the spec and a whole campaign ──


@pytest.mark.requirement("probe.kinds")
def test_parity_that_cannot_be_run_is_an_error_of_the_spec(tmp_path: Path) -> None:
    spec = tmp_path / "spec.yaml"
    spec.write_text(
        "version: 1\ncampaign: c\nmissions:\n"
        "  - {id: m, prompt: p, script: s, probes: [{kind: test_suite_parity, command: make test}]}\n"
        "flows: [{id: f, runtime: [process]}]\n"
    )
    (tmp_path / "s").write_text("steps: []\n")
    with pytest.raises(InputError) as raised:
        load_spec(spec)
    assert [(each.key, each.line) for each in raised.value.all_errors if each.key and "probes" in each.key] == [
        ("missions[0].probes[0].report", 4),
        ("missions[0].probes[0].controls", 4),
    ]


MUTANT = """\
--- a/shop.py
+++ b/shop.py
@@ -1,5 +1,5 @@
 def total(prices):
     result = 0
     for price in prices:
-        result = result + price
+        result = price
     return result
"""
HARMLESS = MUTANT.replace("+        result = price\n", "+        result += price\n")


def write_campaign(lab: Lab, mutant: str) -> Path:
    lab.is_other_agent_allowed = True
    write(lab.folder / "spec" / "shop", PROJECT)
    (lab.folder / "spec" / "mutant.patch").write_text(mutant)
    probes = [
        {"kind": "test_suite_parity", "paths": ["tests"], "python": sys.executable, "mutant": "mutant.patch"},
        {"kind": "headless_run", "command": "! grep -q 'for price' shop.py"},
    ]
    work = mission("m", say_done(), probes=probes, workspace={"copy": "shop"}, protect=["tests/**"])
    commands = {
        "refactor": f"printf %s {shlex.quote(CLEAN)} >shop.py",
        "break": f"printf %s {shlex.quote(CLEAN.replace('sum', 'len'))} >shop.py",
    }
    flows = [
        {"id": name, "runtime": ["process"], "options": {"process": {"command": command}}}
        for name, command in commands.items()
    ]
    return lab.write_spec([work], flows=flows)


@pytest.mark.long
@pytest.mark.requirement("probe.kinds")
def test_parity_with_its_mutant_and_a_goal_verifies_a_refactoring_and_not_a_break(lab: Lab) -> None:
    result = lab.run(write_campaign(lab, MUTANT))
    verified = {each.attempt_id: each.summary and each.summary.verified for each in result.attempts}
    assert verified == {"m.refactor.r1.1": True, "m.break.r1.1": False}
    lab.assert_all_evidence_is_valid()


@pytest.mark.long
@pytest.mark.requirement("probe.kinds")
def test_parity_whose_mutant_breaks_no_test_is_stopped_by_preflight(lab: Lab) -> None:
    with pytest.raises(InputError) as raised:
        lab.run(write_campaign(lab, HARMLESS))
    assert raised.value.code == "probe.passes-mutant"
