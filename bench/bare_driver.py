"""The least that can drive the app-server: no record, no fold, no clocks. `python -m bench.bare_driver HOME N URL`."""

import asyncio
import json
import os
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import count
from typing import Any

from bench.codex import codex_environment, codex_program
from bench.cost import Meter, tell
from bench.model import PROMPT

PARALLEL = 16
# One line of the agent's may be long.
_LIMIT_BYTES = 1 << 24


class Server:
    def __init__(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self._stdin, self._stdout = process.stdin, process.stdout
        self._ids = count(1)
        self._replies: dict[int, asyncio.Future[Any]] = {}
        self._turns: dict[str, asyncio.Future[None]] = {}

    async def hear(self) -> None:
        while line := await self._stdout.readline():
            said = json.loads(line)
            if "method" not in said:
                self._replies.pop(said["id"]).set_result(said["result"])
            elif said["method"] == "turn/completed":
                assert said["params"]["turn"]["status"] == "completed", said
                self._turns.pop(said["params"]["threadId"]).set_result(None)

    async def call(self, method: str, **params: Any) -> Any:
        id_ = next(self._ids)
        reply = self._replies[id_] = asyncio.get_running_loop().create_future()
        self._stdin.write(json.dumps({"id": id_, "method": method, "params": params}).encode() + b"\n")
        return await reply

    async def attempt(self, folder: str, url: str) -> None:
        started = await self.call(
            "thread/start",
            cwd=folder,
            ephemeral=True,
            model="gpt-5",
            modelProvider="proctor",
            sandbox="workspace-write",
            approvalPolicy="on-request",
            config={"model_providers.proctor.base_url": url},
        )
        thread = started["thread"]["id"]
        over = self._turns[thread] = asyncio.get_running_loop().create_future()
        await self.call("turn/start", threadId=thread, input=[{"type": "text", "text": PROMPT}])
        await over


@asynccontextmanager
async def open_server(home: str) -> AsyncIterator[Server]:
    process = await asyncio.create_subprocess_exec(
        *(codex_program(), "app-server", "--listen", "stdio://"),
        env=codex_environment(home),
        cwd=home,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
        limit=_LIMIT_BYTES,
    )
    server = Server(process)
    try:
        async with asyncio.TaskGroup() as tasks:
            hearing = tasks.create_task(server.hear())
            await server.call("initialize", clientInfo={"name": "bare", "version": "0"})
            yield server
            hearing.cancel()
    finally:
        process.kill()
        await process.wait()


async def main(home: str, attempts: int, url: str) -> None:
    meter = Meter()
    waiting = iter(range(attempts))
    async with open_server(home) as server:

        async def work() -> None:
            for _ in waiting:
                # A workspace each, as everybody else has too.
                with tempfile.TemporaryDirectory(dir=home) as folder:
                    await server.attempt(folder, url)

        async with asyncio.TaskGroup() as workers:
            for _ in range(PARALLEL):
                workers.create_task(work())
    tell(meter.read())


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2]), os.fsdecode(sys.argv[3])))
