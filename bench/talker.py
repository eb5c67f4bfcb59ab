"""A program that talks: `python -m bench.talker OPTIONS` opens a session, and takes as many turns as each line says.

It prints the cost of each batch of turns. Any version of Proctor that has `proctor.session` can run it, so it uses
nothing else of Proctor.
"""

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

import proctor
from bench.cost import Meter, write_cost


async def main(options: dict[str, Any]) -> None:
    assert Path(proctor.__file__).is_relative_to(options.pop("sources")), proctor.__file__
    loop = asyncio.get_running_loop()
    model = proctor.Model(provider="bench", name="gpt-5", base_url="http://127.0.0.1:1/v1")
    if (engine := options.pop("engine", None)) is not None:
        options["context"] = proctor.Context(engine=engine)
    async with proctor.session(model=model, login="api-key", **options) as session:
        while turns := await loop.run_in_executor(None, sys.stdin.readline):
            meter = Meter()
            for _ in range(int(turns)):
                ending = await session.say("Do it.")
                assert ending.outcome == "completed", ending
            write_cost(meter.read())
            sys.stdout.write("\n")
            sys.stdout.flush()


if __name__ == "__main__":
    asyncio.run(main(json.loads(sys.argv[1])))
