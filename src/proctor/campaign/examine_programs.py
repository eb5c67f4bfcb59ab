"""Run agent programs before a campaign, contained, to learn what they are and whether Proctor can use them."""

import os
import secrets
from collections.abc import Callable
from typing import TypeVar

import anyio
import anyio.from_thread
import anyio.to_thread

from proctor import places
from proctor.campaign.scratch import open_scratch
from proctor.clock import SYSTEM_CLOCK
from proctor.contain.bundled import bundled_bwrap
from proctor.contain.intent import open_intents
from proctor.contain.ladder import choose, survey
from proctor.errors import MachineError, ProctorError
from proctor.ids import ProcessId, RunId, RuntimeId
from proctor.runtime.base import ExaminesProgram, Executable, HostRequest, ModelChoice, Runtime
from proctor.runtime.environment import agent_environment
from proctor.runtime.resolve import ExamineProgram
from proctor.spec.choices import SCRIPTED

T = TypeVar("T")


class ProgramExaminer:
    """Examines each program of each runtime once."""

    def __init__(self) -> None:
        self._results: dict[tuple[RuntimeId, Executable], Executable | ProctorError] = {}

    async def examine(self, runtime: Runtime, program: Executable | None) -> Executable | None:
        """Return the program that really runs, with its version. Without such a check, return the program as it is.

        Raises MachineError if the program is too old or incompatible, or cannot be started.
        """
        if program is None or not isinstance(runtime, ExaminesProgram):
            return program
        key = runtime.id, program
        if key not in self._results:
            self._results[key] = await _examine(runtime, runtime.id, program)
        result = self._results[key]
        if isinstance(result, ProctorError):
            raise result
        return result

    def examine_from_thread(self, runtime: Runtime, program: Executable | None) -> Executable | None:
        """Examine a program, for a worker thread: a process may be started on the event loop's thread only."""
        return anyio.from_thread.run(self.examine, runtime, program)


async def _examine(runtime: ExaminesProgram, runtime_id: RuntimeId, program: Executable) -> Executable | ProctorError:
    name = f"examine-{secrets.token_hex(4)}"
    try:
        containment = await anyio.to_thread.run_sync(lambda: choose(survey(bundled_bwrap=bundled_bwrap())))
        with open_scratch(RunId(name), is_kept=False) as folder:
            async with open_intents(places.spawns_dir()) as intents:
                request = HostRequest(
                    process=ProcessId(name),
                    executable=program,
                    home=folder / "home",
                    tmp=folder / "tmp",
                    env=agent_environment(os.environ, env={}).values,
                    containment=containment,
                    intents=intents,
                    clock=SYSTEM_CLOCK,
                    model=ModelChoice(provider=SCRIPTED, name=SCRIPTED, base_url="http://127.0.0.1:1/v1"),
                )
                return await runtime.examine(request)
    except ProctorError as error:
        return error
    except Exception as error:  # a plugin may do anything
        return MachineError("runtime.broken", f"{runtime_id}: {type(error).__name__}: {error}")


def with_examiner(work: Callable[[ExamineProgram], T]) -> T:
    """Call `work` in a worker thread with a function that examines programs, for commands without an event loop."""

    async def main() -> T:
        examine = ProgramExaminer().examine_from_thread
        return await anyio.to_thread.run_sync(lambda: work(examine), abandon_on_cancel=True)

    return anyio.run(main)
