"""A turn waits for the MCP servers of the settings, which Codex reports only after it has opened the thread."""

from dataclasses import replace

import anyio

from proctor.runtime.codex_app_server.host import CodexHost
from tests.runtime.twin import TINY, Line, MemoryTap, connected, meanwhile, run, session_ask, turn_completed

STATUS = "mcpServer/startupStatus/updated"


def host_of(line: Line, *, unheard_s: float) -> CodexHost:
    return CodexHost(
        line.connection,
        {},
        clock=line.clock,
        marker=line.marker,
        servers=frozenset({"kit"}),
        deadlines=replace(TINY, mcp_unheard_s=unheard_s),
    )


def methods(line: Line) -> list[str]:
    return [data.split(b'"method":"')[1].split(b'"')[0].decode() for who, data in line.twin.journal if who == "sent"]


def test_turn_begins_only_when_a_server_reported_late_is_ready() -> None:
    async def play() -> None:
        async with (
            connected() as line,
            host_of(line, unheard_s=60).open_session(session_ask(), MemoryTap()) as session,
            meanwhile(lambda: session.turn("Hello")),
        ):
            for status in ("starting", "ready"):
                await anyio.wait_all_tasks_blocked()
                assert "turn/start" not in methods(line)
                line.twin.notify(STATUS, threadId=session.thread, name="kit", status=status)
            await anyio.wait_all_tasks_blocked()
            assert "turn/start" in methods(line)
            line.twin.say(turn_completed(session.thread))

    run(play)


def test_turn_begins_without_a_server_that_is_never_reported() -> None:
    async def play() -> None:
        async with (
            connected() as line,
            host_of(line, unheard_s=0.01).open_session(session_ask(), MemoryTap()) as session,
            meanwhile(lambda: session.turn("Hello")),
        ):
            while "turn/start" not in methods(line):
                await anyio.wait_all_tasks_blocked()
            line.twin.say(turn_completed(session.thread))

    run(play)
