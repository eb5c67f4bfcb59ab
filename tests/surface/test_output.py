"""JSON on stdout: one line for programs, indented for people."""

import sys

import msgspec
import pytest

from proctor.surface.cli.output import Output


@pytest.mark.parametrize(("is_terminal", "lines"), [(False, 1), (True, 3)])
def test_json_is_indented_only_on_a_terminal(
    is_terminal: bool, lines: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: is_terminal)
    Output(is_json=True).json({"a": "b"})
    text = capsys.readouterr().out
    assert (text.count("\n"), msgspec.json.decode(text)) == (lines, {"a": "b"})


def test_json_escapes_text_that_is_not_utf_8(capsys: pytest.CaptureFixture[str]) -> None:
    Output(is_json=True).json({"a": "\ud800"})
    assert capsys.readouterr().out == '{"a": "\\ud800"}\n'
