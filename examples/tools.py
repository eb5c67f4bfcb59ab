"""A tool, an answer with a schema, an approval and a cancelled turn, on the real Codex and offline."""

import asyncio
import json
from pathlib import Path
from typing import Any

import proctor

SCRIPT = Path(__file__).parent / "scripts" / "tools.yaml"
PRICES = {"tea": 350}
HARMLESS = {"/bin/bash -c 'git status'", "/bin/bash -c ls"}
ANSWER = {
    "type": "object",
    "properties": {"item": {"type": "string"}, "cents": {"type": "integer"}},
    "required": ["item", "cents"],
    "additionalProperties": False,
}


async def price_of(arguments: Any) -> str:
    """Answer a call of the agent. What is returned is what the model reads."""
    return f"{PRICES[arguments['item']]} cents"


async def decide(question: proctor.Question) -> proctor.Decision:
    """Answer a request of the agent to leave its sandbox. Whole commands are compared: `ls; rm -rf .` is not `ls`."""
    print(f"[asked]      {question.command}")
    return proctor.Decision.ACCEPT if question.command in HARMLESS else proctor.Decision.DENY


async def main() -> None:
    tool = proctor.Tool(
        name="price_of",
        description="The price of an item.",
        schema={"type": "object", "properties": {"item": {"type": "string"}}, "required": ["item"]},
        call=price_of,
    )
    async with proctor.session(
        script=SCRIPT, tools=[tool], approvals=decide, limits=proctor.Limits(turn="5m", stall="1m", attempt="1h")
    ) as s:
        await s.say("What does tea cost?", output_schema=ANSWER)
        answer = json.loads(s.answer or "")
        print(f"[{s.outcome}]  {answer['item']} costs {answer['cents']} cents")

        await s.say("Delete the stock.")
        print(f"[{s.outcome}]  {s.answer}")

        turn = s.say("Wait for ten minutes.")
        async for event in turn:
            if isinstance(event, proctor.ToolBegan):
                await s.interrupt()
        ending = await turn
        print(f"[{ending.outcome}]  {ending.code}")


if __name__ == "__main__":
    asyncio.run(main())
