"""A fake `codex exec --json`: one turn per process, the prompt from stdin, complete items."""

import json
import sys

MESSAGES = 27
"""The number of items that makes a turn of 30 frames."""

_SAID = "So it is done, and this is the answer to it. " * 3
_CLAIM = 'PROCTOR-RESULT: {"done": true, "answer": ""}'
_USED = {"input_tokens": 12, "cached_input_tokens": 0, "output_tokens": 7, "reasoning_output_tokens": 0}


def turn() -> list[str]:
    texts = [*[_SAID] * (MESSAGES - 1), _CLAIM]
    frames: list[object] = [
        {"type": "thread.started", "thread_id": "01a1e1a9-ddf0-71c3-af1a-000000000001"},
        {"type": "turn.started"},
        *(
            {"type": "item.completed", "item": {"id": f"item_{number}", "type": "agent_message", "text": text}}
            for number, text in enumerate(texts)
        ),
        {"type": "turn.completed", "usage": _USED},
    ]
    return [json.dumps(frame, separators=(",", ":")) for frame in frames]


def main() -> None:
    if "--version" in sys.argv:
        sys.stdout.write("codex-cli 0.163.0\n")
        return
    sys.stdin.read()
    sys.stdout.write("\n".join(turn()) + "\n")


if __name__ == "__main__":
    main()
