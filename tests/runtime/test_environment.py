"""What an agent is handed of our environment: what is allowed or asked for, and never what is blocked."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proctor.errors import InputError
from proctor.fact import Authority
from proctor.runtime.environment import ALLOWED, Environment, agent_environment, why_blocked

BLOCKED = """
LD_PRELOAD LD_LIBRARY_PATH LD_AUDIT DYLD_INSERT_LIBRARIES PYTHONPATH PYTHONSTARTUP NODE_OPTIONS BASH_ENV ENV PERL5OPT
RUBYOPT JAVA_TOOL_OPTIONS BASH_FUNC_ls%% GIT_SSH_COMMAND GIT_DIR GIT_CONFIG_COUNT GIT_CONFIG_KEY_0 GIT_EXEC_PATH
GIT_ASKPASS AWS_ACCESS_KEY_ID AWS_SESSION_TOKEN AWS_PROFILE AZURE_CLIENT_SECRET GOOGLE_APPLICATION_CREDENTIALS
KUBECONFIG SSH_AUTH_SOCK OPENAI_API_KEY CODEX_API_KEY CODEX_ACCESS_TOKEN ANTHROPIC_API_KEY ANTHROPIC_AUTH_TOKEN
CLAUDE_CODE_OAUTH_TOKEN GEMINI_API_KEY HF_TOKEN HOME CODEX_HOME CLAUDE_CONFIG_DIR XDG_CONFIG_HOME PROCTOR_ATTEMPT
""".split()
names = st.sampled_from([*BLOCKED, *ALLOWED, "CI", "MODE", "GIT_AUTHOR_NAME"]) | st.from_regex(
    r"[A-Z_]{1,12}", fullmatch=True
)


@pytest.mark.requirement("runtime.env-policy")
def test_only_what_is_allowed_or_asked_for_is_handed_on_each_with_its_ground() -> None:
    mine = {"PATH": "/bin", "LANG": "C", "AWS_SECRET_ACCESS_KEY": "x", "CI": "1", "HTTPS_PROXY": "z"}
    handed = agent_environment(
        mine, env={"LANG": "de", "MODE": "fast"}, forward=["CI"], credential={"MY_API_KEY": "y"}, profile={"HOME": "/h"}
    )
    values = {"PATH": "/bin", "LANG": "de", "MODE": "fast", "CI": "1", "HOME": "/h", "MY_API_KEY": "y"}
    grounds = {
        "PATH": "allowed",
        "LANG": "env",
        "MODE": "env",
        "CI": "forward",
        "HOME": "profile",
        "MY_API_KEY": "login",
    }
    assert handed == Environment(values=values, grounds=grounds)


@pytest.mark.requirement("runtime.env-policy")
def test_names_and_grounds_are_on_record_and_no_value_is() -> None:
    handed = agent_environment({"PATH": "/secret/bin"}, env={"MODE": "fast"})
    fact = handed.fact()
    assert (fact.value, fact.authority) == ({"MODE": "env", "PATH": "allowed"}, Authority.OBSERVED)
    assert "fast" not in repr((handed, fact))


@pytest.mark.requirement("runtime.env-policy")
@pytest.mark.parametrize("name", BLOCKED)
@pytest.mark.parametrize("key", ["env", "forward"])
def test_a_blocked_variable_that_is_asked_for_is_refused(name: str, key: str) -> None:
    where, env, forward = (f"env.{name}", {name: "x"}, []) if key == "env" else ("forward[0]", {}, [name])
    with pytest.raises(InputError, match="is never passed to an agent") as refused:
        agent_environment({name: "x"}, env=env, forward=forward)
    assert (refused.value.code, refused.value.key) == ("policy.blocked-variable", where)


@pytest.mark.parametrize(
    "name", ["GIT_AUTHOR_NAME", "GIT_COMMITTER_EMAIL", "AWS_REGION", "CI", "GITHUB_TOKEN", "TMPDIR"]
)
def test_what_does_no_harm_may_be_asked_for(name: str) -> None:
    assert agent_environment({name: "x"}, env={}, forward=[name]).values == {name: "x"}


def test_the_login_of_another_flow_is_not_forwarded() -> None:
    with pytest.raises(InputError, match="only `login` passes on"):
        agent_environment({"MINE": "x"}, env={}, forward=["MINE"], logins={"MINE"})


def test_a_variable_that_is_not_set_cannot_be_forwarded() -> None:
    with pytest.raises(InputError, match="ABSENT is not set") as refused:
        agent_environment({"CI": "1"}, env={}, forward=["CI", "ABSENT"])
    assert (refused.value.code, refused.value.key) == ("policy.variable-unset", "forward[1]")


@given(mine=st.dictionaries(names, st.text()), env=st.dictionaries(names, st.text()), forward=st.lists(names))
def test_nothing_blocked_is_ever_handed_on_and_nothing_that_was_not_asked_for(
    mine: dict[str, str], env: dict[str, str], forward: list[str]
) -> None:
    try:
        handed = agent_environment(mine, env=env, forward=forward)
    except InputError:
        assert any(why_blocked(name) for name in (*env, *forward)) or not mine.keys() >= set(forward)
        return
    assert [name for name in handed.values if why_blocked(name)] == []
    assert handed.values.keys() == (mine.keys() & {*ALLOWED, *forward}) | env.keys() == handed.grounds.keys()
    assert {name: handed.values[name] for name in forward} == {name: mine[name] for name in forward}
