"""Many conversations on one warm process, and what somebody who embeds them gives: answers, tools, threads."""

from pathlib import Path

import anyio
import pytest

import proctor
from proctor.attempt.recheck import examine_run
from proctor.evidence.health import read_health
from proctor.evidence.layout import RootPaths
from tests.api.talk import assert_gone, bounded, kill_agents, nap, script
from tests.lab import Lab

pytestmark = pytest.mark.real_agent


@pytest.mark.requirement("surface.embed")
def test_sessions_share_a_process_and_one_that_died_is_replaced(tmp_path: Path) -> None:
    hello, napping = script(tmp_path, {"say": "Hello."}), script(tmp_path, {"run": (command := nap())})
    root = tmp_path / "root"

    async def talk(pool: proctor.Pool) -> None:
        async with pool.session(script=hello) as s:
            assert (await s.say("Hello?")).outcome is proctor.Outcome.COMPLETED
        assert not s.workspace.exists()

    async def test() -> None:
        async with proctor.pool(evidence="disk", root=root) as pool:
            async with anyio.create_task_group() as talks:
                for _ in range(3):
                    talks.start_soon(talk, pool)
            async with pool.session(script=napping) as s:
                async for event in s.say("Take a nap."):
                    if isinstance(event, proctor.ToolBegan):
                        kill_agents()
                assert (s.ending.outcome, s.ending.code) == (proctor.Outcome.CRASHED, "peer.killed")
                with pytest.raises(proctor.InputError) as over:
                    s.say("Are you there?")
                assert over.value.code == "session.over"
            await talk(pool)
            async with pool.session(script=hello) as s:
                kill_agents()
                async for _, event in s.events():
                    if isinstance(event, proctor.ProcessExited):
                        break
                ending = await s.say("Are you there?")  # nobody has been since it was idle
                assert (ending.outcome, ending.code) == (proctor.Outcome.CRASHED, "peer.killed")
        with pytest.raises(proctor.InputError) as closed:
            await talk(pool)
        assert closed.value.code == "session.over"

    bounded(test)
    assert_gone(command)
    [its] = read_health(root / "health.db").values()
    assert (its.starts, its.failed_starts, its.crashes, its.last_code) == (2, 0, 2, "peer.killed")
    [run] = RootPaths(root).runs()
    found = examine_run(run, is_strict=True)
    assert [(each.status, each.findings) for each in found] == [("valid", ())] * 9  # the run, 6 sessions, 2 processes


@pytest.mark.requirement("surface.embed")
@pytest.mark.requirement("runtime.approvals.answered")
def test_questions_go_to_the_callback_and_silence_is_a_denial(tmp_path: Path) -> None:
    step = {"run": {"command": "echo out > made.txt", "escalate": True}}
    steps = script(tmp_path, step, {"say": "One."}, step, {"say": "Two."})
    asked: list[proctor.Question] = []

    async def decide(question: proctor.Question) -> proctor.Decision:
        asked.append(question)
        if len(asked) == 2:
            await anyio.sleep_forever()
        return proctor.Decision.ACCEPT

    async def test() -> None:
        # The clocks stand while somebody thinks, also for longer than they run.
        limits = proctor.Limits(stall="3s", turn="4s", attempt="60s")
        async with proctor.session(script=steps, approvals=decide, approval_deadline="5s", limits=limits) as s:
            told = []
            for prompt in ("First.", "Second."):
                resolved = [event async for event in s.say(prompt) if isinstance(event, proctor.ApprovalResolved)]
                told += [(event.decision, event.by, s.outcome) for event in resolved]
            done = proctor.Outcome.COMPLETED
            assert told == [("accept", "callback", done), ("decline", "deadline", done)]
            assert [question.cwd for question in asked] == [str(s.workspace)] * 2

    bounded(test)


@pytest.mark.requirement("surface.api")
def test_the_agent_can_call_a_tool_of_the_callers(tmp_path: Path) -> None:
    steps = script(tmp_path, {"call": {"tool": "weather", "arguments": {"city": "Oslo"}}}, {"say": "Rain."})
    called: list[object] = []

    async def weather(given: object) -> str:
        called.append(given)
        return "rain"

    schema = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
    tool = proctor.Tool(name="weather", description="The weather of a city.", schema=schema, call=weather)

    async def test() -> None:
        async with proctor.session(script=steps, tools=[tool]) as s:
            ended = [event async for event in s.say("Weather?") if isinstance(event, proctor.ToolEnded)]
            assert [(event.name, event.ok) for event in ended] == [("weather", True)]
            assert (called, s.answer) == ([{"city": "Oslo"}], "Rain.")

    bounded(test)


def test_session_with_an_id_continues_on_the_same_process(tmp_path: Path) -> None:
    first, second = script(tmp_path, {"say": "I am the first."}), script(tmp_path, {"say": "I remember."})

    async def test() -> None:
        async with proctor.pool(evidence="disk", root=tmp_path / "evidence") as pool:
            async with pool.session(id="ada", script=first) as s:
                await s.say("Who are you?")
                thread = s.thread
            async with pool.session(id="ada", script=second) as again:
                assert again.thread == thread
                assert (await again.say("And now?")).outcome is proctor.Outcome.COMPLETED
                assert again.answer == "I remember."
                assert [turn.n for turn in again.turns] == [1, 2]
            gone = pool.session(id="gone", thread="00000000-0000-7000-8000-000000000000", script=second)
            with pytest.raises(proctor.MachineError) as lost:
                await gone.__aenter__()
            assert lost.value.code == "session.thread-lost"

    bounded(test)


@pytest.mark.requirement("surface.api")
def test_a_campaign_is_built_and_run_in_a_few_lines(lab: Lab) -> None:
    step = {"run": {"command": "echo 4 > answer.txt", "escalate": True}}
    done = {"say": 'PROCTOR-RESULT: {"done": true, "answer": "4"}'}

    async def decide(_: proctor.Question) -> proctor.Decision:
        return proctor.Decision.ACCEPT

    async def test() -> proctor.CampaignReport:
        probe = proctor.HeadlessRun(command=["cat", "answer.txt"], stdout="4\n")
        mission = proctor.Mission(
            id=proctor.MissionId("add"),
            prompt="Add 2 and 2.",
            probes=[probe],
            script=str(script(lab.folder, step, done)),
        )
        flow = {"id": "codex", "runtime": ["codex_app_server"], "approvals": "ask"}
        campaign = {"version": 1, "campaign": "sums", "missions": [mission], "flows": [flow]}
        with pytest.raises(proctor.InputError) as nobody:
            await proctor.run(campaign, root=lab.root)
        assert (nobody.value.code, nobody.value.where) == ("policy.no-approver", "campaign: flows[0].approvals")
        return await proctor.run(campaign, root=lab.root, decide=decide)

    report = bounded(test)
    assert [(row.outcome, row.claimed, row.verified) for row in report.attempts] == [
        (proctor.Outcome.COMPLETED, True, True)
    ]
    assert (Path(report.attempts[0].dir) / "seal.json").is_file()
    [campaign] = RootPaths(lab.root).campaigns()
    assert (campaign.report.is_file(), campaign.results.is_file()) == (True, True)
    lab.assert_all_evidence_is_valid()
