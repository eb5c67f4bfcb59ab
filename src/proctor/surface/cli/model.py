"""`proctor model serve`."""

import argparse
import signal
from collections.abc import Callable
from pathlib import Path

import anyio
from rich.text import Text

from proctor.model.script import Script, load_script
from proctor.model.server import open_model
from proctor.surface.cli.command import JSON, Command, argument
from proctor.surface.cli.output import Output


def serve(*, script: Path, port: int, as_json: bool) -> int:
    """Play SCRIPT on loopback until Ctrl-C.

    Prints the base URL to give to an agent. Being stopped is how it ends: exit 0.
    """
    output = Output(is_json=as_json)

    def ready(url: str) -> None:
        if as_json:
            output.json({"baseUrl": url})
        else:
            output.show(Text(url), is_wrapped=False)
            output.note(Text("Ctrl-C ends it.", style="dim"))

    anyio.run(_serve, load_script(script), port, ready)
    return 0


async def _serve(script: Script, port: int, ready: Callable[[str], None]) -> None:
    with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
        async with open_model(port=port) as model:
            ready(model.play("script", script))
            async for _ in signals:
                return


def _port(word: str) -> int:
    if not word.isdecimal() or int(word) > 65535:
        raise argparse.ArgumentTypeError(f"{word} is no port: 0 to 65535")
    return int(word)


COMMANDS = {
    "model serve": Command(
        call=serve,
        example="proctor model serve examples/scripts/shell.yaml --port 8088",
        arguments=(
            argument("script", metavar="SCRIPT", type=Path, help="What to say: a YAML file."),
            argument("--port", metavar="PORT", type=_port, default=0, help="By default a free one."),
            JSON,
        ),
    )
}
