"""An intent becomes a call of pi's own tools, and only where they are pi's."""

import json
from typing import Any

import pytest

from proctor.ids import RuntimeId
from proctor.model.dialects import Dialects, express
from proctor.model.script import Patch, Run, ToolIntent
from proctor.model.wire import Tool
from proctor_pi import dialect

DIALECTS: Dialects = {RuntimeId("pi"): dialect}
STRING = {"type": "string"}
BASH = Tool(name="bash", properties={"command": STRING, "timeout": {"type": "number"}})
EDIT = Tool(name="edit", properties={"path": STRING, "edits": {"type": "array"}})
WRITE = Tool(name="write", properties={"path": STRING, "content": STRING})


@pytest.mark.parametrize(
    ("intent", "tool", "arguments"),
    [
        (Run(command="ls"), BASH, {"command": "ls"}),
        (Run(command="ls", wait="1.5s"), BASH, {"command": "ls", "timeout": 1.5}),
        (Run(command="ls", escalate=True), BASH, {"command": "ls"}),
        (Patch(file="a b", delete=True), BASH, {"command": "rm -- 'a b'"}),
        (Patch(file="a", content="x"), WRITE, {"path": "a", "content": "x\n"}),
        (Patch(file="a", content=""), WRITE, {"path": "a", "content": ""}),
        (
            Patch(file="a", old="one\ntwo\n", new="three"),
            EDIT,
            {"path": "a", "edits": [{"oldText": "one\ntwo\n", "newText": "three\n"}]},
        ),
        (Patch(file="a", old="x", new=""), EDIT, {"path": "a", "edits": [{"oldText": "x\n", "newText": ""}]}),
    ],
)
def test_pi_gets_the_arguments_its_tools_take(intent: ToolIntent, tool: Tool, arguments: dict[str, Any]) -> None:
    [call] = express(intent, [BASH, EDIT, WRITE], dialects=DIALECTS)

    assert (call.tool, json.loads(call.payload)) == (tool, arguments)


def test_a_tool_of_the_same_name_that_takes_something_else_is_not_called() -> None:
    other = Tool(name="edit", properties={"path": STRING, "old_string": STRING})

    assert express(Patch(file="a", old="x", new="y"), [other], dialects=DIALECTS) == ()
