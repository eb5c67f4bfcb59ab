"""The laws of a plan: every trial once, addressed by what it does, and resume finishes what a crash left."""

import re
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from proctor.ids import Digest, FlowId, MissionId, RuntimeId, TrialId
from proctor.plan.expand import Contents, expand
from proctor.plan.model import Limits, Plan, ResolvedFlow, ResolvedModel, Trial
from proctor.plan.remaining import remaining
from proctor.spec.campaign_options import GatesSpec, HooksSpec, LimitsSpec, ScheduleSpec, SecretFile, ToolsSpec
from proctor.spec.choices import Approvals, Isolation, Login, Persistence, Profile, Sandbox
from proctor.spec.command_probes import HeadlessRun
from proctor.spec.expect import ExpectedVerdict, ExpectSpec, TraceExpect
from proctor.spec.fence import Contain
from proctor.spec.missions import inline_missions
from proctor.spec.model import CampaignSpec, FlowSpec, MissionSpec, ModelSpec, WorkspaceSpec
from tests.plan.made import SCHEDULE

ONE = RuntimeId("one")
CONTENTS = Contents(
    scripts={"a.yaml": Digest("sha256:a"), "same-a.yaml": Digest("sha256:a"), "b.yaml": Digest("sha256:b")},
    workspaces={"tree": Digest("sha256:t"), "same-tree": Digest("sha256:t"), "other": Digest("sha256:o")},
)
PROBE = HeadlessRun(command=["ls"])
MISSION = MissionSpec(
    id=MissionId("m"), prompt="p", workspace=WorkspaceSpec(copy="tree"), probes=[PROBE], script="a.yaml"
)
FLOW = FlowSpec(id=FlowId("f"), runtime=[ONE], options={ONE: {"x": 1, "y": 2}}, env={"LANG": "C"})
SPEC = CampaignSpec(version=1, campaign="c", missions=[MISSION], flows=[FLOW])


def planned(spec: CampaignSpec, *, digests: Contents) -> Plan:
    return expand(spec, missions=inline_missions(spec), digests=digests)


def of_mission(**changes: Any) -> CampaignSpec:
    return replace(SPEC, missions=[replace(MISSION, **changes)])


def of_flow(**changes: Any) -> CampaignSpec:
    return replace(SPEC, flows=[replace(FLOW, **changes)])


@pytest.mark.requirement("session.continue-after-wait")
def test_plan_that_continues_after_waits_has_other_digests_and_no_other_plan_has() -> None:
    plain = planned(replace(SPEC, schedule=ScheduleSpec(retries=5)), digests=CONTENTS)
    assert plain.digest == planned(SPEC, digests=CONTENTS).digest
    continuing = planned(replace(SPEC, schedule=ScheduleSpec(continue_after_wait=True)), digests=CONTENTS)
    assert continuing.schedule.continue_after_wait
    assert continuing.trials[0].digest != plain.trials[0].digest


@pytest.mark.requirement("campaign.matrix")
def test_a_plan_holds_everything_with_its_defaults_filled_in() -> None:
    spec = replace(
        SPEC,
        flows=[FLOW, FlowSpec(id=FlowId("g"), runtime=[ONE], model=ModelSpec(provider="openai", name="n"))],
        login=Login.API_KEY,
        limits=LimitsSpec(attempt="2m", turn=90, stall="500ms"),
        repeats=2,
    )
    plan = planned(spec, digests=CONTENTS)
    assert plan == Plan(
        campaign="c",
        digest=plan.digest,
        flows=(
            ResolvedFlow(
                id=FlowId("f"),
                runtime=(ONE,),
                isolation=Isolation.SHARED,
                sandbox=Sandbox.WORKSPACE_WRITE,
                approvals=Approvals.DENY,
                model=ResolvedModel(provider="scripted", name=None, base_url=None),
                login=Login.API_KEY,
                token=None,
                profile=Profile.FRESH,
                persistence=Persistence.EPHEMERAL,
                contain=Contain.FENCED,
                options={ONE: {"x": 1, "y": 2}},
                env={"LANG": "C"},
                forward=(),
                tools=ToolsSpec(),
            ),
            ResolvedFlow(
                id=FlowId("g"),
                runtime=(ONE,),
                isolation=Isolation.SHARED,
                sandbox=Sandbox.WORKSPACE_WRITE,
                approvals=Approvals.DENY,
                model=ResolvedModel(provider="openai", name="n", base_url=None),
                login=Login.API_KEY,
                token=None,
                profile=Profile.FRESH,
                persistence=Persistence.EPHEMERAL,
                contain=Contain.FENCED,
                options={},
                env={},
                forward=(),
                tools=ToolsSpec(),
            ),
        ),
        limits=Limits(attempt_ms=120_000, turn_ms=90_000, stall_ms=500),
        trials=tuple(
            Trial(id=TrialId(id_), mission=MissionId("m"), flow=FlowId(flow), repeat=repeat, digest=trial.digest)
            for (id_, flow, repeat), trial in zip(
                [("m.f.r1", "f", 1), ("m.g.r1", "g", 1), ("m.f.r2", "f", 2), ("m.g.r2", "g", 2)],
                plan.trials,
                strict=True,
            )
        ),
        schedule=SCHEDULE,
        gates=GatesSpec(),
    )


@pytest.mark.parametrize(
    "changed",
    [
        of_mission(id=MissionId("n")),
        of_mission(prompt="q"),
        of_mission(probes=[]),
        of_mission(probes=[PROBE, PROBE]),
        of_mission(probes=[replace(PROBE, stdout="")]),
        of_mission(probes=[replace(PROBE, timeout="31s")]),
        of_mission(workspace=WorkspaceSpec()),
        of_mission(workspace=WorkspaceSpec(copy="other")),
        of_mission(script="b.yaml"),
        of_mission(expect=ExpectSpec(verified=ExpectedVerdict.NO)),
        of_mission(expect=ExpectSpec(trace=TraceExpect(max_tool_calls=0))),
        of_mission(hooks=HooksSpec(before=["ls"])),
        of_flow(id=FlowId("g")),
        of_flow(runtime=[ONE, RuntimeId("two")]),
        of_flow(isolation=Isolation.PROCESS),
        of_flow(sandbox=Sandbox.READ_ONLY),
        of_flow(approvals=Approvals.ACCEPT),
        of_flow(model=ModelSpec(name="n")),
        of_flow(login=Login.API_KEY),
        of_flow(options={ONE: {"x": 1, "y": 3}}),
        of_flow(env={"LANG": "D"}),
        of_flow(forward=["LANG"]),
        of_flow(token="NAME"),
        of_flow(token=SecretFile(file="a")),
        of_flow(profile=Profile.MINE),
        replace(SPEC, model=ModelSpec(base_url="http://localhost:1/v1")),
        replace(SPEC, login=Login.API_KEY),
        replace(SPEC, token="NAME"),
        replace(SPEC, limits=LimitsSpec(turn="181s")),
        replace(SPEC, hooks=HooksSpec(after="ls")),
    ],
)
@pytest.mark.requirement("campaign.matrix")
def test_whatever_decides_what_runs_changes_the_digest(changed: CampaignSpec) -> None:
    before, after = planned(SPEC, digests=CONTENTS), planned(changed, digests=CONTENTS)
    assert before.trials[0].digest != after.trials[0].digest
    assert before.digest != after.digest


@pytest.mark.parametrize(
    "unchanged",
    [
        of_mission(script="same-a.yaml"),
        of_mission(workspace=WorkspaceSpec(copy="same-tree")),
        of_mission(probes=[replace(PROBE, timeout="30s", exit=0)]),
        of_mission(hooks=HooksSpec()),
        of_mission(tags=["quick"], priority=3),
        of_flow(options={ONE: {"y": 2, "x": 1}}),
        of_flow(model=SPEC.model, login=SPEC.login),
        replace(SPEC, limits=LimitsSpec(attempt="5m", turn=180, stall="60000ms")),
        replace(SPEC, schedule=ScheduleSpec(parallel=9)),
        replace(SPEC, secrets=["A_KEY"]),
    ],
)
@pytest.mark.requirement("campaign.matrix")
def test_what_decides_nothing_leaves_the_plan_as_it_was(unchanged: CampaignSpec) -> None:
    one, other = planned(unchanged, digests=CONTENTS), planned(SPEC, digests=CONTENTS)
    # The schedule stands in the plan, and decides only when a trial runs.
    assert replace(one, schedule=other.schedule) == other


def test_a_script_decides_nothing_for_a_real_model() -> None:
    real = ModelSpec(provider="openai")
    plans = [
        planned(replace(of_mission(script=script), model=real), digests=CONTENTS)
        for script in ("a.yaml", "b.yaml", None)
    ]
    assert plans[0] == plans[1] == plans[2]


def test_more_repeats_leave_the_trials_there_were() -> None:
    few = planned(replace(SPEC, repeats=2), digests=CONTENTS)
    many = planned(replace(SPEC, repeats=5), digests=CONTENTS)
    assert many.trials[: len(few.trials)] == few.trials
    assert many.digest != few.digest


_ID = st.from_regex(r"[a-z0-9]{1,4}(-[a-z0-9]{1,3}){0,2}", fullmatch=True)


@st.composite
def specs(draw: st.DrawFn) -> CampaignSpec:
    missions = draw(st.lists(_ID, min_size=1, max_size=4, unique=True))
    flows = draw(st.lists(_ID, min_size=1, max_size=4, unique=True))
    return replace(
        SPEC,
        missions=[replace(MISSION, id=MissionId(id_)) for id_ in missions],
        flows=[replace(FLOW, id=FlowId(id_)) for id_ in flows],
        repeats=draw(st.integers(1, 4)),
    )


@settings(deadline=None)
@given(specs())
def test_every_mission_flow_and_repeat_is_one_trial_with_an_id_that_can_name_a_folder(spec: CampaignSpec) -> None:
    plan = planned(spec, digests=CONTENTS)
    wanted = {
        (mission.id, flow.id, repeat)
        for mission in inline_missions(spec)
        for flow in spec.flows
        for repeat in range(1, spec.repeats + 1)
    }
    assert {(trial.mission, trial.flow, trial.repeat) for trial in plan.trials} == wanted
    assert len({trial.id for trial in plan.trials}) == len({trial.digest for trial in plan.trials}) == len(wanted)
    assert len(plan.trials) == len(wanted)
    assert all(re.fullmatch(r"[a-z0-9][a-z0-9.-]{0,149}", trial.id) for trial in plan.trials)


@settings(deadline=None)
@given(specs())
def test_a_plan_is_the_same_each_time_and_after_a_trip_to_disk(spec: CampaignSpec) -> None:
    plan = planned(spec, digests=CONTENTS)
    assert planned(spec, digests=CONTENTS) == plan
    assert msgspec.json.decode(msgspec.json.encode(plan), type=Plan) == plan


def run(trials: tuple[Trial, ...], *, seal: Callable[[Trial], None], crash_after: int | None = None) -> None:
    for trial in trials[:crash_after]:
        seal(trial)


@settings(deadline=None)
@given(specs(), st.lists(st.integers(0, 12), max_size=5), st.randoms(use_true_random=False))
def test_run_all_equals_run_some_crash_resume(spec: CampaignSpec, crashes: list[int], chance: Any) -> None:
    plan = planned(spec, digests=CONTENTS)
    at_once: list[Trial] = []
    run(remaining(plan, set()), seal=at_once.append)

    in_pieces: list[Trial] = []
    for crash_after in (*crashes, None):
        left = list(remaining(plan, {trial.id for trial in in_pieces}))
        chance.shuffle(left)  # parallel trials end in any order
        run(tuple(left), seal=in_pieces.append, crash_after=crash_after)

    assert sorted(in_pieces, key=plan.trials.index) == at_once == list(plan.trials)


@settings(deadline=None)
@given(specs(), st.data())
def test_what_remains_is_what_has_no_seal_in_the_order_of_the_plan(spec: CampaignSpec, data: st.DataObject) -> None:
    plan = planned(spec, digests=CONTENTS)
    sealed = data.draw(st.sets(st.sampled_from([trial.id for trial in plan.trials])))
    left = remaining(plan, {*sealed, TrialId("of.another.r1")})
    assert {trial.id for trial in left} == {trial.id for trial in plan.trials} - sealed
    assert list(left) == sorted(left, key=plan.trials.index)
