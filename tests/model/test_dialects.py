"""An intent becomes a call of whatever tool is offered for it."""

import json
from typing import Any

import pytest

from proctor.model.dialects import answer, built_in_dialects, express
from proctor.model.script import Call, Patch, Run, ToolIntent
from proctor.model.wire import Text, Tool, ToolCall

BUILT_IN = built_in_dialects()
STRING = {"type": "string"}
EXEC = Tool(name="exec_command", properties={"cmd": STRING, "yield_time_ms": {"type": "number"}})
SHELL_COMMAND = Tool(name="shell_command", properties={"command": STRING, "timeout_ms": {"type": "number"}})
SHELL = Tool(name="shell", properties={"command": {"type": "array"}})
FREEFORM = Tool(name="apply_patch", freeform=True, properties={})
FUNCTION = Tool(name="apply_patch", properties={"input": STRING})
BASH, READ, WRITE, EDIT = (Tool(name=name, properties={}) for name in ("Bash", "Read", "Write", "Edit"))
ANSWER = Tool(name="StructuredOutput", properties={})
ADD = Tool(name="add", namespace="mcp__kit", properties={})
PATCH = Patch(file="a.py", old="one\n\ntwo\n", new="three")


@pytest.mark.parametrize(
    ("tool", "intent", "arguments"),
    [
        (EXEC, Run(command="ls"), {"cmd": "ls"}),
        (EXEC, Run(command="ls", wait="1.5s"), {"cmd": "ls", "yield_time_ms": 1500}),
        (SHELL_COMMAND, Run(command="ls", wait=2), {"command": "ls", "timeout_ms": 2000}),
        (SHELL, Run(command="a && b", wait=2), {"command": ["bash", "-c", "a && b"]}),
        (
            EXEC,
            Run(command="ls", escalate=True),
            {"cmd": "ls", "sandbox_permissions": "require_escalated", "justification": "The script asks for it."},
        ),
        (ADD, Call(tool="add", arguments={"a": [1, None]}), {"a": [1, None]}),
        (ADD, Call(tool="mcp__kit.add"), {}),
        (ADD, Call(tool="kit.add"), {}),
    ],
)
def test_a_function_gets_the_arguments_it_takes(tool: Tool, intent: ToolIntent, arguments: dict[str, Any]) -> None:
    (call,) = express(intent, [Tool(name="view_image", properties={}), tool], dialects=BUILT_IN)
    assert (call.tool, json.loads(call.payload)) == (tool, arguments)


@pytest.mark.parametrize(
    ("intent", "lines"),
    [
        (PATCH, ["*** Update File: a.py", "@@", "-one", "-", "-two", "+three"]),
        (Patch(file="a", old="x", new=""), ["*** Update File: a", "@@", "-x"]),
        (Patch(file="a", content="x\n\n"), ["*** Add File: a", "+x", "+"]),
        (Patch(file="a", content=""), ["*** Add File: a"]),
        (Patch(file="a", delete=True), ["*** Delete File: a"]),
    ],
)
def test_a_patch_is_written_in_the_patch_grammar(intent: Patch, lines: list[str]) -> None:
    text = "\n".join(["*** Begin Patch", *lines, "*** End Patch", ""])
    assert express(intent, [EXEC, FREEFORM], dialects=BUILT_IN) == (ToolCall(tool=FREEFORM, payload=text),)
    (call,) = express(intent, [FUNCTION], dialects=BUILT_IN)
    assert json.loads(call.payload) == {"input": text}


@pytest.mark.parametrize(
    ("intent", "tools"),
    [
        (Run(command="ls"), [FREEFORM, Tool(name="exec_command", namespace="other", properties={})]),
        (PATCH, [EXEC]),
        (PATCH, [BASH, EDIT]),
        (Call(tool="sub"), [ADD]),
        (Call(tool="apply_patch"), [FREEFORM]),
        (Call(tool="add"), [ADD, Tool(name="add", properties={}), Tool(name="add", namespace="x", properties={})]),
    ],
)
def test_what_no_tool_offered_does_is_not_expressed(intent: ToolIntent, tools: list[Tool]) -> None:
    assert express(intent, tools, dialects=BUILT_IN) == ()


@pytest.mark.parametrize(
    ("intent", "calls"),
    [
        (Run(command="ls"), [(BASH, {"command": "ls"})]),
        (Run(command="sleep 300"), [(BASH, {"command": ": ; sleep 300"})]),
        (Run(command="ls", wait="1.5s"), [(BASH, {"command": "ls", "timeout": 1500})]),
        (Run(command="ls", escalate=True), [(BASH, {"command": "ls", "dangerouslyDisableSandbox": True})]),
        (Patch(file="a b", content="x"), [(WRITE, {"file_path": "a b", "content": "x\n"})]),
        (Patch(file="a b", delete=True), [(BASH, {"command": "rm -- 'a b'"})]),
        (
            PATCH,
            [
                (READ, {"file_path": "a.py"}),
                (EDIT, {"file_path": "a.py", "old_string": "one\n\ntwo\n", "new_string": "three\n"}),
            ],
        ),
    ],
)
def test_claude_code_reads_a_file_before_it_edits_it(
    intent: ToolIntent, calls: list[tuple[Tool, dict[str, Any]]]
) -> None:
    expressed = express(intent, [BASH, READ, WRITE, EDIT], dialects=BUILT_IN)
    assert [(call.tool, json.loads(call.payload)) for call in expressed] == calls


def test_an_answer_of_a_form_is_given_by_the_tool_for_it_if_there_is_one() -> None:
    said = Text(text='{"a": 1}')
    assert answer(said, [BASH, ANSWER]) == (ToolCall(tool=ANSWER, payload='{"a": 1}'),)
    assert answer(said, [BASH]) == answer(Text(text="Well."), [BASH, ANSWER]) == ()
