"""Runtimes: who may use which, and that `auto` never takes one that is not a default runtime."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proctor.config.load import load_config
from proctor.config.model import RolloutRequirement, RolloutState, Setting
from proctor.errors import InputError
from proctor.ids import RuntimeId
from proctor.runtime.rollout import ROLLOUT_STATES, ChainMember, Rollout, check_config, rollout_of, spell_out
from proctor.spec.model import AUTO

IDS = [RuntimeId(name) for name in ("a", "b", "c", "d")]


def rollout_in(runtime_id: RuntimeId, state: RolloutState, *, is_enabled: bool = True) -> Rollout:
    return Rollout(
        runtime_id=runtime_id,
        is_enabled=Setting(value=is_enabled, source="proctor.toml:1"),
        state=Setting(value=state, source="proctor.toml:2"),
        requires=Setting(value=RolloutRequirement.DECLARED, source="built in"),
    )


rollouts = st.lists(
    st.builds(rollout_in, st.sampled_from(IDS), st.sampled_from(RolloutState), is_enabled=st.booleans()),
    unique_by=lambda each: each.runtime_id,
)
chains = st.lists(st.sampled_from([*IDS, AUTO]), min_size=1)
declares_model = st.sets(st.sampled_from(IDS))


@pytest.mark.requirement("runtime.strategy.auto-is-honest")
@given(there=rollouts, chain=chains, declared=declares_model, default_runtime=st.sampled_from(IDS))
def test_auto_takes_default_runtimes_only_whatever_there_is(
    there: list[Rollout], chain: list[RuntimeId], declared: set[RuntimeId], default_runtime: RuntimeId
) -> None:
    spelled = spell_out(chain, rollouts=there, declares_model=declared.__contains__, default_runtime=default_runtime)
    ids = [member.runtime_id for member in spelled]
    free = {each.runtime_id for each in there if each.is_enabled.value and each.state.value is RolloutState.DEFAULT}
    by_auto = [id_ for id_ in ids if id_ not in chain]
    assert set(by_auto) <= free
    assert len(set(ids)) == len(ids)
    assert set(chain) - {AUTO} <= set(ids)
    # In any other order of what is installed it comes to the same.
    assert spelled == spell_out(
        chain, rollouts=there[::-1], declares_model=declared.__contains__, default_runtime=default_runtime
    )


@pytest.mark.requirement("runtime.strategy.auto-is-honest")
@given(there=rollouts, declared=declares_model, default_runtime=st.sampled_from(IDS))
def test_auto_alone_is_who_claims_the_model_then_the_others_and_the_named_one_where_nobody_does(
    there: list[Rollout], declared: set[RuntimeId], default_runtime: RuntimeId
) -> None:
    spelled = spell_out([AUTO], rollouts=there, declares_model=declared.__contains__, default_runtime=default_runtime)
    free = sorted(each.runtime_id for each in there if each.is_open_to_auto)
    if not declared.intersection(free):
        member = (
            ChainMember(runtime_id=default_runtime, is_fallback=True)
            if default_runtime in free
            else ChainMember(runtime_id=AUTO)
        )
        assert spelled == (member,)
        return
    ids = [member.runtime_id for member in spelled]
    assert sorted(ids) == free
    assert ids == sorted(ids, key=lambda id_: (id_ not in declared, id_ != default_runtime, id_))
    assert not any(member.is_fallback for member in spelled)


@pytest.mark.requirement("runtime.strategy.auto-is-honest")
@pytest.mark.parametrize("state", list(RolloutState))
@pytest.mark.parametrize("is_enabled", [True, False])
def test_who_names_a_runtime_may_use_it_unless_it_is_locked_or_switched_off(
    state: RolloutState, is_enabled: bool
) -> None:
    found = rollout_in(IDS[0], state, is_enabled=is_enabled)
    if is_enabled and state is not RolloutState.LOCKED:
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
    codex, pi = RuntimeId("codex_app_server"), RuntimeId("pi")
    assert rollout_of(codex, built_in).state == Setting(value=RolloutState.DEFAULT, source="built in")
    assert rollout_of(pi, built_in).state == Setting(value=RolloutState.SELECTABLE, source="built in")
    assert [id_ for id_, state in ROLLOUT_STATES.items() if state is RolloutState.DEFAULT] == [codex]
    (tmp_path / "proctor.toml").write_text('plugins = ["pi"]\n[rollout]\ncodex_app_server.state = "locked"\n')
    fact = rollout_of(codex, load_config(tmp_path)).fact()
    locked = {"state": "locked", "autoResolves": False, "requires": "declared"}
    assert (fact.value, fact.source) == (locked, "proctor.toml:3")


@pytest.mark.parametrize(
    ("text", "line", "key", "says"),
    [
        (
            "[rollout.codex_app_sever]\nenabled = false\n",
            1,
            "rollout.codex_app_sever",
            "Did you mean `codex_app_server`?",
        ),
        ('\ndefault_runtime = "mine"\n', 2, "default_runtime", "Add it to `plugins`"),
    ],
)
def test_a_runtime_of_a_runtime_that_nobody_offers_is_a_fault(
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
