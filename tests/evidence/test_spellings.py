"""The table of spellings in docs/explain/redaction.md is true: each is masked, or not masked, as it says."""

import base64
import codecs
import html
import json
import re
import shlex
from collections.abc import Callable
from itertools import cycle, pairwise
from pathlib import Path
from urllib.parse import quote, quote_plus

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proctor.evidence.redact import Redactor, TextStream
from proctor.evidence.secrets import Secret, find_secrets

PAGE = Path(__file__).parents[2] / "docs/explain/redaction.md"
VALUE = 'zk7/Qm+9 "pä\'ss"\\w0rd?>~'
PLAIN = "zk7-Qm9-correct-horse"
DIGITS = "81234567"
SAID = TextStream(key="k", path=("delta",))

Spell = Callable[[str], str]


def b64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def dumps(text: str) -> str:
    return json.dumps(text)[1:-1]


def octal_bytes(value: str) -> str:
    return "".join(f"\\{byte:03o}" for byte in value.encode())


def git_quoted(value: str) -> str:
    escaped = value.replace("\\", "\\\\").replace('"', '\\"')
    return "".join(char if char.isascii() else octal_bytes(char) for char in escaped)


def ls_quoted(value: str) -> str:
    quoted = value.replace("'", "'\\''")
    return "".join(char if char.isascii() else f"'$'{octal_bytes(char)}''" for char in quoted)


def cat_v(value: str) -> str:
    return "".join(chr(byte) if byte < 128 else f"M-{chr(byte - 128)}" for byte in value.encode())


def wrapped(value: str, columns: int) -> str:
    coded = b64(b"x" * 40 + value.encode() + b"y" * 40)
    return "\n".join(coded[at : at + columns] for at in range(0, len(coded), columns))


def every_other(one: Spell, value: str) -> str:
    return "".join(one(char) if is_coded else char for char, is_coded in zip(value, cycle([True, False]), strict=False))


def percent(char: str) -> str:
    return "".join(f"%{byte:02x}" if at % 2 else f"%{byte:02X}" for at, byte in enumerate(char.encode()))


# By the first column of the table: a value, and spellings of it.
SPELLINGS: dict[str, tuple[str, list[Spell]]] = {
    "the plain value, and each line of a value with several lines": (VALUE, [str]),
    "letters in upper, lower or mixed case": (
        VALUE,
        [
            str.upper,
            str.lower,
            str.swapcase,
            lambda value: every_other(lambda char: char.upper() if char.isascii() else char, value),
        ],
    ),
    "JSON-escaped once or twice, also in ASCII and with `\\/`": (
        VALUE,
        [dumps, lambda value: dumps(dumps(value)), lambda value: dumps(value).replace("/", "\\/")],
    ),
    "JSON within JSON within JSON": ('a"\\b-0123', [lambda value: dumps(dumps(dumps(value)))]),
    "quoted for a shell, also by `printf %q`": (
        VALUE,
        [
            lambda value: shlex.quote(value)[1:-1],
            lambda value: value.replace("'", "'\\''"),
            lambda value: re.sub(r"[^\w/+~=-]", r"\\\g<0>", value),
            lambda value: re.sub(r"[\"$`\\]", r"\\\g<0>", value),
        ],
    ),
    "Python's `repr` of a text or of bytes": (
        VALUE,
        [
            lambda value: repr(value)[1:-1],
            lambda value: ascii(value)[1:-1],
            lambda value: repr(value.encode())[2:-1],
            lambda value: repr(value.encode() + b"'\"")[2:-4],
        ],
    ),
    "`cat -v` and `cat -A`": (VALUE, [cat_v]),
    "a file name as git quotes it": (VALUE, [git_quoted]),
    "a file name as `ls`, `ls -b` or `ls -Q` quotes it": (
        VALUE,
        [ls_quoted, git_quoted, lambda value: git_quoted(value).replace('\\"', '"').replace(" ", "\\ ")],
    ),
    "escapes like `\\x73`, `\\u0073` and `\\U00000073`, for any of the characters": (
        PLAIN,
        [
            lambda value: "".join(f"\\x{ord(char):02x}" for char in value),
            lambda value: "".join(f"\\u{ord(char):04X}" for char in value),
            lambda value: every_other(lambda char: f"\\U{ord(char):08x}", value),
            lambda value: every_other(lambda char: f"\\x{ord(char):02X}", value),
        ],
    ),
    "escapes like `\\u{73}`": (
        PLAIN,
        [
            lambda value: "".join(f"\\u{{{ord(char):x}}}" for char in value),
            lambda value: every_other(lambda char: f"\\u{{{ord(char):04X}}}", value),
        ],
    ),
    "octal escapes like `\\163`": (VALUE.replace('"', ""), [octal_bytes, lambda v: every_other(octal_bytes, v)]),
    "URL-encoded in the four usual ways, with hexadecimal digits in any case": (
        VALUE,
        [
            lambda value: quote(value, safe=""),
            quote,
            quote_plus,
            lambda value: quote(value, safe="!~*'()"),
            lambda value: re.sub("%(.)(.)", lambda code: f"%{code[1].lower()}{code[2]}", quote(value)),
        ],
    ),
    "URL-encoded where it need not be: every character, or any of them": (
        VALUE,
        [lambda value: "".join(map(percent, value)), lambda value: every_other(percent, value)],
    ),
    "URL-encoded twice": (VALUE, [lambda value: quote(quote(value))]),
    "HTML entities": (VALUE, [html.escape]),
    "base64, in all three alignments and both alphabets": (
        VALUE,
        [
            lambda value: b64(value.encode()),
            lambda value: base64.urlsafe_b64encode(value.encode()).decode(),
            lambda value: b64(value.encode())[:-1].rstrip("="),
        ],
    ),
    "base64 in lines of 40 characters or more, with line ends that may be escaped, indented or marked by a diff": (
        VALUE,
        [lambda value: wrapped(value, 64), lambda value: wrapped(value, 64).replace("\n", "\\n")],
    ),
    "base64 in shorter lines": (VALUE, [lambda value: wrapped(value, 20)]),
    "base64 of base64": (PLAIN, [lambda value: b64(b64(value.encode()).encode())]),
    "UTF-16, in both byte orders": (
        PLAIN,
        [lambda value: value.encode("utf-16-le").decode(), lambda value: value.encode("utf-16-be").decode()],
    ),
    "base64 of UTF-16": (PLAIN, [lambda value: b64(value.encode("utf-16-le"))]),
    "a secret of digits as a JSON number, also with a point or an exponent": (
        DIGITS,
        [str, lambda value: f"{value}.0", lambda value: f"-{int(value) / 1e7}e7", lambda value: f"{int(value):.7E}"],
    ),
    "a secret of digits as a number with an exponent in other text": (DIGITS, [lambda value: f"{int(value):.7e}"]),
    "folded: a line break within the plain value": (PLAIN, [lambda value: f"{value[:9]}\n{value[9:]}"]),
    "hexadecimal, base32": (
        PLAIN,
        [lambda value: value.encode().hex(), lambda value: base64.b32encode(value.encode()).decode()],
    ),
}


def rows() -> dict[str, tuple[str, str]]:
    """The table of the page."""
    page = PAGE.read_text().partition("| spelling | in one text |")[2].partition("\n\n")[0]
    cells = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in page.splitlines()[2:]]
    return {cell[0]: (cell[1], cell[2].rstrip(" |")) for cell in cells}


ROWS = rows()
CASES = [
    pytest.param(value, spell, *ROWS.get(name, ("", "")), id=f"{name}-{at}")
    for name, (value, spells) in SPELLINGS.items()
    for at, spell in enumerate(spells)
]


def in_pieces(pieces: list[str], value: str) -> str:
    redactor = Redactor([Secret(name="MINE", value=value)])
    lines = redactor.lines([(msgspec.json.encode({"delta": piece}), SAID) for piece in pieces])
    rest = redactor.finish(SAID.key)
    return "".join(msgspec.json.decode(line.raw)["delta"] for line in lines) + (rest.text if rest else "")


@pytest.mark.requirement("evidence.redaction")
def test_page_lists_every_spelling_that_is_tested() -> None:
    assert list(ROWS) == list(SPELLINGS)


@pytest.mark.requirement("evidence.redaction")
@pytest.mark.parametrize(("value", "spell", "in_one_text", "over_chunks"), CASES)
def test_spelling_is_masked_exactly_if_the_page_says_so(
    value: str, spell: Spell, in_one_text: str, over_chunks: str
) -> None:
    redactor = Redactor([Secret(name="MINE", value=value)])
    if over_chunks == "–":
        raw = redactor.line(f'{{"number": {spell(value)}}}'.encode()).raw
        assert raw == b'{"number": "[redacted:MINE]"}'
        return
    text = f"<{spell(value)}>"
    masked = redactor.text(text).text
    assert redactor.text(masked).text == masked
    assert ("[redacted:MINE]" in masked) == (in_one_text == "yes")
    if in_one_text == "no":
        assert masked == text
    pieces_masked = [in_pieces([text[:at], text[at:]], value) == masked for at in range(1, len(text))]
    letters = [in_pieces(list(text), value) == masked]
    assert all(pieces_masked + letters) == (over_chunks == "yes" or in_one_text == "no")


@settings(deadline=None)
@given(
    chars=st.lists(st.sampled_from(PLAIN + "zk7%\\x4u{}0136 é"), max_size=12),
    at=st.integers(0, 12),
    codes=st.lists(st.integers(0, 6), min_size=len(PLAIN), max_size=len(PLAIN)),
    cuts=st.lists(st.integers(0, 200), max_size=8),
)
def test_any_mix_of_escapes_is_masked_wherever_it_is_split(
    chars: list[str], at: int, codes: list[int], cuts: list[int]
) -> None:
    escapes: list[Spell] = [
        str,
        str.swapcase,
        lambda char: f"\\x{ord(char):02x}",
        lambda char: f"\\{ord(char):03o}",
        lambda char: f"\\u{{{ord(char):x}}}",
        lambda char: f"\\u{ord(char):04x}",
        lambda char: f"%{ord(char):02X}",
    ]
    spelled = "".join(escapes[code](char) for char, code in zip(PLAIN, codes, strict=True))
    # A space before it, because a backslash or `%4` there could make an escape of its beginning.
    text = f"{''.join(chars[:at])} {spelled} {''.join(chars[at:])}."
    whole = Redactor([Secret(name="MINE", value=PLAIN)]).text(text).text
    assert whole == text.replace(spelled, "[redacted:MINE]")
    edges = [0, *sorted(cut % (len(text) + 1) for cut in cuts), len(text)]
    assert in_pieces([text[a:b] for a, b in pairwise(edges)], PLAIN) == whole


def test_text_around_an_escaped_secret_keeps_its_own_escapes() -> None:
    redactor = Redactor([Secret(name="MINE", value=PLAIN)])
    coded = "".join(f"\\x{ord(char):02x}" for char in PLAIN)
    assert redactor.text(f"\\x61 {coded} %41\\101").text == "\\x61 [redacted:MINE] %41\\101"


@pytest.mark.parametrize("number", ["8123456", "81234567.5", "812345671", "8.1234567e8"])
def test_another_number_than_the_secret_is_kept(number: str) -> None:
    raw = f'{{"number": {number}}}'.encode()
    assert Redactor([Secret(name="MINE", value=DIGITS)]).line(raw).raw == raw


@pytest.mark.parametrize("value", ["00000000", "00001234", "1" * 400])
def test_digits_that_make_no_telling_number_are_masked_only_as_text(value: str) -> None:
    redactor = Redactor([Secret(name="MINE", value=value)])
    assert redactor.line(b"[0, 0.0, 1234, 1e999]").raw == b"[0, 0.0, 1234, 1e999]"
    assert redactor.text(f"<{value}>").text == "<[redacted:MINE]>"


@pytest.mark.parametrize("value", ["12000000", "12345678901234567890"])
def test_rounded_and_shortened_numbers_are_masked(value: str) -> None:
    raw = Redactor([Secret(name="MINE", value=value)]).line(f"[{float(value):g}, {float(value)!r}]".encode()).raw
    assert raw.count(b"[redacted:MINE]") == (2 if value == "12000000" else 1)


def test_value_that_is_a_reserved_word_in_another_case_is_masked_in_its_own_case() -> None:
    [secret] = find_secrets({"POSTGRES_PASSWORD": "postgres"}, declared=[])
    redactor = Redactor([secret])
    assert redactor.text("postgres, POSTGRES_PASSWORD").text == "[redacted:POSTGRES_PASSWORD], POSTGRES_PASSWORD"
    assert redactor.text(f"<{b64(b'postgres')}>").text == "<[redacted:POSTGRES_PASSWORD]>"


def test_utf16_with_a_byte_order_mark_is_masked_in_a_line_of_bytes() -> None:
    redactor = Redactor([Secret(name="MINE", value=VALUE)])
    for order in ("utf-16-le", "utf-16-be"):
        raw = codecs.BOM_UTF16_LE + VALUE.encode(order)
        assert b"[redacted:MINE]" in redactor.line(raw).raw
