"""Run a trigger in the fence, with a sink that records the requests that it makes."""

from typing import Any

from .api import run_service
from .protocol import answer
from .service import Program
from .sink import Sink

_LINGER_S = 2.0


def main() -> None:
    answer(observe)


def observe(request: dict[str, Any]) -> dict[str, Any]:
    """Run the command, or the service with its request. Return what was observed of it, and the calls to the sink."""
    sink = Sink()
    argv = [word.replace("{sink}", sink.url) for word in request["argv"]]
    env = {"PROCTOR_SINK": sink.url}
    exchanges = list[dict[str, Any]]()
    service = command = None
    if request["isService"]:
        service = run_service(request, argv, env, exchanges)
    else:
        command = _run_command(argv, env, within_s=request["withinS"])
    return {"service": service, "exchanges": exchanges, "command": command, "sink": sink.finish()}


def _run_command(argv: list[str], env: dict[str, str], *, within_s: float) -> dict[str, Any]:
    try:
        program = Program(argv, env=env)
    except (OSError, ValueError) as error:
        return {"startError": str(error)}
    ended = program.finish(within_s, linger_s=_LINGER_S)
    return {"ended": ended, "output": program.output()}
