"""A known secret in other spellings than its own: encoded, escaped, quoted, wrapped; whole and in pieces."""

import base64
import json
import shlex
from collections.abc import Callable
from urllib.parse import quote, quote_plus

import msgspec
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from proctor.evidence.redact import Redactor, TextStream
from proctor.evidence.secrets import Secret
from proctor.evidence.spellings import forms
from proctor.spec.literal import MIN_SECRET_CHARS

VALUE = 'zk7/Qm+9 "päss"\\w0rd?>~'
SAID = TextStream(key="k", path=("delta",))


def without_ascii(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)[1:-1]


SPELLINGS: dict[str, Callable[[str], str]] = {
    "url": lambda value: quote(value, safe=""),
    "url with slashes": quote,
    "url in lower case": lambda value: quote(value.lower(), safe="").lower(),
    "form": quote_plus,
    "javascript": lambda value: quote(value, safe="!~*'()"),
    "json": lambda value: json.dumps(value)[1:-1],
    "json within json": lambda value: json.dumps(json.dumps(value)[1:-1])[1:-1],
    "json within json, not in ascii": lambda value: without_ascii(without_ascii(value)),
    "shell, double quotes": lambda value: value.replace("\\", "\\\\").replace('"', '\\"').replace("$", "\\$"),
}


def whole(text: str, value: str = VALUE) -> str:
    return Redactor([Secret(name="MINE", value=value)]).text(text).text


def in_pieces(pieces: list[str], value: str = VALUE) -> str:
    redactor = Redactor([Secret(name="MINE", value=value)])
    lines = redactor.lines([(msgspec.json.encode({"delta": piece}), SAID) for piece in pieces])
    rest = redactor.finish(SAID.key)
    return "".join(msgspec.json.decode(line.raw)["delta"] for line in lines) + (rest.text if rest else "")


@pytest.mark.requirement("evidence.redaction")
@pytest.mark.parametrize("spelling", sorted(SPELLINGS))
def test_a_secret_is_found_in_another_spelling_wherever_it_is_split(spelling: str) -> None:
    value = VALUE.lower() if "lower" in spelling else VALUE
    text = f"<{SPELLINGS[spelling](value)}>"
    assert whole(text, value) == "<[redacted:MINE]>"
    for at in range(len(text)):
        assert in_pieces([text[:at], text[at:]], value) == "<[redacted:MINE]>"


@pytest.mark.parametrize("quoting", [lambda text: text.replace("'", "'\\''"), lambda text: shlex.quote(text)[1:-1]])
def test_a_secret_is_found_between_the_single_quotes_of_a_shell(quoting: Callable[[str], str]) -> None:
    value = "it's-an-0dd'one"
    assert whole(f"'{quoting(value)}'", value) == "'[redacted:MINE]'"


def test_a_secret_is_found_in_the_escapes_of_yaml_and_of_source_code() -> None:
    assert "[redacted:MINE]" in whole(yaml.safe_dump({"k": VALUE}, width=200))
    assert whole('"zk7/Qm+9 \\"p\\xe4ss\\"\\\\w0rd?>~"') == '"[redacted:MINE]"'
    assert whole('"zk7/Qm+9 \\"p\\U000000E4ss\\"\\\\w0rd?>~"') == '"[redacted:MINE]"'


@pytest.mark.requirement("evidence.redaction")
@settings(deadline=None)
@given(
    value=st.text(st.characters(codec="utf-8", min_codepoint=33), min_size=MIN_SECRET_CHARS, max_size=30),
    before=st.binary(max_size=5),
    after=st.binary(max_size=5),
    is_url_safe=st.booleans(),
)
def test_base64_at_any_offset_tells_less_than_a_character_of_the_secret(
    value: str, before: bytes, after: bytes, is_url_safe: bool
) -> None:
    encode = base64.urlsafe_b64encode if is_url_safe else base64.b64encode
    coded = encode(before + value.encode() + after).decode()
    left = whole(f"<{coded}>", value)
    assert left.count("[redacted:MINE]") == 1
    start, _, end = left[1:-1].partition("[redacted:MINE]")
    # What stands on either side is of the neighbours, but for some bits of the characters in between.
    assert len(start) <= (len(before) * 8 + 5) // 6
    assert len(end) <= 4 * ((len(after) + 2) // 3) + 4


def pieces_of(value: str) -> list[str]:
    """What base64 of any offset has of it, eight characters at a time."""
    return [form[at : at + 8] for form in forms(value) for at in range(len(form) - 7)]


@pytest.mark.requirement("evidence.redaction")
@pytest.mark.parametrize("columns", [64, 76])
@pytest.mark.parametrize("line_end", ["\n", "\r\n", "\n+", "\n-", "\n ", "\n    ", "\\n", "\\\\n", "\\n\\\n    "])
def test_wrapped_base64_is_found_across_its_lines(columns: int, line_end: str) -> None:
    value = "zk7Qm9-correct-horse-battery"
    for lead in range(20, 2 * columns, 19):
        coded = base64.b64encode(b"x" * lead + value.encode() + b"y" * 90).decode()
        text = line_end.join(coded[at : at + columns] for at in range(0, len(coded), columns))
        left = whole(f"{text}{line_end}.", value)
        assert left.count("[redacted:MINE]") == 1
        assert not any(piece in left for piece in pieces_of(value))
        for at in range(0, len(text), 13):
            assert in_pieces([text[:at], text[at : at + 11], text[at + 11 :], f"{line_end}."], value) == left


def test_every_form_is_long_enough_to_be_no_accident() -> None:
    assert min(map(len, forms("12345678"))) == MIN_SECRET_CHARS
    assert len(set(forms("correct-horse"))) == 6, "a plain value has no other spellings than base64 and UTF-16"
