"""pi's tool calls in Proctor's terms. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from proctor.event.model import ToolKind
from proctor.ids import CallId
from proctor.runtime.base import Question

ASKING = "proctor"
"""The title of the questions from the extension `ask.js`. Their text is the id of the tool call."""

DIALOGS = frozenset({"select", "confirm", "input", "editor"})
"""The UI requests of an extension that wait for an answer. All others do not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """A tool call as pi announced it."""

    id: str
    name: str
    args: Mapping[str, Any] = field(default_factory=dict)

    @property
    def kind(self) -> ToolKind:
        match self.name:
            case "bash":
                return "command"
            case "edit" | "write":
                return "patch"
            case _:
                return "other"

    @property
    def our_name(self) -> str:
        return {"command": "shell", "patch": "patch"}.get(self.kind, self.name)

    @property
    def paths(self) -> tuple[str, ...]:
        path = self.args.get("path")
        return (path,) if isinstance(path, str) else ()

    @property
    def command(self) -> str | None:
        command = self.args.get("command")
        return command if isinstance(command, str) else None

    @property
    def input(self) -> Any:
        """The input of the call. File changes have the same shape as for all agents."""
        if self.kind == "patch" and self.paths:
            return {"changes": [dict(self.args)]}
        return dict(self.args)

    def to_question(self, request: str) -> Question:
        return Question(
            request=request,
            about=self.kind,
            command=self.command,
            paths=self.paths,
            call=CallId(self.id),
            native={"toolName": self.name, "args": dict(self.args)},
        )
