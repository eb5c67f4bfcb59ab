"""Where a login is looked for, and what is said where it is not."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from proctor.errors import InputError
from proctor.fact import Authority, Fact
from proctor.runtime.codex.account import ACCOUNT
from proctor.runtime.credential import NO_CREDENTIAL, Credential, find_credential
from proctor.spec.choices import Login, Profile


def find(login: Login, environ: dict[str, str] | None = None, **more: Any) -> Credential:
    asked = {"provider": "openai", "token": None, "account": ACCOUNT, "profile": Profile.FRESH, **more}
    return find_credential(login, environ=environ or {}, **asked)


@pytest.fixture
def home(tmp_path: Path) -> Path:
    home = tmp_path / ".codex"
    home.mkdir()
    (home / "auth.json").write_text(json.dumps({"OPENAI_API_KEY": "sk-0123456789"}))
    return home


def test_a_script_needs_none() -> None:
    assert find(Login.NONE) == NO_CREDENTIAL
    assert NO_CREDENTIAL.variables == {}


def test_a_key_comes_from_the_providers_variable() -> None:
    found = find(Login.API_KEY, {"MY_HOST_API_KEY": " key-value \n"}, provider="my-host")
    assert (found.source, found.variables) == ("variable MY_HOST_API_KEY", {"MY_HOST_API_KEY": "key-value"})


@pytest.mark.parametrize(("provider", "given_in"), [("openai", "CODEX_ACCESS_TOKEN"), ("my-host", "MINE")])
def test_a_token_goes_where_its_provider_is_shown_it(provider: str, given_in: str) -> None:
    assert find(Login.TOKEN, {"MINE": "token-value"}, provider=provider, token="MINE") == Credential(
        login=Login.TOKEN,
        source="variable MINE",
        source_variable="MINE",
        variable=given_in,
        value="token-value",
    )


@pytest.mark.requirement("runtime.credential")
def test_a_credential_is_told_by_name_and_its_value_nowhere() -> None:
    found = find(Login.TOKEN, {"MINE": "token-value"}, token="MINE")
    assert found.fact() == Fact(
        value={"login": "token", "from": "variable MINE", "givenIn": "CODEX_ACCESS_TOKEN"},
        authority=Authority.OBSERVED,
        source="the flow's login, as found before the run",
    )
    assert "token-value" not in repr(found)


@pytest.mark.parametrize("text", ["", " \n", "two words", '{"token": "x y"}'])
def test_a_file_that_is_not_one_token_is_refused_and_not_repeated(tmp_path: Path, text: str) -> None:
    file = tmp_path / "token"
    file.write_text(text)
    with pytest.raises(InputError, match="token must contain one token and nothing else"):
        find(Login.TOKEN, token=file)


def test_a_token_too_short_to_be_masked_is_refused(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("short")
    for token in ("MINE", tmp_path / "token"):
        with pytest.raises(InputError, match="fewer than 8 characters") as refused:
            find(Login.TOKEN, {"MINE": "short"}, token=token)
        assert refused.value.code == "policy.login"


def test_the_users_own_login_is_their_file_where_the_program_would_look(home: Path) -> None:
    mine = Credential(login=Login.INHERIT, source="file .codex/auth.json", file=home / "auth.json")
    elsewhere = replace(mine, source="file $CODEX_HOME/auth.json")
    assert find(Login.INHERIT, {"CODEX_HOME": str(home)}) == elsewhere
    assert find(Login.INHERIT, {"HOME": str(home.parent)}) == mine
    assert find(Login.INHERIT, {"HOME": "/nowhere", "CODEX_HOME": str(home)}) == elsewhere


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        (None, "FILE does not exist"),
        ("", "FILE cannot be read as a login: Expecting value: line 1 column 1 (char 0)"),
        ("[]", "FILE holds no credential"),
        ("{}", "FILE holds no credential"),
        ('{"OPENAI_API_KEY": null}', "FILE holds no credential"),
        ('{"tokens": {"access_token": "x"}}', "FILE holds no credential"),
    ],
)
def test_where_there_is_no_login_it_says_which_command_makes_one(home: Path, text: str | None, fault: str) -> None:
    (home / "auth.json").unlink()
    if text is not None:
        (home / "auth.json").write_text(text)
    with pytest.raises(InputError) as refused:
        find(Login.INHERIT, {"CODEX_HOME": str(home)})
    assert refused.value.code == "policy.login"
    assert "codex login" in str(refused.value.suggestion)
    assert refused.value.what == f"the user is not logged in: {fault.replace('FILE', str(home / 'auth.json'))}"


@pytest.mark.parametrize("text", [None, "{}"])
def test_a_keyring_may_hold_it_where_the_profile_is_the_users_own(home: Path, text: str | None) -> None:
    (home / "auth.json").unlink()
    if text is not None:
        (home / "auth.json").write_text(text)
    found = find(Login.INHERIT, {"CODEX_HOME": str(home)}, profile=Profile.MINE)
    assert found == Credential(login=Login.INHERIT, source="your own .codex")


@pytest.mark.parametrize(("provider", "account"), [("my-host", ACCOUNT), ("openai", None)])
def test_nobodys_login_is_shown_to_a_provider_it_is_not_for(home: Path, provider: str, account: Any) -> None:
    with pytest.raises(InputError, match=f"for {provider}"):
        find(Login.INHERIT, {"CODEX_HOME": str(home)}, provider=provider, account=account)


@pytest.mark.parametrize(("environ", "how"), [({}, "is not set"), ({"OPENAI_API_KEY": " "}, "is empty")])
def test_a_key_that_is_not_there_is_told_with_its_variable(environ: dict[str, str], how: str) -> None:
    with pytest.raises(InputError, match=f"OPENAI_API_KEY, which should hold the key, {how}") as refused:
        find(Login.API_KEY, environ)
    assert refused.value.suggestion == "Set it in the environment of Proctor: `export OPENAI_API_KEY=…`."
