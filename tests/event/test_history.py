"""History is judged by policy and by content: what was heard against what the agent gives back."""

from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proctor.event.history import MOST_DIFFERENCES, Completeness, HistoryFold, tool_digest
from proctor.event.history_item import HistoryItem
from proctor.event.model import (
    Event,
    HistoryRead,
    PromptSent,
    SessionBegan,
    TextSaid,
    ToolBegan,
    ToolEnded,
    TurnEnded,
    WarningRaised,
)
from proctor.fact import UNKNOWN, Authority, Fact
from proctor.ids import CallId, ItemId, ThreadId, TurnId
from tests.event.streams import streams

T = TurnId("t")
PERSISTENT = Fact(value="persistent", authority=Authority.REPORTED, source="agent")
EPHEMERAL = Fact(value="ephemeral", authority=Authority.REPORTED, source="agent")

BEGAN = SessionBegan(thread=ThreadId("th"), frame=1, at_ms=1)
RESUMED = SessionBegan(thread=ThreadId("th"), is_resumed=True, frame=1, at_ms=1)
ASKED = PromptSent(text="Mend it.", frame=2, at_ms=1)
CALLS = ToolBegan(turn=T, call=CallId("c"), kind="command", name="shell", input={"command": "ls"}, frame=3, at_ms=1)
CALLED = ToolEnded(
    turn=T,
    call=CallId("c"),
    kind="command",
    name="shell",
    ok=True,
    status="completed",
    input={"command": "ls"},
    output="a\n",
    frame=4,
    at_ms=1,
)
SAID = TextSaid(turn=T, item=ItemId("m"), text="Done.", frame=5, at_ms=1)
ENDED = TurnEnded(turn=T, status="completed", frame=6, at_ms=1)
LIVE = (BEGAN, ASKED, CALLS, CALLED, SAID, ENDED)

PROMPT = HistoryItem(kind="prompt", id="u", text="Mend it.")
TOOL = HistoryItem(kind="tool", id="c", text="shell", digest=tool_digest("shell", {"command": "ls"}, "a\n"))
MESSAGE = HistoryItem(kind="message", id="m", text="Done.")
THOUGHT = HistoryItem(kind="reasoning", id="r", text="never compared")


def kept(*items: HistoryItem, is_last: bool = True) -> HistoryRead:
    return HistoryRead(source="thread/turns/list", items=items, is_last=is_last, frame=9, at_ms=1)


def judged(*events: Event, persistence: Fact = PERSISTENT) -> tuple[str, list[str]]:
    """The state, and what differs."""
    facts = facts_of(events, persistence=persistence)
    differences = facts.get("historyDifferences")
    return facts["history"].value, [] if differences is None else differences.value


def facts_of(events: Iterable[Event], *, persistence: Fact = PERSISTENT) -> dict[str, Fact]:
    fold = HistoryFold()
    for event in events:
        fold.feed(event)
    return fold.facts(persistence)


@pytest.mark.requirement("runtime.history")
@pytest.mark.parametrize(
    ("events", "persistence", "state", "authority"),
    [
        ((), PERSISTENT, Completeness.UNKNOWN, "unknown"),
        (LIVE, UNKNOWN, Completeness.UNKNOWN, "unknown"),
        (LIVE, EPHEMERAL, Completeness.LIVE_ONLY, "reported"),
        (LIVE, PERSISTENT, Completeness.EXPLICIT_HYDRATION_REQUIRED, "reported"),
        ((*LIVE, kept(PROMPT, THOUGHT, TOOL, MESSAGE)), PERSISTENT, Completeness.HYDRATED_VERIFIED, "verified"),
        # Read in pages, and read twice: the last reading counts.
        (
            (*LIVE, kept(PROMPT, is_last=False), kept(TOOL, MESSAGE)),
            PERSISTENT,
            Completeness.HYDRATED_VERIFIED,
            "verified",
        ),
        ((*LIVE, kept(PROMPT), kept(PROMPT, TOOL, MESSAGE)), PERSISTENT, Completeness.HYDRATED_VERIFIED, "verified"),
        # Nothing in it that could be compared.
        ((BEGAN, kept(THOUGHT)), PERSISTENT, Completeness.HYDRATED, "observed"),
    ],
)
def test_a_history_is_what_policy_and_reading_it_say(
    events: tuple[Event, ...], persistence: Fact, state: Completeness, authority: str
) -> None:
    fact = facts_of(events, persistence=persistence)["history"]
    assert (fact.value, fact.authority) == (state, authority)


@pytest.mark.requirement("runtime.history")
@pytest.mark.parametrize(
    ("items", "differences"),
    [
        ((PROMPT, TOOL, HistoryItem(kind="message", id="m", text="Done!")), ["message m is stored with other content"]),
        (
            (HistoryItem(kind="prompt", text="Mend all."), TOOL, MESSAGE),
            ["prompt was received and is not stored", "prompt is stored and was not received"],
        ),
        (
            (PROMPT, HistoryItem(kind="tool", id="c", digest="another"), MESSAGE),
            ["tool c is stored with other content"],
        ),
        (
            (PROMPT, TOOL, MESSAGE, HistoryItem(kind="message", text="More.")),
            ["message is stored and was not received"],
        ),
        (
            (PROMPT, TOOL, TOOL, MESSAGE, HistoryItem(kind="tool", id="d")),
            ["tool c is stored and was not received", "tool d is stored and was not received"],
        ),
    ],
)
def test_whatever_differs_makes_it_divergent_and_is_named(
    items: tuple[HistoryItem, ...], differences: list[str]
) -> None:
    assert judged(*LIVE, kept(*items)) == (Completeness.HYDRATED_DIVERGENT, differences)


@pytest.mark.requirement("runtime.history")
def test_a_history_that_only_ends_too_early_is_truncated() -> None:
    lost = "message m was received and is not stored"
    assert judged(*LIVE, kept(PROMPT, TOOL)) == (Completeness.TRUNCATED, [lost])
    # A reply without items is no history, whatever its status.
    none = ["prompt was received and is not stored", lost, "tool c was received and is not stored"]
    assert judged(*LIVE, kept()) == (Completeness.TRUNCATED, none)
    unread = ["the last page was not read"]
    assert judged(*LIVE, kept(PROMPT, TOOL, MESSAGE, is_last=False)) == (Completeness.TRUNCATED, unread)


@pytest.mark.requirement("runtime.history")
def test_ids_count_where_both_have_them_and_content_where_not() -> None:
    renamed = (
        PROMPT,
        HistoryItem(kind="tool", id="item-2", digest=TOOL.digest),
        HistoryItem(kind="message", text="Done."),
    )
    assert judged(*LIVE, kept(*renamed)) == (Completeness.HYDRATED_VERIFIED, [])
    # One that says only that there was a call.
    assert judged(*LIVE, kept(PROMPT, HistoryItem(kind="tool"), MESSAGE)) == (Completeness.HYDRATED_VERIFIED, [])


@pytest.mark.requirement("runtime.history")
def test_what_was_there_before_a_thread_was_taken_up_is_no_difference() -> None:
    earlier = (HistoryItem(kind="prompt", text="Before."), HistoryItem(kind="message", id="m0", text="Then."))
    assert judged(RESUMED, *LIVE[1:], kept(*earlier, PROMPT, TOOL, MESSAGE)) == (Completeness.HYDRATED_VERIFIED, [])
    assert judged(*LIVE, kept(*earlier, PROMPT, TOOL, MESSAGE))[0] == Completeness.HYDRATED_DIVERGENT


def test_a_call_that_was_cut_short_may_be_kept_all_the_same() -> None:
    assert judged(BEGAN, ASKED, CALLS, kept(PROMPT, TOOL)) == (Completeness.HYDRATED_VERIFIED, [])


def test_of_very_many_differences_only_some_are_told() -> None:
    extra = [HistoryItem(kind="message", text=str(number)) for number in range(MOST_DIFFERENCES + 5)]
    _, differences = judged(*LIVE, kept(PROMPT, TOOL, MESSAGE, *extra))
    assert len(differences) == MOST_DIFFERENCES + 1
    assert differences[-1] == "and 5 more"


_TEXTS = st.sampled_from(["a", "b", "c"])
_IDS = st.sampled_from(["1", "2", "3", "4"])


@pytest.mark.requirement("runtime.history")
@given(st.lists(st.tuples(_IDS, _TEXTS), max_size=6, unique_by=lambda said: said[0]), st.booleans(), st.data())
def test_the_same_content_is_verified_and_any_one_change_to_it_is_not(
    said: list[tuple[str, str]], has_ids: bool, data: st.DataObject
) -> None:
    live: list[Event] = [TextSaid(turn=T, item=ItemId(id_), text=text, frame=2, at_ms=1) for id_, text in said]
    back = [HistoryItem(kind="message", id=id_ if has_ids else None, text=text) for id_, text in said]
    whole = judged(BEGAN, *live, kept(*back))
    assert whole == (Completeness.HYDRATED_VERIFIED if said else Completeness.HYDRATED, [])
    if said:
        at = data.draw(st.integers(0, len(said) - 1))
        back[at] = HistoryItem(kind="message", id=back[at].id, text="altered")
        assert judged(BEGAN, *live, kept(*back))[0] == Completeness.HYDRATED_DIVERGENT


@pytest.mark.requirement("runtime.history")
@given(streams, st.text(max_size=20))
def test_no_warning_changes_what_is_said_of_a_history(events: list[Event], text: str) -> None:
    prose = f"thread/read failed while backfilling: ephemeral threads do not support includeTurns {text}"
    warning = WarningRaised(source="process", text=prose, channel="stderr", frame=1, at_ms=1)
    assert facts_of([warning, *events, warning]) == facts_of(events)
