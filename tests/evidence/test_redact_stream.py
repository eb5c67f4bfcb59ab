"""Secrets in texts that come in pieces: the pieces leak nothing, and together say what the redacted whole says."""

import json
import random
from collections.abc import Sequence
from itertools import pairwise

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proctor.evidence.redact import RedactedLine, RedactedText, Redactor, TextStream
from proctor.evidence.secrets import Secret

KEY = Secret(name="KEY", value="zk-live-0123456789")
SAID = TextStream(key="thread/item/agentMessage", path=("params", "delta"))


def frame(text: str, *, stream: str = "i") -> bytes:
    return msgspec.json.encode({"method": "item/delta", "params": {"itemId": stream, "delta": text}, "at": 1})


def delta(line: RedactedLine) -> str:
    text = msgspec.json.decode(line.raw)["params"]["delta"]
    assert isinstance(text, str)
    return text


def said(redactor: Redactor, pieces: Sequence[str], *, key: str = "k") -> str:
    stream = TextStream(key=key, path=("params", "delta"))
    lines = [redactor.line(frame(piece), stream=stream) for piece in pieces]
    for piece, line in zip(pieces, lines, strict=True):
        assert (line.raw != frame(piece)) == (line.names != () or line.carried), "every change is stated"
    rest = redactor.finish(key)
    return "".join(map(delta, lines)) + (rest.text if rest else "")


def expected(text: str, values: dict[str, str]) -> str:
    """The law, spelled out position by position: all that a secret covers is masked, and so is a telling tail."""
    tails = [at for at in range(len(text)) if any(v.startswith(text[at:]) and v != text[at:] for v in values)]
    end = tails[0] if tails and len(text) - tails[0] >= 6 and text[tails[0] :] not in values else len(text)
    out, reach, last = "", 0, ""
    for at in range(end):
        longest = max((v for v in values if text.startswith(v, at)), key=len, default="")
        if longest and at + len(longest) > reach:
            if at >= reach or values[longest] != last:
                out += f"[redacted:{values[longest]}]"
            reach, last = at + len(longest), values[longest]
        if at >= reach:
            out += text[at]
    if max(reach, end) < len(text):
        name = values[min(value for value in values if value.startswith(text[end:]))]
        out += f"[redacted:{name}]" if end >= reach or name != last else ""
    return out


def cut(text: str, places: Sequence[int]) -> list[str]:
    edges = [0, *sorted(place % (len(text) + 1) for place in places), len(text)]
    return [text[a:b] for a, b in pairwise(edges)]


# Two letters and short values: needles that are prefixes, suffixes and parts of each other come up all the time.
dense = st.lists(st.text("ab", min_size=8, max_size=11), min_size=1, max_size=4, unique=True)


@settings(deadline=None)
@given(values=dense, data=st.data())
def test_the_pieces_together_say_what_the_redacted_whole_says(values: list[str], data: st.DataObject) -> None:
    names = {value: f"S{index}" for index, value in enumerate(values)}
    text = data.draw(st.lists(st.sampled_from([*values, "a", "b", ".", values[0][:7]]), max_size=6).map("".join))
    pieces = cut(text, data.draw(st.lists(st.integers(0, 80), max_size=8)))
    redactor = Redactor([Secret(name=name, value=value) for value, name in names.items()])
    assert said(redactor, pieces) == expected(text, names)
    assert redactor.text(f"{text}.").text == expected(f"{text}.", names)
    assert redactor.open_streams() == ()


@pytest.mark.requirement("evidence.redaction")
@pytest.mark.parametrize("width", [1, 2, 3, 5, 7])
def test_a_secret_split_at_every_position_leaks_nowhere(width: int) -> None:
    text = f"the key is {KEY.value}, again {KEY.value}{KEY.value}."
    for first in range(len(text)):
        redactor = Redactor([KEY])
        pieces = [text[:first], *(text[at : at + width] for at in range(first, len(text), width))]
        lines = [redactor.line(frame(piece), stream=SAID) for piece in pieces]
        assert "".join(map(delta, lines)) == "the key is [redacted:KEY], again [redacted:KEY][redacted:KEY]."
        assert redactor.finish(SAID.key) is None


@pytest.mark.long
@pytest.mark.requirement("evidence.redaction")
def test_thousands_of_interleaved_streams_leak_nothing_and_stay_apart() -> None:
    rng = random.Random(20)
    for _ in range(400):
        stem, other = ("".join(rng.choices("ABCDEFGH0123", k=8)) for _ in range(2))
        # They begin alike, contain each other and overlap, and one needs escapes.
        values = dict.fromkeys([stem, f"{stem}XYZ", stem[4:] + other, f'Q"\\{other}'])
        redactor = Redactor([Secret(name=f"S{index}", value=value) for index, value in enumerate(values)])
        words = [*values, stem + other, " and ", "é", "\n", '"', "\\"]
        texts = {name: "".join(rng.choices(words, k=rng.randint(1, 6))) + "." for name in "pqrst"}
        queues = {name: cut(text, rng.choices(range(200), k=rng.randint(0, 9))) for name, text in texts.items()}
        out = dict.fromkeys(texts, "")
        disk = b""
        while queues:
            name = rng.choice(sorted(queues))
            line = redactor.line(frame(queues[name].pop(0)), stream=TextStream(key=name, path=("params", "delta")))
            out[name] += delta(line)
            disk += line.raw + redactor.line(msgspec.json.encode({"item": texts[name]})).raw
            if not queues[name]:
                del queues[name]
        assert out == {name: redactor.text(text).text for name, text in texts.items()}
        windows = {value[at : at + 6] for value in values for at in range(len(value) - 5)}
        assert [window for window in windows if window in "".join(out.values()) or window.encode() in disk] == []
        assert [redactor.finish(name) for name in texts] == [None] * len(texts)


@pytest.mark.requirement("evidence.redaction")
@pytest.mark.parametrize("ensure_ascii", [True, False])
def test_an_escaped_secret_split_at_every_position_leaks_nowhere(*, ensure_ascii: bool) -> None:
    secret = Secret(name="ODD", value='pä"ss\\wörd\n/漢')
    text = json.dumps({"k": secret.value}, ensure_ascii=ensure_ascii)
    for at in range(len(text)):
        assert said(Redactor([secret]), [text[:at], text[at:]]) == '{"k": "[redacted:ODD]"}'


def test_one_run_of_one_secret_in_many_pieces_is_one_placeholder() -> None:
    redactor = Redactor([Secret(name="STARS", value="*" * 8), Secret(name="MORE", value="*" * 8 + "!")])
    assert said(redactor, ["***"] * 9 + ["?"]) == "[redacted:STARS]?"
    assert said(redactor, ["***"] * 9) == "[redacted:STARS]"


@settings(deadline=None)
@given(text=st.text(max_size=40), places=st.lists(st.integers(0, 60), max_size=5))
def test_a_stream_without_a_secret_comes_out_as_it_went_in(text: str, places: list[int]) -> None:
    text = text.encode("utf-8", "replace").decode()
    assert said(Redactor([KEY]), cut(text, places)) == text


def test_a_piece_that_cannot_begin_a_secret_keeps_its_very_bytes() -> None:
    raw = frame("nothing to do here.")
    line = Redactor([KEY]).line(raw, stream=SAID)
    assert line == RedactedLine(raw=raw)
    assert line.raw is raw


def test_every_frame_is_given_out_at_once_with_its_text_shifted_and_says_so() -> None:
    redactor = Redactor([KEY])
    lines = [redactor.line(frame(piece), stream=SAID) for piece in ("is", "zk", "-li", "ght", " ", KEY.value)]
    assert lines == [
        RedactedLine(raw=frame("is")),
        RedactedLine(raw=frame(""), carried=True),
        RedactedLine(raw=frame(""), carried=True),
        RedactedLine(raw=frame("zk-light"), carried=True),
        RedactedLine(raw=frame(" ")),
        RedactedLine(raw=frame("[redacted:KEY]"), names=("KEY",)),
    ]


def test_only_the_bytes_of_the_piece_change() -> None:
    raw = b'{ "n":18446744073709551616, "other":"delta" ,"params":{"delta" : "go zk-l", "x": 1e3, "x":2} }'
    line = Redactor([KEY]).line(raw, stream=SAID)
    assert line == RedactedLine(raw=raw.replace(b"go zk-l", b"go "), carried=True)


@pytest.mark.parametrize(
    "form",
    [
        b'{"params":{"delta":"%s"}}',
        b'{"delta":"x","params":{"delta":"%s","delta2":"delta"}}',
        b'{"params":{"x":{"delta":"x"},"delta":"%s"}}',
        b'{"params":{"x":1e999,"delta":"%s"}}',
        rb'{"params":{"d\u0065lta":"%s"}}',
        rb'{"params":{"x":["\u00e9",{}],"delta":"%s"}}',
    ],
)
def test_the_piece_is_found_wherever_its_path_leads(form: bytes) -> None:
    redactor = Redactor([KEY])
    lines = [redactor.line(form.replace(b"%s", piece), stream=SAID) for piece in (b"<zk-live-01", b"23456789>")]
    assert lines == [
        RedactedLine(raw=form.replace(b"%s", b"<"), carried=True),
        RedactedLine(raw=form.replace(b"%s", b"[redacted:KEY]>"), names=("KEY",), carried=True),
    ]


def test_a_path_may_lead_through_arrays() -> None:
    redactor = Redactor([KEY])
    stream = TextStream(key="k", path=("choices", 1, "text", 0))
    form = '{"choices":["x",{"text":["%s","0"]}]}'
    lines = [redactor.line((form % piece).encode(), stream=stream).raw for piece in ("zk-live-0", "123456789")]
    assert lines == [(form % piece).encode() for piece in ("", "[redacted:KEY]")]


@pytest.mark.parametrize(
    "raw", [b'{"params":{}}', b'{"params":{"delta":7}}', b"[1]", b'"x"', b"no json", b"\xff", b"[" * 5000]
)
def test_a_frame_without_the_piece_is_redacted_like_any_other(raw: bytes) -> None:
    redactor = Redactor([KEY])
    redactor.line(frame("zk-"), stream=SAID)
    assert redactor.line(raw, stream=SAID) == RedactedLine(raw=raw)
    assert redactor.line(raw, stream=TextStream(key="other", path=())) == RedactedLine(raw=raw)
    assert redactor.finish(SAID.key) == RedactedText(text="zk-")


def test_secrets_elsewhere_in_a_frame_of_a_stream_are_taken_out_too() -> None:
    raw = msgspec.json.encode({"params": {"delta": "go zk-", "cwd": f"/home/{KEY.value}"}})
    assert Redactor([KEY]).line(raw, stream=SAID) == RedactedLine(
        raw=b'{"params":{"delta":"go ","cwd":"/home/[redacted:KEY]"}}', names=("KEY",), carried=True
    )


@pytest.mark.parametrize(
    ("text", "rest"),
    [
        ("all said", None),
        (KEY.value, None),
        ("zk-li", RedactedText(text="zk-li")),
        ("zk-liv", RedactedText(text="[redacted:KEY]", names=("KEY",))),
        (KEY.value[:-1], RedactedText(text="[redacted:KEY]", names=("KEY",))),
    ],
)
def test_the_rest_of_a_stream_is_masked_when_it_tells_too_much(text: str, rest: RedactedText | None) -> None:
    redactor = Redactor([KEY])
    redactor.line(frame(text), stream=SAID)
    assert redactor.open_streams() == (SAID.key,)
    assert redactor.finish(SAID.key) == rest
    assert (redactor.finish(SAID.key), redactor.open_streams()) == (None, ())


def test_the_whole_of_a_secret_that_begins_a_longer_one_is_named_at_the_end() -> None:
    redactor = Redactor([Secret(name="LONG", value="abcdefgh-ijkl"), Secret(name="SHORT", value="abcdefgh")])
    assert said(redactor, ["abcd", "efgh"]) == "[redacted:SHORT]"
    assert said(redactor, ["abcdefgh", "-ij"]) == "[redacted:LONG]"
    assert said(redactor, ["abcdefgh", "-", "!"]) == "[redacted:SHORT]-!"


def test_a_complete_secret_that_begins_no_longer_one_is_named_at_once() -> None:
    redactor = Redactor([Secret(name="LONG", value="abcdefgi-ijkl"), Secret(name="SHORT", value="abcdefgh")])
    assert redactor.line(frame("abcdefgh"), stream=SAID) == RedactedLine(
        raw=frame("[redacted:SHORT]"), names=("SHORT",)
    )


def test_what_is_held_back_is_shorter_than_the_longest_secret() -> None:
    redactor = Redactor([Secret(name="RUN", value="a" * 20 + "!"), KEY])
    given_out = 0
    for count in range(1, 2000):
        given_out += len(delta(redactor.line(frame("a"), stream=SAID)))
        assert count - given_out <= 20
    assert redactor.finish(SAID.key) == RedactedText(text="[redacted:RUN]", names=("RUN",))
