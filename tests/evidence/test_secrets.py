"""Which variables are secrets, and which only look so."""

import pytest

from proctor.errors import InputError
from proctor.evidence.secrets import PROTOCOL_WORDS, Secret, find_secrets

VALUE = "s3cr3t-value"


@pytest.mark.parametrize(
    "name",
    [
        "OPENAI_API_KEY",
        "GITHUB_TOKEN",
        "github_token",
        "AWS_SECRET_ACCESS_KEY",
        "DB_PASSWORD",
        "DB_PASSWD",
        "PGPASSWORD",
        "REGISTRY_AUTH",
        "SERVICE_CREDENTIAL",
        "GOOGLE_CREDENTIALS",
        "SIGNING_PASSPHRASE",
        "SECRET",
        "KEY",
    ],
)
def test_a_variable_named_like_a_secret_is_one(name: str) -> None:
    assert find_secrets({name: VALUE}, declared=[]) == (Secret(name=name, value=VALUE),)


@pytest.mark.parametrize(
    "name",
    ["KEYBOARD", "AUTHOR", "GIT_AUTHOR_NAME", "MONKEY", "MAX_TOKENS", "TOKENIZERS_PARALLELISM", "SECRETARY", "PWD"],
)
def test_a_key_word_counts_only_as_a_whole_word(name: str) -> None:
    assert find_secrets({name: VALUE}, declared=[]) == ()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("SSH_AUTH_SOCK", "/run/user/1000/agent.sock"),
        ("TLS_KEY_FILE", "/etc/tls/key.pem"),
        ("TOKEN_PATH", "/var/run/secrets/token"),
        ("GOOGLE_APPLICATION_CREDENTIALS", "/srv/account.json"),
    ],
)
def test_the_place_of_a_secret_is_none(name: str, value: str) -> None:
    assert find_secrets({name: value}, declared=[]) == ()


def test_a_key_that_begins_with_a_slash_is_still_a_secret() -> None:
    assert find_secrets({"AWS_SECRET_ACCESS_KEY": "/abcDEF0123"}, declared=[]) == (
        Secret(name="AWS_SECRET_ACCESS_KEY", value="/abcDEF0123"),
    )


def test_a_short_value_is_passed_over() -> None:
    assert find_secrets({"API_KEY": "1234567", "OTHER_KEY": " 123456 \n"}, declared=[]) == ()


@pytest.mark.parametrize("word", [*sorted(w for w in PROTOCOL_WORDS if len(w) >= 8), "complete", "threadId"])
def test_a_protocol_word_or_a_part_of_one_is_never_a_secret(word: str) -> None:
    assert find_secrets({"API_KEY": word}, declared=[]) == ()


def test_one_value_under_two_names_is_one_secret_with_the_first_name() -> None:
    environ = {"FIRST_KEY": VALUE, "SECOND_KEY": VALUE, "PLAIN": VALUE}
    assert find_secrets(environ, declared=["PLAIN"]) == (Secret(name="FIRST_KEY", value=VALUE),)


def test_a_declared_variable_is_a_secret_whatever_its_name_and_value_look_like() -> None:
    environ = {"PLAIN": VALUE, "KEY_FILE": "/etc/tls/key.pem", "OTHER": "not a secret"}
    assert find_secrets(environ, declared=["PLAIN", "KEY_FILE"]) == (
        Secret(name="PLAIN", value=VALUE),
        Secret(name="KEY_FILE", value="/etc/tls/key.pem"),
    )


def test_white_space_around_a_value_is_no_part_of_it() -> None:
    assert find_secrets({"API_KEY": f" {VALUE}\n"}, declared=[]) == (Secret(name="API_KEY", value=VALUE),)


@pytest.mark.parametrize(
    ("environ", "code", "words"),
    [
        ({}, "spec.missing-key", "not set"),
        ({"PLAIN": "hunter2"}, "spec.type", "too short to redact safely"),
        ({"PLAIN": "       7"}, "spec.type", "too short to redact safely"),
        ({"PLAIN": "turn/completed"}, "spec.type", "word of the agent protocol"),
    ],
)
def test_a_declared_secret_that_cannot_be_redacted_is_refused_without_being_told(
    environ: dict[str, str], code: str, words: str
) -> None:
    with pytest.raises(InputError, match=words) as caught:
        find_secrets(environ, declared=["PLAIN"])
    assert (caught.value.code, caught.value.key) == (code, "secrets")
    assert "PLAIN" in caught.value.what
    assert all(value not in caught.value.what for value in environ.values())


def test_a_secret_does_not_show_its_value() -> None:
    assert VALUE not in repr(Secret(name="A", value=VALUE))


def test_a_secret_too_short_to_redact_safely_cannot_be_made() -> None:
    with pytest.raises(ValueError, match="too short"):
        Secret(name="A", value="1234567")
