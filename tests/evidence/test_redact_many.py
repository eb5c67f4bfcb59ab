"""Thousands of interleaved streams with planted secrets: nothing leaks, and all comes out as the redacted whole does.

A slice of them runs here; `make chaos` runs them all.
"""

import base64
import json
import os
import random
from collections.abc import Sequence
from itertools import pairwise
from urllib.parse import quote

import msgspec
import pytest

from proctor.evidence.redact import Redactor, TextStream
from proctor.evidence.secrets import Secret
from proctor.evidence.spellings import forms

STREAMS = int(os.environ.get("PROCTOR_STREAMS", "600"))
AT_ONCE = 5
LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"
INNOCENT = [
    *(" and ", "é", "\n", '"', "\\", " ", ": ", "task-", "sk-", "Bearer ", "password=", "token: ", "-----BEGIN "),
    "the quick brown fox jumps over the lazy dog ",
]


class Chance(random.Random):
    """What a test of many cases is made of."""

    def word(self, size: int, letters: str = LETTERS) -> str:
        return "".join(self.choices(letters, k=size))

    def noise(self, least: int, most: int) -> bytes:
        return self.randbytes(self.randint(least, most))

    def secrets(self) -> list[str]:
        """They begin alike, contain each other and overlap, and one needs escapes."""
        stem, other = self.word(8, "ABCDEFGH0123"), self.word(8, "ABCDEFGH0123")
        return [stem, f"{stem}XYZ", stem[4:] + other, f'Q"\\{other}/ ä', self.word(24)]

    def spellings(self, value: str) -> list[str]:
        data = value.encode()
        coded = base64.b64encode(self.noise(20, 60) + data + self.noise(0, 60)).decode()
        columns = self.choice([64, 76])
        lines = [coded[at : at + columns] for at in range(0, len(coded), columns)]
        return [
            *(value, json.dumps(value)[1:-1], json.dumps(json.dumps(value)), quote(value, safe="")),
            base64.b64encode(self.noise(0, 2) + data + self.noise(0, 4)).decode(),
            base64.urlsafe_b64encode(self.noise(0, 2) + data).decode(),
            *(line_end.join(lines) for line_end in ("\n", "\r\n", "\n+", "\\n", "\n  ")),
        ]

    def tokens(self) -> list[tuple[str, str, str]]:
        """What leads up to a token, what nobody may see of it, and what ends it."""
        key = "\n".join(self.word(64) for _ in range(3))
        return [
            *((f" {lead}", f"{self.word(30)}1", "") for lead in ("sk-proj-", "sk-ant-api03-", "ghp_", "github_pat_")),
            *((" AIza", self.word(35), ""), (" xoxb-", f"1{self.word(20)}", "")),
            *((" AKIA", self.word(16, "ABCDEFGH234567"), ""), (" Authorization: Bearer ", f"{self.word(30)}7a", "")),
            (" eyJ", f"{self.word(20)}.eyJ{self.word(40)}.{self.word(30)}", ""),
            (" -----BEGIN RSA PRIVATE KEY-----\n", key, "\n-----END RSA PRIVATE KEY-----"),
            *((" password=hunter2", self.word(8), ""), (' "password": "', self.word(10), '"')),
            (" https://me:", self.word(10), "@host/"),
        ]

    def cut(self, text: str) -> list[str]:
        places = sorted(self.randint(0, len(text)) for _ in range(self.choice([0, 1, 3, 9, 40])))
        return [text[a:b] for a, b in pairwise([0, *places, len(text)])]


def frame(text: str) -> bytes:
    return msgspec.json.encode({"method": "item/delta", "params": {"itemId": "i", "delta": text}, "at": 1})


def recorded(redactor: Redactor, texts: Sequence[str], chance: Chance) -> tuple[list[str], bytes]:
    """What is left of texts that come in pieces, batch by batch and all mixed up; and everything that was written."""
    queues = {key: chance.cut(text) for key, text in enumerate(texts)}
    out, disk = [""] * len(texts), b""
    while queues:
        batch: list[tuple[int, bytes, TextStream | None]] = []
        for key in chance.choices(sorted(queues), k=3):
            if queues[key]:
                piece = frame(queues[key].pop(0))
                batch.append((key, piece, TextStream(key=str(key), path=("params", "delta"))))
            batch.append((key, msgspec.json.encode({"item": texts[key]}), None))
        lines = redactor.lines([(raw, stream) for _, raw, stream in batch])
        for (key, _, stream), line in zip(batch, lines, strict=True):
            disk += line.raw
            out[key] += "" if stream is None else msgspec.json.decode(line.raw)["params"]["delta"]
        queues = {key: queue for key, queue in queues.items() if queue}
    for key in range(len(texts)):
        rest = redactor.finish(str(key))
        out[key] += rest.text if rest else ""
    return out, disk


@pytest.mark.long
@pytest.mark.requirement("evidence.redaction")
@pytest.mark.timeout(900)
def test_interleaved_streams_leak_nothing_and_equal_the_redacted_whole() -> None:
    for seed in range(STREAMS // AT_ONCE):
        chance = Chance(seed)
        values, tokens = chance.secrets(), chance.tokens()
        redactor = Redactor([Secret(name=f"S{index}", value=value) for index, value in enumerate(values)])
        planted = [spelling for value in values for spelling in chance.spellings(value)]
        words = [*planted, values[0] + values[2], *map("".join, tokens), *INNOCENT * 3]
        texts = ["".join(chance.choices(words, k=chance.randint(1, 9))) + " ." for _ in range(AT_ONCE)]
        out, disk = recorded(redactor, texts, chance)
        assert out == [redactor.text(text).text for text in texts], f"seed {seed}"
        hidden = {form for value in values for form in forms(value)} | {secret for _, secret, _ in tokens}
        assert [
            form for form in hidden if form in "".join(out) or form.encode("utf-8", "surrogateescape") in disk
        ] == [], f"seed {seed}"
