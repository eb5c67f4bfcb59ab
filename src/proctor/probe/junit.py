"""Read a JUnit report that a hostile program may have written: bounded, without entities, and never an exception."""

from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path
from typing import Final
from xml.parsers import expat

from proctor.workspace.walk import open_regular

MAX_REPORT_BYTES: Final = 16 * 1024 * 1024
MAX_TESTS: Final = 100_000
_MAX_DEPTH: Final = 64
_MESSAGE_CHARS: Final = 2000


class TestState(IntEnum):
    """How a test ended. If a report says more than one, the largest counts."""

    PASSED = 0
    SKIPPED = 1
    FAILED = 2
    ERROR = 3


_STATES: Final = {"skipped": TestState.SKIPPED, "failure": TestState.FAILED, "error": TestState.ERROR}


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportedTest:
    """One `testcase` of a report."""

    classname: str
    name: str
    state: TestState
    message: str = ""
    """The beginning of the message of its failure, error or skip; empty if it has none."""

    @property
    def full_name(self) -> str:
        """
        >>> ReportedTest(classname="tests.test_shop", name="test_total", state=TestState.PASSED).full_name
        'tests.test_shop::test_total'
        """
        return f"{self.classname}::{self.name}" if self.classname else self.name


class ReportError(Exception):
    """A report that cannot be read; the text says why."""


def read_report(place: Path) -> tuple[ReportedTest, ...]:
    """Return the tests of a report, in its order. Raises ReportError if it does not exist or cannot be read."""
    try:
        with open_regular(place) as stream:
            data = stream.read(MAX_REPORT_BYTES + 1)
    except OSError as error:
        raise ReportError("there is no report") from error
    return parse_report(data)


def parse_report(data: bytes) -> tuple[ReportedTest, ...]:
    """Return the tests of a report, in its order. Raises ReportError if it is not a JUnit report or is too large.

    >>> [test] = parse_report(b'<testsuite><testcase classname="a" name="b"><skipped/></testcase></testsuite>')
    >>> test.full_name, test.state.name
    ('a::b', 'SKIPPED')
    """
    if len(data) > MAX_REPORT_BYTES:
        raise ReportError(f"the report is larger than {MAX_REPORT_BYTES // 1024**2} MiB")
    reader = _Reader()
    parser = expat.ParserCreate()
    parser.StartDoctypeDeclHandler = _refuse_doctype
    parser.EntityDeclHandler = _refuse_doctype
    parser.StartElementHandler = reader.start
    parser.EndElementHandler = reader.end
    try:
        parser.Parse(data, True)
    except ReportError:
        raise
    # An unknown encoding is a LookupError, one that expat cannot use a ValueError.
    except (expat.ExpatError, LookupError, ValueError) as error:
        raise ReportError("the report is not XML") from error
    if reader.root not in ("testsuites", "testsuite"):
        raise ReportError("the report is not a JUnit report")
    return tuple(reader.tests)


def _refuse_doctype(*_: object) -> None:
    raise ReportError("the report has a document type, which may define entities")


class _Reader:
    """Collects the tests of a report while it is parsed."""

    def __init__(self) -> None:
        self.root: str | None = None
        self.tests: list[ReportedTest] = []
        self._depth = 0
        self._test: ReportedTest | None = None

    def start(self, tag: str, attributes: dict[str, str]) -> None:
        self._depth += 1
        if self._depth > _MAX_DEPTH:
            raise ReportError("the report is nested too deeply")
        if self.root is None:
            self.root = tag
        if tag == "testcase":
            if self._test is not None:
                raise ReportError("the report has a test inside a test")
            if len(self.tests) == MAX_TESTS:
                raise ReportError(f"the report has more than {MAX_TESTS:,} tests")
            name, classname = attributes.get("name", ""), attributes.get("classname", "")
            self._test = ReportedTest(classname=classname, name=name, state=TestState.PASSED)
        elif self._test is not None and tag in _STATES and _STATES[tag] > self._test.state:
            self._test = ReportedTest(
                classname=self._test.classname,
                name=self._test.name,
                state=_STATES[tag],
                message=attributes.get("message", "")[:_MESSAGE_CHARS],
            )

    def end(self, tag: str) -> None:
        self._depth -= 1
        if tag == "testcase" and self._test is not None:
            self.tests.append(self._test)
            self._test = None
