"""`python -m chaos.sessions --seeds 1-20`: kill Proctor, the agent or both while a session talks to the real Codex.

After each kill the session is opened again. At the end every completed turn must be in the mirror and in the context
engine exactly once and no other turn, the thread must hold them once and in order, as items or as quoted text, and the
record must confirm the mirror.
"""

import argparse
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import anyio
import msgspec

import proctor
from chaos.play import ROUND_S, rows_of, start_player
from chaos.player import REFUSED
from chaos.processes import LiveProcess, alive
from chaos.seeds import seeds_in
from chaos.session_player import RUNTIME, Sitting
from proctor.attempt.recheck import examine_run
from proctor.context.engines.lossless.lossless_store import LosslessStore
from proctor.context.kept_session import find_session, read_header, session_home
from proctor.context.model import TurnState
from proctor.context.report import report_session
from proctor.context.text import parse
from proctor.context.verify import verify_session
from proctor.event.message import AgentPart, UserPart
from proctor.evidence.layout import RootPaths
from proctor.ids import EntryId, SessionKey
from proctor.model.journal import JournalRow
from proctor.testing.journals import recorded_journals

KEY: Final = "talk"
ROUNDS: Final = 5
TURNS: Final = 2
EVENTS: Final = (
    *("opened", "TurnAsked", "PromptSent", "TurnBegan", "ToolBegan", "ToolEnded", "TextSaid"),
    *("TurnEnded", "TurnSettled", "idle"),
)
"""Where a player may kill itself. The last three are after the agent completed the turn."""
_KINDS: Final = {"itself": 5, "proctor": 4, "agent": 3, "both": 3, "nothing": 1}
_ROWS: Final = 26
"""About how many rows a player prints."""
_GONE_S: Final = 10.0
_MOST_ENTRIES: Final = 10_000


@dataclass(slots=True, kw_only=True)
class PlayedSession:
    seed: int
    faults: Counter[str] = field(default_factory=Counter)
    completed: list[str] = field(default_factory=list)
    """Prompts of the turns that a player reported as completed, in order."""
    problems: list[str] = field(default_factory=list)


class SessionSeed:
    """Plays one seed in a folder. All randomness comes from one generator."""

    def __init__(self, seed: int, folder: Path, *, runtime: str = RUNTIME, rounds: int = ROUNDS) -> None:
        self.played = PlayedSession(seed=seed)
        self._chance = random.Random(seed)
        self._folder = folder
        self._runtime = runtime
        self._rounds = rounds
        self._root = RootPaths(folder / "evidence")
        folder.mkdir(parents=True)

    def play(self) -> PlayedSession:
        for number in range(self._rounds):
            try:
                self.play_round(number)
            except TimeoutError as error:
                self.played.problems.append(f"round {number}: {error}")
                return self.played
        return self.check()

    def play_round(self, number: int) -> None:
        """Open the session, and have it killed."""
        kind = self._chance.choices(list(_KINDS), weights=list(_KINDS.values()))[0]
        dies_at = self._chance.choice(EVENTS) if kind == "itself" else ""
        sitting = self.sitting(number, dies_at=dies_at, dies_in=self._chance.randrange(TURNS))
        at = self._chance.randrange(_ROWS) if kind in ("proctor", "agent", "both") else None
        self.run(sitting, kind=kind, at=at)

    def sitting(self, number: int, *, dies_at: str = "", dies_in: int = 0) -> Sitting:
        prompts = tuple(f"Prompt {number}.{turn}?" for turn in range(TURNS))
        steps: list[dict[str, str]] = []
        for prompt in prompts:
            word = prompt.split()[1][:-1]
            steps += [{"run": f"echo ran-{word}"}, {"say": f"Answer {word}."}]
        script = self._folder / f"script-{number}.yaml"
        script.write_bytes(msgspec.json.encode({"version": 1, "steps": steps}))
        return Sitting(
            root=str(self._root.folder),
            key=KEY,
            runtime=self._runtime,
            script=str(script),
            prompts=prompts,
            dies_at=dies_at,
            dies_in=dies_in,
        )

    def run(self, sitting: Sitting, *, kind: str, at: int | None) -> None:
        """Run a player, and kill what `kind` names after its row `at`."""
        words = msgspec.json.encode(sitting).decode()
        with start_player("chaos.session_player", words, folder=self._folder) as player:
            try:
                for number, row in enumerate(rows_of(player)):
                    if (row.what, row.how) == ("ended", "completed"):
                        self.played.completed.append(row.of)
                    elif row.what == "error" and kind != "agent":  # without its agent a session ends
                        self.played.problems.append(f"{row.of}: {row.how}")
                    if at is not None and number >= at:
                        at = None
                        time.sleep(self._chance.random() * 0.03)
                        self._kill(kind, player)
            finally:
                player.kill()
        if player.returncode not in (0, -signal.SIGKILL, REFUSED):
            self.played.problems.append(f"the player ended with {player.returncode}")
        if sitting.dies_at and player.returncode == -signal.SIGKILL:
            self.played.faults[f"itself at {sitting.dies_at}"] += 1

    def _kill(self, kind: str, player: "subprocess.Popen[bytes]") -> None:
        found = self.agents()
        if kind != "agent":
            player.kill()
        if kind != "proctor":
            for each in found:
                with suppress(ProcessLookupError):
                    os.kill(each.pid, signal.SIGKILL)
        self.played.faults[kind] += 1

    def agents(self) -> list[LiveProcess]:
        with suppress(proctor.ProctorError):
            home = session_home(read_header(find_session(self._root, KEY)))
            return [each for each in alive(home) if each.is_agent]
        return []

    # ── checks ──

    def check(self) -> PlayedSession:
        """Take a last turn, whose request shows what the thread holds, and note every problem."""
        try:
            self.played.problems += self._problems(self._ask("What was said?"))
        except (proctor.ProctorError, AssertionError) as error:
            self.played.problems.append(f"the last turn: {error!r}")
        return self.played

    def _problems(self, request: JournalRow) -> Iterator[str]:
        shown = list(_shown(request))
        recorded = list(completed_prompts(self._root))
        report = report_session(self._root, KEY)
        accepted = [each for each in report.turns if each.turn.state.is_completed]
        mirrored = [part.text for each in accepted for m in each.messages if isinstance(part := m.part, UserPart)]
        if mirrored != recorded:
            yield f"the mirror has {mirrored}, and by the record the agent completed {recorded}"
        if lost := [prompt for prompt in self.played.completed if prompt not in mirrored]:
            yield f"reported as completed and not in the mirror: {lost}"
        if open_turns := [each.turn.n for each in report.turns if each.turn.state is TurnState.ADMITTED]:
            yield f"turns without an end: {open_turns}"
        for each in accepted[:-1]:
            yield from _once_in(shown, [m.part.text for m in each.messages if isinstance(m.part, UserPart | AgentPart)])
        said = [text for role, text in shown if role == "user" and text in mirrored]
        if said != mirrored:
            yield f"the thread holds {said}, not {mirrored}"
        for each in accepted:
            answers = [m.part.text for m in each.messages if isinstance(m.part, AgentPart)]
            if len(answers) != 1:
                yield f"turn {each.turn.n} has the answers {answers}"
        done = verify_session(self._root, KEY)
        if done.exit != 0:
            yield f"verify: {done.findings}"
        yield from self._check_engine([message.id for each in accepted for message in each.messages])
        yield from self._check_evidence()

    def _check_engine(self, completed: list[EntryId]) -> Iterator[str]:
        """Compare what the engine `lossless` has with the entries of the completed turns."""
        engine = LosslessStore(find_session(self._root, KEY).engine("lossless"), session=SessionKey(KEY))
        try:
            known = [each.id for each in engine.entries(first=0, past=_MOST_ENTRIES, most=_MOST_ENTRIES)]
        finally:
            engine.close()
        if known != completed:
            yield f"the engine has {known}, and the completed turns have {completed}"

    def _ask(self, prompt: str) -> JournalRow:
        """Take a turn in this process, and return what the model was shown."""
        script = self._folder / "script-last.yaml"
        script.write_bytes(msgspec.json.encode({"version": 1, "steps": [{"say": "All of it."}]}))

        async def talk() -> None:
            with anyio.fail_after(ROUND_S):
                async with proctor.session(self._runtime, id=KEY, script=script, root=self._root.folder) as session:
                    ending = await session.say(prompt)
                    assert ending.outcome is proctor.Outcome.COMPLETED, ending

        with recorded_journals() as journals:
            anyio.run(talk)
        self.played.completed.append(prompt)
        # Claude Code also asks for counts of tokens.
        return next(row for row in reversed(journals[-1].rows) if row.items)

    def _check_evidence(self) -> Iterator[str]:
        for run in self._root.runs():
            for found in examine_run(run, is_strict=True):
                if found.status not in ("valid", "partial"):
                    yield f"{run.folder.name}/{found.name}: {found.status} {found.findings[:3]}"
        end_s = time.monotonic() + _GONE_S
        while left := self.agents():
            if time.monotonic() > end_s:
                yield f"left running: {left}"
                return
            time.sleep(0.05)


def _shown(request: JournalRow) -> Iterator[tuple[str, str]]:
    """Yield what a request holds of the conversation, whether it was given as items or quoted in a prompt."""
    for item in request.items:
        if item.role in ("user", "assistant"):
            context = parse(item.text or "")
            yield from ((quote.header.value, quote.text) for quote in context.quotes)
            yield item.role, context.request


def _once_in(shown: list[tuple[str, str]], said: list[str]) -> Iterator[str]:
    """Yield a problem for each text of a turn that the thread does not hold exactly once."""
    times = Counter(text for _, text in shown)
    for text in said:
        if times[text] != 1:
            yield f"the thread holds {text!r} {times[text]} times"


def completed_prompts(root: RootPaths) -> Iterator[str]:
    """Yield the prompts of the turns that the agent completed, by its own frames: without the code under test."""
    for run in sorted(root.runs(), key=lambda each: _created(each.folder)):
        for paths in run.attempts():
            prompt: str | None = None
            for line in paths.frames.read_bytes().splitlines() if paths.frames.exists() else ():
                with suppress(ValueError):  # the last line may be torn
                    frame: Any = json.loads(line).get("frame")
                    if not isinstance(frame, dict):
                        continue
                    if frame.get("saw") == "turn.wanted":
                        prompt = frame["text"]
                    elif prompt is not None and _is_completion(frame):
                        yield prompt
                        prompt = None


def _is_completion(frame: dict[str, Any]) -> bool:
    match frame:
        case {"method": "turn/completed", "params": {"turn": {"status": "completed"}}}:
            return True
        case {"type": "turn.completed"} | {"type": "result", "subtype": "success"}:
            return True
        case _:
            return False


def _created(folder: Path) -> int:
    return min((each.stat().st_ctime_ns for each in folder.glob("attempts/*/prompt.txt")), default=0)


def main() -> int:
    parser = argparse.ArgumentParser(prog="chaos.sessions", description=__doc__)
    parser.add_argument("--seeds", default="1-20", help="such as 1,2,30-40 (default: 1-20)")
    # Not under /tmp: an agent's home there disables its sandboxed shell.
    parser.add_argument("--in", dest="place", default="/var/tmp")
    asked = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="proctor-chaos-", dir=asked.place))
    for name in ("CACHE", "STATE", "CONFIG"):
        os.environ[f"XDG_{name}_HOME"] = str(folder / name.lower())
    all_played = []
    for seed in seeds_in(asked.seeds):
        played = SessionSeed(seed, folder / str(seed)).play()
        all_played.append(played)
        sys.stdout.write(_line(played))
        sys.stdout.flush()
    failed = sum(bool(played.problems) for played in all_played)
    if not failed:
        shutil.rmtree(folder, ignore_errors=True)
    kills = sum(played.faults.total() for played in all_played)
    sys.stdout.write(f"{kills} kills; " + ("every seed passed\n" if not failed else f"{failed} seeds FAILED\n"))
    return 1 if failed else 0


def _line(played: PlayedSession) -> str:
    faults = ", ".join(f"{count} {name}" for name, count in sorted(played.faults.items()))
    verdict = "passed" if not played.problems else "FAILED"
    line = f"seed {played.seed:<4} {len(played.completed):>3} turns  {verdict}  ({faults})"
    return "\n".join([line, *(f"  {problem[:500]}" for problem in played.problems), ""])


if __name__ == "__main__":
    sys.exit(main())
