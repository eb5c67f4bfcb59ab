"""Events of a sitting, made by hand, and the turns that they fold into."""

from collections.abc import Iterable
from itertools import count
from typing import Any

from proctor.context.mirror import MirrorFold
from proctor.context.model import RecordedTurn, Sitting, SittingState
from proctor.event import model
from proctor.ids import AttemptId, CallId, ItemId, RunId, RuntimeId, ThreadId, TurnId

RUN, ATTEMPT = RunId("run"), AttemptId("session-1.1")
TURN = TurnId("t")


class Events:
    """Makes events whose frames are numbered in order."""

    def __init__(self, *, first: int = 1) -> None:
        self._frames = count(first)

    def __call__(self, type_: type[Any], /, *, frame: int | None = None, **fields: Any) -> Any:
        number = next(self._frames) if frame is None else frame
        return type_(frame=number, at_ms=1000 + number, **fields)

    def asked(self, text: str | None) -> Any:
        return self(model.TurnAsked, text=text)

    def said(self, text: str, **more: Any) -> Any:
        return self(model.TextSaid, turn=TURN, item=ItemId("i"), text=text, **more)

    def called(self, call: str, *, kind: str = "command", input_: Any = None, **more: Any) -> Any:
        return self(model.ToolBegan, turn=TURN, call=CallId(call), kind=kind, name="run", input=input_, **more)

    def returned(self, call: str, output: str | None, *, kind: str = "command", **more: Any) -> Any:
        ended = {"ok": True, "status": "done", **more}
        return self(model.ToolEnded, turn=TURN, call=CallId(call), kind=kind, name="run", output=output, **ended)

    def ended(self, status: str = "completed") -> Any:
        return self(model.TurnEnded, turn=TURN, status=status)

    def settled(self) -> Any:
        return self(model.TurnSettled)

    def began(self, thread: str = "th") -> Any:
        return self(model.SessionBegan, thread=ThreadId(thread))

    def turn(self, prompt: str, *said: Any) -> list[Any]:
        """A whole turn that completes with these events in between."""
        return [self.asked(prompt), *said, self.ended(), self.settled()]


def fold(events: Iterable[Any], *, is_import: bool = False) -> list[RecordedTurn]:
    mirror = MirrorFold(run_id=RUN, attempt_id=ATTEMPT, is_import=is_import)
    turns = [turn for event in events if (turn := mirror.feed(event)) is not None]
    last = mirror.finish()
    return turns if last is None else [*turns, last]


def sitting(n: int = 1, **more: Any) -> Sitting:
    return Sitting(
        n=n,
        run_id=RUN,
        attempt_id=AttemptId(f"session-{n}.1"),
        runtime_id=RuntimeId("codex_app_server"),
        began_at_ms=1,
        state=SittingState.OPEN,
        **more,
    )
