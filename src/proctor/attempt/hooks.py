"""Runs the commands that a mission declares before and after an attempt, contained and with a time limit."""

import os
from typing import Final, Literal

import anyio

from proctor.attempt.model import AttemptRequest
from proctor.clock import Clock
from proctor.contain.launch import new_marker, wrap
from proctor.errors import MachineError
from proctor.event.row import HookEnded
from proctor.evidence.redact import Redactor
from proctor.probe.tail import tail
from proctor.spec.argv import argv_of
from proctor.spec.campaign_options import HooksSpec
from proctor.spec.duration import parse_duration_s
from proctor.transport.process import ProcessResult, run_once

HookPhase = Literal["before", "after"]

MAX_OUTPUT_BYTES: Final = 1024 * 1024
"""Limit for stdout and for stderr of a hook."""
SHOWN_BYTES: Final = 2048
"""How much of the end of each is recorded."""
STOP_S = 5.0
"""How long a hook may continue after a stop request, in seconds."""
_FORWARDED: Final = ("PATH", "HOME", "LANG")


def has_hook(hooks: HooksSpec | None, phase: HookPhase) -> bool:
    return hooks is not None and getattr(hooks, phase) is not None


async def run_hook(phase: HookPhase, request: AttemptRequest, *, workspace: str, redactor: Redactor) -> HookEnded:
    """Run a hook until it ends or times out. After a stop request it has STOP_S left.

    Raises nothing except cancellation: a failure is the `problem` of the result.
    """
    hooks = request.mission.hooks
    assert hooks is not None, "has_hook() was true"
    argv, timeout_s = argv_of(getattr(hooks, phase)), parse_duration_s(hooks.timeout)
    began_s = request.clock.steady_s()
    ended: HookEnded | None = None
    async with anyio.create_task_group() as tasks:

        async def limit_after_stop() -> None:
            await request.stop.wait()
            tasks.cancel_scope.deadline = anyio.current_time() + STOP_S

        tasks.start_soon(limit_after_stop)
        ended = await _run(phase, request, argv, timeout_s=timeout_s, workspace=workspace, redactor=redactor)
        tasks.cancel_scope.cancel()
    if ended is None:
        problem = f"it did not end within {STOP_S:g} s of the stop request"
        return HookEnded(phase=phase, argv=argv, problem=problem, duration_ms=_ms_since(began_s, request.clock))
    return ended


async def _run(
    phase: HookPhase,
    request: AttemptRequest,
    argv: tuple[str, ...],
    *,
    timeout_s: float,
    workspace: str,
    redactor: Redactor,
) -> HookEnded:
    began_s = request.clock.steady_s()
    try:
        plan = wrap(
            request.containment,
            argv,
            env=_environment(phase, request, workspace=workspace),
            cwd=request.spec_folder,
            marker=new_marker(),
        )
        finished = await run_once(plan, intents=request.intents, timeout_s=timeout_s, max_output_bytes=MAX_OUTPUT_BYTES)
    except MachineError as error:
        return HookEnded(phase=phase, argv=argv, problem=str(error), duration_ms=_ms_since(began_s, request.clock))
    ended = finished.exit
    return HookEnded(
        phase=phase,
        argv=argv,
        exit_code=None if ended is None else ended.code,
        signal=None if ended is None else ended.signal,
        duration_ms=_ms_since(began_s, request.clock),
        timed_out=finished.timed_out,
        stdout_tail=tail(finished.stdout, redactor=redactor, is_cut=finished.stdout_cut, limit_bytes=SHOWN_BYTES),
        stderr_tail=tail(finished.stderr, redactor=redactor, is_cut=finished.stderr_cut, limit_bytes=SHOWN_BYTES),
        problem=_problem(finished, timeout_s=timeout_s),
    )


def _environment(phase: HookPhase, request: AttemptRequest, *, workspace: str) -> dict[str, str]:
    """Return the hook's environment: basic variables, those that the flow forwards to its agent, and PROCTOR_*."""
    names = (*_FORWARDED, *request.flow.forward)
    return {
        **{name: os.environ[name] for name in names if name in os.environ},
        "PROCTOR_CAMPAIGN": request.campaign_id,
        "PROCTOR_MISSION": request.mission.id,
        "PROCTOR_FLOW": request.flow.id,
        "PROCTOR_ATTEMPT": request.attempt_id,
        "PROCTOR_WORKSPACE": workspace,
        "PROCTOR_PHASE": phase,
    }


def _problem(finished: ProcessResult, *, timeout_s: float) -> str | None:
    if finished.timed_out:
        return f"it did not end within {timeout_s:g} s"
    if finished.exit is None:
        return "its exit status is not known"
    if finished.exit.code == 0:
        return None
    if finished.exit.code is None:
        return f"it was killed by signal {finished.exit.signal}"
    return f"it exited with {finished.exit.code}"


def _ms_since(began_s: float, clock: Clock) -> int:
    return round((clock.steady_s() - began_s) * 1000)
