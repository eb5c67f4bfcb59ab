"""A campaign's results as JUnit XML: a suite a flow, a case a trial, and the gates as a suite of their own."""

from collections.abc import Iterable
from xml.etree.ElementTree import Element, SubElement, indent, tostring

from proctor.errors import CODES
from proctor.report.campaign import CampaignReport, why_failed
from proctor.report.campaign_state import CampaignState, TrialResult
from proctor.report.format_values import legible
from proctor.report.score import FAILED, INVALID, PASSED, UNVERIFIED


def render_junit(found: CampaignState, report: CampaignReport) -> str:
    """A failure is the agent's own; an error is not; what says nothing of it is skipped."""
    suites = Element("testsuites", name=found.campaign_id)
    why = {each.trial: each.why for each in report.missing}
    for flow in report.flows:
        suite = SubElement(suites, "testsuite", name=legible(flow.flow_id))
        for each in found.trials:
            if each.trial.flow == flow.flow_id:
                _case(suite, each, why=why.get(each.trial.id, ""), campaign=found.campaign_id)
        _count(suite)
    gates = SubElement(suites, "testsuite", name="gates")
    for gate in report.gates:
        case = SubElement(gates, "testcase", classname=f"{found.campaign_id}.gates", name=gate.name)
        if gate.blocked:
            told = [legible(line) for line in gate.lines()]
            SubElement(case, "failure", type=f"gate.{gate.name}", message=told[0]).text = "\n".join(told)
    _count(gates)
    indent(suites)
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{tostring(suites, encoding="unicode")}\n'


def _case(suite: Element, each: TrialResult, *, why: str, campaign: str) -> None:
    trial, said = each.trial, each.spoken
    case = SubElement(
        suite,
        "testcase",
        classname=legible(f"{campaign}.{trial.flow}"),
        name=legible(f"{trial.mission} r{trial.repeat}"),
    )
    if said is not None and said.summary is not None:
        case.set("time", f"{said.summary.duration_ms / 1000:.3f}")
    if each.stands is None or said is None:
        SubElement(case, "skipped", message=why)
        return
    if each.stands == PASSED:
        return
    if each.stands == UNVERIFIED:
        SubElement(case, "skipped", message="nothing could verify it")
        return
    told = "damaged evidence" if each.stands == INVALID else legible(why_failed(said))
    tag = "failure" if each.stands == FAILED else "error"
    means = CODES[told].means if told in CODES else told
    SubElement(case, tag, type=each.stands, message=told).text = legible(f"{said.id}: {means}")


def _count(suite: Element) -> None:
    cases: Iterable[Element] = list(suite)
    suite.set("tests", str(len(suite)))
    for name, tag in (("failures", "failure"), ("errors", "error"), ("skipped", "skipped")):
        suite.set(name, str(sum(case.find(tag) is not None for case in cases)))
    suite.set("time", f"{sum(float(case.get('time', 0)) for case in cases):.3f}")
