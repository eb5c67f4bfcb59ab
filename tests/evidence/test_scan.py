"""Tokens that nobody declared: found by their shape, whole and in pieces, and nothing else is taken for one."""

import json
from itertools import pairwise

import msgspec
import pytest

from proctor.evidence.redact import RedactedLine, RedactedText, Redactor, TextStream
from proctor.evidence.scan import BOUND_CHARS
from proctor.evidence.secrets import Secret

STREAM = TextStream(key="k", path=("delta",))
JWT = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NSJ9.dozjgNryP4J3jVmNHl0w5N"
PEM_BODY = "MIIEvQIBADANBgkqhkiG9w0BAQEFAASCBKcwggSjAgEAAoIBAQC7VJTUt9Us8cKj\nMzEfYyjiWA4R4/M2bS1GB4t7NXp98C3S\nC4dVg="
A, B = "b2F8s0dXk1q9Zr7LmN3p", "Qw4e5R6t7Y8u9I0oPa1s"

# Before the secret part, the secret part, after it, and the kind.
TOKENS = [
    ("key sk-", A + B, " ok", "sk"),
    ("sk-", f"proj-{A}_{B}-{A}", ".", "sk"),
    ("sk-", f"ant-api03-{A}-{B}", "\n", "sk"),
    ("x=ghp_", "a" * 16 + A, ",", "github"),
    ("gho_", A + B, "", "github"),
    ("ghs_", A + B, "", "github"),
    ("ghu_", A + B, "", "github"),
    ("github_pat_", f"11ABCDEFG0{A}_{B}", " ", "github"),
    ("glpat-", A, " ", "gitlab"),
    ("AIza", f"SyD-{A}{B}", "&x", "google"),
    *((f"xox{letter}-", f"123456789012-{A}", ")", "slack") for letter in "abprs"),
    ("AKIA", "IOSFODNN7EXAMPLE", " ", "aws"),
    ("ASIA", "Y34FZKBOKMUTVV7A", " ", "aws"),
    ("http://127.0.0.1:40001/a/fix.codex.r1.1/proctor_model_", f"{A}_-{B}", "/v1/responses", "model"),
    ("token is eyJ", JWT[3:], " ", "jwt"),
    ("-----BEGIN RSA PRIVATE KEY-----", f"\n{PEM_BODY}", "\n-----END RSA PRIVATE KEY-----\nthen words", "private-key"),
    ("-----BEGIN PRIVATE KEY-----", f"\\n{PEM_BODY}".replace("\n", "\\n"), "\\n-----END", "private-key"),
    ("+-----BEGIN PRIVATE KEY-----", f"\n+{PEM_BODY}".replace("\n", "\n+"), "\n+-----END", "private-key"),
    ("Authorization: Bearer ", A, "\r\n", "bearer"),
    ("curl -H 'authorization: bearer ", f"{A}.{B}", "'", "bearer"),
    ("Authorization: Basic ", "dXNlcjpwYXNzd29yZA==", "\n", "basic"),
    ("postgres://app:", "s3cr-t", "@db:5432/app", "url"),
    ("password=", "hunter2hunter2", " next", "key"),
    ("DB_PASSWORD=", "c0rrect/horse!", "\n", "key"),
    ('{"password": "', "correct-horse", '"}', "password"),
    ('{\\"password\\": \\"', "correct-horse", '\\"}', "password"),
    ("'api_key' => '", A, "'", "key"),
    ("client_secret: ", A, "\n", "key"),
    ("?access_token=", A, "&page=2", "key"),
    ("AWS_SECRET_ACCESS_KEY=", "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY1", "\n", "key"),
]
INNOCENT = [
    "commit aa94e98f0c1b2d3e4f5a6b7c8d9e0f1a2b3c4d5e by hand",
    "01a1e157-8ea8-7fc2-ab7d-ce84157aac33 and 550e8400-e29b-41d4-a716-446655440000",
    "sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
    "msg_39b12504_1_1 call_0a1b2c3d4e5f6a7b8c9d0e1f resp_68d1f0a2b3c4d5e6f7a8b9c0d1e2f3a4",
    "The risk-averse disk-0123456789abcdefghij task-0123456789abcdefghijklmnop desk-sharing desk-sk",
    "sk-learn-compatible-estimators-with-long-names and sk-estimator-doc-link",
    "He was the bearer of bad news; a bearer token is sent as `Authorization: Bearer <token>`.",
    "Bearer authentication-with-very-long-words",
    "Set the password: it must have 8 characters. The token: a word. Secret: understanding.",
    "tokens: 1785, max_tokens=100000, tokenizer=cl100k_base, token_count: 12345678",
    'password: str | None = None\npassword = get_password(user1, "x")\ntoken = request.headers["X-Token-1"]',
    'api_key=os.environ["OPENAI_API_KEY2"] secret=${SECRET_KEY_2} password=$PASSWORD1 token=<your-token-1>',
    "if password == other_password1: pass  # token::Kind2Punctuated",
    "http://localhost:8080/path https://example.org:443/a@b git@github.com:org/repo.git user@example.org",
    "ASIAN cuisine in ASIA; AKIA is a name; AIza too; eyJust a word; xoxo-love",
    "-----BEGIN PRIVATE KEY----- is how such a file begins, and -----END PRIVATE KEY----- how it ends",
    "-----BEGIN CERTIFICATE-----\nMIIEvQIBADANBgkqhkiG9w0BAQEFAASCBKcwggSjAgEA\n-----END CERTIFICATE-----",
    "-----BEGIN PUBLIC KEY-----\nMIIBIjANBgkqhkiG9w0BAQEFAAOCAQ8AMIIBCgKCAQEA\n-----END PUBLIC KEY-----",
    "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJ0123456789abcdefghijklmnopqrstuv me@host",
    'integrity="sha384-oqVuAfXRKap7fdgcCY5uykM6+R9GqQ8K/uxy9rx7HNQlGYl1kPzQho1wx4JXW8Bc"',
    '<input type="password" name="password" placeholder="Your password here">',
    "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==",
    '{"tokenUsage":{"total":{"totalTokens":1785,"inputTokens":1753}},"keys":["threadId"],"keyboard":"qwertyuiop1"}',
]


def redactor() -> Redactor:
    return Redactor([])


def said(pieces: list[str]) -> str:
    """What is left on record of a text that comes in these pieces."""
    one, out = redactor(), ""
    for piece in pieces:
        line = one.line(msgspec.json.encode({"delta": piece}), stream=STREAM)
        out += msgspec.json.decode(line.raw)["delta"]
    rest = one.finish(STREAM.key)
    return out + (rest.text if rest else "")


@pytest.mark.requirement("evidence.redaction")
@pytest.mark.parametrize(("before", "secret", "after", "kind"), TOKENS)
def test_a_token_is_masked_up_to_its_end_and_what_leads_up_to_it_stays(
    before: str, secret: str, after: str, kind: str
) -> None:
    mask = f"[redacted:scan:{kind}]"
    assert redactor().text(before + secret + after) == RedactedText(text=before + mask + after, names=(f"scan:{kind}",))
    # Decoded first: it does not matter how the JSON is spelled.
    line = redactor().line(json.dumps({"out": before + secret + after}).encode())
    assert json.loads(line.raw) == {"out": before + mask + after}
    assert redactor().line(line.raw) == RedactedLine(raw=line.raw), "what is redacted stays as it is"


@pytest.mark.requirement("evidence.redaction")
@pytest.mark.parametrize(("before", "secret", "after", "kind"), TOKENS)
def test_a_token_split_anywhere_leaves_the_same_record(before: str, secret: str, after: str, kind: str) -> None:
    text = f"the end of a sentence. {before}{secret}{after}"
    whole = redactor().text(text).text
    assert f"[redacted:scan:{kind}]" in whole
    for at in range(len(text)):
        assert said([text[:at], text[at:]]) == whole
    for width in (1, 2, 3, 7):
        assert said([text[at : at + width] for at in range(0, len(text), width)]) == whole


@pytest.mark.parametrize("text", INNOCENT)
def test_what_only_looks_a_little_like_a_token_is_left_alone(text: str) -> None:
    assert redactor().text(text) == RedactedText(text=text)
    assert said(list(text)) == text
    raw = json.dumps({"out": text}, ensure_ascii=False).encode()
    assert redactor().line(raw).raw is raw


def test_ordinary_words_are_given_out_as_they_come() -> None:
    one = redactor()
    for word in ("A", " k", "ey", " is", " a", " thing", " of", " s", "k", "-", " or", ":", " pass", "word"):
        raw = msgspec.json.encode({"delta": word})
        assert one.line(raw, stream=STREAM).raw is raw


@pytest.mark.parametrize("key", ["password", "DB_PASSWORD", "apiKey", "client_secret", "accessToken", "private-key"])
def test_a_value_is_secret_because_of_its_key(key: str) -> None:
    kind = "password" if "password" in key.lower() else "key"
    value = {"args": {key: "3fa9c2d17b"}, "many": [{key: "3fa9c2d17b"}]}
    mask = f"[redacted:scan:{kind}]"
    masked = {"args": {key: mask}, "many": [{key: mask}]}
    line = redactor().line(json.dumps(value).encode())
    assert (json.loads(line.raw), line.names) == (masked, (f"scan:{kind}",))
    assert redactor().value(value) == masked


@pytest.mark.parametrize(
    "value",
    [
        {"tokens": "3fa9c2d17b", "keys": "3fa9c2d17b", "tokenUsage": {"total": 12345678}},
        {"token": "identifier", "token2": "3fa9c2d17b", "secret": "in plain words 1"},
        {"password": "short", "token": None, "apiKey": 12345678, "isSecret": True},
        {"password": "[redacted:MINE]"},
    ],
)
def test_a_key_alone_makes_no_secret(value: dict[str, object]) -> None:
    raw = json.dumps(value).encode()
    assert redactor().line(raw).raw is raw
    assert redactor().value(value) == value


def test_a_known_secret_keeps_its_name_and_what_a_token_has_beyond_it_is_masked_too() -> None:
    known = Redactor([Secret(name="MINE", value=f"sk-{A}")])
    assert known.text(f"sk-{A} sk-{A}{B}").text == "[redacted:MINE] [redacted:MINE][redacted:scan:sk]"
    assert known.value({"api_key": f"sk-{A}"}) == {"api_key": "[redacted:MINE]"}


@pytest.mark.parametrize("width", [1000, 5000, 100_000])
def test_a_token_without_an_end_is_masked_at_the_bound_and_on_to_its_end(width: int) -> None:
    text = "go sk-" + "a" * (3 * BOUND_CHARS) + ", done."
    pieces = [text[a:b] for a, b in pairwise([*range(0, len(text), width), len(text)])]
    assert said(pieces) == "go sk-[redacted:scan:sk], done." == redactor().text(text).text


def test_no_more_than_the_bound_is_held_back() -> None:
    one = redactor()
    out = [one.line(msgspec.json.encode({"delta": piece}), stream=STREAM).raw for piece in ["sk-", *["x" * 200] * 50]]
    spoken = [msgspec.json.decode(raw)["delta"] for raw in out]
    assert [(at, text) for at, text in enumerate(spoken) if text] == [
        (0, "sk-"),
        (-(-BOUND_CHARS // 200), "[redacted:scan:sk]"),
    ]
    assert one.finish(STREAM.key) is None
