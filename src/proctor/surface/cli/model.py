"""`proctor model serve`."""

import argparse
import signal
from pathlib import Path

import anyio
from rich.text import Text

from proctor.errors import extra_missing
from proctor.model.dialects import load_dialects
from proctor.model.script import Script, load_script
from proctor.surface.cli.command import JSON, Command, argument
from proctor.surface.cli.output import Output


def serve(*, script: Path, port: int, as_json: bool) -> int:
    """Serve the scripted model on loopback until Ctrl-C.

    The model replies as SCRIPT says. Prints the base URL to configure in an agent, which holds a new
    token at each start. Exits 0 when it is stopped by Ctrl-C or SIGTERM.
    """
    try:
        # Imported when used: the web server belongs to an extra.
        from proctor.model.server import open_model
    except ModuleNotFoundError as error:
        raise extra_missing(error, extra="model") from error
    output = Output(is_json=as_json)

    def ready(url: str) -> None:
        if as_json:
            output.json({"baseUrl": url})
        else:
            output.show(Text(url), is_wrapped=False)
            output.note(Text("Press Ctrl-C to stop.", style="dim"))

    async def serve_until_stopped(script: Script) -> None:
        with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
            async with open_model(port=port, dialects=load_dialects()) as model:
                ready(model.play("script", script))
                async for _ in signals:
                    return

    anyio.run(serve_until_stopped, load_script(script))
    return 0


def _port(word: str) -> int:
    if not word.isdecimal() or int(word) > 65535:
        raise argparse.ArgumentTypeError(f"{word} is not a port (0 to 65535)")
    return int(word)


COMMANDS = {
    "model serve": Command(
        call=serve,
        example="proctor model serve examples/scripts/shell.yaml --port 8088",
        arguments=(
            argument("script", metavar="SCRIPT", type=Path, help="Script of the model's replies (a YAML file)."),
            argument("--port", metavar="PORT", type=_port, default=0, help="Port (default: any free one)."),
            JSON,
        ),
    )
}
