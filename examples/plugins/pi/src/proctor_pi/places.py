"""Ids for pi's replies, which have none, and the routes of frames that carry streamed text. Pure."""

from typing import Final

from proctor.evidence.redact import TextStream
from proctor.runtime.line_process import PLAIN, LineRoute
from proctor_pi.wire import Frame, Message

TEXT: Final = "text_delta"
THINKING: Final = "thinking_delta"
CALL: Final = "toolcall_delta"
OUTPUT: Final = "output"

_PIECE = ("assistantMessageEvent", "delta")
_GROWTH = ("partialResult", "content", 0, "text")


class Replies:
    """Numbers the replies, so that the session and the normalizer derive the same ids from the same frames."""

    def __init__(self) -> None:
        self._count = 0

    def feed(self, frame: Frame) -> None:
        if frame.type == "message_start" and is_reply(frame):
            self._count += 1

    def item(self, index: int) -> str:
        """Return the id of a part of the latest reply."""
        return f"{self._count}.{index}"

    def route(self, frame: Frame) -> LineRoute:
        """Return the route of a frame. Call `feed` with it first."""
        match frame.type:
            case "message_update" if (piece := frame.assistant_message_event) and piece.type in (TEXT, THINKING, CALL):
                return LineRoute(stream=TextStream(key=f"{self.item(piece.content_index)}|{piece.type}", path=_PIECE))
            case "message_end" if is_reply(frame):
                return LineRoute(ended=f"{self._count}.")
            case "tool_execution_update":
                return LineRoute(stream=TextStream(key=f"{frame.tool_call_id}|{OUTPUT}", path=_GROWTH))
            case "tool_execution_end":
                return LineRoute(ended=f"{frame.tool_call_id}|")
            case _:
                return PLAIN


def is_reply(frame: Frame) -> bool:
    return isinstance(frame.message, Message) and frame.message.role == "assistant"
