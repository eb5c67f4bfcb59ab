"""A long session for the area `context`: made of real text, written through the session's store and the engine.

As a module, `python -m bench.talk FOLDER` opens such a session as a sitting does, and prints what that costs.
"""

import random
import sqlite3
import sys
from collections.abc import Iterator
from contextlib import ExitStack, closing
from functools import cache
from itertools import islice
from pathlib import Path

import anyio

from bench.cost import ROOT, Cost, Meter, write_cost
from proctor.__main__ import relax_gc
from proctor.context.budget import Budget, WindowSource
from proctor.context.engine import EngineContext, EngineSetup, TurnCommit
from proctor.context.engines.lossless import create
from proctor.context.guard import CancelSignal
from proctor.context.model import RecordedTurn, Sitting, SittingState, TurnContext, TurnState
from proctor.context.store import SessionStore, open_store, words_of
from proctor.context.stored_history import open_history
from proctor.event.message import AgentPart, CallPart, Message, ResultPart, UserPart
from proctor.event.outcome import Ending, Outcome
from proctor.ids import AttemptId, Digest, EntryId, RunId, RuntimeId, SessionKey, ThreadId

MESSAGE_BYTES = 370
CALLS = 4
TURN_MESSAGES = 2 + 2 * CALLS
"""A prompt, four calls with their results, and an answer."""

BUDGET = Budget(window=220_000, reserve=20_000, history=200_000, source=WindowSource.CONFIG)
PROMPT = Message(id=EntryId("20261118T194947Z-ab12/session-2.1#1"), at_ms=0, part=UserPart(text="Go on."))
_ENTRY = "20261118T194947Z-ab12/session-1.1#"
_DIGEST = Digest("sha256:" + "0" * 64)
_SITTING = Sitting(
    n=1,
    run_id=RunId("20261118T194947Z-ab12"),
    attempt_id=AttemptId("session-1.1"),
    runtime_id=RuntimeId("codex_app_server"),
    began_at_ms=1,
    state=SittingState.OPEN,
)


def engine_context() -> EngineContext:
    return EngineContext(
        session=SessionKey("bench"), model=None, tools=frozenset(), budget=BUDGET, cancel=CancelSignal()
    )


@cache
def _corpus() -> str:
    """Return text as agents read and write it: the documents and the code of this repository."""
    files = (path for pattern in ("docs/**/*.md", "src/**/*.py") for path in sorted(ROOT.glob(pattern)))
    return "".join(path.read_text(errors="ignore") for path in files).encode("ascii", "ignore").decode()


def turns(count: int) -> Iterator[RecordedTurn]:
    """Yield turns of ten messages of 370 bytes. The same ones in each run on the same repository."""
    chance, corpus, text = random.Random(15), _corpus(), MESSAGE_BYTES

    def said() -> str:
        at = chance.randrange(len(corpus) - text)
        return corpus[at : at + text]

    for number in range(count):
        frame, asked_at_ms = number * 60 + 1, 1_790_000_000_000 + number * 90_000
        parts: list[tuple[int, UserPart | AgentPart | CallPart | ResultPart]] = [(0, UserPart(text=said()))]
        for call in range(CALLS):
            at = 4 + call * 8
            parts.append((at, CallPart(kind="command", name="shell", input={"command": said()})))
            parts.append(
                (at + 3, ResultPart(call=EntryId(f"{_ENTRY}{frame + at}"), name="shell", output=said(), ok=True))
            )
        parts.append((50, AgentPart(text=said())))
        messages = tuple(
            Message(id=EntryId(f"{_ENTRY}{frame + at}"), at_ms=asked_at_ms + at * 700, part=part) for at, part in parts
        )
        yield RecordedTurn(
            id=messages[0].id,
            kind="prompt",
            asked_at_ms=asked_at_ms,
            ending=Ending(outcome=Outcome.COMPLETED),
            messages=messages,
            thread=ThreadId("thread"),
            context=TurnContext(
                engine="lossless",
                version="1",
                policy="degrade",
                mode="thread_bootstrap",
                thread="resume",
                reason="continued",
                how="items",
                sha256=_DIGEST,
                assembled=1500,
                estimated_tokens=150_000,
                bytes_per_token=3.0,
            ),
        )


def messages(count: int) -> list[Message]:
    """Return the first messages of such turns."""
    said = (message for turn in turns(-(-count // TURN_MESSAGES)) for message in turn.messages)
    return list(islice(said, count))


class Talk:
    """A session that is open, with the mirror and the engine."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self.folder = folder
        (folder / "engine").mkdir(parents=True, exist_ok=True)
        self.store: SessionStore = stack.enter_context(open_store(folder / "session.db"))
        self.engine = create(EngineSetup(session=SessionKey("bench"), folder=folder / "engine", options={}))
        stack.callback(self.engine.close)
        self.text_bytes = 0

    def begin(self) -> None:
        self.store.begin_sitting(_SITTING)

    def commit(self, turn: RecordedTurn) -> Cost:
        """Store a turn as a sitting does: admitted, settled, committed by the engine, acknowledged."""
        self.text_bytes += sum(len(words_of(message).encode()) for message in turn.messages)
        meter = Meter()
        self.store.admit(turn, sitting=_SITTING)
        self.store.settle(turn, sitting=_SITTING)
        commit = TurnCommit(key=turn.id, messages=turn.messages, model=None, budget=BUDGET, usage=None)
        assert self.engine.commit_turn(engine_context(), commit) == "committed"
        self.store.note_commit(self.store.next_turn() - 1, TurnState.ACKNOWLEDGED)
        return meter.read()

    def disk_bytes(self) -> tuple[int, int]:
        """Return the sizes of the mirror and of the engine, without the logs of SQLite."""
        sizes = []
        for path in (self.folder / "session.db", *(self.folder / "engine").glob("*.db")):
            with closing(sqlite3.connect(path)) as connection:
                connection.execute("pragma wal_checkpoint(truncate)")
            sizes.append(path.stat().st_size)
        return sizes[0], sum(sizes[1:])


def open_sitting(folder: Path) -> Cost:
    """Open a session, as the first turn of a sitting does, and return what it costs until it is assembled."""
    relax_gc()
    meter = Meter()
    with ExitStack() as stack:
        talk = Talk(folder, stack)
        history = stack.enter_context(open_history(folder / "session.db", after_turn=0))
        if len(history):
            talk.engine.bootstrap(engine_context(), history)
            anyio.run(talk.engine.maintain, engine_context(), "bootstrap")
        talk.engine.assemble(engine_context(), history, PROMPT)
        return meter.read()


if __name__ == "__main__":
    write_cost(open_sitting(Path(sys.argv[1])))
