"""Claude Code's requests to use a tool, and the answers it accepts."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from proctor.ids import CallId
from proctor.runtime.base import Decision, Question
from proctor.runtime.claude_code import wire
from proctor.runtime.claude_code.results import PATCHES, READS, tool_use


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolQuestion:
    """A request to use a tool. Fields that cannot be read are empty."""

    request: str
    tool: str
    input: Mapping[str, Any]
    call: str | None
    reason: str | None = None
    method: str = "can_use_tool"

    @property
    def is_command(self) -> bool:
        return tool_use(self.tool, self.input).kind == "command"

    @property
    def is_ours(self) -> bool:
        """Whether the tool is one that Proctor offers to the agent."""
        return tool_use(self.tool, self.input).kind == "dynamic"

    @property
    def is_reading(self) -> bool:
        return self.tool in READS

    @property
    def is_escalated(self) -> bool:
        """Whether the agent asks to run it outside of Claude Code's own sandbox."""
        return self.input.get("dangerouslyDisableSandbox") is True

    @property
    def paths(self) -> tuple[str, ...]:
        """The files that the call will change, as far as its input names them."""
        path = self.input.get(PATCHES.get(self.tool, ""))
        return (path,) if isinstance(path, str) else ()

    def to_question(self, *, cwd: str) -> Question:
        command = self.input.get("command")
        return Question(
            request=self.request,
            about=tool_use(self.tool, self.input).kind,
            command=command if isinstance(command, str) else None,
            cwd=cwd,
            paths=self.paths,
            reason=self.reason,
            call=None if self.call is None else CallId(self.call),
            native={"tool": self.tool, "input": self.input},
        )


def read_question(envelope: wire.Envelope) -> ToolQuestion:
    request = envelope.request or wire.Request()
    return ToolQuestion(
        request=envelope.request_id or "",
        tool=request.tool_name or "",
        input=request.input if isinstance(request.input, dict) else {},
        call=request.tool_use_id,
        reason=request.decision_reason,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    decision: str
    body: Mapping[str, Any]


def answer(question: ToolQuestion, decision: Decision) -> Answer:
    """Return the answer to a question in the format of Claude Code.

    >>> question = ToolQuestion(request="r", tool="Bash", input={"command": "ls"}, call=None)
    >>> answer(question, Decision.ACCEPT).body
    {'behavior': 'allow', 'updatedInput': {'command': 'ls'}}
    """
    if decision is Decision.ACCEPT:
        return Answer(decision="accept", body={"behavior": "allow", "updatedInput": question.input})
    return Answer(decision="decline", body={"behavior": "deny", "message": "Declined by Proctor's policy."})


def prompt_hook_answer(instructions: str) -> Mapping[str, Any]:
    """Return the reply to the hook that runs with each prompt: instructions for the model, in the role `system`.

    They remain in the thread, also when it is resumed (seen with 2.1.325), so they are sent with one prompt only.
    """
    return {"hookSpecificOutput": {"hookEventName": wire.PROMPT_SUBMIT, "additionalContext": instructions}}


def hook_answer(input_: Any) -> Mapping[str, Any]:
    """Return the reply to the hook that runs before each tool call. It makes calls outside the sandbox need approval.

    Without it, the program runs commands that it considers harmless without asking, even outside the sandbox (seen with
    2.1.325).
    """
    tool_input = input_.get("tool_input") if isinstance(input_, dict) else None
    if not isinstance(tool_input, dict) or tool_input.get("dangerouslyDisableSandbox") is not True:
        return {}
    reason = "It wants to run outside the sandbox."
    output = {"hookEventName": "PreToolUse", "permissionDecision": "ask", "permissionDecisionReason": reason}
    return {"hookSpecificOutput": output}
