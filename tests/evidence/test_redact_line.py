"""Secrets in JSON lines, values and texts, in every spelling that is known."""

import json
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from proctor.evidence.redact import RedactedLine, RedactedText, Redactor, TextStream
from proctor.evidence.secrets import Secret

KEY = "zk-live-0123456789"
QUOTED = 'pass"word\\with/all\tof\nit'
UMLAUT = "pässwörd-漢字-😀"
NUMBER = "1234567890"
SECRETS = [
    Secret(name="KEY", value=KEY),
    Secret(name="QUOTED", value=QUOTED),
    Secret(name="UMLAUT", value=UMLAUT),
    Secret(name="NUMBER", value=NUMBER),
]


def redact(raw: str) -> RedactedLine:
    return Redactor(SECRETS).line(raw.encode())


def redacted(raw: str, *names: str) -> RedactedLine:
    return RedactedLine(raw=raw.encode(), names=names)


def all_escaped(value: Any) -> str:
    """JSON in which every character of every string is a \\u escape."""
    match value:
        case str():
            units = value.encode("utf-16-be")
            return '"' + "".join(f"\\u{units[i]:02x}{units[i + 1]:02X}" for i in range(0, len(units), 2)) + '"'
        case dict():
            return "{" + ",".join(f"{all_escaped(key)} : {all_escaped(item)}" for key, item in value.items()) + "}"
        case list():
            return "[" + " , ".join(map(all_escaped, value)) + "]"
        case _:
            return json.dumps(value)


SPELLINGS: dict[str, Callable[[Any], str]] = {
    "compact": lambda value: json.dumps(value, ensure_ascii=False, separators=(",", ":")),
    "ascii": json.dumps,
    "slashes": lambda value: json.dumps(value, ensure_ascii=False).replace("/", "\\/"),
    "indented": lambda value: json.dumps(value, indent=1),
    "all escaped": all_escaped,
}

texts = st.lists(
    st.one_of(st.sampled_from([KEY, QUOTED, UMLAUT, NUMBER, KEY[:-1], "method", "id"]), st.text(max_size=4)), max_size=3
).map("".join)
values = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.sampled_from([int(NUMBER), -int(NUMBER), 2**64]), texts),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.one_of(texts, st.sampled_from(["id", "type", "status", "method"])), inner, max_size=3)
    ),
    max_leaves=8,
)


@settings(deadline=None)
@given(value=values, spelling=st.sampled_from(sorted(SPELLINGS)))
@example(value={"id": NUMBER, "params": {"id": NUMBER, "type": KEY}}, spelling="all escaped")
def test_a_line_in_any_spelling_means_what_its_redacted_value_means(value: Any, spelling: str) -> None:
    raw = SPELLINGS[spelling](value).encode("utf-8", "surrogatepass")
    line = Redactor(SECRETS).line(raw)
    assert json.loads(line.raw) == Redactor(SECRETS).value(value)
    assert (line.raw == raw) == (line.names == ())


@settings(deadline=None)
@given(value=values, spelling=st.sampled_from(sorted(SPELLINGS)))
def test_a_line_without_a_secret_keeps_its_very_bytes(value: Any, spelling: str) -> None:
    raw = SPELLINGS[spelling](value).encode("utf-8", "surrogatepass")
    assert Redactor([Secret(name="ABSENT", value="ABSENT-42")]).line(raw) == RedactedLine(raw=raw)


# Long enough that not all leaves are looked at.
PADDING = json.dumps(["漢 \\ é", 1.5, {"no": None}] * 1000, ensure_ascii=False)


@pytest.mark.requirement("evidence.redaction")
@settings(deadline=None)
@given(value=values, spelling=st.sampled_from(sorted(SPELLINGS)))
@example(
    value={"api_token": 'ab"cdefgh1', "far": [0] * 40, "password": "a\nb and more", "out": KEY}, spelling="indented"
)
@example(value={"id": {"all": ["of it"]}, "type": {"id": "x"}}, spelling="all escaped")
def test_a_value_in_a_long_line_is_redacted_as_in_a_short_one(value: Any, spelling: str) -> None:
    redactor = Redactor(SECRETS, private=frozenset({("value", "id"), ("value", "type", "id")}))
    spelled = f'"value": {SPELLINGS[spelling](value)}'
    short, long = (
        redactor.line(raw.encode("utf-8", "surrogatepass"))
        for raw in (f"{{{spelled}}}", f'{{"before":{PADDING},{spelled},"after":{PADDING}}}')
    )
    padding = json.loads(PADDING)
    assert json.loads(long.raw) == {"before": padding, **json.loads(short.raw), "after": padding}
    assert long.names == short.names


def test_a_long_line_with_many_secrets_is_redacted_everywhere() -> None:
    raw = json.dumps({"texts": [f"{number} {KEY}" for number in range(2000)]})
    assert redact(raw) == redacted(raw.replace(KEY, "[redacted:KEY]"), "KEY")


@pytest.mark.requirement("evidence.redaction")
@pytest.mark.parametrize("secret", [KEY, QUOTED, UMLAUT], ids=["plain", "quoted", "umlaut"])
@pytest.mark.parametrize("spelling", sorted(SPELLINGS))
def test_a_secret_is_found_in_every_spelling_of_a_leaf_of_a_key_and_of_json_within_json(
    secret: str, spelling: str
) -> None:
    spell = SPELLINGS[spelling]
    line = redact(spell({"out": f"<{secret}>", secret: 1, "nested": spell([secret])}))
    name = {KEY: "KEY", QUOTED: "QUOTED", UMLAUT: "UMLAUT"}[secret]
    mask = f"[redacted:{name}]"
    assert json.loads(line.raw) == {
        "out": f"<{mask}>",
        mask: 1,
        "nested": spell([mask]) if spelling != "all escaped" else f'["{mask}"]',
    }
    assert line.names == (name,)


def test_all_bytes_around_a_changed_leaf_stay_as_they_were() -> None:
    raw = '{ "big":18446744073709551616 , "f":1.50e2,"e":"\\u00e9","e":"twice", "bad":"X", "a":[ 1,{} ,[]] }'
    assert redact(raw.replace("X", KEY)) == redacted(raw.replace("X", "[redacted:KEY]"), "KEY")


def test_a_secret_in_the_first_of_two_equal_keys_is_found() -> None:
    assert redact(f'{{"a":"{KEY}","a":"x"}}') == redacted('{"a":"[redacted:KEY]","a":"x"}', "KEY")


@pytest.mark.requirement("evidence.redaction")
@pytest.mark.parametrize("name", ["type", "status", "method", "id"])
def test_no_place_in_a_frame_is_a_hiding_place(name: str) -> None:
    raw = json.dumps({"params": {"item": {"arguments": {name: "%s"}}, name: "%s"}, name: "%s"})
    assert redact(raw.replace("%s", KEY)) == redacted(raw.replace("%s", "[redacted:KEY]"), "KEY")
    assert Redactor(SECRETS).value({name: KEY}) == {name: "[redacted:KEY]"}


def test_a_number_spelled_like_a_secret_becomes_its_placeholder_and_no_other_number_does() -> None:
    raw = f'{{"id":{NUMBER},"a":[{NUMBER},-{NUMBER},1{NUMBER},{NUMBER}.5],"b":"{NUMBER}"}}'
    mask = '"[redacted:NUMBER]"'
    expected = f'{{"id":{mask},"a":[{mask},{mask},1{NUMBER},{NUMBER}.5],"b":{mask}}}'
    assert redact(raw) == redacted(expected, "NUMBER")
    assert Redactor(SECRETS).value(json.loads(raw)) == json.loads(expected)


@pytest.mark.parametrize("spelling", ["aa/bb\\/cc/dd", "aa\\u002fbb/cc/dd", "aa/bb\\/cc\\/dd", "\\u0061a\\/bb/cc/dd"])
def test_a_secret_is_found_in_a_mixture_of_spellings(spelling: str) -> None:
    redactor = Redactor([Secret(name="SLASHED", value="aa/bb/cc/dd")])
    assert redactor.line(f'["{spelling}"]'.encode()) == redacted('["[redacted:SLASHED]"]', "SLASHED")


def test_a_control_character_may_be_spelled_in_any_way() -> None:
    redactor = Redactor([Secret(name="LINES", value="one\ntwo\nthree")])
    assert redactor.line(rb'["one\u000atwo\nthree"]') == redacted('["[redacted:LINES]"]', "LINES")


def test_json_within_json_is_still_json_after_its_odd_escapes_are_undone() -> None:
    line = redact(json.dumps({"out": f'{{"a":"\\u0022\\u000a\\u007a{KEY[1:]}"}}'}))
    assert json.loads(json.loads(line.raw)["out"]) == {"a": '"\n[redacted:KEY]'}


def test_names_are_told_once_each_in_order_of_appearance() -> None:
    assert redact(f'["{UMLAUT} {KEY} {UMLAUT}","{KEY}"]').names == ("UMLAUT", "KEY")


def test_a_secret_of_several_lines_is_found_line_by_line() -> None:
    pem = "-----BEGIN KEY-----\nMIIEvQIBADANBg\nkqhkiG9w0BAQEF\n-----END KEY-----"
    diff = "".join(f"+{line}\n" for line in pem.splitlines())
    redactor = Redactor([Secret(name="PEM", value=pem)])
    assert redactor.text(diff) == RedactedText(text="+[redacted:PEM]\n" * 4, names=("PEM",))
    assert redactor.text(f"<{pem}>") == RedactedText(text="<[redacted:PEM]>", names=("PEM",))


def test_overlapping_secrets_are_masked_as_a_whole() -> None:
    redactor = Redactor([Secret(name="A", value="abcd-1234"), Secret(name="B", value="1234-efgh")])
    assert redactor.text("abcd-1234-efgh") == RedactedText(text="[redacted:A][redacted:B]", names=("A", "B"))


def test_a_secret_that_repeats_one_character_does_not_multiply_a_long_run_of_it() -> None:
    redactor = Redactor([Secret(name="STARS", value="*" * 8)])
    assert redactor.text("*" * 1000 + "!") == RedactedText(text="[redacted:STARS]!", names=("STARS",))


def test_the_longer_of_two_secrets_with_one_beginning_is_named() -> None:
    redactor = Redactor([Secret(name="SHORT", value="abcdefgh"), Secret(name="LONG", value="abcdefgh-ijkl")])
    assert redactor.text("abcdefgh-ijkl abcdefgh").text == "[redacted:LONG] [redacted:SHORT]"


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        (b'{"a":NaN,"k":"%s"}', b'{"a":NaN,"k":"%s"}'),
        (rb'{"a":"\ud800","k":"%s"}', rb'{"a":"\ud800","k":"%s"}'),
        (b'{"a":"\xff","k":"%s"}', b'{"a":"\xff","k":"%s"}'),
        (b'{"cut":"%s', b'{"cut":"%s'),
        (b'panic "at %s', b'panic "at %s'),
        (b"[" * 5000 + b'"%s"' + b"]" * 5000, b"[" * 5000 + b'"%s"' + b"]" * 5000),
    ],
    ids=["nan", "lone surrogate", "no utf-8", "cut off", "no json", "too deep"],
)
@pytest.mark.parametrize("key", [KEY.encode(), b"".join(b"\\u%04x" % char for char in KEY.encode())])
def test_what_no_decoder_takes_is_redacted_as_text(raw: bytes, expected: bytes, key: bytes) -> None:
    line = Redactor(SECRETS).line(raw.replace(b"%s", key))
    assert line == RedactedLine(raw=expected.replace(b"%s", b"[redacted:KEY]"), names=("KEY",))


class Leaf(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    said_text: str
    status: str = "completed"
    unset: str | msgspec.UnsetType = msgspec.UNSET


class Tree(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    leaves: tuple[Leaf, ...]
    by_name: dict[str, Leaf]


def test_a_struct_is_redacted_field_by_field_and_stays_a_struct() -> None:
    tree = Tree(leaves=(Leaf(said_text=KEY),), by_name={KEY: Leaf(said_text="clean")})
    assert Redactor(SECRETS).value(tree) == Tree(
        leaves=(Leaf(said_text="[redacted:KEY]"),), by_name={"[redacted:KEY]": Leaf(said_text="clean")}
    )


@pytest.mark.parametrize("value", [b"bytes", {"set"}, object()])
def test_a_value_that_cannot_be_redacted_is_refused_rather_than_passed(value: object) -> None:
    with pytest.raises(TypeError, match="cannot redact"):
        Redactor(SECRETS).value({"a": [value]})


def test_a_number_too_large_to_spell_is_left_alone() -> None:
    assert Redactor(SECRETS).value({"n": 10**5000}) == {"n": 10**5000}


@settings(deadline=None)
@given(raw=st.binary(max_size=60), before=st.binary(max_size=30), after=st.binary(max_size=30))
def test_no_bytes_make_it_raise_and_no_bytes_around_a_secret_hide_it(raw: bytes, before: bytes, after: bytes) -> None:
    redactor = Redactor(SECRETS)
    assert redactor.line(raw).raw == raw
    assert KEY.encode() not in redactor.line(before + KEY.encode() + after).raw


@settings(deadline=None)
@given(text=st.text(alphabet='{}[]":,\\u007azk-live123456789 \n', max_size=40))
def test_no_near_json_makes_it_raise(text: str) -> None:
    redactor = Redactor(SECRETS)
    redactor.text(text)
    line = redactor.line(text.encode())
    assert KEY.encode() not in line.raw


def test_without_secrets_nothing_changes() -> None:
    redactor = Redactor([])
    assert redactor.line(rb'{"a":"\u0073"}') == RedactedLine(raw=rb'{"a":"\u0073"}')
    assert redactor.text("plain") == RedactedText(text="plain")


def test_redacted_lines_are_redacted_already() -> None:
    line = redact(json.dumps({"a": [KEY, QUOTED, UMLAUT, int(NUMBER)]}))
    assert Redactor(SECRETS).line(line.raw) == RedactedLine(raw=line.raw)
    assert msgspec.json.decode(line.raw) == {
        "a": ["[redacted:KEY]", "[redacted:QUOTED]", "[redacted:UMLAUT]", "[redacted:NUMBER]"]
    }


@pytest.mark.requirement("evidence.redaction")
def test_what_an_agent_puts_under_a_protocol_word_is_masked_like_anything_else() -> None:
    redactor = Redactor([Secret(name="KEY", value="zk-live-0123456789")])
    item = b'{"type":"mcpToolCall","arguments":{"type":"zk-live-0123456789"}}'
    raw = b'{"method":"item/completed","params":{"item":%b}}' % item
    masked = raw.replace(b"zk-live-0123456789", b"[redacted:KEY]")
    assert redactor.line(raw) == RedactedLine(raw=masked, names=("KEY",), carried=False)


# ── lines that come again ──


def test_a_line_that_comes_again_is_redacted_by_what_is_secret_now_and_by_its_stream() -> None:
    raw = f'{{"delta":"{KEY} {QUOTED[:4]}"}}'
    said = TextStream(key="said", path=("delta",))
    streaming = Redactor(SECRETS)
    assert redact(raw) == redacted('{"delta":"[redacted:KEY] pass"}', "KEY")
    assert redact(raw) == redacted('{"delta":"[redacted:KEY] pass"}', "KEY")
    assert streaming.line(raw.encode(), stream=said).raw == b'{"delta":"[redacted:KEY] "}'
    assert redact(raw) == redacted('{"delta":"[redacted:KEY] pass"}', "KEY")
    assert Redactor([Secret(name="OTHER", value=KEY)]).line(raw.encode()).names == ("OTHER",)
    private = Redactor(SECRETS, private=frozenset({("delta",)}))
    assert private.line(raw.encode()) == redacted('{"delta":"[redacted:account]"}', "account")


@given(st.lists(st.integers(0, 99), max_size=300))
def test_lines_come_out_the_same_however_many_came_between(numbers: list[int]) -> None:
    redactor = Redactor(SECRETS)
    for number in numbers:
        size = 20_000 if number % 7 == 0 else number
        raw = f'{{"n":{number},"of":"{"x" * size}","key":"{KEY}"}}'
        assert redactor.line(raw.encode()) == redacted(raw.replace(KEY, "[redacted:KEY]"), "KEY")
