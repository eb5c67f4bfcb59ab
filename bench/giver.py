"""Gives a long history to the real Codex: `python -m bench.giver proctor|bare FOLDER N URL` prints what giving cost.

The thread is open, and the messages are there: only the request that gives them is measured, with all that a driver
does for it. The bare one sends the items that Proctor sends.
"""

import asyncio
import sys
from pathlib import Path

import proctor
from bench.bare_driver import BARE_HELLO, open_server
from bench.codex import write_home
from bench.cost import Cost, Meter, write_cost
from bench.talk import messages
from proctor.runtime.codex_app_server import wire
from proctor.runtime.codex_app_server.native_items import native_items


async def by_proctor(folder: Path, count: int, url: str) -> Cost:
    """Give in a session whose record is on disk, as that of every session with an id."""
    history = messages(count)
    model = proctor.Model(provider="bench", name="gpt-5", base_url=url)
    async with proctor.session(model=model, login="api-key", evidence="disk", root=folder / "evidence") as session:
        await session.say("Do it.")
        thread = session._supervision.session  # noqa: SLF001  what the context lifecycle calls
        assert thread is not None
        meter = Meter()
        delivery = await thread.give(history)
        cost = meter.read()
        assert len(delivery.entries) == count
    return cost


async def by_bare_driver(folder: Path, count: int, url: str) -> Cost:
    items = [item.value for item in native_items(messages(count)).items]
    async with open_server(str(write_home(folder, url)), BARE_HELLO) as server:
        thread = await server.open_thread(folder, url)
        await server.take_turn(thread)
        meter = Meter()
        await server.call(wire.GIVE, threadId=thread, items=items)
        return meter.read()


if __name__ == "__main__":
    drive = by_proctor if sys.argv[1] == "proctor" else by_bare_driver
    write_cost(asyncio.run(drive(Path(sys.argv[2]), int(sys.argv[3]), sys.argv[4])))
