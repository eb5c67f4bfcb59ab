"""A campaign's report as JUnit XML: one suite per flow, one case per trial, and the gates as another suite.

Failures follow `expected`, as the exit code does. `passed` and `verified` are properties of each case.
"""

from collections.abc import Iterable
from xml.etree.ElementTree import Element, SubElement, indent, tostring

from proctor.errors import CODES, Exit
from proctor.evidence.summary import PASSED
from proctor.ids import TrialId
from proctor.report.campaign import CampaignReport, MissingResult, Replacement, why_failed
from proctor.report.classify import classify
from proctor.report.failures import failure_lines
from proctor.report.format_values import legible, yes_no
from proctor.report.row import AttemptRow
from proctor.report.verdict import judge_attempt


def render_junit(report: CampaignReport) -> str:
    """Render a report. An error is a failure for infrastructure reasons; what nothing could judge is skipped."""
    campaign = report.campaign_id or "attempts"
    selected = "" if report.failed_in is None else f" (selected: failed in {report.failed_in})"
    suites = Element("testsuites", name=legible(f"{campaign}{selected}"))
    missing: dict[str, MissingResult] = {each.trial: each for each in report.missing}
    tried = {row.trial or row.attempt_id for row in report.counted_attempts}
    replaced = {each.trial: each for each in report.replacements}
    for flow in dict.fromkeys(
        (*(each.flow_id for each in report.flows), *(row.flow_id for row in report.counted_attempts))
    ):
        suite = SubElement(suites, "testsuite", name=legible(flow or "unknown"))
        if flow in report.scripted_flows:
            suite.set("name", f"{legible(flow or 'unknown')} (scripted)")
        for row in report.counted_attempts:
            if row.flow_id == flow:
                case = _attempt(suite, row, missing.get(row.trial or row.attempt_id), campaign=campaign)
                _add_replacement(case, replaced.get(row.trial or TrialId("")))
        for each in report.missing:
            if each.flow_id == flow and each.trial not in tried:
                _skip(_case(suite, campaign, each.flow_id, each.mission_id, each.repeat), each.why)
        _count(suite)
    gates = SubElement(suites, "testsuite", name="gates")
    for gate in report.gates:
        case = SubElement(gates, "testcase", classname=legible(f"{campaign}.gates"), name=gate.name)
        if gate.blocked:
            lines = [legible(line) for line in gate.lines()]
            SubElement(case, "failure", type=f"gate.{gate.name}", message=lines[0]).text = "\n".join(lines)
    _count(gates)
    if report.findings:
        evidence = SubElement(suites, "testsuite", name="evidence")
        for finding in report.findings:
            case = SubElement(
                evidence, "testcase", classname=legible(f"{campaign}.evidence"), name=legible(finding.file)
            )
            SubElement(case, "error", type=finding.code, message=legible(finding.detail or finding.code))
        _count(evidence)
    indent(suites)
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{tostring(suites, encoding="unicode")}\n'


def _case(suite: Element, campaign: str, flow: str | None, mission: str | None, repeat: int | None) -> Element:
    return SubElement(
        suite,
        "testcase",
        classname=legible(f"{campaign}.{flow or '?'}"),
        name=legible(f"{mission or '?'} r{repeat or '?'}"),
    )


def _attempt(suite: Element, row: AttemptRow, missing: MissingResult | None, *, campaign: str) -> Element:
    case = _case(suite, campaign, row.flow_id, row.mission_id, row.repeat)
    judged = judge_attempt(row)
    if row.duration_ms is not None:
        case.set("time", f"{row.duration_ms / 1000:.3f}")
    if missing is not None and judged not in (Exit.EVIDENCE, Exit.INFRASTRUCTURE):
        _skip(case, missing.why)
        return case
    properties = SubElement(case, "properties")
    for name, value in (("passed", classify(row) == PASSED), ("verified", row.verified)):
        SubElement(properties, "property", name=name, value=yes_no(value, none="unknown"))
    if row.continues is not None:
        SubElement(properties, "property", name="continues", value=legible(row.continues))
    match judged:
        case Exit.OK:
            pass
        case Exit.UNVERIFIED:
            _skip(case, "; ".join(row.reasons) or "nothing could judge it")
        case Exit.JUDGED_NO:
            _problem(case, "failure", row, why_failed(row))
        case Exit.EVIDENCE:
            _problem(case, "error", row, "invalid evidence")
        case _:
            _problem(case, "error", row, why_failed(row))
    return case


def _add_replacement(case: Element, replacement: Replacement | None) -> None:
    if replacement is not None and (properties := case.find("properties")) is not None:
        for name, value in (("firstResult", replacement.first_result), ("replacedBecause", replacement.reason)):
            SubElement(properties, "property", name=name, value=legible(value))


def _skip(case: Element, why: str) -> None:
    SubElement(case, "skipped", message=legible(why))


def _problem(case: Element, tag: str, row: AttemptRow, why: str) -> None:
    shown = failure_lines(row) or row.reasons
    lines = [CODES[why].means if why in CODES else why, *row.unmet, *shown]
    element = SubElement(case, tag, type=legible(str(row.bucket or classify(row))), message=legible(why))
    element.text = legible(f"{row.attempt_id}: " + "\n".join(lines))


def _count(suite: Element) -> None:
    cases: Iterable[Element] = list(suite)
    suite.set("tests", str(len(suite)))
    for name, tag in (("failures", "failure"), ("errors", "error"), ("skipped", "skipped")):
        suite.set(name, str(sum(case.find(tag) is not None for case in cases)))
    suite.set("time", f"{sum(float(case.get('time', 0)) for case in cases):.3f}")
