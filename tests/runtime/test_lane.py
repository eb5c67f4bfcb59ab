"""Lanes: who may use which, and that `auto` never takes one that is not a default lane."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proctor.config.load import load_config
from proctor.config.model import Rollout, Setting
from proctor.errors import InputError
from proctor.ids import StrategyId
from proctor.runtime.lane import ROLLOUTS, Lane, Member, check_config, lane_of, spell_out
from proctor.spec.model import AUTO

IDS = [StrategyId(name) for name in ("a", "b", "c", "d")]


def lane(strategy: StrategyId, rollout: Rollout, *, is_enabled: bool = True) -> Lane:
    return Lane(
        strategy=strategy,
        is_enabled=Setting(value=is_enabled, source="proctor.toml:1"),
        rollout=Setting(value=rollout, source="proctor.toml:2"),
    )


lanes = st.lists(
    st.builds(lane, st.sampled_from(IDS), st.sampled_from(Rollout), is_enabled=st.booleans()),
    unique_by=lambda each: each.strategy,
)
chains = st.lists(st.sampled_from([*IDS, AUTO]), min_size=1)
claims = st.sets(st.sampled_from(IDS))


@pytest.mark.requirement("runtime.strategy.auto-is-honest")
@given(there=lanes, chain=chains, claimed=claims, default_lane=st.sampled_from(IDS))
def test_auto_takes_default_lanes_only_whatever_there_is(
    there: list[Lane], chain: list[StrategyId], claimed: set[StrategyId], default_lane: StrategyId
) -> None:
    spelled = spell_out(chain, lanes=there, claims=claimed.__contains__, default_lane=default_lane)
    ids = [member.strategy for member in spelled]
    free = {each.strategy for each in there if each.is_enabled.value and each.rollout.value is Rollout.DEFAULT}
    by_auto = [id_ for id_ in ids if id_ not in chain]
    assert set(by_auto) <= free
    assert len(set(ids)) == len(ids)
    assert set(chain) - {AUTO} <= set(ids)
    # In any other order of what is installed it comes to the same.
    assert spelled == spell_out(chain, lanes=there[::-1], claims=claimed.__contains__, default_lane=default_lane)


@pytest.mark.requirement("runtime.strategy.auto-is-honest")
@given(there=lanes, claimed=claims, default_lane=st.sampled_from(IDS))
def test_auto_alone_is_who_claims_the_model_then_the_others_and_the_named_one_where_nobody_does(
    there: list[Lane], claimed: set[StrategyId], default_lane: StrategyId
) -> None:
    spelled = spell_out([AUTO], lanes=there, claims=claimed.__contains__, default_lane=default_lane)
    free = sorted(each.strategy for each in there if each.is_open_to_auto)
    if not claimed.intersection(free):
        member = Member(strategy=default_lane, is_unclaimed=True) if default_lane in free else Member(strategy=AUTO)
        assert spelled == (member,)
        return
    ids = [member.strategy for member in spelled]
    assert sorted(ids) == free
    assert ids == sorted(ids, key=lambda id_: (id_ not in claimed, id_ != default_lane, id_))
    assert not any(member.is_unclaimed for member in spelled)


@pytest.mark.requirement("runtime.strategy.auto-is-honest")
@pytest.mark.parametrize("rollout", list(Rollout))
@pytest.mark.parametrize("is_enabled", [True, False])
def test_who_names_a_lane_may_use_it_unless_it_is_locked_or_switched_off(rollout: Rollout, is_enabled: bool) -> None:
    found = lane(IDS[0], rollout, is_enabled=is_enabled)
    if is_enabled and rollout is not Rollout.LOCKED:
        found.admit()
        return
    with pytest.raises(InputError) as refused:
        found.admit()
    error = refused.value
    assert (error.code, error.what) == (
        ("runtime.locked", "a is locked by proctor.toml:2")
        if is_enabled
        else ("runtime.disabled", "a is switched off by proctor.toml:1")
    )


def test_the_config_overrides_what_is_built_in_and_plugins_are_selectable(tmp_path: Path) -> None:
    built_in = load_config(tmp_path)
    codex, pi = StrategyId("codex_app_server"), StrategyId("pi")
    assert lane_of(codex, built_in).rollout == Setting(value=Rollout.DEFAULT, source="built in")
    assert lane_of(pi, built_in).rollout == Setting(value=Rollout.SELECTABLE, source="built in")
    assert [id_ for id_, rollout in ROLLOUTS.items() if rollout is Rollout.DEFAULT] == [codex]
    (tmp_path / "proctor.toml").write_text('plugins = ["pi"]\n[lanes]\ncodex_app_server.rollout = "locked"\n')
    fact = lane_of(codex, load_config(tmp_path)).rollout_fact()
    assert (fact.value, fact.source) == ({"state": "locked", "autoResolves": False}, "proctor.toml:3")


@pytest.mark.parametrize(
    ("text", "line", "key", "says"),
    [
        ("[lanes.codex_app_sever]\nenabled = false\n", 1, "lanes.codex_app_sever", "Did you mean `codex_app_server`?"),
        ('\ndefault_lane = "mine"\n', 2, "default_lane", "Name it under `plugins`"),
    ],
)
def test_a_lane_of_a_strategy_that_nobody_offers_is_a_fault(
    tmp_path: Path, text: str, line: int, key: str, says: str
) -> None:
    (tmp_path / "proctor.toml").write_text(text)
    with pytest.raises(InputError) as refused:
        check_config(load_config(tmp_path))
    error = refused.value
    assert (error.code, error.line, error.key) == ("spec.unknown-runtime", line, key)
    assert says in (error.suggestion or "")
    (tmp_path / "proctor.toml").write_text('plugins = ["mine", "codex_app_sever"]\n' + text)
    check_config(load_config(tmp_path))
