"""A known secret may pass through prompt, output, answer and error; it reaches no file under the evidence root."""

import pytest

from tests.lab import Lab, mission, report_of, say_done

pytestmark = pytest.mark.real_agent

SECRET = "zq7-canary-84f1c2d9e0"


def files_holding(lab: Lab, text: str) -> list[str]:
    return [str(file) for file in lab.root.rglob("*") if file.is_file() and text.encode() in file.read_bytes()]


@pytest.mark.requirement("evidence.redaction")
def test_a_known_secret_reaches_no_file(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CANARY_TOKEN", SECRET)
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
        assert b"[redacted:CANARY_TOKEN]" in lab.attempts()[name].frames.read_bytes(), f"{name} carried the secret"
    lab.assert_all_evidence_is_valid()
