import base64
import html
import json
from collections.abc import Callable
from urllib.parse import quote, quote_plus

import msgspec
import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from proctor.evidence.artifacts import RequiredProbe
from proctor.ids import Digest
from proctor.probe.expected_values import MIN_VALUE_CHARS, ExpectedValues
from proctor.probe.feedback import (
    AgentFeedback,
    CheckChange,
    CheckFeedback,
    CheckState,
    Detail,
    FeedbackOptions,
    make_feedback,
)
from proctor.probe.gate import decide
from proctor.probe.model import Phase, ProbeRow, Verdict, require
from proctor.probe.model import TestsRecord as RecordOfTests
from proctor.spec.command_probes import HeadlessRun
from proctor.spec.criterion import WaiverSpec

BASE, NOW = Digest("sha256:base"), Digest("sha256:now")


def _all_bytes(value: str, form: str) -> str:
    return "".join(form.format(byte) for byte in value.encode())


def _base64_at(shift: int, *, encode: Callable[[bytes], bytes], pad: bool) -> Callable[[str], str]:
    def encoded(value: str) -> str:
        text = encode(b"\x07" * shift + value.encode() + b"~" * shift).decode()
        return text if pad else text.rstrip("=")

    return encoded


ENCODINGS: dict[str, Callable[[str], str]] = {
    "plain": str,
    "upper case": str.upper,
    "lower case": str.lower,
    "swapped case": str.swapcase,
    "percent": lambda value: quote(value, safe=""),
    "percent, all": lambda value: _all_bytes(value, "%{:02x}"),
    "percent, twice": lambda value: quote(quote(value, safe=""), safe=""),
    "form": quote_plus,
    "entities": html.escape,
    "decimal entities": lambda value: "".join(f"&#{ord(char)};" for char in value),
    "hex entities": lambda value: "".join(f"&#x{ord(char):X};" for char in value),
    "JSON": lambda value: json.dumps(value)[1:-1],
    "JSON in JSON": lambda value: json.dumps(json.dumps(value)),
    "repr": repr,
    "repr of bytes": lambda value: repr(value.encode()),
    "\\u escapes": lambda value: "".join(
        f"\\u{unit:04x}" for unit in memoryview(value.encode("utf-16-le")).cast("H").tolist()
    ),
    "\\u{} escapes": lambda value: "".join(f"\\u{{{ord(char):x}}}" for char in value),
    "\\x escapes": lambda value: _all_bytes(value, "\\x{:02x}"),
    "octal escapes": lambda value: _all_bytes(value, "\\{:03o}"),
    "hex": lambda value: value.encode().hex(),
    "hex in upper case": lambda value: value.encode().hex().upper(),
    "hex with spaces": lambda value: value.encode().hex(" "),
    "hex with colons": lambda value: value.encode().hex(":"),
    "hex with 0x": lambda value: ", ".join(f"0x{byte:02x}" for byte in value.encode()),
    "hex of UTF-16": lambda value: value.encode("utf-16-le" if value.isascii() else "utf-8").hex(),
    "base64 in base64": lambda value: base64.b64encode(base64.b64encode(value.encode())).decode(),
    "percent in base64": lambda value: base64.b64encode(quote(value, safe="").encode()).decode(),
    "base64 over lines": lambda value: "\n".join(base64.b64encode(value.encode()).decode().rstrip("=")),
    "zero-width spaces": "\u200b".join,
    "soft hyphens": "\u00ad".join,
    "direction marks": lambda value: "\u202e" + "\u2066".join(value) + "\u202c",
    "combining marks": lambda value: "".join(f"{char}\u0336" for char in value),
    "full width": lambda value: "".join(chr(ord(char) + 0xFEE0) if "!" <= char <= "~" else char for char in value),
    "spaces": " ".join,
    "lines": "\n".join,
    **{
        f"base64, {kind}, shifted by {shift}, {'with' if pad else 'without'} padding": _base64_at(
            shift, encode=encode, pad=pad
        )
        for shift in range(3)
        for pad in (True, False)
        for kind, encode in (("standard", base64.b64encode), ("url-safe", base64.urlsafe_b64encode))
    },
}
WORDS = 'first line\nsecond line: 0x7f3a2b1c\n\nTraceback (most recent call last):\n  File "shop.py", line 3\nlast line'

ascii_values = st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=MIN_VALUE_CHARS, max_size=40)
values = ascii_values | st.text(
    st.characters(categories=["Ll", "Lu", "Nd", "Po"], max_codepoint=0x24F), min_size=MIN_VALUE_CHARS, max_size=40
)


def row(probe: RequiredProbe, verdict: Verdict, *, phase: Phase = Phase.FINAL, **more: object) -> ProbeRow:
    plain = ProbeRow(
        phase=phase,
        index=probe.index,
        kind=probe.kind,
        criterion=probe.criterion,
        probe_digest=probe.digest,
        workspace_digest=BASE if phase is Phase.BASELINE else NOW,
        verdict=verdict,
        summary="exited with 1",
    )
    return msgspec.structs.replace(plain, **more)


def feedback(
    *rows: ProbeRow,
    probes: tuple[HeadlessRun, ...],
    hidden: bool = False,
    detail: Detail | None = None,
    files: tuple[bytes, ...] = (),
    previous: AgentFeedback | None = None,
    waive: tuple[WaiverSpec, ...] = (),
) -> AgentFeedback:
    required = require(probes)
    recorded = [*(row(each, Verdict.FAIL, phase=Phase.BASELINE) for each in required), *rows]
    decision = decide(required, recorded, workspace_digest=NOW, base_digest=BASE, waivers=waive)
    expected = ExpectedValues([value for probe in probes for value in probe.expected_values], files=files)
    options = FeedbackOptions(expected=expected, has_hidden_files=hidden, detail=detail)
    return make_feedback(decision, recorded, previous=previous, options=options)


SHOP = HeadlessRun(command="shop", criterion="shop prints the sum of the cart")
DOCS = HeadlessRun(command="docs", criterion="the pages can be built")
ONE, TWO = require([SHOP, DOCS])


# ── the filter ──


@pytest.mark.requirement("probe.tamper")
@settings(max_examples=15, deadline=None)
@pytest.mark.parametrize("encoding", ENCODINGS.values(), ids=list(ENCODINGS))
@given(value=values, before=st.sampled_from(["", "got: ", "xy", "{'a': "]), after=st.sampled_from(["", " end", "'}"]))
@example(value='100%25 "now"', before="", after="")
@example(value="C:\\new\\x41 &amp; more", before="", after="")
@example(value="Grüße aus Köln", before="", after="")
@example(value="1+1=2", before="", after="")
def test_feedback_carries_no_expected_value_in_any_encoding(
    encoding: Callable[[str], str], value: str, before: str, after: str
) -> None:
    assume(ExpectedValues([value]).carries(value))  # it has enough characters after normalisation
    encoded = encoding(value)
    printed = f"first\n{before}{encoded}{after}\nlast"
    probe = HeadlessRun(command="shop", stdout=value, criterion=f"it prints {encoded}")
    [required] = require([probe])

    given_back = feedback(
        row(required, Verdict.FAIL, summary=f"printed {encoded}", stdout_tail=printed, stderr_tail=encoded),
        probes=(probe,),
    )

    [check] = given_back.checks
    assert check.criterion == "criterion 1"
    assert check.observed == ("the check fails",)
    shown = [line for line in check.output.split("\n") if "left out" not in line]
    assert set(shown) <= {"first", "last"}


@given(value=values, text=st.text(st.sampled_from("abcdefgh 0123%&\\=\n"), max_size=300))
def test_feedback_filter_leaves_text_without_expected_values_as_it_is(value: str, text: str) -> None:
    expected = ExpectedValues([value])
    assume(not expected.carries(text))

    assert expected.leave_out(text) == text
    assert ExpectedValues().leave_out(f"{text}{value}") == f"{text}{value}"


@pytest.mark.parametrize("value", ["total 42", "a much longer value, of more than twenty-four characters", "ßtraße"])
def test_feedback_filter_leaves_ordinary_output_as_it_is(value: str) -> None:
    assert ExpectedValues([value]).leave_out(WORDS) == WORDS


def test_feedback_filter_leaves_out_only_the_lines_that_carry_the_value() -> None:
    text = "one\ntwo: total\n42 three\nfour\nTOTAL 42\nfive"

    assert ExpectedValues(["total 42"]).leave_out(text) == "one\n[2 lines left out]\nfour\n[1 line left out]\nfive"


def test_feedback_filter_ignores_values_below_the_shortest() -> None:
    assert not ExpectedValues(["0", "ok", "1 2 3"]).carries("0 ok 1 2 3")
    assert ExpectedValues(["1 2 3 4"]).carries("1234")


def test_feedback_filter_finds_each_line_and_long_pieces_of_a_file() -> None:
    golden = b"id,name\n1,Ada\n2,a name that is so long that a program will shorten it\n"
    expected = ExpectedValues(files=[golden])

    assert expected.carries("row: 1,ADA")
    assert expected.carries("E  'name that is so long that...'")
    assert not expected.carries("E  'name that...'")


def test_feedback_filter_is_quick_with_large_files() -> None:
    # 500 kB of hidden files against the longest text that a row holds.
    lines = b"".join(b"line %d of a hidden file, which has some text\nshort%d\n" % (at, at) for at in range(10_000))
    expected = ExpectedValues(files=[lines])

    assert not expected.carries("nothing of it here. " * 200)
    assert expected.carries("nothing of it here. " * 200 + "SHORT9999")


# ── what is shown ──


def test_feedback_shows_criterion_observation_and_output() -> None:
    rows = (
        row(ONE, Verdict.FAIL, stdout_tail="sum: 3\n", stderr_tail="warning: empty cart\n"),
        row(TWO, Verdict.PASS, summary="exited with 0", stdout_tail="built\n"),
    )

    given_back = feedback(*rows, probes=(SHOP, DOCS))

    assert given_back.text == (
        "1 of 2 checks fail\n"
        "\n"
        "1. shop prints the sum of the cart\n"
        "   fails\n"
        "   observed: exited with 1\n"
        "   end of the output:\n"
        "   | sum: 3\n"
        "   | warning: empty cart\n"
        "\n"
        "2. the pages can be built\n"
        "   passes"
    )


def test_feedback_shows_only_counts_with_hidden_files() -> None:
    tests = RecordOfTests(passed=4, failed=2, errors=1, skipped=0)
    quoted = "tests/test_hidden.py::test_sum - assert 3 == 4"

    given_back = feedback(
        row(ONE, Verdict.FAIL, summary=f"3 failed: {quoted}", tests=tests, stdout_tail=quoted),
        row(TWO, Verdict.FAIL, summary=f"printed {quoted}", exit_code=1, stderr_tail=quoted),
        probes=(SHOP, DOCS),
        hidden=True,
    )

    assert [check.observed for check in given_back.checks] == [("3 of 7 tests fail",), ("the check fails",)]
    assert "hidden" not in given_back.text
    assert "==" not in given_back.text


@pytest.mark.parametrize("detail", [Detail.SUMMARY, Detail.TAIL])
def test_feedback_never_shows_output_with_hidden_files(detail: Detail) -> None:
    given_back = feedback(
        row(ONE, Verdict.FAIL, summary="GET / answered 404", stdout_tail="E  assert 3 == 4"),
        probes=(SHOP,),
        hidden=True,
        detail=detail,
    )

    [check] = given_back.checks
    assert (check.observed, check.output) == (("GET / answered 404",), "")


def test_feedback_leaves_out_a_summary_that_quotes_a_hidden_file() -> None:
    given_back = feedback(
        row(ONE, Verdict.FAIL, summary="AssertionError in assert total(cart) == FOUR", exit_code=1),
        probes=(SHOP,),
        hidden=True,
        detail=Detail.SUMMARY,
        files=(b"def test_total():\n    assert total(cart) == FOUR\n",),
    )

    assert given_back.checks[0].observed == ("the check fails",)


def test_feedback_names_a_protected_file_that_was_changed() -> None:
    given_back = feedback(
        row(ONE, Verdict.FAIL, summary="tampered: tests/test_shop.py was changed"), probes=(SHOP,), hidden=True
    )

    assert given_back.checks[0].observed == ("tampered: tests/test_shop.py was changed",)


def test_feedback_does_not_call_an_unjudged_criterion_failed() -> None:
    given_back = feedback(row(ONE, Verdict.UNAVAILABLE, summary="chromium is not on this machine"), probes=(SHOP,))

    assert given_back.text.splitlines()[0] == "0 of 1 checks fail, 1 could not be judged"
    assert given_back.checks[0].observed == ("chromium is not on this machine",)


def test_feedback_says_why_a_passing_probe_does_not_count() -> None:
    given_back = feedback(row(ONE, Verdict.PASS, mutated=True), probes=(SHOP,))

    assert given_back.checks[0].state is CheckState.FAILS
    assert given_back.checks[0].observed == ("the workspace changed while the check ran",)


def test_feedback_leaves_out_waived_criteria() -> None:
    waived = WaiverSpec(criterion=str(DOCS.criterion), by="ada", why="later")

    given_back = feedback(row(ONE, Verdict.FAIL), row(TWO, Verdict.FAIL), probes=(SHOP, DOCS), waive=(waived,))

    assert [check.criterion for check in given_back.checks] == [SHOP.criterion]


def test_feedback_shows_the_end_of_long_output() -> None:
    printed = "".join(f"line {number}\n" for number in range(1000))

    [check] = feedback(row(ONE, Verdict.FAIL, stdout_tail=printed), probes=(SHOP,)).checks

    assert check.output.endswith("line 999")
    assert check.output.startswith("line ")
    assert len(check.output) <= 2000


@pytest.mark.parametrize(
    ("then", "now", "change"),
    [
        (None, row(ONE, Verdict.FAIL), CheckChange.NEW),
        (row(ONE, Verdict.FAIL), row(ONE, Verdict.FAIL), CheckChange.SAME),
        (row(ONE, Verdict.PASS), row(ONE, Verdict.PASS), CheckChange.SAME),
        (
            row(ONE, Verdict.FAIL, stdout_tail="in 0.12s"),
            row(ONE, Verdict.FAIL, stdout_tail="in 3.4s"),
            CheckChange.SAME,
        ),
        (row(ONE, Verdict.FAIL), row(ONE, Verdict.FAIL, summary="exited with 2"), CheckChange.CHANGED),
        (row(ONE, Verdict.FAIL), row(ONE, Verdict.FAIL, stdout_tail="3 left"), CheckChange.CHANGED),
        (row(ONE, Verdict.PASS), row(ONE, Verdict.FAIL), CheckChange.CHANGED),
        (row(ONE, Verdict.FAIL), row(ONE, Verdict.PASS), CheckChange.NOW_PASSES),
    ],
)
def test_feedback_says_what_changed_since_the_last_round(
    then: ProbeRow | None, now: ProbeRow, change: CheckChange
) -> None:
    previous = None if then is None else feedback(then, probes=(SHOP,))

    assert [check.change for check in feedback(now, probes=(SHOP,), previous=previous).checks] == [change]


def test_feedback_can_be_stored_between_rounds() -> None:
    given_back = feedback(row(ONE, Verdict.FAIL, stdout_tail="sum: 3"), probes=(SHOP,))

    assert msgspec.json.decode(msgspec.json.encode(given_back), type=AgentFeedback) == given_back
    assert given_back.checks == (
        CheckFeedback(
            criterion=str(SHOP.criterion),
            state=CheckState.FAILS,
            change=CheckChange.NEW,
            observed=("exited with 1",),
            output="sum: 3",
        ),
    )
