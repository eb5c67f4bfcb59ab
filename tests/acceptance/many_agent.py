"""An agent that thinks for a moment and counts: as much of the app-server's wire as many turns at once need.

It logs a line at a turn's beginning (`+`) and end (`-`), with whose model the turn was for.
"""

import asyncio
import json
import sys
from pathlib import Path

from bench.fake_agent import answered, reply, started

THINKS_S = 0.03


async def serve(log: Path) -> None:
    loop, threads = asyncio.get_running_loop(), dict[str, str]()
    reader = asyncio.StreamReader(limit=1 << 24)
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)

    def say(*lines: str) -> None:
        sys.stdout.write("\n".join(lines) + "\n")
        sys.stdout.flush()

    with log.open("a", encoding="utf-8", buffering=1) as counted:

        def end(ask: dict[str, object], thread: str) -> None:
            counted.write(f"- {threads[thread]}\n")
            say(*answered(int(str(ask["id"])), thread))

        async for line in reader:
            ask = json.loads(line)
            match ask.get("method"):
                case "initialize":
                    say(reply(ask["id"], {"userAgent": "fake/0.163.0 (no agent; none) (proctor; 0)"}))
                case "thread/start":
                    lines = started(ask["id"], len(threads) + 1, ask["params"]["cwd"])
                    thread = json.loads(lines[0])["result"]["thread"]["id"]
                    threads[thread] = ask["params"]["config"]["model_providers.proctor.base_url"].rpartition("/")[2]
                    say(*lines)
                case "turn/start":
                    counted.write(f"+ {threads[ask['params']['threadId']]}\n")
                    loop.call_later(THINKS_S, end, ask, ask["params"]["threadId"])
                case _ if "id" in ask:
                    say(reply(ask["id"], {}))


def write_program(file: Path, *, log: Path) -> Path:
    """It as a program."""
    root = str(Path(__file__).parents[2])
    file.write_text(
        f"#!{sys.executable} -I\nimport asyncio, sys\nfrom pathlib import Path\nsys.path.insert(0, {root!r})\n"
        f"from tests.acceptance.many_agent import serve\nasyncio.run(serve(Path({str(log)!r})))\n"
    )
    file.chmod(0o755)
    return file
