"""How a runtime that asks no model is made to do what a script says."""

import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from shlex import quote
from typing import Any, Final, Protocol

import anyio.to_thread
from msgspec import Raw

from proctor.event.row import Dir, Row
from proctor.evidence.layout import AttemptPaths
from proctor.evidence.reader import read_rows
from proctor.ids import StrategyId
from proctor.runtime.registry import runtime_by_id
from proctor.runtime.samples import Samples, samples_of
from proctor.testing.conformance.case import NotApplicableError

_RECORDED: Final = StrategyId("codex_app_server")

HEARD: Final = ".heard"
"""Where in its workspace the agent leaves what it was told, there being no model that could say so."""


class Stage(Protocol):
    """One whose agent asks a model needs none, for the model is scripted.

    `has_calls` where calls of tools are seen in its lines, `has_process` where something runs that could be killed.
    `samples` are of its lines, where the runtime itself cannot know them.
    """

    has_calls: bool
    has_process: bool

    @property
    def samples(self) -> Samples | None: ...

    async def options(
        self, steps: Sequence[Mapping[str, Any]], *, prompt: str, folder: Path, **top: Any
    ) -> Mapping[str, Any]:
        """The flow's options with which it does what these steps say; NotApplicableError where it cannot be made to.

        `folder` is where it may leave something, `top` what else the spec says.
        """

    def heard(self, folder: Path) -> tuple[str, ...]:
        """What the agent of the session in that folder was told."""


class CommandStage:
    """For a runtime whose option `command` is a line for bash: the steps are spelled as one.

    Its lines are its words: no tool calls are seen in them, and no line is wrong.
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
    """
    >>> spelled([{"run": "true"}, {"say": "Done."}])
    "cat > .heard; { true; } > /dev/null 2>&1; printf '%s\\\\n' Done."
    """
    return "; ".join((f"cat > {HEARD}", *_spelled(_deeds(steps))))


def _deeds(steps: Sequence[Mapping[str, Any]]) -> list[tuple[str, Any]]:
    return [deed for step in steps for each in step.get("do", [step]) for deed in each.items()]


def _spelled(deeds: Sequence[tuple[str, Any]]) -> Iterator[str]:
    for name, what in deeds:
        match name, what:
            case "say", {"text": str(text), "repeat": int(times)}:
                # Not as one word: the kernel takes none of more than 128 kB.
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
                raise NotApplicableError(f"a command cannot be made to do {name}")


class RecordedStage:
    """For a runtime that does what was done before: the real Codex does it first, and that is what is replayed."""

    has_calls = True
    has_process = False
    _RECORDING: Final = "recording"

    @property
    def samples(self) -> Samples | None:
        samples = samples_of(runtime_by_id(_RECORDED))
        return None if samples is None else replace(samples, unknown_request=None)  # what is on record asks nobody

    async def options(
        self, steps: Sequence[Mapping[str, Any]], *, prompt: str, folder: Path, **top: Any
    ) -> Mapping[str, Any]:
        # Imported when used: it is on this stage that a subject stands.
        from proctor.testing.conformance.subject import open_subject

        deeds = _deeds(steps)
        if ("fault", "hang") in deeds:
            raise NotApplicableError("what is on record does not fall silent")
        done = [{name: what} for name, what in deeds if name != "delay"]  # nobody waits for what was recorded
        async with open_subject(_RECORDED, isolation="process") as subject:
            kept = await subject.mission(*done, prompt=prompt, **top)
            await anyio.to_thread.run_sync(shutil.copytree, kept.paths.folder, folder / self._RECORDING)
        return {"attempt": str(folder / self._RECORDING)}

    def heard(self, folder: Path) -> tuple[str, ...]:
        """No model hears a replay: this is what the agent was told that is replayed."""
        rows = read_rows(AttemptPaths(folder / self._RECORDING).frames, Row)
        return tuple(bytes(row.frame).decode() for row in rows if row.dir is Dir.OUT and isinstance(row.frame, Raw))


STAGES: Final[dict[StrategyId, Stage]] = {
    StrategyId("process"): CommandStage(),
    StrategyId("replay"): RecordedStage(),
}
"""Those of our own runtimes."""
