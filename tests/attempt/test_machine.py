"""The states of an attempt: every state has a row, and every way leads to an end."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proctor.attempt.machine import TABLE, Move, State, after
from proctor.errors import ProctorError

ENDS = {State.SEALED, State.ABANDONED}


@pytest.mark.requirement("attempt.states")
def test_every_state_has_a_row_and_only_ends_lead_nowhere() -> None:
    assert set(TABLE) == set(State)
    assert {state for state, moves in TABLE.items() if not moves} == ENDS


@pytest.mark.requirement("attempt.states")
def test_an_attempt_goes_through_all_states_in_their_order() -> None:
    state, seen = State.QUEUED, [State.QUEUED]
    for move in (Move.PREPARE, Move.START, Move.READY, Move.ASK, Move.STOP, Move.PROBE, Move.SEAL):
        state = after(state, move)
        seen.append(state)
    assert seen == [state for state in State if state is not State.ABANDONED]


@pytest.mark.requirement("attempt.states")
@pytest.mark.parametrize("state", [State.PREPARING, State.SESSION_STARTING, State.SESSION_READY, State.TURN_RUNNING])
def test_a_stop_at_any_point_leads_to_settling_and_a_seal(state: State) -> None:
    assert after(after(state, Move.STOP), Move.SEAL) is State.SEALED


@pytest.mark.parametrize("state", sorted(set(State) - ENDS))
@pytest.mark.requirement("attempt.states")
def test_an_attempt_whose_evidence_cannot_be_kept_is_abandoned_from_anywhere(state: State) -> None:
    assert after(state, Move.ABANDON) is State.ABANDONED


@given(st.sampled_from(State), st.sampled_from(Move))
def test_a_move_leads_on_or_is_refused(state: State, move: Move) -> None:
    if move in TABLE[state]:
        # The states are written down in the order they are gone through: nothing leads back.
        order = list(State)
        assert order.index(after(state, move)) > order.index(state)
    else:
        with pytest.raises(ProctorError) as refused:
            after(state, move)
        assert refused.value.code == "run.harness"
