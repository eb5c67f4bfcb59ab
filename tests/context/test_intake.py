"""How a thread is given what it lacks where it takes no items, no text, or a document beside the prompt."""

from pathlib import Path
from typing import Any, Final

import pytest
from msgspec.structs import replace

from proctor.context.engine import AssembleResult
from proctor.context.hooks import PromptDraft
from proctor.context.project import ContextProjection, ProjectionMode, digest_given
from proctor.context.reference import Reference
from proctor.context.text import Header, parse
from proctor.errors import RefusedError
from proctor.event import model
from proctor.event.message import Message, UserPart
from proctor.ids import EntryId
from proctor.runtime.capability import Capabilities
from proctor.runtime.intake import intake_of
from tests.api.talk import bounded
from tests.context.agent_twin import ALL, Agent, open_sitting
from tests.scripted_engine import Behaviour

NOTHING: Final = Capabilities(thread_start=True)


@pytest.fixture
def behaviour(monkeypatch: pytest.MonkeyPatch) -> Behaviour:
    made = Behaviour()
    monkeypatch.setattr("tests.scripted_engine.BEHAVIOUR", made)
    return made


@pytest.fixture
def agent() -> Agent:
    return Agent()


def note(text: str) -> Message:
    return Message(id=EntryId(f"note-{text[:5]}"), at_ms=0, part=UserPart(text=text))


# ── runtimes that take no context, or text only ──


@pytest.mark.requirement("context.projection.native")
def test_runtime_that_takes_no_context_is_given_none_and_its_turns_are_committed(
    tmp_path: Path, behaviour: Behaviour, agent: Agent
) -> None:
    async def talk() -> None:
        async with open_sitting(tmp_path, agent, behaviour=behaviour, capabilities=NOTHING) as sitting:
            for prompt in ("One", "Two"):
                context = await sitting.say(prompt)
                assert context is not None
                assert (context.degraded, context.commit) == (None, "committed"), "its thread lacks nothing"
            behaviour.messages = lambda history: [*history, note("a")]
            context = await sitting.say("Three")
            assert context is not None
            assert (context.how, context.given, context.commit) == ("none", 0, "committed")
            assert "takes no context, so 1 assembled" in str(context.degraded)
        async with open_sitting(
            tmp_path, agent, n=2, behaviour=behaviour, capabilities=NOTHING, policy="strict"
        ) as sitting:
            await sitting.say("Four")
            assert sitting.error is not None
            assert sitting.error.code == "engine.no-place"

    bounded(talk)
    assert [request[-1] for request in agent.requests] == [("user", "One"), ("user", "Two"), ("user", "Three")]
    assert ("user", "a") not in agent.requests[-1]


@pytest.mark.requirement("context.projection.native")
def test_runtime_that_forgets_its_turns_has_all_of_them_in_every_prompt(
    tmp_path: Path, behaviour: Behaviour, agent: Agent
) -> None:
    async def talk() -> None:
        intake = intake_of(NOTHING, is_forgetful=True)
        async with open_sitting(tmp_path, agent, behaviour=behaviour, capabilities=NOTHING, intake=intake) as sitting:
            contexts = [await sitting.say(prompt) for prompt in ("One", "Two", "Three")]
            shown = [(each.how, each.given, each.degraded) for each in contexts if each is not None]
            assert shown == [("none", 0, None), ("text", 2, None), ("text", 4, None)]

    bounded(talk)
    [(_, text)] = agent.requests[-1][-1:]
    assert [quote.text for quote in parse(text).quotes] == ["One", "ok", "Two", "ok"]
    assert parse(text).request == "Three"


@pytest.mark.requirement("context.projection.native")
def test_items_that_were_refuted_are_text_and_the_turn_says_why(
    tmp_path: Path, behaviour: Behaviour, agent: Agent
) -> None:
    async def talk() -> None:
        behaviour.messages = lambda history: [*history, note("a")]
        async with open_sitting(
            tmp_path, agent, behaviour=behaviour, intake=intake_of(ALL, refuted="it failed")
        ) as sitting:
            context = await sitting.say("One")
            assert context is not None
            assert (context.how, context.given, context.why_text, context.degraded) == ("text", 1, "it failed", None)
            assert sitting.turns()[0].context == context

    bounded(talk)
    [[(role, text)]] = agent.requests
    assert (role, parse(text).quotes[0].text) == ("user", "a")


# ── items that are refused ──


@pytest.mark.requirement("context.projection.native")
def test_items_that_are_refused_with_the_first_prompt_are_in_the_next_one(
    tmp_path: Path, behaviour: Behaviour, agent: Agent
) -> None:
    async def talk() -> None:
        behaviour.messages, behaviour.addition = lambda history: [*history, note("a")], "Rhyme."
        agent.answers = [RefusedError("peer.refused", "no such items"), "Yes."]
        async with open_sitting(tmp_path, agent, behaviour=behaviour) as sitting:
            context = await sitting.say("One")
            assert sitting.error is None
            assert context is not None
            assert (context.how, context.given) == ("text", 1)
            assert "no such items" in str(context.degraded)

    bounded(talk)
    [[developer, (role, text)]] = agent.requests
    assert (developer, role, parse(text).request) == (("developer", "Rhyme."), "user", "One")
    assert [quote.text for quote in parse(text).quotes] == ["a"]


@pytest.mark.requirement("context.projection.native")
@pytest.mark.requirement("context.hooks")
def test_refused_items_keep_what_the_hooks_made_of_the_prompt(
    tmp_path: Path, behaviour: Behaviour, agent: Agent
) -> None:
    drafts: list[PromptDraft] = []

    async def hook(draft: PromptDraft) -> PromptDraft:
        drafts.append(draft)
        return PromptDraft(prompt=f"{draft.prompt}!", instructions="Be brief.", messages=())

    async def talk() -> None:
        behaviour.messages = lambda history: [*history, note("a")]
        agent.refuses_items = True
        async with open_sitting(tmp_path, agent, behaviour=behaviour, before_prompt_build=(hook,)) as sitting:
            await sitting.say("One")
            behaviour.messages = lambda history: [*history, note("b")]
            context = await sitting.say("Two")
            assert context is not None
            assert context.sha256 == digest_given("Be brief.", agent.requests[-1][-1][1], ())

    bounded(talk)
    assert [len(draft.messages) for draft in drafts] == [1, 0, 1, 0], "the second draft of a turn has them as text"
    texts = [text for role, text in agent.requests[-1] if role == "user"]
    assert [parse(text).request for text in texts] == ["One!", "Two!"]
    assert [quote.text for quote in parse(texts[1]).quotes] == ["b"]
    assert agent.requests[-1].count(("developer", "Be brief.")) == 1


@pytest.mark.requirement("context.projection.native")
@pytest.mark.requirement("context.system-addition")
def test_instructions_are_added_without_the_items_that_were_refused_with_them(
    tmp_path: Path, behaviour: Behaviour, agent: Agent
) -> None:
    async def talk() -> None:
        async with open_sitting(tmp_path, agent, behaviour=behaviour) as sitting:
            await sitting.say("One")
            agent.refuses_items = True
            behaviour.messages, behaviour.addition = lambda history: [*history, note("a")], "Rhyme."
            context = await sitting.say("Two")
            assert context is not None
            assert context.is_addition_given

    bounded(talk)
    assert agent.requests[-1].count(("developer", "Rhyme.")) == 1


@pytest.mark.requirement("context.projection.native")
@pytest.mark.requirement("context.binding")
def test_refused_items_are_as_text_no_more_than_the_thread_can_take(
    tmp_path: Path, behaviour: Behaviour, agent: Agent
) -> None:
    agent.window, agent.used = 50_000, 29_000

    async def talk() -> None:
        async with open_sitting(tmp_path, agent, behaviour=behaviour) as sitting:
            await sitting.say("One")
            agent.refuses_items = True
            behaviour.messages = lambda history: [*history, *(note(f"{n} " + "x" * 1000) for n in range(5))]
            context = await sitting.say("Two")
            assert context is not None
            assert (context.how, context.given) == ("text", 2)

    bounded(talk)
    assert [quote.text[0] for quote in parse(agent.requests[-1][-1][1]).quotes] == ["3", "4"]


# ── the engine's own fingerprint ──


@pytest.mark.requirement("context.binding")
def test_another_fingerprint_of_the_engine_starts_a_thread_and_the_same_does_not(
    tmp_path: Path, behaviour: Behaviour, agent: Agent
) -> None:
    async def talk() -> None:
        reasons: list[str] = []
        async with open_sitting(tmp_path, agent, behaviour=behaviour) as sitting:
            for fingerprint in ("a", "a", "b"):
                behaviour.projection = ContextProjection(
                    mode=ProjectionMode.THREAD_BOOTSTRAP, epoch="1", fingerprint=fingerprint
                )
                context = await sitting.say("Go")
                assert context is not None
                reasons.append(context.reason)
        assert reasons == ["no thread", "same thread", "another engine or policy"]

    bounded(talk)


# ── references ──

BESIDE: Final = intake_of(ALL, reference_bytes=4_000)
REFERENCES: Final = (Reference(id="a.md", text="a < b"), Reference(id="b.md", text="b" * 4_001))


def _referring(behaviour: Behaviour, times: int) -> None:
    behaviour.results["assemble"] = [AssembleResult(messages=(), references=REFERENCES) for _ in range(times)]


@pytest.mark.requirement("context.projection")
def test_short_references_are_given_beside_the_prompt_and_long_ones_in_it(
    tmp_path: Path, behaviour: Behaviour, agent: Agent
) -> None:
    async def talk() -> None:
        _referring(behaviour, 2)
        async with open_sitting(tmp_path, agent, behaviour=behaviour, intake=BESIDE) as sitting:
            first = await sitting.say("One")
            behaviour.results["assemble"][0] = AssembleResult(messages=(), references=REFERENCES[1:])
            second = await sitting.say("One")
            assert first is not None
            assert second is not None
            assert first.sha256 != second.sha256, "the digest covers what is beside the prompt"

    bounded(talk)
    [beside, (_, text)] = agent.requests[0]
    assert beside == ("reference", "a &lt; b")
    assert [(each.header, each.text[:16]) for each in parse(text).quotes] == [(Header.REFERENCE, "b.md (untrusted)")]


@pytest.mark.requirement("context.projection")
def test_references_are_quoted_in_a_thread_that_was_shortened(
    tmp_path: Path, behaviour: Behaviour, agent: Agent
) -> None:
    """Codex does not repeat a value that it was given before, also if its compaction has removed it."""

    async def talk() -> None:
        _referring(behaviour, 2)
        async with open_sitting(tmp_path, agent, behaviour=behaviour, intake=BESIDE) as sitting:
            await sitting.say("One")
            sitting.port.feed(model.CompactionEnded, trigger="manual", ok=True, keeps="nothing")
            await sitting.say("Two")

    bounded(talk)
    assert agent.requests[-1].count(("reference", "a &lt; b")) == 1, "in the first turn"
    assert len(parse(agent.requests[-1][-1][1]).quotes) == 2


@pytest.mark.requirement("context.projection")
@pytest.mark.parametrize("capabilities", [ALL, replace(ALL, takes_history=False)])
def test_references_are_quoted_where_the_agent_takes_none_beside_the_prompt(
    capabilities: Any, tmp_path: Path, behaviour: Behaviour, agent: Agent
) -> None:
    async def talk() -> None:
        _referring(behaviour, 1)
        async with open_sitting(tmp_path, agent, behaviour=behaviour, capabilities=capabilities) as sitting:
            await sitting.say("One")

    bounded(talk)
    [[(_, text)]] = agent.requests
    assert len(parse(text).quotes) == 2
