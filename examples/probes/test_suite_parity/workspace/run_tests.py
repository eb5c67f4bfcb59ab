"""Run the tests with unittest and write a JUnit report: python3 run_tests.py REPORT."""

import sys
import unittest
from typing import Any
from xml.etree import ElementTree


class Report(unittest.TestResult):
    def __init__(self) -> None:
        super().__init__()
        self.suite = ElementTree.Element("testsuite")

    def add(self, test: unittest.TestCase, state: str = "", message: str = "") -> None:
        classname, _, name = test.id().rpartition(".")
        case = ElementTree.SubElement(self.suite, "testcase", classname=classname, name=name)
        if state:
            ElementTree.SubElement(case, state, message=message)

    def addSuccess(self, test: unittest.TestCase) -> None:
        self.add(test)

    def addFailure(self, test: unittest.TestCase, err: Any) -> None:
        self.add(test, "failure", str(err[1]))

    def addError(self, test: unittest.TestCase, err: Any) -> None:
        self.add(test, "error", str(err[1]))

    def addSkip(self, test: unittest.TestCase, reason: str) -> None:
        self.add(test, "skipped", reason)


if __name__ == "__main__":
    report = Report()
    unittest.defaultTestLoader.discover("tests").run(report)
    ElementTree.ElementTree(report.suite).write(sys.argv[1])
