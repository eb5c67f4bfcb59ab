"""One conversation on Codex, then on Claude Code, then on Codex again, offline: what each model request holds of it.

The context engine `lossless` gives each agent what was said on the other one, as items of its own kind. What is shown
are the requests that the agents really sent to the scripted model. Run it with no key and no network, after `make
agents`. Exits 1 if a request does not hold exactly what was said before, and 3 if Claude Code is not installed.
"""

import asyncio
import json
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import proctor
from proctor.model.journal import JournalItem
from proctor.testing.journals import recorded_journals, request_items

LOSSLESS = proctor.Context(engine="lossless", policy="strict")

Said = tuple[str, str]
"""Who said it (`user`, `agent`, `call` or `result`), and the text."""


@dataclass(frozen=True)
class Step:
    """A turn of the conversation: where it is asked, and what the scripted model does."""

    runtime: str
    prompt: str
    answer: str
    command: str = ""
    output: str = ""

    @property
    def said(self) -> list[Said]:
        tool: list[Said] = [("call", self.command), ("result", self.output)] if self.command else []
        return [("user", self.prompt), *tool, ("agent", self.answer)]

    def write_script(self, file: Path) -> Path:
        steps = [{"run": self.command}] if self.command else []
        file.write_text(json.dumps({"version": 1, "steps": [*steps, {"say": self.answer}]}))
        return file


CONVERSATION = (
    Step(
        "codex_app_server",
        "Where is the lamp? Make a list of what is there.",
        "In the cellar. I made a list.",
        command="echo lamp, chair > list.txt; cat list.txt",
        output="lamp, chair",
    ),
    Step(
        "claude_code",
        "How many words has the list?",
        "The list has two words.",
        command="wc -w list.txt",
        output="2 list.txt",
    ),
    Step("codex_app_server", "And where was the lamp?", "In the cellar, as I said."),
)


async def talk(folder: Path) -> bool:
    """Hold the conversation, and return whether each request held what was said before."""
    before: list[Said] = []
    is_held = True
    for number, step in enumerate(CONVERSATION, 1):
        script = step.write_script(folder / f"{number}.yaml")
        with recorded_journals() as journals:
            async with proctor.session(
                step.runtime, id="handover", script=script, root=folder / "evidence", context=LOSSLESS
            ) as s:
                turn = s.say(step.prompt)
                ending = await turn
        context = turn.context
        if ending.outcome is not proctor.Outcome.COMPLETED or context is None:
            print(f"turn {number} on {step.runtime} ended as {ending.outcome}: {ending.detail}")
            return False
        how = f"{context.given} messages given as {context.how}" if context.given else "nothing to give"
        print(f"\nTurn {number} on {step.runtime}: {how} ({context.reason})")
        requests = request_items(journals)
        # The prompt; then also the call and its result.
        wanted = [[*before, *step.said[: 1 + 2 * at]] for at in range(2 if step.command else 1)]
        is_held = is_held and len(requests) == len(wanted)
        for at, items in enumerate(requests):
            show(items, title=f"request {at + 1}", earlier=len(before))
            is_held = is_held and at < len(wanted) and holds(items, wanted[at])
        before += step.said
    return is_held


def show(items: Sequence[JournalItem], *, title: str, earlier: int) -> None:
    """Print a request, one line per item, with a mark at what was said in earlier turns."""
    said = [item for item in items if not is_own(item)]
    print(f"  {title}, besides {len(items) - len(said)} items of the agent itself:")
    for at, item in enumerate(said):
        text = " ".join(item.whole_text.split())
        print(f"    {'>' if at < earlier else ' '} {item.role or '-':10}{item.kind:21}{text[:100]}")


def holds(items: Sequence[JournalItem], wanted: Sequence[Said]) -> bool:
    """Return whether a request holds exactly this as items, once each and in order, and nowhere else."""
    own = [item.whole_text for item in items if is_own(item)]
    is_quoted = any(text in each for each in own for _, text in wanted)
    return [to_said(item) for item in items if not is_own(item)] == list(wanted) and not is_quoted


def is_own(item: JournalItem) -> bool:
    """Return whether an item is of the agent's own prompt."""
    is_reminder = (item.text or "").startswith(("<environment_context>", "<system-reminder>"))
    return item.role in ("developer", "system") or (item.kind == "text" and is_reminder)


def to_said(item: JournalItem) -> Said:
    match item.kind:
        case "function_call" | "tool_use":
            arguments = json.loads(item.whole_text)
            return "call", arguments.get("cmd") or arguments.get("command")
        case "function_call_output" | "tool_result":
            # Codex puts the time and the exit code before the output of a command that it has run itself.
            return "result", item.whole_text.rpartition("Output:\n")[2].strip()
        case "text" if item.role in ("user", "assistant"):
            return "agent" if item.role == "assistant" else "user", item.whole_text.strip()
        case _:
            return item.kind, item.whole_text


def main() -> int:
    with TemporaryDirectory(prefix="proctor-handover-") as folder:
        # Agents' homes are kept in the user's state folder as long as their session. This one is deleted at the end.
        os.environ["XDG_STATE_HOME"] = folder
        try:
            is_held = asyncio.run(talk(Path(folder)))
        except proctor.MachineError as error:
            if error.code != "machine.binary-missing":
                raise
            print(error.what, file=sys.stderr)
            return 3
    if is_held:
        print("\nEach request held what was said before, on both agents, as items: once each, and in order.")
        return 0
    print("\nA request did not hold what was said before.", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
