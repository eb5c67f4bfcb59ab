"""The real Codex over a websocket: the same evidence as over stdio, and a connection that may drop."""

import hashlib
import json
import os
import signal
from pathlib import Path
from typing import Any

import anyio
import pytest

from proctor import places
from proctor.errors import HangupError, RefusedError
from proctor.event.outcome import Outcome
from proctor.event.row import ChannelClosed, Direction, StepTaken, SupervisorRow
from proctor.runtime.base import Decision, Question
from proctor.runtime.codex_app_server import listening_server
from proctor.runtime.codex_app_server.session import LOST
from proctor.spec.choices import Approvals
from proctor.transport.websocket import connect
from tests.lab import Lab, jsonl, mission, processes_with, report_of, runner_ref_of, say_done
from tests.runtime.real import Real, Talk, real_server
from tests.runtime.twin import run

pytestmark = pytest.mark.real_agent

WEBSOCKET = {"transport": "websocket"}
WAITS = {"do": [{"say": "I begin."}, {"delay": "700ms"}, {"say": "I end."}]}


def drop(server: Real) -> None:
    """As a network does that breaks: no goodbye, and the server lives."""
    server.host._connection._channel.drop()  # type: ignore[attr-defined]


def steps(talk: Talk) -> list[SupervisorRow]:
    return [seen for seen in talk.tap.of(Direction.SELF) if isinstance(seen, StepTaken | ChannelClosed)]


@pytest.mark.requirement("runtime.codex-app-server")
def test_a_campaign_runs_over_a_websocket_and_nothing_of_the_token_is_kept(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    token = listening_server.new_token()
    monkeypatch.setattr("proctor.runtime.codex_app_server.host.new_token", lambda: token)
    missions = [mission(f"m{n}", {"run": f"echo mark-{n}"}, say_done(str(n))) for n in range(3)]
    spec = lab.write_spec(missions, flow={"options": {"codex_app_server": WEBSOCKET}})
    result = lab.run(spec, is_scratch_kept=True)
    attempts = lab.attempts()
    assert len(attempts) == 3
    for name, paths in attempts.items():
        assert report_of(paths).outcome is Outcome.COMPLETED
        assert jsonl(paths.tool_calls)[0]["output"] == f"mark-{name[1]}\n"
        ref = runner_ref_of(paths)
        assert (ref.transport, ref.facts["transport"].value) == ("websocket", "websocket")
    lab.assert_all_evidence_is_valid()
    scratch = places.cache_dir() / "runs" / result.run_id
    for file in [file for place in (lab.folder, scratch) for file in place.rglob("*") if file.is_file()]:
        assert token.encode() not in file.read_bytes(), file
    assert processes_with(hashlib.sha256(token.encode()).hexdigest()) == []


def test_a_transport_that_there_is_not_is_refused_before_anything_runs(lab: Lab) -> None:
    spec = lab.write_spec([mission("m", say_done())], flow={"options": {"codex_app_server": {"transport": "pigeon"}}})
    done = lab.proctor("run", str(spec), "--json")
    error = json.loads(done.stdout)["error"]
    assert (done.returncode, error["code"]) == (2, "spec.type")
    assert error["what"] == "transport must be one of stdio, websocket, not 'pigeon'"
    assert lab.attempts() == {}


def test_nobody_talks_to_the_server_without_the_token(tmp_path: Path) -> None:
    async def test() -> None:
        async with real_server(tmp_path, options=WEBSOCKET) as server:
            url = server.host._connection._channel._url  # type: ignore[attr-defined]
            with pytest.raises(RefusedError, match="HTTP 401"):
                await connect(url, token="guessed", deadline_s=5)

    run(test)


@pytest.mark.requirement("runtime.codex-app-server")
@pytest.mark.requirement("schedule.recovery")
def test_a_persistent_thread_is_joined_again_and_its_turn_goes_on(tmp_path: Path) -> None:
    async def test() -> None:
        async with (
            real_server(tmp_path, options=WEBSOCKET) as server,
            server.talk(WAITS, {"say": "Again."}, name="k", is_persistent=True) as talk,
        ):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(talk.session.turn, "Go on.")
                await server.model.journal_until("k", lambda rows: len(rows) == 1)
                await talk.session._turns.known.wait()
                drop(server)
            assert (talk.turns, talk.said[-1]) == (["completed"], "I end.")
            await talk.session.turn("Once more.")
            assert talk.said[-1] == "Again."
            lost, restored = steps(talk)
            assert lost == StepTaken(step="the connection was lost")
            assert isinstance(restored, StepTaken)
            assert (restored.step, list(restored.detail)) == ("connection restored", ["lostMs"])
            assert server.host.is_alive

    run(test)


def test_a_question_that_was_open_when_it_dropped_is_put_again(tmp_path: Path) -> None:
    async def test() -> None:
        asked: list[Question] = []

        async with real_server(tmp_path, options=WEBSOCKET) as server:

            async def decide(question: Question) -> Decision:
                asked.append(question)
                if len(asked) == 1:
                    drop(server)
                    await anyio.sleep_forever()
                return Decision.ACCEPT

            step = {"run": {"command": "echo asked twice", "escalate": True}}
            ask: dict[str, Any] = {"is_persistent": True, "approvals": Approvals.ASK, "decide": decide}
            async with server.talk(step, {"say": "Done."}, **ask) as talk:
                await talk.session.turn("Go on.")
                assert (talk.turns, talk.said) == (["completed"], ["Done."])
                rows = [(seen.decision, seen.by) for seen in talk.answers]
                assert rows == [("none", "cancelled"), ("accept", "callback")]

    run(test)


@pytest.mark.requirement("runtime.codex-app-server")
def test_an_ephemeral_thread_ends_honestly_and_does_not_work_on_unheard(tmp_path: Path) -> None:
    async def test() -> None:
        async with real_server(tmp_path, options=WEBSOCKET) as server:
            waits = {"do": [{"say": "I begin."}, {"delay": "100s"}]}
            async with server.talk(waits, {"say": "x"}, name="k") as talk:
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(is_cut_off, talk)
                    await server.model.journal_until("k", lambda rows: len(rows) == 1)
                    await talk.session._turns.known.wait()
                    drop(server)
                assert steps(talk) == [StepTaken(step="the connection was lost"), ChannelClosed(cause=LOST)]
                await server.model.journal_until("k", lambda rows: rows[0].client_aborted)
                with pytest.raises(HangupError, match=LOST):
                    await talk.session.turn("Once more.")
            async with server.talk({"say": "The next one is well."}) as talk:
                await talk.session.turn("Go on.")
                assert talk.said == ["The next one is well."]

    async def is_cut_off(talk: Talk) -> None:
        with pytest.raises(HangupError, match=LOST):
            await talk.session.turn("Go on.")

    run(test)


def test_a_server_that_dies_is_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listening_server, "PAUSES_S", (0.05, 3600.0))

    async def test() -> None:
        async with real_server(tmp_path, options=WEBSOCKET) as server:
            async with server.talk(WAITS, name="k", is_persistent=True) as talk, anyio.create_task_group() as tasks:

                async def kill() -> None:
                    await server.model.journal_until("k", lambda rows: len(rows) == 1)
                    agent = server.host._connection._channel._process.agent  # type: ignore[attr-defined]
                    os.kill(agent.pid, signal.SIGKILL)

                tasks.start_soon(kill)
                with pytest.raises(HangupError, match="the agent closed its output"):
                    await talk.session.turn("Go on.")
            assert not server.host.is_alive

    run(test)
