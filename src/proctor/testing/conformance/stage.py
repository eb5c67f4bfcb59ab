"""How a runtime that asks no model is made to do what a script says."""

from collections.abc import Iterator, Mapping, Sequence
from shlex import quote
from typing import Any, Final, Protocol

from proctor.ids import StrategyId
from proctor.testing.conformance.case import NotApplicableError

HEARD: Final = ".heard"
"""Where in its workspace the agent leaves what it was told, there being no model that could say so."""


class Stage(Protocol):
    """One whose agent asks a model needs none, for the model is scripted.

    What has one is taken for an agent whose lines are its words: no tool calls are seen in them, and no line is wrong.
    """

    def options(self, steps: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
        """The flow's options with which it does what these steps say; NotApplicableError where it cannot be made to."""


class CommandStage:
    """For a runtime whose option `command` is a line for bash: the steps are spelled as one."""

    def options(self, steps: Sequence[Mapping[str, Any]]) -> dict[str, str]:
        """
        >>> CommandStage().options([{"run": "true"}, {"say": "Done."}])["command"]
        "cat > .heard; { true; } > /dev/null 2>&1; printf '%s\\\\n' Done."
        """
        deeds = [deed for step in steps for each in step.get("do", [step]) for deed in each.items()]
        return {"command": "; ".join((f"cat > {HEARD}", *_spelled(deeds)))}


def _spelled(deeds: Sequence[tuple[str, Any]]) -> Iterator[str]:
    for name, what in deeds:
        match name, what:
            case "say", str():
                yield f"printf '%s\\n' {quote(what)}"
            case "say", dict():
                yield f"printf '%s\\n' {quote(what['text'] * what.get('repeat', 1))}"
            case "run", str():
                yield f"{{ {what}; }} > /dev/null 2>&1"
            case "delay", str():
                yield f"sleep {what}"
            case "fault", "hang":
                yield "sleep 1h"
            case _:
                raise NotApplicableError(f"a command cannot be made to do {name}")


class NoStage:
    """For a runtime that does what was done before, and nothing else."""

    def options(self, steps: Sequence[Mapping[str, Any]]) -> dict[str, str]:
        if steps:
            raise NotApplicableError("it cannot be told what to do: it replays what another runtime did")
        return {}


STAGES: Final[dict[StrategyId, Stage]] = {
    StrategyId("process"): CommandStage(),
    StrategyId("replay"): NoStage(),
}
"""Those of our own runtimes."""
