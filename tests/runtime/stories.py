"""Recorded rows made by hand, of the real wire's shape."""

from itertools import count
from typing import Any

import msgspec

from proctor.event.model import Event
from proctor.event.row import GENESIS, Direction, Row, SupervisorRow
from proctor.runtime.codex_app_server.normalize import CodexNormalizer

THREAD = "01a1e119-2eac-7fc0-8948-a387cf5df5ac"
TURN = "01a1e119-2ec1-7dd0-95dc-ff62292393a0"

COMMAND: dict[str, Any] = {
    "command": "/bin/bash -c 'echo $((6 * 7))'",
    "cwd": "/w",
    "processId": "95538",
    "source": "unifiedExecStartup",
    "commandActions": [{"type": "unknown", "command": "echo $((6 * 7))"}],
}


class Story:
    """One attempt's rows, told to one normalizer."""

    def __init__(self) -> None:
        self._normalizer = CodexNormalizer()
        self._seqs = count(1)

    def row(self, dir_: Direction, frame: Any = msgspec.UNSET, *, text: str | None = None) -> list[Event]:
        seq = next(self._seqs)
        raw = frame if frame is msgspec.UNSET else msgspec.Raw(msgspec.json.encode(frame))
        row = Row(seq=seq, at_ms=1000 + seq, dir=dir_, prev=GENESIS, frame=raw, text=text)
        return list(self._normalizer.feed(row))

    def heard(self, method: str, **params: Any) -> list[Event]:
        """A notification of the thread and turn that a story is about, unless it says otherwise."""
        params = {"threadId": THREAD, "turnId": TURN, **params}
        return self.row(Direction.IN, {"method": method, "params": params, "emittedAtMs": 1794777886407})

    def item(self, method: str, type_: str, id_: str = "i", **fields: Any) -> list[Event]:
        return self.heard(method, item={"type": type_, "id": id_, **fields}, startedAtMs=1794777886763)

    def saw(self, seen: SupervisorRow) -> list[Event]:
        return self.row(Direction.SELF, seen)

    def asked(self, id_: int, method: str, **params: Any) -> list[Event]:
        return self.row(Direction.OUT, {"id": id_, "method": method, "params": params})

    def begun(self) -> "Story":
        """With the session and the turn under way: two rows each."""
        self.asked(1, "thread/start", cwd="/w")
        self.row(
            Direction.IN, {"id": 1, "result": {"thread": {"id": THREAD, "ephemeral": True}, "model": "m", "cwd": "/w"}}
        )
        self.asked(2, "turn/start", threadId=THREAD, input=[{"type": "text", "text": "Go on."}])
        self.heard("turn/started", turn={"id": TURN, "items": [], "status": "inProgress", "error": None})
        return self


def at(seq: int) -> dict[str, Any]:
    """The fields that every event of that row has."""
    return {"frame": seq, "at_ms": 1000 + seq}
