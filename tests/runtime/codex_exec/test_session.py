"""Turns of the real `codex exec`: what they cost, what they leave behind, and how they are ended."""

import os
import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import pytest

from proctor.errors import HangupError, RefusedError
from proctor.event.history_item import HistoryItem
from proctor.event.laws import Laws
from proctor.event.model import (
    CompactionEnded,
    ErrorReported,
    HistoryGiven,
    HistoryOffered,
    HistoryRead,
    ProcessExited,
    PromptSent,
    ReasoningSaid,
    SessionBegan,
    TextSaid,
    ToolEnded,
    TurnEnded,
    UsageReported,
    WarningRaised,
)
from proctor.ids import ThreadId, TurnId
from proctor.model.journal import Journal
from proctor.model.script import Script, Step
from proctor.runtime.base import ContextUse, ModelChoice
from proctor.runtime.conversion import clean
from proctor.spec.choices import Approvals, Login
from proctor.testing.agent_under_test import EventTap
from proctor.testing.journals import recorded_journals, request_items
from proctor.transport.fault import Cut, FaultChannel, LineFault
from tests.lab import processes_with, wait_until
from tests.runtime.codex_exec.real import Exec, costs, real_exec
from tests.runtime.messages import order_of
from tests.runtime.twin import run

pytestmark = [pytest.mark.real_agent, pytest.mark.requirement("runtime.codex-exec")]

HUNDRED = {"usage": {"input": 80, "cached": 30, "output": 20, "reasoning": 5}}
CROSS_CHECKED = (100, "rollout-record", "equal")
THREE = [{"say": word, **HUNDRED} for word in ("One.", "Two.", "Three.")]


def on_the_wire(tap: EventTap) -> list[int]:
    return [each.tokens.total for each in tap.of(UsageReported) if each.authority == "live-turn-completed"]


def ends(tap: EventTap) -> list[str]:
    return [event.status for event in tap.of(TurnEnded)]


def assert_lawful(tap: EventTap) -> None:
    laws = Laws()
    assert [law for event in tap.events if (law := laws.feed(event)) is not None] == []


@pytest.mark.requirement("runtime.usage")
def test_each_turn_of_a_conversation_costs_its_own_though_the_wire_counts_on(tmp_path: Path) -> None:
    async def test() -> None:
        fails = {"fault": {"status": 400}}
        async with (
            real_exec(tmp_path) as agent,
            agent.session(*THREE, fails, name="k", is_persistent=True) as (session, tap),
        ):
            for prompt in ("First.", "Second.", "Third.", "Another, of which nobody says what it cost."):
                await session.turn(prompt)
            assert ends(tap) == ["completed", "completed", "completed", "failed"]
            assert (on_the_wire(tap), costs(tap)) == ([100, 200, 300], [*[CROSS_CHECKED] * 3, (None, "none", None)])
            assert [said.text for said in tap.of(TextSaid)] == ["One.", "Two.", "Three."]
            assert {"First.", "One.", "Second.", "Two.", "Third."} <= {*agent.model.journal("k")[2].texts}
            assert [(began.thread, began.is_resumed) for began in tap.of(SessionBegan)] == [(session.thread, False)]
            assert [each.code for each in tap.of(ProcessExited) if each.is_turns_own] == [0, 0, 0, 1]
            assert_lawful(tap)

    run(test)


@pytest.mark.requirement("runtime.usage")
def test_sessions_that_take_a_thread_up_again_pay_for_their_own_turn_only(tmp_path: Path) -> None:
    async def test() -> None:
        told, thread = [], None
        for number, step in enumerate(THREE):
            async with (
                real_exec(tmp_path) as agent,
                agent.session(step, name=f"s{number}", is_persistent=True, resume=thread) as (session, tap),
            ):
                await session.turn(f"Turn {number}.")
                thread = thread or session.thread
                told.append((session.thread, on_the_wire(tap), costs(tap)))
                assert [began.is_resumed for began in tap.of(SessionBegan)] == [number > 0]
        async with real_exec(tmp_path) as agent, agent.session(THREE[0], name="f", fork=thread) as (session, tap):
            await session.turn("Another way.")
            assert session.thread != thread
            # Nothing is kept of it, so that the wire is all there is.
            assert (on_the_wire(tap), costs(tap)) == ([400], [(100, "live-turn-completed", None)])
            assert {"Turn 2.", "Three.", "Another way."} <= {*agent.model.journal("f")[-1].texts}
        assert told == [(thread, [total], [CROSS_CHECKED]) for total in (100, 200, 300)]

    run(test)


@pytest.mark.requirement("runtime.usage")
def test_a_turn_whose_process_is_killed_is_paid_for_once_though_the_wire_forgets_it(tmp_path: Path) -> None:
    async def test() -> None:
        steps = ({"run": "sleep 341.5", **HUNDRED}, {"say": "Well.", **HUNDRED})
        async with real_exec(tmp_path) as agent:
            async with agent.session(*steps, name="k", is_persistent=True) as (session, tap):

                async def kill() -> None:
                    await running("341.5")
                    [agent] = [pid for pid in processes_with("exec\x00--json") if is_own(pid, tmp_path)]
                    os.kill(agent, signal.SIGKILL)

                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(kill)
                    with pytest.raises(HangupError):
                        await session.turn("Go on.")
                assert [each.signal for each in tap.of(ProcessExited)] == [signal.SIGKILL]
                assert processes_with("sleep\x00341.5") == []
                await session.turn("Once more.")
            assert (on_the_wire(tap), costs(tap)) == ([100], [(100, "rollout-record", None), CROSS_CHECKED])

    run(test)


def test_a_turn_whose_output_closes_while_it_works_is_ended_and_its_end_is_on_record(tmp_path: Path) -> None:
    nap = f"346.{os.getpid()}"

    async def test() -> None:
        broken = [LineFault(at=lambda line: b"item.started" in line, how=Cut())]
        async with (
            real_exec(tmp_path, wrap_channel=lambda channel: FaultChannel(channel, broken)) as agent,
            agent.session({"run": f"sleep {nap}"}, name="k") as (session, tap),
        ):
            with pytest.raises(HangupError):
                await session.turn("Go on.")
            assert [(each.signal, each.is_turns_own) for each in tap.of(ProcessExited)] == [(signal.SIGTERM, True)]
            assert processes_with(f"sleep\x00{nap}") == []

    run(test)


def is_own(pid: int, folder: Path) -> bool:
    """Whether it is Codex itself, and not what is around it, working below this folder."""
    process = Path(f"/proc/{pid}")
    return (
        process.joinpath("exe").readlink().name == "codex"
        and str(folder).encode() in (process / "cmdline").read_bytes()
    )


async def running(nap: str) -> None:
    """Until the shell sleeps: that it is about to was told before."""
    await anyio.to_thread.run_sync(lambda: wait_until(lambda: bool(processes_with(f"sleep\x00{nap}"))))


def test_an_ephemeral_thread_leaves_nothing_and_takes_no_second_turn(tmp_path: Path) -> None:
    async def test() -> None:
        async with real_exec(tmp_path) as agent, agent.session(*THREE, name="k") as (session, tap):
            await session.turn("Remember 4711.")
            with pytest.raises(RefusedError, match="make the session persistent") as refused:
                await session.turn("Which?")
            assert refused.value.code == "runtime.capability"
            assert (len(tap.of(PromptSent)), len(agent.model.journal("k"))) == (1, 1), "nothing was sent"
            with pytest.raises(RefusedError, match="has stored nothing"):
                await session.read_history()
            assert session.facts["persistence"].value == "ephemeral"
            assert costs(tap) == [(100, "live-turn-completed", None)]
        assert [
            file for file in (tmp_path / "home").rglob("*") if file.is_file() and b"4711" in file.read_bytes()
        ] == []

    run(test)


def test_an_interrupted_turn_leaves_no_child_and_a_thread_that_goes_on_and_its_sibling_works_on(tmp_path: Path) -> None:
    nap, other = f"342.{os.getpid()}", f"343.{os.getpid()}"

    async def test() -> None:
        steps = ({"run": f"sleep {nap} & sleep {nap}", **HUNDRED}, {"say": "Well.", **HUNDRED})
        async with (
            real_exec(tmp_path) as agent,
            agent.session(*steps, name="k", is_persistent=True) as (session, tap),
            agent.session({"run": f"sleep {other}"}, name="sibling") as (sibling, sibling_tap),
        ):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(sibling.turn, "Go on.")
                tasks.start_soon(session.turn, "Go on.")
                await running(nap)
                await running(other)
                await session.interrupt()
                await session.settle()
                assert (processes_with(f"sleep\x00{nap}"), ends(tap)) == ([], ["interrupted"])
                assert (len(processes_with(f"sleep\x00{other}")) > 0, ends(sibling_tap)) == (True, [])
                [rollout] = (tmp_path / "home" / "sessions").rglob("rollout-*.jsonl")
                assert '"type":"turn_aborted"' in rollout.read_text(), "it was given the time to note it"
                await session.turn("Once more.")
                await sibling.interrupt()
            assert (ends(tap), costs(tap)) == (
                ["interrupted", "completed"],
                [(100, "rollout-record", None), CROSS_CHECKED],
            )
            assert_lawful(tap)
        wait_until(lambda: processes_with(f"sleep\x00{other}") == [])

    run(test)


def test_what_is_kept_of_a_thread_is_what_was_heard_of_it(tmp_path: Path) -> None:
    async def test() -> None:
        steps = (
            {"think": "First I look.", "run": "echo out"},
            {"patch": {"file": "made.txt", "content": "by the model\n"}},
            {"say": "Done.\nAll of it."},
        )
        prompts = ('{"not": "a message"}', "-", "two\nlines, and a last empty one\n")
        async with (
            real_exec(tmp_path) as agent,
            agent.session(*steps, *THREE, name="k", is_persistent=True) as (session, tap),
        ):
            for prompt in prompts:
                await session.turn(prompt)
            await session.read_history()
            assert [prompt.text for prompt in tap.of(PromptSent)] == list(prompts)
            heard = {text for row in agent.model.journal("k") for text in row.texts}
            assert {*prompts} <= heard, "to the last character and no further"
            assert [(tool.kind, tool.ok, tool.output) for tool in tap.of(ToolEnded)] == [
                ("command", True, "out\n"),
                ("patch", True, None),
            ]
            [history] = tap.of(HistoryRead)
            assert history.items == (
                HistoryItem(kind="prompt", text=prompts[0]),
                HistoryItem(kind="reasoning", text="First I look."),
                HistoryItem(kind="tool", text="shell"),
                HistoryItem(kind="tool", text="patch"),
                HistoryItem(kind="message", text="Done.\nAll of it."),
                HistoryItem(kind="prompt", text=prompts[1]),
                HistoryItem(kind="message", text="One."),
                HistoryItem(kind="prompt", text=prompts[2]),
                HistoryItem(kind="message", text="Two."),
            )
            said = [event.text for event in tap.events if isinstance(event, TextSaid | ReasoningSaid)]
            assert said == [item.text for item in history.items if item.kind in ("message", "reasoning")]

    run(test)


def test_a_schema_reaches_the_model_in_the_first_turn_and_in_one_that_goes_on(tmp_path: Path) -> None:
    schema = {"type": "object", "properties": {}, "required": [], "additionalProperties": False}

    async def test() -> None:
        async with (
            real_exec(tmp_path) as agent,
            agent.session({"say": "{}"}, {"say": "{}"}, {"say": "No."}, name="k", is_persistent=True) as (session, _),
        ):
            for wanted in (schema, schema, None):
                await session.turn("Go on.", output_schema=wanted)
            assert [row.has_output_schema for row in agent.model.journal("k")] == [True, True, False]
        assert list((tmp_path / "process-tmp").glob("schema-*")) == []

    run(test)


GONE = ThreadId("00000000-0000-7000-8000-000000000000")


def store_rollout(home: Path) -> None:
    file = home / "sessions" / "2026" / "01" / "01" / f"rollout-x-{GONE}.jsonl"
    file.parent.mkdir(parents=True)
    file.touch()


def remove_rollouts(folder: Path) -> None:
    for stored in folder.rglob(f"rollout-*-{GONE}.jsonl"):
        stored.unlink()


def test_a_program_that_will_not_start_a_turn_tells_why_on_stderr(tmp_path: Path) -> None:
    async def told(agent: Exec, **ask: object) -> list[object]:
        async with agent.session({"say": "Never."}, name=f"n{len(ask)}-{next(iter(ask))}", **ask) as (session, tap):
            remove_rollouts(tmp_path)
            with pytest.raises(HangupError):
                await session.turn("Go on.")
            assert (session.thread, [each.code for each in tap.of(ProcessExited)]) == (None, [1])
            [error] = tap.of(ErrorReported)
            assert error.text == "\n".join(each.text for each in tap.of(WarningRaised))
            return [error.code, error.text.partition("\n")[0]]

    async def test() -> None:
        async with real_exec(tmp_path) as agent:
            missing = f"no rollout found for thread id {GONE} (code -32600)"
            with pytest.raises(RefusedError, match="has no stored thread"):
                await told(agent, resume=GONE)
            # It is deleted between the opening of the session and its first turn.
            store_rollout(tmp_path / "home")
            assert [await told(agent, resume=GONE), await told(agent, options={"stream_max_retries": "many"})] == [
                ["peer.refused", f"Error: thread/resume: thread/resume failed: {missing}"],
                ["peer.refused", 'Error loading config.toml: invalid type: string "many", expected u64'],
            ]
            for ask in ({"resume": ThreadId("--last")}, {"fork": GONE, "fork_through": TurnId("t")}):
                with pytest.raises(RefusedError, match=r"no stored thread|whole threads only"):
                    async with agent.session({"say": "Never."}, name="odd", **ask):
                        pass

    run(test)


def test_a_key_that_is_missing_is_told_and_one_that_is_there_is_kept_from_the_shell(tmp_path: Path) -> None:
    model = ModelChoice(provider="scripted", name="scripted", key_variable="NOWHERE_API_KEY", login=Login.API_KEY)

    async def told(**env: str) -> tuple[list[str | None], list[str | None]]:
        async with real_exec(tmp_path, model=model, env={"PATH": "/usr/bin:/bin", **env}) as agent:
            url = agent.model.play("shell", Script(version=1, steps=[Step(run="env"), Step(say="Done.")]))
            ask = {"model": replace(model, base_url=url)}
            async with agent.session({"say": "Not this."}, name="k", **ask) as (session, tap):
                await session.turn("Go on.")
        return [end.code for end in tap.of(TurnEnded)], [tool.output for tool in tap.of(ToolEnded)]

    assert run(told) == (["provider.key-missing"], [])
    ends, [shown] = run(lambda: told(NOWHERE_API_KEY="pk-nowhere-0123"))
    assert (ends, "PROCTOR_ATTEMPT=k" in str(shown), "pk-nowhere" in str(shown)) == ([None], True, False)


def test_nobody_is_asked_and_what_leaves_the_sandbox_fails_there_untold(tmp_path: Path) -> None:
    async def test() -> None:
        outside, home = tmp_path / "outside.txt", tmp_path / "home"
        steps = (
            {"run": {"command": f"touch {outside}", "escalate": True}},
            {"run": f"touch {home}/own || touch {outside} || echo $PROCTOR_ATTEMPT; touch $TMPDIR/mine"},
            {"say": "Done."},
        )
        async with real_exec(tmp_path) as agent:
            ask = {"approvals": Approvals.ACCEPT, "is_persistent": True}
            async with agent.session(*steps, name="k", **ask) as (session, tap):
                await session.turn("Go on.")
                # Codex may or may not emit an item for the command that it refuses at once.
                *refused, ran = tap.of(ToolEnded)
                assert [tool.ok for tool in refused] in ([], [False])
                assert str(ran.output).splitlines()[-1] == "k"
                assert "approval policy is Never" in tap.of(WarningRaised)[0].text
                assert session.facts["approvals"].value == {
                    "policy": "accept",
                    "effective": "never",
                    "areDenialsTold": False,
                }
        assert (outside.exists(), (home / "own").exists(), (tmp_path / "k/tmp/mine").exists()) == (False, False, True)

    run(test)


@pytest.mark.requirement("context.system-addition")
def test_instructions_of_a_new_thread_arrive_in_the_developer_role_and_on_no_command_line(tmp_path: Path) -> None:
    words = "Say 4711. " * 20_000  # longer than Linux allows for one argument

    async def test() -> tuple[list[Journal], EventTap]:
        with recorded_journals() as journals:
            async with real_exec(tmp_path) as agent:
                steps = {"say": "One."}, {"say": "Two."}
                asked: dict[str, Any] = {"instructions": words, "is_persistent": True}
                async with agent.session(*steps, name="told", **asked) as (session, tap):
                    await session.turn("Go on.")
                    await session.turn("Go on.")
        return journals, tap

    journals, tap = run(test)
    roles = [[item.role for item in items if words in item.whole_text] for items in request_items(journals)]
    assert roles == [["developer"]] * 2
    # Only a new thread takes instructions.
    assert (len(tap.of(HistoryOffered)), len(tap.of(HistoryGiven))) == (1, 1)


@pytest.mark.requirement("context.system-addition")
def test_instructions_of_any_characters_arrive_as_they_are(tmp_path: Path) -> None:
    words = 'Say """4711""".\r\n\t[x]\n# \\u0041 \\ \' é 🦊 \u2028 \x7f \x01 ${HOME}\n'

    async def test() -> list[Journal]:
        with recorded_journals() as journals:
            async with (
                real_exec(tmp_path) as agent,
                agent.session({"say": "One."}, name="odd", instructions=f"{words}\0\ud800") as (session, _),
            ):
                await session.turn("Go on.")
        return journals

    [items] = request_items(run(test))
    assert [item.whole_text for item in items if "4711" in item.whole_text] == [f"{words}{clean(chr(0) + chr(0xD800))}"]


@pytest.mark.requirement("context.compaction")
def test_compaction_is_reported_where_it_happens(tmp_path: Path) -> None:
    async def test() -> None:
        full = {"usage": {"input": 190_000, "output": 5}}
        steps = {"run": "echo hi", **full}, {"say": "One.", **full}, {"say": "Two."}
        async with real_exec(tmp_path) as agent, agent.session(*steps, name="k", is_persistent=True) as (session, tap):
            await session.turn("First.")
            await session.turn("Second.")
        assert order_of(tap.events) == (
            "PromptSent TurnBegan ToolBegan ToolEnded CompactionBegan CompactionEnded TextSaid TurnEnded "
            "PromptSent TurnBegan CompactionBegan CompactionEnded TextSaid TurnEnded".split()
        )
        assert [(each.trigger, each.ok, each.keeps) for each in tap.of(CompactionEnded)] == [
            ("auto", True, "user-messages")
        ] * 2
        assert_lawful(tap)

    run(test)


def test_context_use_is_in_the_file_of_a_persistent_thread_and_nowhere_else(tmp_path: Path) -> None:
    async def test() -> None:
        async with real_exec(tmp_path) as agent:
            async with agent.session({"say": "One.", **HUNDRED}, name="kept", is_persistent=True) as (session, _):
                assert await session.read_context() == ContextUse()
                await session.turn("Go on.")
                use, thread = await session.read_context(), session.thread
                assert (use.used_tokens, use.fixed_prompt_tokens) == (100, None)
                assert use.window_tokens is not None
                assert use.window_tokens > 100_000
            async with agent.session({"say": "Two."}, name="again", resume=thread) as (session, _):
                assert await session.read_context() == use
            async with agent.session({"say": "Three."}, name="ephemeral") as (session, _):
                await session.turn("Go on.")
                assert await session.read_context() == ContextUse()

    run(test)


def test_messages_are_refused_because_exec_takes_none(tmp_path: Path) -> None:
    async def test() -> None:
        async with real_exec(tmp_path) as agent, agent.session({"say": "One."}, name="none") as (session, _):
            with pytest.raises(RefusedError, match="takes_history") as refused:
                await session.give(())
            assert refused.value.code == "runtime.capability"

    run(test)
