"""Which variables and files hold secrets, and which only look so."""

from pathlib import Path

import pytest

from proctor.errors import InputError
from proctor.evidence.secrets import OUR_WORDS, Secret, find_secrets
from proctor.runtime.codex_app_server import RUNTIME

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
        "SMTP_PASS",
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


@pytest.mark.parametrize("word", ["commandExecution", "complete", "threadId", "account/rateLimits", "aggregatedOutput"])
def test_a_protocol_word_or_a_part_of_one_is_never_a_secret(word: str) -> None:
    assert find_secrets({"API_KEY": word}, declared=[], words=RUNTIME.protocol_words) == ()


@pytest.mark.parametrize("word", ["timed_out", "run.harness", "process.exited", "stream.ended", "redacted"])
def test_a_word_of_our_own_is_never_a_secret(word: str) -> None:
    assert word in OUR_WORDS
    assert find_secrets({"API_KEY": word}, declared=[]) == ()


def test_the_name_of_a_variable_or_a_part_of_an_id_is_never_a_secret() -> None:
    environ = {"KEY_NAME": "OPENAI_API_KEY", "OPENAI_API_KEY": VALUE, "APP_TOKEN": "greeting"}
    assert find_secrets(environ, declared=[], words=["fix-greeting"]) == (Secret(name="OPENAI_API_KEY", value=VALUE),)


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
        ({"PLAIN": "clock.fired"}, "spec.type", "word of the agent protocol"),
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


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (
            '{"OPENAI_API_KEY": null, "tokens": {"access_token": "at-012345", "account_id": "a-0123456"}}',
            ["access_token"],
        ),
        (
            '{"installed": {"client_secret": "cs-012345"}, "list": [{"refreshToken": "rt-012345"}]}',
            ["client_secret", "refreshToken"],
        ),
        ('{"agent_identity": "eyJhbGciOiJ.eyJhY2NvdW50.c2ln", "agent": "codex-0123"}', ["agent_identity"]),
        ("# keys\nexport DB_PASSWORD='pw-01234567'\nHOST=example.org\ntoken = tk-0123456", ["DB_PASSWORD", "token"]),
        ("-----BEGIN KEY-----\nMIIEvQIBADANBg\n-----END KEY-----\n", [""]),
    ],
    ids=["auth.json", "nested", "by shape", "env", "one secret"],
)
def test_a_credential_file_holds_secrets_under_names_like_one_or_is_one(
    tmp_path: Path, text: str, found: list[str]
) -> None:
    file = tmp_path / "creds"
    file.write_text(text)
    secrets = find_secrets({}, declared=[], files=[file])
    assert [secret.name for secret in secrets] == [f"creds:{name}".rstrip(":") for name in found]
    assert all(secret.value in text for secret in secrets)


@pytest.mark.parametrize("text", ["", "short", '{"name": "nothing secret"}', "HOST=example.org", '{"key": "threadId"}'])
def test_a_credential_file_without_a_secret_is_refused(tmp_path: Path, text: str) -> None:
    file = tmp_path / "creds"
    file.write_text(text)
    with pytest.raises(InputError, match="creds contains no secret that can be redacted") as caught:
        find_secrets({}, declared=[], files=[file], words=["threadId"])
    assert caught.value.code == "spec.type"


def test_a_secret_does_not_show_its_value() -> None:
    assert VALUE not in repr(Secret(name="A", value=VALUE))


def test_a_secret_too_short_to_redact_safely_cannot_be_made() -> None:
    with pytest.raises(ValueError, match="too short"):
        Secret(name="A", value="1234567")
