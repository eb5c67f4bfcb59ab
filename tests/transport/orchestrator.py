"""A program that opens one contained process and then waits to be killed: `orchestrator.py SPAWNS WORD...`."""

import os
import sys
from pathlib import Path

import anyio

from proctor.contain.bundled import CODEX_WHEEL, bundled_file
from proctor.contain.intent import open_intents
from proctor.contain.ladder import choose, survey
from proctor.contain.launch import new_marker, wrap
from proctor.transport.process import open_process


async def main(spawns: Path, argv: list[str]) -> None:
    containment = choose(survey(bundled_bwrap=bundled_file(CODEX_WHEEL, "codex-resources/bwrap")))
    plan = wrap(containment, argv, env=dict(os.environ), cwd=Path.cwd(), marker=new_marker())
    async with open_intents(spawns) as book, open_process(plan, intents=book) as process:
        assert process.agent is not None
        print(process.agent.pid, flush=True)  # noqa: T201
        await anyio.sleep_forever()


if __name__ == "__main__":
    anyio.run(main, Path(sys.argv[1]), sys.argv[2:])
