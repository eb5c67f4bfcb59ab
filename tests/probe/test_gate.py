from itertools import product

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from proctor.evidence.artifacts import CriterionDecision, GateReason, Judged, RequiredProbe
from proctor.ids import Digest
from proctor.probe.gate import Decision, ProbeDecision, decide
from proctor.probe.model import Fault, Phase, ProbeProgram, ProbeRow, Verdict, require
from proctor.spec.command_probes import HeadlessRun
from proctor.spec.criterion import Role, WaiverSpec
from proctor.spec.expect import ExpectedVerdict

BASE, NOW, OTHER = Digest("sha256:base"), Digest("sha256:now"), Digest("sha256:other")
ONE, TWO, GUARD, BLIND = require(
    [
        HeadlessRun(command="one"),
        HeadlessRun(command="two"),
        HeadlessRun(command="old tests", role=Role.GUARD, mutant="broken.patch"),
        HeadlessRun(command="no mutant", role=Role.GUARD),
    ]
)


def row(
    probe: RequiredProbe,
    verdict: Verdict,
    *,
    on: Digest = NOW,
    phase: Phase = Phase.FINAL,
    mutated: bool = False,
    summary: str = "exited 1",
    fault: Fault | None = None,
    programs: tuple[ProbeProgram, ...] = (),
) -> ProbeRow:
    return ProbeRow(
        phase=phase,
        index=probe.index,
        kind=probe.kind,
        role=probe.role,
        criterion=probe.criterion,
        probe_digest=probe.digest,
        workspace_digest=on,
        verdict=verdict,
        summary=summary,
        mutated=mutated,
        fault=fault,
        programs=programs,
    )


def baseline(probe: RequiredProbe, verdict: Verdict = Verdict.FAIL, *, mutated: bool = False) -> ProbeRow:
    return row(probe, verdict, on=BASE, phase=Phase.BASELINE, mutated=mutated)


def mutant(probe: RequiredProbe, verdict: Verdict = Verdict.FAIL) -> ProbeRow:
    return row(probe, verdict, on=BASE, phase=Phase.MUTANT)


def judge(
    required: list[RequiredProbe], *evidence: ProbeRow, now: Digest = NOW, base: Digest = BASE
) -> ExpectedVerdict:
    return decide(required, evidence, workspace_digest=now, base_digest=base).verified


def test_a_probe_that_failed_before_and_passes_now_is_verified() -> None:
    evidence = [baseline(ONE), row(ONE, Verdict.PASS)]
    assert decide([ONE], evidence, workspace_digest=NOW, base_digest=BASE) == Decision(
        verified=ExpectedVerdict.YES,
        per_probe=(ProbeDecision(probe=ONE, verified=ExpectedVerdict.YES),),
        criteria=(CriterionDecision(criterion="probe 1 (headless_run)", verified=True, probes=(0,)),),
        reasons=(),
        judged=Judged.INSIDE,
    )


@pytest.mark.requirement("probe.outside")
@pytest.mark.parametrize("first", Judged)
@pytest.mark.parametrize("second", Judged)
def test_yes_is_judged_outside_if_one_of_its_probes_is(first: Judged, second: Judged) -> None:
    final = [
        msgspec.structs.replace(row(probe, Verdict.PASS), judged=judged)
        for probe, judged in ((ONE, first), (TWO, second))
    ]
    untouched = [msgspec.structs.replace(baseline(probe), judged=Judged.OUTSIDE) for probe in (ONE, TWO)]
    decision = decide([ONE, TWO], [*untouched, *final], workspace_digest=NOW, base_digest=BASE)
    is_outside = Judged.OUTSIDE in (first, second)
    assert decision.judged is (Judged.OUTSIDE if is_outside else Judged.INSIDE)


@pytest.mark.requirement("probe.outside")
def test_guard_that_is_judged_outside_does_not_vouch_for_a_goal_that_is_not() -> None:
    [guard] = require([HeadlessRun(command="guard", role=Role.GUARD, mutant="broken.patch")])
    rows = [
        baseline(ONE),
        baseline(guard, Verdict.PASS),
        mutant(guard),
        msgspec.structs.replace(row(ONE, Verdict.PASS), judged=Judged.INSIDE),
        msgspec.structs.replace(row(guard, Verdict.PASS), judged=Judged.OUTSIDE),
    ]
    both = decide([ONE, guard], rows, workspace_digest=NOW, base_digest=BASE)
    alone = decide([guard], rows, workspace_digest=NOW, base_digest=BASE)
    assert (both.verified, both.judged) == (ExpectedVerdict.YES, Judged.INSIDE)
    assert (alone.verified, alone.judged) == (ExpectedVerdict.YES, Judged.OUTSIDE)


def test_what_is_not_verified_is_judged_nowhere() -> None:
    final = msgspec.structs.replace(row(ONE, Verdict.FAIL), judged=Judged.OUTSIDE)
    assert decide([ONE], [baseline(ONE), final], workspace_digest=NOW, base_digest=BASE).judged is None


# ── five ways to say verified falsely ──


@pytest.mark.requirement("probe.gate")
def test_zero_required_probes_are_never_verified_whatever_was_seen() -> None:
    decision = decide([], [baseline(ONE), row(ONE, Verdict.PASS)], workspace_digest=NOW, base_digest=BASE)
    assert decision == Decision(
        verified=ExpectedVerdict.UNKNOWN,
        per_probe=(),
        criteria=(),
        reasons=("the mission has no probe",),
        reason_codes=(GateReason.NO_PROBE,),
    )


@pytest.mark.requirement("probe.gate")
def test_a_later_pass_of_a_probe_of_the_same_kind_hides_no_failure() -> None:
    evidence = [baseline(ONE), baseline(TWO), row(ONE, Verdict.FAIL), row(TWO, Verdict.PASS)]
    decision = decide([ONE, TWO], evidence, workspace_digest=NOW, base_digest=BASE)
    assert decision.verified is ExpectedVerdict.NO
    assert decision.reasons == ("probe 1: exited 1",)


@pytest.mark.requirement("probe.gate")
def test_a_required_probe_that_fails_is_no_with_nothing_else_said_about_it() -> None:
    assert judge([ONE], row(ONE, Verdict.FAIL)) is ExpectedVerdict.NO


@pytest.mark.requirement("probe.gate")
def test_an_older_pass_does_not_outlive_a_failure_that_changed_the_tree() -> None:
    evidence = (baseline(ONE), row(ONE, Verdict.PASS), row(ONE, Verdict.FAIL, mutated=True))
    assert judge([ONE], *evidence) is ExpectedVerdict.NO
    assert judge([ONE], *evidence, now=OTHER) is ExpectedVerdict.UNKNOWN
    assert judge([ONE], baseline(ONE), row(ONE, Verdict.PASS, mutated=True)) is ExpectedVerdict.NO


@pytest.mark.requirement("probe.gate")
def test_evidence_of_another_command_of_the_same_kind_says_nothing() -> None:
    decision = decide([ONE], [baseline(TWO), row(TWO, Verdict.PASS)], workspace_digest=NOW, base_digest=BASE)
    assert decision.verified is ExpectedVerdict.UNKNOWN
    assert decision.reasons == ("probe 1: the probe was not run on the current workspace",)


# ── the rest of the table ──


@pytest.mark.requirement("probe.discrimination")
def test_a_probe_that_already_passed_on_the_untouched_workspace_is_vacuous() -> None:
    evidence = [baseline(ONE, Verdict.PASS), row(ONE, Verdict.PASS)]
    decision = decide([ONE], evidence, workspace_digest=NOW, base_digest=BASE)
    assert decision.verified is ExpectedVerdict.UNKNOWN
    assert decision.reasons == ("probe 1: already passes on the untouched workspace",)


@pytest.mark.requirement("probe.discrimination")
def test_probe_that_could_not_judge_the_untouched_workspace_verifies_nothing() -> None:
    assert judge([ONE], baseline(ONE, Verdict.UNAVAILABLE), row(ONE, Verdict.PASS)) is ExpectedVerdict.UNKNOWN


def test_a_claim_on_an_unchanged_tree_whose_probe_fails_is_no() -> None:
    assert judge([ONE], baseline(ONE), row(ONE, Verdict.FAIL, on=BASE), now=BASE) is ExpectedVerdict.NO


@pytest.mark.requirement("probe.roles")
def test_probe_that_failed_and_passed_on_the_same_content_is_unknown_whichever_came_last() -> None:
    passed, failed = row(ONE, Verdict.PASS), row(ONE, Verdict.FAIL)
    broken = row(ONE, Verdict.UNAVAILABLE, fault=Fault.WORKSPACE)
    for evidence in ((failed, passed), (passed, failed), (broken, passed), (passed, broken)):
        decision = decide([ONE], [baseline(ONE), *evidence], workspace_digest=NOW, base_digest=BASE)
        assert (decision.verified, decision.reason_codes) == (ExpectedVerdict.UNKNOWN, (GateReason.UNSTABLE,))
    assert judge([ONE], baseline(ONE), passed, row(ONE, Verdict.UNAVAILABLE)) is ExpectedVerdict.YES, "tried again"
    assert judge([ONE], baseline(ONE), baseline(ONE, Verdict.PASS), passed) is ExpectedVerdict.UNKNOWN


def test_content_that_failed_and_then_passed_unchanged_proves_nothing() -> None:
    evidence = [baseline(ONE), row(ONE, Verdict.PASS, on=BASE)]
    decision = decide([ONE], evidence, workspace_digest=BASE, base_digest=BASE)
    assert decision.verified is ExpectedVerdict.UNKNOWN
    assert decision.reasons == ("probe 1: the probe failed and passed on the same content",)


def test_one_probe_required_twice_is_one_requirement() -> None:
    again = RequiredProbe(digest=ONE.digest, kind=ONE.kind, index=1, criterion="again")
    decision = decide(
        [ONE, again, ONE], [baseline(ONE), row(ONE, Verdict.PASS)], workspace_digest=NOW, base_digest=BASE
    )
    assert (decision.verified, len(decision.per_probe)) == (ExpectedVerdict.YES, 1)


def test_probes_differ_by_every_part_of_their_spec() -> None:
    specs = [
        HeadlessRun(command="a"),
        HeadlessRun(command=["a"]),
        HeadlessRun(command="a", stdout=""),
        HeadlessRun(command="a", exit=1),
        HeadlessRun(command="a", timeout="1s"),
    ]
    assert len({probe.digest for probe in require(specs)}) == len(specs)


def test_of_all_a_single_probe_can_show_exactly_one_picture_is_yes() -> None:
    seen: list[tuple[Verdict | None, bool]] = [(None, False), *product(Verdict, (False, True))]
    pictures = [
        (was, became)
        for was, became in product(seen, seen)
        if judge(
            [ONE],
            *([baseline(ONE, was[0], mutated=was[1])] if was[0] else []),
            *([row(ONE, became[0], mutated=became[1])] if became[0] else []),
        )
        is ExpectedVerdict.YES
    ]
    assert pictures == [((Verdict.FAIL, False), (Verdict.PASS, False))]


# ── guards, criteria and waivers ──


@pytest.mark.requirement("probe.roles")
@pytest.mark.parametrize(
    ("was", "on_mutant", "now", "verified", "code"),
    [
        (Verdict.PASS, Verdict.FAIL, Verdict.PASS, True, None),
        (Verdict.PASS, Verdict.FAIL, Verdict.FAIL, False, GateReason.FAILS),
        (Verdict.PASS, Verdict.FAIL, Verdict.UNAVAILABLE, False, GateReason.BROKEN),
        (Verdict.PASS, Verdict.FAIL, None, None, GateReason.NOT_RUN),
        (Verdict.PASS, Verdict.PASS, Verdict.PASS, None, GateReason.PASSES_MUTANT),
        (Verdict.PASS, Verdict.PASS, Verdict.FAIL, False, GateReason.PASSES_MUTANT),
        (Verdict.PASS, Verdict.UNAVAILABLE, Verdict.PASS, None, GateReason.MUTANT_UNAVAILABLE),
        (Verdict.PASS, None, Verdict.PASS, None, GateReason.MUTANT_NOT_RUN),
        (Verdict.FAIL, Verdict.FAIL, Verdict.PASS, None, GateReason.FAILS_UNTOUCHED),
        (Verdict.FAIL, Verdict.FAIL, Verdict.FAIL, None, GateReason.FAILS_UNTOUCHED),
        (Verdict.UNAVAILABLE, Verdict.FAIL, Verdict.PASS, None, GateReason.UNTOUCHED_UNAVAILABLE),
        (None, Verdict.FAIL, Verdict.PASS, None, GateReason.UNTOUCHED_NOT_RUN),
        (None, Verdict.FAIL, Verdict.FAIL, None, GateReason.UNTOUCHED_NOT_RUN),
    ],
)
def test_guard_passes_before_and_now_and_fails_on_its_mutant(
    was: Verdict | None, on_mutant: Verdict | None, now: Verdict | None, verified: bool | None, code: GateReason | None
) -> None:
    fault = Fault.WORKSPACE
    evidence = [
        *([] if was is None else [row(GUARD, was, on=BASE, phase=Phase.BASELINE, fault=fault)]),
        *([] if on_mutant is None else [row(GUARD, on_mutant, on=BASE, phase=Phase.MUTANT, fault=fault)]),
        *([] if now is None else [row(GUARD, now, fault=fault)]),
    ]
    decision = decide([GUARD], evidence, workspace_digest=NOW, base_digest=BASE)
    assert (decision.verified.as_bool, decision.reason_codes) == (verified, () if code is None else (code,))


@pytest.mark.requirement("probe.roles")
def test_guard_without_a_mutant_verifies_nothing() -> None:
    evidence = [baseline(BLIND, Verdict.PASS), row(BLIND, Verdict.PASS)]
    decision = decide([BLIND], evidence, workspace_digest=NOW, base_digest=BASE)
    assert (decision.verified, decision.unjudged) == (ExpectedVerdict.UNKNOWN, GateReason.NO_MUTANT)


@pytest.mark.requirement("probe.roles")
def test_guards_alone_never_verify_an_unchanged_workspace() -> None:
    evidence = [baseline(GUARD, Verdict.PASS), mutant(GUARD), row(GUARD, Verdict.PASS, on=BASE)]
    decision = decide([GUARD], evidence, workspace_digest=BASE, base_digest=BASE)
    assert (decision.verified, decision.reason_codes) == (ExpectedVerdict.UNKNOWN, (GateReason.UNCHANGED,))
    assert decision.unjudged is None, "the agent's own doing"


@pytest.mark.requirement("probe.roles")
def test_row_on_a_mutant_says_nothing_about_the_workspace() -> None:
    assert judge([ONE], mutant(ONE), row(ONE, Verdict.PASS)) is ExpectedVerdict.UNKNOWN
    assert judge([ONE], baseline(ONE), mutant(ONE, Verdict.PASS), now=BASE) is ExpectedVerdict.NO


@pytest.mark.requirement("probe.gate")
def test_probes_of_one_criterion_decide_it_together() -> None:
    first, second, other = require(
        [
            HeadlessRun(command="a", criterion="It adds."),
            HeadlessRun(command="b", criterion="It adds."),
            HeadlessRun(command="c", criterion="It prints."),
        ]
    )
    evidence = [baseline(each) for each in (first, second, other)]
    evidence += [row(first, Verdict.PASS), row(second, Verdict.FAIL), row(other, Verdict.PASS)]
    decision = decide([first, second, other], evidence, workspace_digest=NOW, base_digest=BASE)
    assert decision.verified is ExpectedVerdict.NO
    assert decision.criteria == (
        CriterionDecision(criterion="It adds.", verified=False, probes=(0, 1)),
        CriterionDecision(criterion="It prints.", verified=True, probes=(2,)),
    )
    waiver = WaiverSpec(criterion="It adds.", by="Ada", why="no time")
    waived = decide([first, second, other], evidence, workspace_digest=NOW, base_digest=BASE, waivers=[waiver])
    assert (waived.verified, waived.unjudged) == (ExpectedVerdict.UNKNOWN, GateReason.WAIVED)
    assert waived.criteria[0] == CriterionDecision(criterion="It adds.", verified=None, probes=(0, 1), waived_by="Ada")
    assert waived.reasons == ("probe 1: waived by Ada: no time", "probe 2: waived by Ada: no time")


@pytest.mark.requirement("campaign.unjudged")
@pytest.mark.parametrize(
    ("was", "fault", "verified", "code"),
    [
        (Verdict.FAIL, Fault.WORKSPACE, ExpectedVerdict.NO, GateReason.BROKEN),
        (Verdict.FAIL, Fault.MACHINE, ExpectedVerdict.UNKNOWN, GateReason.UNAVAILABLE),
        (Verdict.UNAVAILABLE, Fault.WORKSPACE, ExpectedVerdict.UNKNOWN, GateReason.UNTOUCHED_UNAVAILABLE),
        (Verdict.PASS, Fault.WORKSPACE, ExpectedVerdict.NO, GateReason.PASSES_UNTOUCHED),
    ],
)
def test_probe_that_cannot_judge_what_the_agent_left_is_no_if_the_cause_is_there(
    was: Verdict, fault: Fault, verified: ExpectedVerdict, code: GateReason
) -> None:
    evidence = [baseline(ONE, was), row(ONE, Verdict.UNAVAILABLE, fault=fault)]
    decision = decide([ONE], evidence, workspace_digest=NOW, base_digest=BASE)
    assert (decision.verified, decision.reason_codes) == (verified, (code,))


@pytest.mark.requirement("campaign.unjudged")
def test_unusable_probe_makes_the_attempt_unjudged_whatever_the_others_say() -> None:
    rows = [baseline(ONE, Verdict.PASS), row(ONE, Verdict.PASS), baseline(TWO), row(TWO, Verdict.FAIL)]
    decision = decide([ONE, TWO], rows, workspace_digest=NOW, base_digest=BASE)
    assert (decision.verified, decision.unjudged) == (ExpectedVerdict.NO, GateReason.PASSES_UNTOUCHED)
    alone = decide([TWO], rows, workspace_digest=NOW, base_digest=BASE)
    assert (alone.verified, alone.unjudged) == (ExpectedVerdict.NO, None)
    ended_early = decide([TWO], [baseline(TWO)], workspace_digest=NOW, base_digest=BASE)
    assert (ended_early.verified, ended_early.unjudged) == (ExpectedVerdict.UNKNOWN, None)


def program(path: str, sha256: str | None = "a", *, writable: bool = True) -> ProbeProgram:
    is_in_workspace = path == "check"
    sha = None if sha256 is None else Digest(sha256)
    return ProbeProgram(path=path, sha256=sha, is_in_workspace=is_in_workspace, is_writable=writable)


GREP, OWN = program("/usr/bin/grep", writable=False), program("/home/ada/bin/grep")
PYTHON, NEW_PYTHON = program("/venv/bin/python"), program("/venv/bin/python", "b")


@pytest.mark.trust
@pytest.mark.requirement("probe.gate")
@pytest.mark.parametrize(
    ("before", "now", "code"),
    [
        ([PYTHON], [PYTHON], None),
        ([PYTHON], [NEW_PYTHON], GateReason.TAMPERED),
        ([PYTHON], [program("/venv/bin/python", None)], GateReason.TAMPERED),
        ([GREP], [OWN], GateReason.TAMPERED),
        ([GREP], [program("grep", None, writable=False)], GateReason.PROGRAM_CHANGED),
        ([GREP], [program(GREP.path, "b", writable=False)], GateReason.PROGRAM_CHANGED),
        ([GREP, PYTHON], [program(GREP.path, "b", writable=False), NEW_PYTHON], GateReason.TAMPERED),
        # A word of a shell command that became a program, and a script of the workspace, are the agent's own work.
        ([GREP], [GREP, OWN], None),
        ([program("check"), PYTHON], [program("check", "b"), GREP], None),
        ([program("check"), PYTHON], [program("check"), NEW_PYTHON], GateReason.TAMPERED),
        ([PYTHON], [], None),
    ],
)
def test_changed_program_of_a_probe_is_tampered_if_the_agent_could_change_it(
    before: list[ProbeProgram], now: list[ProbeProgram], code: GateReason | None
) -> None:
    expected = {None: True, GateReason.TAMPERED: False, GateReason.PROGRAM_CHANGED: None}[code]
    for verdict in (Verdict.PASS, Verdict.FAIL):
        first = row(ONE, Verdict.FAIL, on=BASE, phase=Phase.BASELINE, programs=tuple(before))
        last = row(ONE, verdict, programs=tuple(now))
        decision = decide([ONE], [first, last], workspace_digest=NOW, base_digest=BASE)
        if code is None:
            assert decision.verified.as_bool is (verdict is Verdict.PASS)
        else:
            assert (decision.verified.as_bool, decision.reason_codes) == (expected, (code,))
            assert (decision.unjudged is None) is (code is GateReason.TAMPERED)


DIGESTS = st.sampled_from([BASE, NOW, OTHER])
PROBES = st.sampled_from([ONE, TWO, GUARD, BLIND])
ROWS = st.builds(
    row,
    PROBES,
    st.sampled_from(Verdict),
    on=DIGESTS,
    phase=st.sampled_from(Phase),
    mutated=st.booleans(),
    fault=st.sampled_from([None, *Fault]),
    programs=st.sampled_from([(), (PYTHON,), (NEW_PYTHON,), (GREP,)]),
)


def oracle(required: list[RequiredProbe], evidence: list[ProbeRow], now: Digest, base: Digest) -> ExpectedVerdict:
    """The same law from the other end: what would have to be seen for a no, and for a yes."""

    def shows(probe: RequiredProbe, *, on: Digest, phases: set[Phase]) -> set[object]:
        """Everything that was seen there; a row that says nothing about the workspace shows nothing."""
        about = [
            r for r in evidence if (r.probe_digest, r.workspace_digest) == (probe.digest, on) and r.phase in phases
        ]
        shown: set[object] = {"mutated"} if any(r.mutated for r in about) else set()
        broken = [r for r in about if r.verdict is Verdict.UNAVAILABLE and r.fault is Fault.WORKSPACE]
        return shown | ({"broken"} if broken else set()) | {r.verdict for r in about} - {Verdict.NOT_RUN}

    def is_no(probe: RequiredProbe) -> bool:
        final = shows(probe, on=now, phases={Phase.BASELINE, Phase.FINAL})
        was = shows(probe, on=base, phases={Phase.BASELINE}) - {"mutated"}
        if "mutated" in final:
            return True
        if probe.role is Role.GUARD and not (Verdict.PASS in was and not was & {Verdict.FAIL, "broken"}):
            return False
        has_judged = bool(was & {Verdict.PASS, Verdict.FAIL})
        is_bad = Verdict.FAIL in final or ("broken" in final and has_judged)
        return is_bad and Verdict.PASS not in final

    def is_yes(probe: RequiredProbe) -> bool:
        final = shows(probe, on=now, phases={Phase.BASELINE, Phase.FINAL})
        was = shows(probe, on=base, phases={Phase.BASELINE})
        broken = shows(probe, on=base, phases={Phase.MUTANT})
        ok, bad = {Verdict.PASS}, {Verdict.FAIL}
        is_passing = final - {Verdict.UNAVAILABLE} == ok
        if probe.role is Role.GOAL:
            return is_passing and was - {Verdict.UNAVAILABLE, "broken"} == bad
        is_alert = broken - {Verdict.UNAVAILABLE, "broken"} == bad and probe.has_mutant
        return is_passing and was - {Verdict.UNAVAILABLE} == ok and is_alert

    if any(map(is_no, required)):
        return ExpectedVerdict.NO
    is_goal_set = now != base or any(probe.role is Role.GOAL for probe in required)
    is_proven = bool(required) and is_goal_set and all(map(is_yes, required))
    return ExpectedVerdict.YES if is_proven else ExpectedVerdict.UNKNOWN


@pytest.mark.requirement("probe.gate")
@pytest.mark.long
@pytest.mark.parametrize("probe", [ONE, GUARD, BLIND])
def test_the_gate_agrees_with_a_brute_force_reading_of_every_two_rows(probe: RequiredProbe) -> None:
    faults = {Verdict.UNAVAILABLE: Fault.WORKSPACE}
    rows = [
        row(probe, verdict, on=on, phase=phase, mutated=mutated, fault=faults.get(verdict))
        for verdict, on, phase, mutated in product(Verdict, (BASE, NOW, OTHER), Phase, (False, True))
    ]
    for first, second, now in product(rows, rows, (BASE, NOW)):
        expected = oracle([probe], [first, second], now, BASE)
        assert judge([probe], first, second, now=now) is expected, (first, second, now)


@given(
    required=st.lists(PROBES, max_size=3),
    evidence=st.lists(ROWS.map(lambda each: msgspec.structs.replace(each, programs=())), max_size=8),
    now=DIGESTS,
)
def test_the_gate_agrees_with_a_brute_force_reading(
    required: list[RequiredProbe], evidence: list[ProbeRow], now: Digest
) -> None:
    decision = decide(required, evidence, workspace_digest=now, base_digest=BASE)
    assert decision.verified is oracle(required, evidence, now, BASE)
    assert bool(decision.reasons) == (decision.verified is not ExpectedVerdict.YES)
    assert {each for criterion in decision.criteria for each in criterion.probes} == {each.index for each in required}


@pytest.mark.requirement("probe.gate")
@given(
    required=st.lists(PROBES, min_size=1, max_size=3),
    evidence=st.lists(ROWS, max_size=8),
    more=st.lists(ROWS, min_size=1, max_size=4),
    now=DIGESTS,
)
def test_no_added_row_turns_a_no_into_a_yes(
    required: list[RequiredProbe], evidence: list[ProbeRow], more: list[ProbeRow], now: Digest
) -> None:
    if judge(required, *evidence, now=now) is ExpectedVerdict.NO:
        assert judge(required, *evidence, *more, now=now) is not ExpectedVerdict.YES


@given(evidence=st.lists(ROWS, max_size=8), now=DIGESTS, probe=PROBES, mutated=st.booleans())
def test_one_more_failing_row_about_the_current_content_never_yields_yes(
    evidence: list[ProbeRow], now: Digest, probe: RequiredProbe, mutated: bool
) -> None:
    failing = row(probe, Verdict.FAIL, on=now, mutated=mutated)
    assert judge([probe], *evidence, failing, now=now) is not ExpectedVerdict.YES
