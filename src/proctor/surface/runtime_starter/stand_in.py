#!/usr/bin/env python3
"""A stand-in for mynah, so that the package passes its test as written. Test the real program instead.

It reads prompts such as {"prompt": "Go on."} from stdin, asks the model at MYNAH_BASE_URL, runs the commands that the
model wants, and writes one JSON object per line to stdout.
"""

import http.client
import itertools
import json
import os
import subprocess
import sys
import uuid
from typing import Any
from urllib.parse import urlsplit

NUMBERS = itertools.count(1)
PARAMETERS = {"type": "object", "properties": {"line": {"type": "string"}}, "required": ["line"]}
SHELL = {"name": "shell", "description": "Run a command line.", "input_schema": PARAMETERS}


def emit(type_: str, **fields: Any) -> None:
    print(json.dumps({"type": type_, "number": next(NUMBERS), **fields}), flush=True)


def ask(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the content blocks of the model's reply. Raises OSError if the model refuses."""
    url = urlsplit(os.environ["MYNAH_BASE_URL"])
    body = json.dumps({"model": os.environ["MYNAH_MODEL"], "messages": messages, "tools": [SHELL]})
    connection = http.client.HTTPConnection(url.netloc)
    connection.request("POST", f"{url.path}/messages", body, {"content-type": "application/json"})
    reply = connection.getresponse()
    text = reply.read().decode()
    if reply.status != 200:
        raise OSError(f"the model answered {reply.status}: {text}")
    content: list[dict[str, Any]] = json.loads(text)["content"]
    return content


def run(call: str, line: str) -> str:
    emit("command", call=call, text=line)
    done = subprocess.run(line, shell=True, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    output = done.stdout.decode(errors="replace")
    emit("output", call=call, text=output, exit_code=done.returncode)
    return output


def take_turn(messages: list[dict[str, Any]]) -> None:
    """Ask the model and run its commands, until it wants no more."""
    while messages[-1]["role"] == "user":
        content = ask(messages)
        messages.append({"role": "assistant", "content": content})
        results = []
        for block in content:
            if block["type"] == "text":
                emit("text", text=block["text"])
            elif block["type"] == "tool_use":
                output = run(block["id"], block["input"]["line"])
                results.append({"type": "tool_result", "tool_use_id": block["id"], "content": output})
        if results:
            messages.append({"role": "user", "content": results})


def main() -> None:
    messages: list[dict[str, Any]] = []
    emit("session", thread=str(uuid.uuid4()))
    for line in sys.stdin:
        messages.append({"role": "user", "content": json.loads(line)["prompt"]})
        emit("turn")
        try:
            take_turn(messages)
        except OSError as error:
            emit("end", error=str(error))
        else:
            emit("end")


if __name__ == "__main__":
    main()
