"""Stages: make a runtime whose agent uses no model carry out the steps of a script."""

import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from shlex import quote
from typing import Any, Final, Protocol

import anyio.to_thread
from msgspec import Raw

from proctor.event.row import Direction, Row
from proctor.evidence.layout import AttemptPaths
from proctor.evidence.reader import read_rows
from proctor.ids import RuntimeId
from proctor.runtime.registry import runtime_by_id
from proctor.runtime.samples import Samples, samples_of
from proctor.testing.conformance.case import NotApplicableError

_RECORDED: Final = RuntimeId("codex_app_server")

HEARD: Final = ".heard"
"""The file in the workspace in which the agent saves its prompt, because no model journal exists."""


class Stage(Protocol):
    """Drives an agent that uses no model. An agent that uses a model needs no stage: the model is scripted."""

    has_calls: bool
    """Whether tool calls are visible in the agent's output."""
    has_process: bool
    """Whether the agent is a process that can be killed."""

    @property
    def samples(self) -> Samples | None:
        """Samples of the agent's lines, if the runtime itself provides none."""

    async def options(
        self, steps: Sequence[Mapping[str, Any]], *, prompt: str, folder: Path, **top: Any
    ) -> Mapping[str, Any]:
        """Return the flow options with which the agent carries out the steps.

        `folder` is for files of the stage, `top` are further top-level keys of the spec. Raises NotApplicableError if
        the agent cannot carry out a step.
        """

    def heard(self, folder: Path) -> tuple[str, ...]:
        """Return the texts that the agent of the session in that folder received."""


class CommandStage:
    """For a runtime whose option `command` is a bash command line: the steps become one command line.

    Its output is plain text, in which tool calls are not visible and no line is invalid.
    """

    has_calls = False
    has_process = True
    samples: Samples | None = None

    async def options(
        self, steps: Sequence[Mapping[str, Any]], *, prompt: str, folder: Path, **top: Any
    ) -> Mapping[str, Any]:
        return {"command": spelled(steps)}

    def heard(self, folder: Path) -> tuple[str, ...]:
        return ((folder / "workspace" / HEARD).read_text(),)


def spelled(steps: Sequence[Mapping[str, Any]]) -> str:
    """Return a bash command line that carries out the steps.

    >>> spelled([{"run": "true"}, {"say": "Done."}])
    "cat > .heard; { true; } > /dev/null 2>&1; printf '%s\\\\n' Done."
    """
    return "; ".join((f"cat > {HEARD}", *_commands_for(_actions(steps))))


def _actions(steps: Sequence[Mapping[str, Any]]) -> list[tuple[str, Any]]:
    return [action for step in steps for each in step.get("do", [step]) for action in each.items()]


def _commands_for(actions: Sequence[tuple[str, Any]]) -> Iterator[str]:
    for name, what in actions:
        match name, what:
            case "say", {"text": str(text), "repeat": int(times)}:
                # Not as one argument: the kernel allows at most 128 KiB for one.
                yield f"yes {quote(text)} | head -n {times} | tr -d '\\n'; echo"
            case "say", str(text) | {"text": str(text)}:
                yield f"printf '%s\\n' {quote(text)}"
            case "run", str():
                yield f"{{ {what}; }} > /dev/null 2>&1"
            case "delay", str():
                yield f"sleep {what}"
            case "fault", "hang":
                yield "sleep 1h"
            case _:
                raise NotApplicableError(f"a command cannot carry out `{name}`")


class RecordedStage:
    """For the replay runtime: the real Codex carries out the steps first, and its recording is replayed."""

    has_calls = True
    has_process = False
    _RECORDING: Final = "recording"

    @property
    def samples(self) -> Samples | None:
        samples = samples_of(runtime_by_id(_RECORDED))
        return None if samples is None else replace(samples, unknown_request=None)  # a recording sends no requests

    async def options(
        self, steps: Sequence[Mapping[str, Any]], *, prompt: str, folder: Path, **top: Any
    ) -> Mapping[str, Any]:
        # Imported when used, because subject.py imports this module.
        from proctor.testing.conformance.subject import open_subject

        actions = _actions(steps)
        if ("fault", "hang") in actions:
            raise NotApplicableError("a recording cannot hang")
        done = [{name: what} for name, what in actions if name != "delay"]  # delays are not needed in a recording
        async with open_subject(_RECORDED, isolation="process") as subject:
            evidence = await subject.mission(*done, prompt=prompt, **top)
            await anyio.to_thread.run_sync(shutil.copytree, evidence.paths.folder, folder / self._RECORDING)
        return {"attempt": str(folder / self._RECORDING)}

    def heard(self, folder: Path) -> tuple[str, ...]:
        """Return the recorded input of the agent, because a replay uses no model."""
        rows = read_rows(AttemptPaths(folder / self._RECORDING).frames, Row)
        return tuple(
            bytes(row.frame).decode() for row in rows if row.dir is Direction.OUT and isinstance(row.frame, Raw)
        )


STAGES: Final[dict[RuntimeId, Stage]] = {
    RuntimeId("process"): CommandStage(),
    RuntimeId("replay"): RecordedStage(),
}
"""The stages of the bundled runtimes."""
