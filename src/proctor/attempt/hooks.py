"""The operator's own commands around an attempt: contained, bounded, on record, and nothing of them left running."""

import os
from typing import Final, Literal

import anyio

from proctor.attempt.model import AttemptAsk
from proctor.clock import Clock
from proctor.contain.launch import new_marker, wrap
from proctor.errors import MachineError
from proctor.event.row import HookEnded
from proctor.evidence.redact import Redactor
from proctor.probe.tail import tail
from proctor.spec.argv import argv_of
from proctor.spec.duration import parse_duration_s
from proctor.spec.running import HooksSpec
from proctor.transport.process import Finished, run_once

HookPhase = Literal["before", "after"]

MAX_OUTPUT_BYTES: Final = 1024 * 1024
SHOWN_BYTES: Final = 2048
STOP_S = 5.0
_HANDED_ON: Final = ("PATH", "HOME", "LANG")


def has_hook(hooks: HooksSpec | None, phase: HookPhase) -> bool:
    return hooks is not None and getattr(hooks, phase) is not None


async def run_hook(phase: HookPhase, ask: AttemptAsk, *, workspace: str, redactor: Redactor) -> HookEnded:
    """Run it to its end or its time-out; whoever asks to stop waits for it STOP_S at most.

    Never raises but for cancellation: what went wrong is its `problem`.
    """
    hooks = ask.mission.hooks
    assert hooks is not None, "asked for only where there is one"
    argv, timeout_s = argv_of(getattr(hooks, phase)), parse_duration_s(hooks.timeout)
    began_s = ask.clock.steady_s()
    ended: HookEnded | None = None
    async with anyio.create_task_group() as tasks:

        async def hurry() -> None:
            await ask.stop.wait()
            tasks.cancel_scope.deadline = anyio.current_time() + STOP_S

        tasks.start_soon(hurry)
        ended = await _run(phase, ask, argv, timeout_s=timeout_s, workspace=workspace, redactor=redactor)
        tasks.cancel_scope.cancel()
    if ended is None:
        problem = f"it did not end within {STOP_S:g} s after somebody asked to stop"
        return HookEnded(phase=phase, argv=argv, problem=problem, duration_ms=_ms_since(began_s, ask.clock))
    return ended


async def _run(
    phase: HookPhase,
    ask: AttemptAsk,
    argv: tuple[str, ...],
    *,
    timeout_s: float,
    workspace: str,
    redactor: Redactor,
) -> HookEnded:
    began_s = ask.clock.steady_s()
    try:
        plan = wrap(
            ask.containment,
            argv,
            env=_environment(phase, ask, workspace=workspace),
            cwd=ask.spec_folder,
            marker=new_marker(),
        )
        finished = await run_once(plan, intents=ask.intents, timeout_s=timeout_s, max_output_bytes=MAX_OUTPUT_BYTES)
    except MachineError as error:
        return HookEnded(phase=phase, argv=argv, problem=str(error), duration_ms=_ms_since(began_s, ask.clock))
    ended = finished.exit
    return HookEnded(
        phase=phase,
        argv=argv,
        exit_code=None if ended is None else ended.code,
        signal=None if ended is None else ended.signal,
        duration_ms=_ms_since(began_s, ask.clock),
        timed_out=finished.timed_out,
        stdout_tail=tail(finished.stdout, redactor=redactor, is_cut=finished.stdout_cut, limit_bytes=SHOWN_BYTES),
        stderr_tail=tail(finished.stderr, redactor=redactor, is_cut=finished.stderr_cut, limit_bytes=SHOWN_BYTES),
        problem=_problem(finished, timeout_s=timeout_s),
    )


def _environment(phase: HookPhase, ask: AttemptAsk, *, workspace: str) -> dict[str, str]:
    """Nothing of ours but what any command needs, and what the flow hands on to its agent."""
    names = (*_HANDED_ON, *ask.flow.forward)
    return {
        **{name: os.environ[name] for name in names if name in os.environ},
        "PROCTOR_CAMPAIGN": ask.campaign_id,
        "PROCTOR_MISSION": ask.mission.id,
        "PROCTOR_FLOW": ask.flow.id,
        "PROCTOR_ATTEMPT": ask.attempt_id,
        "PROCTOR_WORKSPACE": workspace,
        "PROCTOR_PHASE": phase,
    }


def _problem(finished: Finished, *, timeout_s: float) -> str | None:
    if finished.timed_out:
        return f"it did not end within {timeout_s:g} s"
    if finished.exit is None:
        return "how it ended is not known"
    if finished.exit.code == 0:
        return None
    if finished.exit.code is None:
        return f"it was killed by signal {finished.exit.signal}"
    return f"it exited {finished.exit.code}"


def _ms_since(began_s: float, clock: Clock) -> int:
    return round((clock.steady_s() - began_s) * 1000)
