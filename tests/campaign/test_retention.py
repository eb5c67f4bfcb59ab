"""What retention lets go of: never what has a reason to stay, and of the rest the oldest."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proctor.campaign.retention import GcUnit, RetentionRule, decide

NOW_MS = 10_000_000

units = st.lists(
    st.builds(
        GcUnit,
        kind=st.just("campaign"),
        name=st.text("abc", min_size=1, max_size=3),
        folders=st.just((Path("x"),)),
        touched_at_ms=st.integers(0, NOW_MS),
        size_bytes=st.integers(0, 100),
        stays=st.none() | st.just("pinned"),
    ),
    max_size=8,
    unique_by=lambda unit: unit.name,
)
limits = st.none() | st.integers(0, 12_000)


@pytest.mark.requirement("ops.gc")
@given(units, limits, st.none() | st.integers(0, 500))
def test_what_stays_is_what_must_what_is_young_and_what_there_is_room_for(
    all_units: list[GcUnit], older_than_s: int | None, larger_than_bytes: int | None
) -> None:
    fates = decide(
        all_units, RetentionRule(older_than_s=older_than_s, larger_than_bytes=larger_than_bytes), now_ms=NOW_MS
    )
    assert sorted(map(id, all_units)) == sorted(id(fate.unit) for fate in fates), "each has one fate"
    gone = [fate.unit for fate in fates if fate.is_deleted]
    free = [fate.unit for fate in fates if not fate.is_deleted and fate.unit.stays is None]
    assert all(unit.stays is None for unit in gone)
    old = [unit for unit in all_units if older_than_s is not None and NOW_MS - unit.touched_at_ms > older_than_s * 1000]
    assert all(unit in gone for unit in old if unit.stays is None)
    if larger_than_bytes is None:
        assert all(unit in old for unit in gone)
        return
    kept_bytes = sum(fate.unit.size_bytes for fate in fates if not fate.is_deleted)
    assert kept_bytes <= larger_than_bytes or not free, "as much went as was needed, if it was to be had"
    for_room = [unit for unit in gone if unit not in old]
    assert all(one.touched_at_ms <= other.touched_at_ms for one in for_room for other in free), "the oldest went"
    if for_room:
        last = for_room[-1]  # they come in the order in which they went
        assert kept_bytes + last.size_bytes > larger_than_bytes, "no more went than was needed"


def test_without_a_limit_nothing_goes() -> None:
    unit = GcUnit(kind="run", name="a", folders=(), touched_at_ms=0, size_bytes=10**12)
    [fate] = decide([unit], RetentionRule(older_than_s=None, larger_than_bytes=None), now_ms=NOW_MS)
    assert (fate.is_deleted, fate.why) == (False, "within the limits")


def test_what_went_for_its_age_makes_room() -> None:
    old, young = (
        GcUnit(kind="run", name=name, folders=(), touched_at_ms=touched_at_ms, size_bytes=60)
        for name, touched_at_ms in (("old", 0), ("young", NOW_MS))
    )
    fates = decide([young, old], RetentionRule(older_than_s=1, larger_than_bytes=100), now_ms=NOW_MS)
    assert [(fate.unit.name, fate.is_deleted) for fate in fates] == [("old", True), ("young", False)]
