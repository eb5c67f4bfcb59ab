"""What a turn gives if the agent refuses it, and what the caller's hooks see and change."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import anyio
import pytest
from msgspec.structs import replace

from proctor.context.hooks import PromptDraft
from proctor.context.model import TurnContext
from proctor.context.project import digest_given
from proctor.event.message import Message, UserPart
from proctor.event.row import ContextChosen, HistoryOffer
from proctor.ids import EntryId
from proctor.runtime.delivery import instructions_sha256
from tests.api.talk import bounded
from tests.context.agent_twin import ALL, Agent, Sitting, open_sitting
from tests.scripted_engine import Behaviour

TEXT_ONLY = replace(ALL, takes_history=False)


@pytest.fixture
def behaviour(monkeypatch: pytest.MonkeyPatch) -> Behaviour:
    made = Behaviour()
    monkeypatch.setattr("tests.scripted_engine.BEHAVIOUR", made)
    return made


@pytest.fixture
def agent() -> Agent:
    return Agent()


def note(text: str) -> Message:
    return Message(id=EntryId(f"note-{text[:20]}"), at_ms=0, part=UserPart(text=text))


def rows(sitting: Sitting, type_: type[Any]) -> list[Any]:
    return [row for row in sitting.port.rows if isinstance(row, type_)]


# ── refusals ──


@pytest.mark.requirement("context.system-addition")
@pytest.mark.parametrize("is_new", [True, False])
def test_instructions_are_given_although_the_items_beside_them_are_refused(
    is_new: bool, tmp_path: Path, behaviour: Behaviour, agent: Agent
) -> None:
    async def talk() -> None:
        async with open_sitting(tmp_path, agent, behaviour=behaviour) as sitting:
            if not is_new:
                await sitting.say("One")
            agent.refuses_items = True
            behaviour.addition = "Rhyme."
            behaviour.messages = lambda history: [*history, note("a")]
            context = await sitting.say("Two")
            assert context is not None
            assert (context.how, context.given, context.thread) == ("text", 1, "start" if is_new else "resume")
            assert "refused the messages as items" in str(context.degraded)
            await sitting.say("Three")

    bounded(talk)
    for request in agent.requests[-2:]:
        assert [text for role, text in request if role == "developer"] == ["Rhyme."]


@pytest.mark.requirement("context.errors")
@pytest.mark.parametrize("policy", ["degrade", "strict"])
def test_prompt_that_is_refused_with_the_quoted_messages_is_asked_without_them(
    policy: str, tmp_path: Path, behaviour: Behaviour, agent: Agent
) -> None:
    agent.most_chars = 500
    contexts: list[TurnContext | None] = []

    async def talk() -> None:
        behaviour.messages = lambda history: [*history, note("x" * 600)]
        async with open_sitting(tmp_path, agent, behaviour=behaviour, capabilities=TEXT_ONLY, policy=policy) as sitting:
            contexts.append(await sitting.say("One"))
            assert (sitting.error is not None) is (policy == "strict")
            behaviour.messages = lambda history: [*history, note("short")]
            contexts.append(await sitting.say("Two"))

    bounded(talk)
    first, second = contexts
    assert second is not None
    assert second.degraded is None
    if policy == "strict":
        assert len(agent.requests) == 1
        return
    assert first is not None
    assert "refused the prompt with what was quoted in it: the prompt is too long" in str(first.degraded)
    assert (first.how, first.given, first.sha256) == ("none", 0, None)
    assert agent.requests[0] == [("user", "One")]
    assert agent.requests[1][-1][1].count("> short") == 1


# ── hooks ──


@pytest.mark.requirement("context.hooks")
def test_prompt_hooks_run_in_order_and_the_digest_is_that_of_their_output(
    tmp_path: Path, behaviour: Behaviour, agent: Agent
) -> None:
    drafts: list[PromptDraft] = []

    async def first(draft: PromptDraft) -> PromptDraft:
        drafts.append(draft)
        return PromptDraft(prompt=f"{draft.prompt}!", instructions="Be brief.", messages=())

    async def second(draft: PromptDraft) -> None:
        drafts.append(draft)

    async def talk() -> None:
        behaviour.addition = "Rhyme."
        behaviour.messages = lambda history: [note("a")]
        async with open_sitting(tmp_path, agent, behaviour=behaviour, before_prompt_build=(first, second)) as sitting:
            await sitting.say("One")
            [chosen] = rows(sitting, ContextChosen)
            assert chosen.sha256 == digest_given("Be brief.", "One!", [note("a")])
            assert chosen.addition_sha256 == instructions_sha256("Be brief.")

    bounded(talk)
    assert drafts == [
        PromptDraft(prompt="One", instructions="Rhyme.", messages=(note("a"),)),
        PromptDraft(prompt="One!", instructions="Be brief.", messages=(note("a"),)),
    ]
    assert agent.requests == [[("user", "a"), ("developer", "Be brief."), ("user", "One!")]]


@pytest.mark.requirement("context.hooks")
def test_prompt_hook_sees_the_text_that_replaces_items_which_the_agent_refused(
    tmp_path: Path, behaviour: Behaviour, agent: Agent
) -> None:
    drafts: list[PromptDraft] = []
    agent.refuses_items = True

    async def hook(draft: PromptDraft) -> PromptDraft:
        drafts.append(draft)
        return PromptDraft(prompt=f"{draft.prompt}!", instructions=draft.instructions, messages=())

    async def talk() -> None:
        behaviour.messages = lambda history: [note("a")]
        async with open_sitting(tmp_path, agent, behaviour=behaviour, before_prompt_build=(hook,)) as sitting:
            context = await sitting.say("One")
            assert context is not None
            [[(_, asked)]] = agent.requests
            assert context.sha256 == digest_given(None, asked, ()), "of what the agent was given in the end"
            assert [offer.entries for offer in rows(sitting, HistoryOffer)][-1] == (note("a").id,)

    bounded(talk)
    assert [(len(draft.messages), "> a" in draft.prompt) for draft in drafts] == [(1, False), (0, True)]
    [[(_, asked)]] = agent.requests
    assert asked == f"{drafts[1].prompt}!"


@pytest.mark.requirement("context.hooks")
@pytest.mark.requirement("context.lifecycle")
def test_prompt_hooks_run_again_if_the_thread_is_gone(tmp_path: Path, behaviour: Behaviour, agent: Agent) -> None:
    seen: list[int] = []

    async def hook(draft: PromptDraft) -> None:
        seen.append(len(draft.messages))

    async def talk() -> None:
        async with open_sitting(tmp_path, agent, behaviour=behaviour) as sitting:
            await sitting.say("One")
        agent.threads.clear()
        async with open_sitting(tmp_path, agent, n=2, behaviour=behaviour, before_prompt_build=(hook,)) as sitting:
            await sitting.say("Two")
            assert [row.reason for row in rows(sitting, ContextChosen)] == ["same thread", "thread gone"]

    bounded(talk)
    assert seen == [0, 2]
    assert behaviour.calls.count("assemble") == 2, "only deciding, projecting and the hooks are done again"


def _wrong() -> Sequence[Any]:
    async def raises(draft: PromptDraft) -> PromptDraft:
        raise ValueError("no")

    async def hangs(draft: PromptDraft) -> PromptDraft:
        await anyio.sleep_forever()
        raise AssertionError

    async def returns_a_text(draft: PromptDraft) -> Any:
        return "Two"

    async def returns_no_prompt(draft: PromptDraft) -> Any:
        return PromptDraft(prompt=None, instructions=None, messages=())  # type: ignore[arg-type]

    def is_no_coroutine(draft: PromptDraft) -> Any:
        return PromptDraft(prompt="Two", instructions=None, messages=())

    return (raises, hangs, returns_a_text, returns_no_prompt, is_no_coroutine)


@pytest.mark.requirement("context.hooks")
@pytest.mark.requirement("context.errors")
@pytest.mark.parametrize("policy", ["degrade", "strict"])
@pytest.mark.parametrize("hook", _wrong(), ids=lambda hook: hook.__name__)
def test_prompt_hook_that_fails_changes_nothing_or_refuses_the_turn(
    hook: Any, policy: str, tmp_path: Path, behaviour: Behaviour, agent: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("proctor.context.hooks.HOOK_S", 0.05)

    async def talk() -> None:
        async with open_sitting(
            tmp_path, agent, behaviour=behaviour, before_prompt_build=(hook,), policy=policy
        ) as sitting:
            context = await sitting.say("One")
            assert (sitting.error is not None) is (policy == "strict")
            assert agent.requests == ([] if policy == "strict" else [[("user", "One")]])
            if policy == "degrade":
                assert context is not None
                assert "(engine.hook)" in str(context.degraded)

    bounded(talk)


@pytest.mark.requirement("context.hooks")
@pytest.mark.parametrize("policy", ["degrade", "strict"])
def test_compaction_hook_that_hangs_is_a_warning_or_aborts(
    policy: str, tmp_path: Path, behaviour: Behaviour, agent: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("proctor.context.hooks.HOOK_S", 0.05)
    behaviour.owns_compaction = True

    async def hang(_: Any) -> None:
        await anyio.sleep_forever()

    async def talk() -> None:
        async with open_sitting(
            tmp_path, agent, behaviour=behaviour, before_compaction=(hang,), policy=policy
        ) as sitting:
            await sitting.say("One")
            compaction = await sitting.compact()
            assert compaction is not None
            assert compaction.status == ("aborted" if policy == "strict" else "compacted")
            assert ("compact" in behaviour.calls) is (policy == "degrade")

    bounded(talk)
