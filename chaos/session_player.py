"""A Proctor that talks and may be killed: `python -m chaos.session_player PLAN` prints a row for each step.

PLAN is JSON: the session, its prompts, and after which event of which turn the process kills itself.
"""

import os
import signal
import sys
from pathlib import Path

import anyio
import msgspec

import proctor
from chaos.player import REFUSED, write_row

RUNTIME = "codex_app_server"


class Sitting(msgspec.Struct, frozen=True, kw_only=True):
    """What a player does: one sitting of a session."""

    root: str
    key: str
    script: str
    prompts: tuple[str, ...]
    runtime: str = RUNTIME
    engine: str = ""
    """Id of the context engine. Empty for the default."""
    dies_at: str = ""
    """Name of the event after which it kills itself, `opened`, or `idle`. Empty if it does not."""
    dies_in: int = 0
    """Index of the prompt whose turn has that event."""


async def play(sitting: Sitting) -> None:
    context = proctor.Context(engine=sitting.engine) if sitting.engine else None
    async with proctor.session(
        sitting.runtime, id=sitting.key, script=Path(sitting.script), root=Path(sitting.root), context=context
    ) as session:
        write_row("opened", session.thread or "")
        _die_if(sitting.dies_at == "opened")
        for number, prompt in enumerate(sitting.prompts):
            is_last = number == sitting.dies_in
            turn = session.say(prompt)
            async for event in turn:
                name = type(event).__name__
                write_row("event", name)
                _die_if(is_last and sitting.dies_at == name)
            write_row("ended", prompt, (await turn).outcome.value)
            _die_if(is_last and sitting.dies_at == "idle")
    write_row("closed")


def _die_if(is_time: bool) -> None:
    if is_time:
        os.kill(os.getpid(), signal.SIGKILL)


def main() -> int:
    try:
        anyio.run(play, msgspec.json.decode(sys.argv[1], type=Sitting))
    except proctor.ProctorError as error:
        write_row("error", error.code, str(error))
        return REFUSED
    return 0


if __name__ == "__main__":
    sys.exit(main())
