"""A minimal driver of the app-server: no record, no events, no clocks.

`python -m bench.bare_driver HOME N URL least|same` sends the fewest possible requests, or the same ones as Proctor.
"""

import asyncio
import json
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path
from typing import Any

from bench.campaign import KEY, PARALLEL
from bench.codex import codex_environment, codex_program
from bench.cost import Meter, write_cost
from bench.model import PROMPT
from proctor.ids import AttemptId
from proctor.runtime.base import ModelChoice, SessionRequest
from proctor.runtime.codex_app_server.host import HELLO
from proctor.runtime.codex_app_server.open_thread import thread_params
from proctor.runtime.codex_app_server.session import CLEAN
from proctor.spec.choices import Approvals, Login, Sandbox

BARE_HELLO: dict[str, Any] = {"clientInfo": {"name": "bare", "version": "0"}}
# A line from the agent may be long.
_LIMIT_BYTES = 1 << 24


class Server:
    def __init__(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self._stdin, self._stdout = process.stdin, process.stdout
        self.meter: Meter | None = None  # since the first turn
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

    async def attempt(self, folder: Path, url: str) -> None:
        await self.take_turn(await self.open_thread(folder, url))

    async def open_thread(self, folder: Path, url: str) -> str:
        return await self._open(
            cwd=str(folder),
            ephemeral=True,
            model="gpt-5",
            modelProvider="proctor",
            sandbox="workspace-write",
            approvalPolicy="on-request",
            config={"model_providers.proctor.base_url": url},
        )

    async def same_attempt(self, folder: Path, url: str) -> None:
        """Run an attempt with the requests that Proctor sends before and after a turn."""
        model = ModelChoice(provider="bench", name="gpt-5", base_url=url, key_variable=KEY, login=Login.API_KEY)
        ask = SessionRequest(
            attempt=AttemptId(folder.name),
            workspace=folder,
            tmp=folder / "tmp",
            sandbox=Sandbox.WORKSPACE_WRITE,
            approvals=Approvals.DENY,
            model=model,
        )
        ask.tmp.mkdir()
        thread = await self._open(**thread_params(ask))
        await self.take_turn(thread)
        await self.call(CLEAN, threadId=thread)
        await self.call("thread/unsubscribe", threadId=thread)

    async def _open(self, **params: Any) -> str:
        started = await self.call("thread/start", **params)
        return str(started["thread"]["id"])

    async def take_turn(self, thread: str) -> None:
        self.meter = self.meter or Meter()
        over = self._turns[thread] = asyncio.get_running_loop().create_future()
        await self.call("turn/start", threadId=thread, input=[{"type": "text", "text": PROMPT}])
        await over


@asynccontextmanager
async def open_server(home: str, hello: dict[str, Any]) -> AsyncIterator[Server]:
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
            await server.call("initialize", **hello)
            yield server
            hearing.cancel()
    finally:
        process.kill()
        await process.wait()


async def main(home: str, attempts: int, url: str, asks: str) -> None:
    waiting = iter(range(attempts))
    async with open_server(home, HELLO if asks == "same" else BARE_HELLO) as server:
        attempt = server.same_attempt if asks == "same" else server.attempt

        async def work() -> None:
            for _ in waiting:
                # A separate workspace, as in the other measurements.
                with tempfile.TemporaryDirectory(dir=home) as folder:
                    await attempt(Path(folder), url)

        async with asyncio.TaskGroup() as workers:
            for _ in range(PARALLEL):
                workers.create_task(work())
    assert server.meter is not None
    write_cost(server.meter.read())


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2]), sys.argv[3], sys.argv[4]))
