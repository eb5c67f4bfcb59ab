"""A fake app-server for benchmarks, with just enough of the protocol for an attempt.

It starts fast and answers a turn at once, with frames of the real shapes and sizes, so that only Proctor's work is
measured. It never proves that a runtime works.
"""

import json
import sys
from itertools import count

PIECES = 17
"""Pieces of the answer, so that an attempt receives 30 frames in total."""

_AT = '"emittedAtMs":1794787368557'
_SAID = "So it is done, and this is the answer to it. " * PIECES + 'PROCTOR-RESULT: {"done": true, "answer": ""}'


def reply(id_: int, result: object) -> str:
    return json.dumps({"id": id_, "result": result}, separators=(",", ":"))


def notice(method: str, params: object) -> str:
    return f'{{"method":"{method}","params":{json.dumps(params, separators=(",", ":"))},{_AT}}}'


def thread_of(number: int) -> str:
    return f"01a1e1a9-ddf0-71c3-af1a-{number:012x}"


def started(id_: int, number: int, cwd: str) -> list[str]:
    thread = {"id": thread_of(number), "cwd": cwd, "ephemeral": True, "modelProvider": "proctor", "turns": []}
    return [
        reply(id_, {"thread": thread, "model": "proctor-scripted", "modelProvider": "proctor", "cwd": cwd}),
        notice("thread/started", {"thread": thread}),
    ]


def answered(id_: int, thread: str) -> list[str]:
    """Return all frames of the turn that was asked with the request of this id."""
    turn_id, item_id = f"01a1e1a9-ddf0-7c70-af1a-{id_:012x}", f"msg_{id_:012x}"
    turn: dict[str, object] = {
        "id": turn_id,
        "items": [],
        "itemsView": "notLoaded",
        "status": "inProgress",
        "error": None,
    }
    place = {"threadId": thread, "turnId": turn_id}
    question = {"type": "userMessage", "id": f"ask_{id_:012x}", "content": [{"type": "text", "text": "Do it."}]}
    answer = {"type": "agentMessage", "id": item_id, "text": "", "phase": None, "memoryCitation": None}
    used = {"totalTokens": 19, "inputTokens": 12, "cachedInputTokens": 0, "outputTokens": 7, "reasoningOutputTokens": 0}
    # Encoded once per turn, not once per piece, so that the fake costs little.
    piece = notice("item/agentMessage/delta", {**place, "itemId": item_id, "delta": _SAID[: len(_SAID) // PIECES]})
    last = notice("item/agentMessage/delta", {**place, "itemId": item_id, "delta": _SAID[-48:]})
    return [
        notice("thread/status/changed", {"threadId": thread, "status": {"type": "active", "activeFlags": []}}),
        notice("turn/started", {"threadId": thread, "turn": turn}),
        reply(id_, {"turn": turn}),
        notice("item/started", {"item": question, **place}),
        notice("item/completed", {"item": question, **place}),
        notice("item/started", {"item": answer, **place}),
        *[piece] * (PIECES - 1),
        last,
        notice("item/completed", {"item": {**answer, "text": _SAID}, **place}),
        notice("thread/tokenUsage/updated", {**place, "tokenUsage": {"total": used, "last": used}}),
        notice("turn/completed", {"threadId": thread, "turn": {**turn, "status": "completed"}}),
    ]


def main() -> None:
    numbers = count(1)
    for line in sys.stdin:
        ask = json.loads(line)
        match ask.get("method"):
            case "initialize":
                said = [reply(ask["id"], {"userAgent": "fake/0.163.0 (no agent; none) (proctor; 0)"})]
            case "thread/start":
                said = started(ask["id"], next(numbers), ask["params"]["cwd"])
            case "turn/start":
                said = answered(ask["id"], ask["params"]["threadId"])
            case _ if "id" in ask:
                said = [reply(ask["id"], {})]
            case _:
                continue
        sys.stdout.write("\n".join(said) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
