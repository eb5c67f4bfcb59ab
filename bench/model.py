"""A model in a separate process that sends the same prepared answer to every request.

`python -m bench.model` prints its port and serves until its stdin closes. All drivers use the same model, which costs
as little as HTTP can, so that the difference is due to the driver.
"""

import asyncio
import sys
import threading

from proctor.event.claim import with_footer
from proctor.model import responses
from proctor.model.wire import Pause, Reply, Text, Tokens

PROMPT = with_footer("Do it.")

_SAID = 'It is done.\nPROCTOR-RESULT: {"done": true, "answer": ""}'
_MODELS = b'{"object":"list","data":[],"models":[]}'


def answer() -> bytes:
    tokens = Tokens(input=12, cached=0, output=7, reasoning=0)
    reply = Reply(serial="bench", model="gpt-5", parts=(Text(text=_SAID),), tokens=tokens)
    return b"".join(event for event in responses.render(reply) if not isinstance(event, Pause))


def http(kind: str, body: bytes) -> bytes:
    return f"HTTP/1.1 200 OK\r\ncontent-type: {kind}\r\ncontent-length: {len(body)}\r\n\r\n".encode() + body


async def serve() -> None:
    said, models = http("text/event-stream", answer()), http("application/json", _MODELS)

    async def converse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).lower()
                length = head.partition(b"content-length:")[2].partition(b"\r\n")[0]
                await reader.readexactly(int(length or 0))
                writer.write(said if head.startswith(b"post") else models)
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()

    server = await asyncio.start_server(converse, "127.0.0.1", 0)
    sys.stdout.write(f"{server.sockets[0].getsockname()[1]}\n")
    sys.stdout.flush()
    await server.serve_forever()


if __name__ == "__main__":
    # In a thread, because the end of stdin is the only sign that the parent process has ended.
    threading.Thread(target=lambda: asyncio.run(serve()), daemon=True).start()
    sys.stdin.read()
