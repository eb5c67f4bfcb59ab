"""Which missions are run: each key narrows, its entries widen, and nothing is ever selected by mistake."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proctor.errors import InputError
from proctor.ids import MissionId
from proctor.spec.campaign_options import SelectSpec
from proctor.spec.load import SpecOverrides, load_spec
from proctor.spec.model import MissionSpec
from proctor.spec.select import select
from tests.spec.good import write

Told: TypeAlias = Callable[[Callable[[], object]], list[Any]]


def mission(id_: str, *tags: str) -> MissionSpec:
    return MissionSpec(id=MissionId(id_), prompt="p", tags=list(tags))


MISSIONS = (
    mission("fix-greeting", "quick"),
    mission("fix-total", "slow"),
    mission("ask", "quick", "talk"),
    mission("refactor"),
)


@pytest.mark.requirement("campaign.matrix")
@pytest.mark.parametrize(
    ("wanted", "ids"),
    [
        (SelectSpec(), "fix-greeting fix-total ask refactor"),
        (SelectSpec(ids=["refactor", "ask"]), "ask refactor"),
        (SelectSpec(globs=["fix-*"]), "fix-greeting fix-total"),
        (SelectSpec(globs=["fix-*", "re*"]), "fix-greeting fix-total refactor"),
        (SelectSpec(tags=["quick"]), "fix-greeting ask"),
        (SelectSpec(tags=["slow", "talk"]), "fix-total ask"),
        (SelectSpec(range="2-3"), "fix-total ask"),
        (SelectSpec(range="4"), "refactor"),
        (SelectSpec(range="3-99"), "ask refactor"),
        (SelectSpec(globs=["fix-*"], tags=["quick"]), "fix-greeting"),
        (SelectSpec(ids=["ask", "refactor"], range="1-3"), "ask"),
    ],
)
def test_a_selection_leaves(wanted: SelectSpec, ids: str) -> None:
    assert [each.id for each in select(MISSIONS, wanted)] == ids.split()


@pytest.mark.parametrize(
    ("wanted", "key", "what", "suggestion"),
    [
        (
            SelectSpec(ids=["ask", "fix-totle"]),
            "ids[1]",
            "no mission has the id `fix-totle`; the missions are: fix-greeting, fix-total, ask, refactor",
            "Did you mean `fix-total`?",
        ),
        (
            SelectSpec(ids=["zzz"]),
            "ids[0]",
            "no mission has the id `zzz`; the missions are: fix-greeting, fix-total, ask, refactor",
            None,
        ),
        (
            SelectSpec(globs=["test-*"]),
            "globs[0]",
            "no mission's id matches `test-*`; the missions are: fix-greeting, fix-total, ask, refactor",
            None,
        ),
        (
            SelectSpec(tags=["quik"]),
            "tags[0]",
            "no mission has the tag `quik`; the tags are: quick, slow, talk",
            "Did you mean `quick`?",
        ),
        (
            SelectSpec(range="5-9"),
            "range",
            "the range `5-9` begins after the last mission",
            "Write a range within 1-4.",
        ),
        (SelectSpec(range="3-2"), "range", "`3-2` is not a range: write it like 2-5 or 7, counting from 1", None),
        (SelectSpec(range="0"), "range", "`0` is not a range: write it like 2-5 or 7, counting from 1", None),
        (SelectSpec(range="a-b"), "range", "`a-b` is not a range: write it like 2-5 or 7, counting from 1", None),
        (
            SelectSpec(ids=["ask"], tags=["slow"]),
            None,
            "no mission matches all parts of the selection; the missions are: fix-greeting, fix-total, ask, refactor",
            None,
        ),
    ],
)
def test_a_selection_of_what_is_not_there_is_refused(
    told: Told, wanted: SelectSpec, key: str | None, what: str, suggestion: str | None
) -> None:
    assert told(lambda: select(MISSIONS, wanted)) == [("spec.selection", None, key, what, suggestion)]


def test_all_that_is_wrong_with_a_selection_is_told(told: Told) -> None:
    wanted = SelectSpec(ids=["nope"], tags=["none", "nil"])
    assert [key for _, _, key, _, _ in told(lambda: select(MISSIONS, wanted))] == ["ids[0]", "tags[0]", "tags[1]"]


IDS = st.sampled_from([each.id for each in MISSIONS])
WANTED = st.builds(
    SelectSpec,
    ids=st.lists(IDS, max_size=2),
    globs=st.lists(st.sampled_from(["fix-*", "*", "ask", "?sk"]), max_size=2),
    tags=st.lists(st.sampled_from(["quick", "slow", "talk"]), max_size=2),
    range=st.sampled_from([None, "1", "2-4", "1-9"]),
)


@given(WANTED)
def test_what_is_selected_is_what_each_key_alone_selects(wanted: SelectSpec) -> None:
    alone = (
        SelectSpec(ids=wanted.ids),
        SelectSpec(globs=wanted.globs),
        SelectSpec(tags=wanted.tags),
        SelectSpec(range=wanted.range),
    )
    by_each = set.intersection(*({each.id for each in select(MISSIONS, one)} for one in alone))
    try:
        chosen = select(MISSIONS, wanted)
    except InputError:
        assert not by_each
    else:
        assert [each.id for each in chosen] == [each.id for each in MISSIONS if each.id in by_each] != []


SPEC = """\
version: 1
campaign: night
missions:
  - {id: a, prompt: A, script: say.yaml, tags: [quick]}
  - {id: b, prompt: B, script: say.yaml, tags: [quick]}
  - {id: c, prompt: C, script: say.yaml}
flows: [{id: native, runtime: [one]}]
select: {tags: [quick]}
"""


def test_what_is_asked_for_narrows_what_the_spec_selects(folder: Path, told: Told) -> None:
    path = write(folder, SPEC)
    loaded = load_spec(path)
    assert ([each.id for each in loaded.missions], loaded.overrides) == (["a", "b"], SpecOverrides())
    second = load_spec(path, overrides=SpecOverrides(select=SelectSpec(range="2")))
    assert ([each.id for each in second.missions], second.overrides.select) == (["b"], SelectSpec(range="2"))
    assert told(lambda: load_spec(path, overrides=SpecOverrides(select=SelectSpec(ids=["c"])))) == [
        ("spec.selection", None, "ids[0]", "no mission has the id `c`; the missions are: a, b", None)
    ]


def test_a_selection_in_the_spec_that_fits_nothing_is_told_with_its_line(folder: Path, told: Told) -> None:
    path = write(folder, SPEC.replace("select: {tags: [quick]}", "select:\n  tags: [quik]"))
    assert told(lambda: load_spec(path)) == [
        (
            "spec.selection",
            9,
            "select.tags[0]",
            "no mission has the tag `quik`; the tags are: quick",
            "Did you mean `quick`?",
        )
    ]
