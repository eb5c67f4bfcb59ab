"""A conversation with the real Codex, offline: the model plays scripts/session.yaml. Run it with no key and no network.

With a real model: leave out `script` and pass `model="openai/gpt-5.5", login="api-key"`.
"""

import asyncio
import sys
from pathlib import Path

import proctor

SCRIPT = Path(__file__).parent / "scripts" / "session.yaml"


async def decide(question: proctor.Question) -> proctor.Decision:
    """Answer the agent's request to do something outside its sandbox."""
    print(f"[asked]  {question.command}")
    return proctor.Decision.ACCEPT


async def main(evidence: proctor.EvidenceKept) -> None:
    async with proctor.session("codex_app_server", script=SCRIPT, approvals=decide, evidence=evidence) as s:
        for prompt in ("Write a haiku into haiku.txt.", "How many lines does it have?"):
            async for event in s.say(prompt):
                match event:
                    case proctor.ToolEnded(name=name, status=status):
                        print(f"[{name}]  {status}")
                    case proctor.TextStreamed(text=text):
                        print(text, end="", flush=True)
            print(f"\n[{s.outcome}]  after {s.offset} events")
    print(f"evidence: {s.folder or 'none kept'}")


if __name__ == "__main__":
    asyncio.run(main("disk" if "--keep" in sys.argv else "off"))
