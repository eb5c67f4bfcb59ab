"""Words of command lines are those of `shlex`, and a shell around a command is removed."""

import shlex
from collections.abc import Callable, Iterable

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from proctor.event.command import bare_command, split_words


def words_or_none(split: Callable[[str], Iterable[str]], command: str) -> list[str] | None:
    try:
        return list(split(command))
    except ValueError:
        return None


@given(st.text(alphabet=" \t\n\x0b'\"\\\\ab-cé", max_size=20))
@example("bash -c 'a'\"'\"'b' \\\\")
def test_words_of_a_command_line_are_those_of_shlex(command: str) -> None:
    assert words_or_none(split_words, command) == words_or_none(shlex.split, command)


@given(st.text(max_size=20), st.sampled_from(["sh", "/bin/bash", "/opt/my zsh/zsh"]), st.sampled_from(["-c", "-lc"]))
def test_a_shell_around_any_command_is_removed(command: str, shell: str, flag: str) -> None:
    assert bare_command(shlex.join([shell, flag, command])) == command


@pytest.mark.parametrize("command", ["bash", "bash -c", "bash -c a b", "bash x.sh -c", "fish -c a", "'bash -c a", ""])
def test_any_other_command_stays_as_it_is(command: str) -> None:
    assert bare_command(command) == command
