"""What a context engine gives to a real agent, seen in the model's journal. The same cases for each agent."""

import signal
from collections.abc import Sequence
from typing import Final

import msgspec
import pytest

import proctor
from chaos.play import rows_of, start_player
from chaos.session_player import Sitting
from proctor.context.history import History
from proctor.event.message import Message, UserPart
from proctor.ids import EntryId
from proctor.model.journal import JournalRow
from proctor.testing.journals import recorded_journals
from tests.acceptance.sittings import Said, SessionLab, first_requests, last_request, say_all
from tests.api.talk import bounded
from tests.scripted_engine import Behaviour, scripted

WINDOW: Final = proctor.Context(engine="window", policy="strict")
ADDITION: Final = "Answer in the language of the ships."
FIRST: Final = ({"run": "echo marker-$((40+2))"}, {"say": "It says so."})
FIRST_SAID: Final[list[Said]] = [
    ("user", "What does it say?"),
    ("call", "echo marker-$((40+2))"),
    ("result", "marker-42"),
    ("agent", "It says so."),
]


def roles_of(row: JournalRow, text: str) -> list[str]:
    """Return the role of each item of a request that contains a text."""
    return [item.role for item in row.items if text in item.whole_text]


def stripped(said: Sequence[Said]) -> list[Said]:
    """Return the texts without white space around them: Claude Code adds a line end between two user messages."""
    return [(who, text.strip()) for who, text in said]


def note(number: int) -> Message:
    """A message that an engine makes itself."""
    return Message(id=EntryId(f"note-{number}"), at_ms=0, part=UserPart(text=f"Note number {number}."))


class ContextCases:
    """Cases for the agent of `runtime`. `other` is the runtime on which something was said before."""

    runtime: str
    other: str

    # ── when messages are given ──

    @pytest.mark.requirement("context.given")
    @pytest.mark.requirement("context.projection.native")
    def test_history_is_given_before_the_first_turn(self, lab: SessionLab, engine: Behaviour) -> None:
        async def talk() -> None:
            await lab.sit(self.other, "x", ["What does it say?"], *FIRST, context=scripted(policy="strict"))
            await lab.sit(self.runtime, "x", ["Sure?"], {"say": "Quite."}, context=scripted(policy="strict"))

        with recorded_journals() as journals:
            bounded(talk)
        assert first_requests(journals)[1] == [*FIRST_SAID, ("user", "Sure?")]
        lab.assert_verified("x")

    @pytest.mark.requirement("context.given")
    def test_messages_are_given_between_turns_once(self, lab: SessionLab, engine: Behaviour) -> None:
        given: list[Message] = []

        def assemble(history: History) -> Sequence[Message]:
            return [*history, *given]

        engine.messages = assemble

        async def talk() -> None:
            steps = [{"say": f"Answer {n}."} for n in range(4)]
            async with lab.open(self.runtime, "x", *steps, context=scripted(policy="strict")) as session:
                for n in range(4):
                    await say_all(session, [f"Prompt {n}."])
                    if n < 2:
                        given.append(note(n))

        with recorded_journals() as journals:
            bounded(talk)
        assert stripped(last_request(journals[0])) == [
            ("user", "Prompt 0."), ("agent", "Answer 0."),
            ("user", "Note number 0."), ("user", "Prompt 1."), ("agent", "Answer 1."),
            ("user", "Note number 1."), ("user", "Prompt 2."), ("agent", "Answer 2."),
            ("user", "Prompt 3."),
        ]  # fmt: skip
        lab.assert_verified("x")

    @pytest.mark.requirement("context.given")
    def test_messages_are_given_after_a_resume_in_a_new_process(self, lab: SessionLab, engine: Behaviour) -> None:
        async def talk() -> None:
            await lab.sit(self.runtime, "x", ["What does it say?"], *FIRST, context=scripted(policy="strict"))
            engine.messages = lambda history: [*history, note(1)]
            await lab.sit(self.runtime, "x", ["Sure?"], {"say": "Quite."}, context=scripted(policy="strict"))
            await lab.sit(self.runtime, "x", ["Really?"], {"say": "Yes."}, context=scripted(policy="strict"))

        with recorded_journals() as journals:
            bounded(talk)
        whole: list[Said] = [*FIRST_SAID, ("user", "Note number 1."), ("user", "Sure?"), ("agent", "Quite.")]
        assert [*map(stripped, first_requests(journals)[1:])] == [whole[:-1], [*whole, ("user", "Really?")]]
        reasons = [shown.turn.context.reason for shown in lab.report("x").turns if shown.turn.context is not None]
        assert reasons == ["no thread", "same thread", "same thread"]
        lab.assert_verified("x")

    @pytest.mark.requirement("context.given")
    @pytest.mark.requirement("context.commit-once")
    @pytest.mark.proctor_process
    def test_completed_turns_are_given_once_after_a_kill(self, lab: SessionLab, engine: Behaviour) -> None:
        sitting = Sitting(
            root=str(lab.root),
            key="x",
            script=str(lab.script(*FIRST, {"run": "echo never"}, {"say": "Never."})),
            prompts=("What does it say?", "Once more?"),
            runtime=self.runtime,
            engine="window",
            dies_at="ToolBegan",
            dies_in=1,
        )
        with start_player("chaos.session_player", msgspec.json.encode(sitting).decode(), folder=lab.folder) as player:
            for _ in rows_of(player):
                pass
            assert player.wait(timeout=30) == -signal.SIGKILL

        async def talk() -> None:
            await lab.sit(self.runtime, "x", ["Sure?"], {"say": "Quite."}, context=WINDOW)

        with recorded_journals() as journals:
            bounded(talk)
        assert first_requests(journals) == [[*FIRST_SAID, ("user", "Sure?")]]
        turns = [shown.turn for shown in lab.report("x").turns]
        assert [turn.state for turn in turns] == ["acknowledged", "discarded", "acknowledged"]
        assert turns[2].context is not None
        assert turns[2].context.reason == "unknown content"
        lab.assert_verified("x")

    # ── instructions ──

    @pytest.mark.requirement("context.system-addition")
    def test_addition_is_there_once_and_never_as_a_user(self, lab: SessionLab, engine: Behaviour) -> None:
        engine.addition = ADDITION

        async def talk() -> None:
            steps = [{"say": f"Answer {n}."} for n in range(5)]
            async with lab.open(self.runtime, "x", *steps, context=scripted(policy="strict")) as session:
                await say_all(session, [f"Prompt {n}." for n in range(5)])
            await lab.sit(self.runtime, "x", ["And now?"], {"say": "Now."}, context=scripted(policy="strict"))

        with recorded_journals() as journals:
            bounded(talk)
        for row in (row for journal in journals for row in journal.rows if row.digest is not None):
            assert roles_of(row, ADDITION) in (["developer"], ["system"]), row
        said = last_request(journals[-1])
        assert len(said) == len(set(said)) == 11, "nothing is there twice after five turns"

    @pytest.mark.requirement("context.system-addition")
    def test_changed_addition_is_added_before_the_prompt(self, lab: SessionLab, engine: Behaviour) -> None:
        engine.addition = ADDITION

        async def talk() -> None:
            steps = [{"say": f"Answer {n}."} for n in range(3)]
            async with lab.open(self.runtime, "x", *steps, context=scripted(policy="strict")) as session:
                await say_all(session, ["Prompt 0."])
                engine.addition = "Answer in rhymes."
                await say_all(session, ["Prompt 1.", "Prompt 2."])

        with recorded_journals() as journals:
            bounded(talk)
        last = journals[0].rows[-1]
        for text in (ADDITION, "Answer in rhymes."):
            [role] = roles_of(last, text)
            assert role in ("developer", "system")
        lab.assert_verified("x")
