"""Frames from pi that are repeated, delayed, garbled or invented: the stream of events stays valid."""

from collections.abc import Sequence
from pathlib import Path

from examples.plugins.pi.tests.real import broken_laws, open_pi, run

from proctor.event.model import TextSaid, ToolEnded, TurnEnded, Unrecognized, UsageReported
from proctor.runtime.base import Executable
from proctor.transport.channel import Channel
from proctor.transport.fault import Alter, Duplicate, FaultChannel, Hold, Inject, LineFault

STRANGERS = (
    b'{"type":"message_from_mars","id":7}\n',
    b'{"type":"response","command":"sing","success":false,"error":"Unknown command: sing"}\n',
    b'{"type":"response","id":"99","command":"prompt","success":true}\n',
    b'{"type":"extension_ui_request","id":"q","method":"input","title":"Your name?"}\n',
    b"no JSON at all\n",
    b'{"type":"tool_execution_end","toolCallId":["odd"]}\n',
    b'{"type":"agent_end","messages":[]}\n',  # which is not true
    b'{"type":"turn_end","message":"' + b"x" * 20_000_000 + b'"}\n',
)


def between(plan: Sequence[LineFault]) -> dict[str, object]:
    def stand(channel: Channel) -> FaultChannel:
        return FaultChannel(channel, plan)

    return {"wrap_channel": stand}


def test_repeated_late_and_unknown_frames_change_nothing(tmp_path: Path, program: Executable) -> None:
    plan = (
        LineFault(at=lambda line: line.startswith(b'{"type":"tool_execution_start"'), how=Inject(lines=STRANGERS)),
        LineFault(at=lambda line: b'"text_end"' in line, how=Hold(lines=2)),
        LineFault(
            at=lambda line: b'"toolcall_start"' in line, how=Alter(to=lambda line: line[: len(line) // 2] + b"\n")
        ),
        LineFault(at=lambda line: b'"response"' not in line and b"ui_request" not in line, how=Duplicate(), times=None),
    )

    async def test() -> None:
        async with (
            open_pi(tmp_path, program, **between(plan)) as pi,
            pi.session({"run": "echo one"}, {"say": "Done."}, name="odd") as (session, tap),
        ):
            await session.turn("Go on.")
            assert broken_laws(tap.events) == []
            assert [ended.status for ended in tap.of(TurnEnded)] == ["completed"]
            assert [tool.output for tool in tap.of(ToolEnded)] == ["one\n"]
            assert [said.text for said in tap.of(TextSaid)] == ["Done."]
            assert len(tap.of(UsageReported)) == 1
            assert [odd.native for odd in tap.of(Unrecognized)] == [
                "not a frame",
                "message_from_mars",
                "reply to nothing",
                "reply to nothing",
                "not a frame",
                "tool_execution_end",
            ]

    run(test)
