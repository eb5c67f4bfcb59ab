"""The URL of a scripted model holds a token: an agent gets it, and no other user of the machine can see it."""

import os
from pathlib import Path

import anyio
import pytest

from proctor.contain.identity import descendants
from proctor.event.model import TurnEnded
from proctor.evidence.scan import MODEL_PREFIX
from proctor.ids import RuntimeId
from proctor.runtime.registry import runtime_by_id
from proctor.testing.agent_under_test import open_agent
from tests.lab import processes_with

DEADLINE_S = 60


def files_with_token(folder: Path) -> list[Path]:
    return [each for each in folder.rglob("*") if each.is_file() and MODEL_PREFIX.encode() in each.read_bytes()]


def own_processes_with_token() -> list[int]:
    """Processes below this one: another program of the machine may have a token in its command line."""
    return sorted({*processes_with(MODEL_PREFIX)} & {*descendants(os.getpid())})


@pytest.mark.real_agent
@pytest.mark.parametrize(
    "runtime_id",
    ["codex_app_server", "codex_exec", pytest.param("claude_code", marks=pytest.mark.agent("claude_code"))],
)
def test_the_token_of_a_model_is_in_no_command_line_and_in_no_file(runtime_id: RuntimeId) -> None:
    runtime = runtime_by_id(runtime_id)
    look, slow = {"run": "true"}, {"do": [{"say": "Wait."}, {"delay": "200ms"}, {"say": "Done."}]}

    async def main() -> None:
        with anyio.fail_after(DEADLINE_S):
            async with open_agent(runtime, runtime.locate({})) as agent:
                async with agent.session(look, slow, name="a") as (session, tap), anyio.create_task_group() as tasks:
                    tasks.start_soon(session.turn, "Go on.")
                    await agent.model.journal_until("a", lambda rows: any(row.step == 1 for row in rows))
                    assert own_processes_with_token() == []
                    # Another attempt may share the agent's home.
                    assert files_with_token(agent.folder) == []
                assert [end.status for end in tap.of(TurnEnded)] == ["completed"]
                assert files_with_token(agent.folder) == []

    anyio.run(main)
