"""A secret may pass through prompt, output, answer and error; it reaches no file under the evidence root."""

import base64
import json
import shlex
from urllib.parse import quote

import pytest

from tests.lab import Lab, mission, report_of, say_done

pytestmark = pytest.mark.real_agent

SECRET = "zq7-tripwire-84f1c2d9e0"
ODD = 'zq7/"päss"\\w0rd+?'
TOKEN = "ghp_aB3dE5fG7hI9jK1lM3nO5pQ7rS9tU1vW3xY5"


def files_holding(lab: Lab, text: str) -> list[str]:
    return [str(file) for file in lab.root.rglob("*") if file.is_file() and text.encode() in file.read_bytes()]


@pytest.mark.requirement("evidence.redaction")
def test_a_known_secret_reaches_no_file(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRIPWIRE_TOKEN", SECRET)
    split_everywhere = [
        {"say": {"text": f"before {SECRET[:cut]}{SECRET[cut:]} after {cut}.", "chunk_chars": cut}}
        for cut in range(1, len(SECRET))
    ]
    missions = [
        mission("prompt", say_done(), prompt=f"The password is {SECRET}; keep it."),
        mission(
            "output",
            {"run": f"printf '%s' '{SECRET[:9]}' > a; printf '%s' '{SECRET[9:]}' > b; cat a b; cat a b > c"},
            say_done(SECRET),
        ),
        mission("answer", {"do": split_everywhere}, say_done()),
        mission("error", {"fault": {"status": 400, "body": f"bad key {SECRET}"}}),
    ]
    lab.run(lab.write_spec(missions))
    reports = {name: report_of(paths) for name, paths in lab.attempts().items()}
    assert {name: report.outcome.value for name, report in reports.items()} == {
        "prompt.codex.r1.1": "completed",
        "output.codex.r1.1": "completed",
        "answer.codex.r1.1": "completed",
        "error.codex.r1.1": "failed",
    }
    assert files_holding(lab, SECRET) == []
    for name in reports:
        assert b"[redacted:TRIPWIRE_TOKEN]" in lab.attempts()[name].frames.read_bytes(), f"{name} carried the secret"
    lab.assert_all_evidence_is_valid()


@pytest.mark.requirement("evidence.redaction")
def test_neither_an_encoded_secret_nor_a_token_that_nobody_declared_reaches_a_file(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ODD_PASSWORD", ODD)
    block = base64.b64encode(b"x" * 50 + ODD.encode() + b"y" * 50).decode()
    wrapped = "\n".join(block[at : at + 76] for at in range(0, len(block), 76))
    coded, url = base64.b64encode(ODD.encode()).decode(), quote(ODD, safe="")
    spellings = [ODD, coded, url, json.dumps(ODD)[1:-1], TOKEN, wrapped]
    words = " ".join(map(shlex.quote, spellings))
    pieces = [{"say": {"text": f"<{text}>", "chunk_chars": 2}} for text in spellings]
    lab.run(
        lab.write_spec(
            [
                mission("output", {"run": f"printf '%s\\n' {words} | tee out.txt"}, say_done()),
                mission("answer", {"do": pieces}, say_done()),
            ]
        )
    )
    frames = [paths.frames.read_bytes() for paths in lab.attempts().values()]
    masks = (b"[redacted:ODD_PASSWORD]", b"ghp_[redacted:scan:github]")
    assert [[mask in data for mask in masks] for data in frames] == [[True, True], [True, True]]
    lines = wrapped.split("\n")
    telling = [coded, url, TOKEN, "w0rd+?", lines[0][-8:], lines[1][:12]]
    assert {text: files_holding(lab, text) for text in telling} == {text: [] for text in telling}
    lab.assert_all_evidence_is_valid()
