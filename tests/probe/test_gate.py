from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proctor.evidence.artifacts import GateReason
from proctor.ids import Digest
from proctor.probe.gate import Decision, ProbeDecision, decide
from proctor.probe.model import Fault, Phase, ProbeProgram, ProbeRow, RequiredProbe, Verdict, require
from proctor.spec.expect import ExpectedVerdict
from proctor.spec.probes import HeadlessRun

BASE, NOW, OTHER = Digest("sha256:base"), Digest("sha256:now"), Digest("sha256:other")
ONE, TWO = require([HeadlessRun(command="one"), HeadlessRun(command="two")])


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


def judge(
    required: list[RequiredProbe], *evidence: ProbeRow, now: Digest = NOW, base: Digest = BASE
) -> ExpectedVerdict:
    return decide(required, evidence, workspace_digest=now, base_digest=base).verified


def test_a_probe_that_failed_before_and_passes_now_is_verified() -> None:
    evidence = [baseline(ONE), row(ONE, Verdict.PASS)]
    assert decide([ONE], evidence, workspace_digest=NOW, base_digest=BASE) == Decision(
        verified=ExpectedVerdict.YES,
        per_probe=(
            ProbeDecision(
                probe_digest=ONE.digest,
                kind="headless_run",
                index=0,
                verified=ExpectedVerdict.YES,
                baseline=Verdict.FAIL,
                final=Verdict.PASS,
            ),
        ),
        reasons=(),
    )


# ── five ways to say verified falsely ──


@pytest.mark.requirement("probe.gate")
def test_zero_required_probes_are_never_verified_whatever_was_seen() -> None:
    decision = decide([], [baseline(ONE), row(ONE, Verdict.PASS)], workspace_digest=NOW, base_digest=BASE)
    assert decision == Decision(
        verified=ExpectedVerdict.UNKNOWN,
        per_probe=(),
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


def test_the_latest_row_counts() -> None:
    assert judge([ONE], baseline(ONE), row(ONE, Verdict.FAIL), row(ONE, Verdict.PASS)) is ExpectedVerdict.YES
    assert judge([ONE], baseline(ONE), row(ONE, Verdict.PASS), row(ONE, Verdict.FAIL)) is ExpectedVerdict.NO
    assert judge([ONE], baseline(ONE), row(ONE, Verdict.PASS), row(ONE, Verdict.UNAVAILABLE)) is ExpectedVerdict.UNKNOWN


def test_content_that_failed_and_then_passed_unchanged_proves_nothing() -> None:
    evidence = [baseline(ONE), row(ONE, Verdict.PASS, on=BASE)]
    decision = decide([ONE], evidence, workspace_digest=BASE, base_digest=BASE)
    assert decision.verified is ExpectedVerdict.UNKNOWN
    assert decision.reasons == ("probe 1: the probe failed and passed on the same content",)


def test_one_probe_required_twice_is_one_requirement() -> None:
    again = RequiredProbe(digest=ONE.digest, kind=ONE.kind, index=1)
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
PROBES = st.sampled_from([ONE, TWO])
ROWS = st.builds(row, PROBES, st.sampled_from(Verdict), on=DIGESTS, phase=st.sampled_from(Phase), mutated=st.booleans())


def oracle(required: list[RequiredProbe], evidence: list[ProbeRow], now: Digest, base: Digest) -> ExpectedVerdict:
    """The same law from the other end: what would have to be seen for a no, and for a yes."""

    def last(probe: RequiredProbe, *, on: Digest, phases: set[Phase]) -> tuple[Verdict, bool] | None:
        about = [
            r for r in evidence if (r.probe_digest, r.workspace_digest) == (probe.digest, on) and r.phase in phases
        ]
        return (about[-1].verdict, about[-1].mutated) if about else None

    finals = [last(probe, on=now, phases=set(Phase)) for probe in required]
    bases = [last(probe, on=base, phases={Phase.BASELINE}) for probe in required]
    if any(final is not None and (final[1] or final[0] is Verdict.FAIL) for final in finals):
        return ExpectedVerdict.NO
    is_proven = (
        now != base
        and required
        and all(
            (was, became) == ((Verdict.FAIL, False), (Verdict.PASS, False))
            for was, became in zip(bases, finals, strict=True)
        )
    )
    return ExpectedVerdict.YES if is_proven else ExpectedVerdict.UNKNOWN


def test_the_gate_agrees_with_a_brute_force_reading_of_every_two_rows() -> None:
    rows = [
        row(ONE, verdict, on=on, phase=phase, mutated=mutated)
        for verdict, on, phase, mutated in product(Verdict, (BASE, NOW, OTHER), Phase, (False, True))
    ]
    for first, second, now in product(rows, rows, (BASE, NOW)):
        assert judge([ONE], first, second, now=now) is oracle([ONE], [first, second], now, BASE), (first, second, now)


@given(required=st.lists(PROBES, max_size=3), evidence=st.lists(ROWS, max_size=8), now=DIGESTS)
@settings(deadline=None)
def test_the_gate_agrees_with_a_brute_force_reading(
    required: list[RequiredProbe], evidence: list[ProbeRow], now: Digest
) -> None:
    decision = decide(required, evidence, workspace_digest=now, base_digest=BASE)
    assert decision.verified is oracle(required, evidence, now, BASE)
    assert bool(decision.reasons) == (decision.verified is not ExpectedVerdict.YES)


@given(
    evidence=st.lists(ROWS, max_size=8), now=DIGESTS, probe=PROBES, phase=st.sampled_from(Phase), mutated=st.booleans()
)
@settings(deadline=None)
def test_one_more_failing_row_about_the_current_content_never_yields_yes(
    evidence: list[ProbeRow], now: Digest, probe: RequiredProbe, phase: Phase, mutated: bool
) -> None:
    failing = row(probe, Verdict.FAIL, on=now, phase=phase, mutated=mutated)
    assert judge([ONE, TWO], *evidence, failing, now=now) is ExpectedVerdict.NO
