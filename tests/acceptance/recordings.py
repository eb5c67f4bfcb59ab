"""Recordings of what an agent is sent and what its model is asked, made stable: equal values become equal symbols."""

import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import pytest

import proctor
from proctor import places
from proctor.model import exchange
from proctor.model.journal import Journal
from proctor.model.wire import ReplyRequest, Wire

LONGEST_CHARS: Final = 300
"""A longer text is recorded as its length and digest: mostly, it is the agent program's own."""

_UUID: Final = r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"
_NUMBERED: Final = re.compile(
    rf"(?P<run>\b\d{{8}}-\d{{6}}-[0-9a-f]{{6}}\b)|(?P<process>\bp-[0-9a-f]{{12}}\b)|(?P<id>{_UUID})"
    r"|(?P<hex>\b[0-9a-f]{64}\b)|(?P<port>(?<=127\.0\.0\.1:)\d+)|(?P<chunk>(?<=Chunk ID: )[0-9a-f]+)"
)
"""Values that differ from run to run, by the name of their symbols."""
_CONSTANT: Final = (
    (re.compile(r"(?<=Wall time: )[\d.]+"), "<seconds>"),
    (re.compile(r"(?<=<current_date>)[\d-]+|(?<=Today's date is )[\d-]+"), "<date>"),
    (re.compile(r"(?<=<timezone>)[^<]+"), "<timezone>"),
    (re.compile(r"(?<=OS Version: ).*"), "<kernel>"),
)
_STARTS: Final = ("program started", "turn started as a process")
_CONTENT: Final = ("input", "instructions", "messages", "system", "tools")
"""The fields of a request that are in the journal, and the tools."""


@dataclass(slots=True)
class Symbols:
    """Replaces what differs from run to run. `places` are texts, mostly paths, by their symbols."""

    places: Mapping[str, str]
    texts: list[str] = field(default_factory=list)
    """The whole texts behind the digests, to look at when a recording differs."""
    _known: dict[tuple[str, str], str] = field(default_factory=dict)

    def stable(self, value: Any) -> Any:
        """Return a JSON value with symbols, sorted keys, and long texts as length and digest."""
        match value:
            case proctor.__version__:
                return "<version>"
            case str():
                return self._digested(self._replaced(value))
            case list():
                return [self.stable(each) for each in value]
            case dict():
                return {
                    key: "<ms>" if key.endswith("_at_unix_ms") else self.stable(each)
                    for key, each in sorted(value.items())
                }
            case _:
                return value

    def _replaced(self, text: str) -> str:
        for place, symbol in self.places.items():
            text = text.replace(place, symbol)
        for pattern, symbol in _CONSTANT:
            text = pattern.sub(symbol, text)
        return _NUMBERED.sub(self._numbered, text)

    def _numbered(self, match: re.Match[str]) -> str:
        name, value = str(match.lastgroup), match[0]
        if (name, value) not in self._known:
            number = 1 + sum(known == name for known, _ in self._known)
            self._known[name, value] = f"<{name}-{number}>"
        return self._known[name, value]

    def _digested(self, text: str) -> Any:
        if len(text) <= LONGEST_CHARS:
            return text
        self.texts.append(text)
        return {"chars": len(text), "sha256": hashlib.sha256(text.encode()).hexdigest()}


@dataclass(slots=True)
class ObservedWire:
    """A wire format that also keeps the body of each request for a reply."""

    wire: Wire
    bodies: list[dict[str, Any]]

    def parse_request(self, body: bytes) -> ReplyRequest:
        self.bodies.append(json.loads(body))
        return self.wire.parse_request(body)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.wire, name)


@pytest.fixture
def bodies(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """The bodies of all requests for a reply that scripted models receive in this test."""
    kept: list[dict[str, Any]] = []
    for path, wire in exchange.WIRES.items():
        monkeypatch.setitem(exchange.WIRES, path, ObservedWire(wire, kept))
    return kept


def requests_of(journals: Iterable[Journal], bodies: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """What the model was asked: the journal's items with their whole texts, the tools, and all other fields."""
    rest = iter(bodies)
    requests = []
    for row in (row for journal in journals for row in journal.rows):
        request: dict[str, Any] = {"path": f"{row.method} {row.path}", "kind": row.kind, "step": row.step}
        if row.items:
            body = next(rest)
            request["items"] = [
                {"role": item.role, "kind": item.kind, "text": text}
                | ({"tool": item.tool} if item.tool else {})
                | ({"call": item.call_id} if item.call_id else {})
                for item, text in zip(row.items, row.texts, strict=True)
            ]
            request["toolNames"] = list(row.tools)
            request["tools"] = [json.dumps(tool, sort_keys=True) for tool in body.get("tools", [])]
            request["fields"] = {name: _opened(value) for name, value in body.items() if name not in _CONTENT}
        requests.append(request)
    assert list(rest) == [], "a body that is in no row of the journal"
    return requests


def frames_of(root: Path) -> dict[str, list[Any]]:
    """What the agent was sent, and how its program was started for it, from the record of each process and attempt.

    What answers a question of the agent is apart: when it asks is not for us to say.
    """
    found: dict[str, list[Any]] = {}
    for file in sorted(root.rglob("frames.jsonl"), key=lambda file: (file.parent.parent.name, file)):
        where = {"attempts": "attempt", "runtimes": "process"}[file.parent.parent.name]
        for row in map(json.loads, file.read_text().splitlines()):
            frame = row.get("frame", row.get("text"))
            if row["dir"] == "out":
                found.setdefault(f"{where}.{'answers' if _is_answer(frame) else 'sent'}", []).append(frame)
            elif row["dir"] == "self" and frame.get("step") in _STARTS:
                found.setdefault(f"{where}.steps", []).append(_without_program(frame))
    return found


def _is_answer(frame: Any) -> bool:
    return isinstance(frame, dict) and (
        frame.get("type") == "control_response" or not {"result", "error"}.isdisjoint(frame)
    )


def _opened(value: Any) -> Any:
    """JSON in a string as the value that it is, so that a recording shows what differs in it."""
    match value:
        case dict():
            return {key: _opened(each) for key, each in value.items()}
        case str() if value.startswith("{"):
            return json.loads(value)
        case _:
            return value


def _without_program(step: dict[str, Any]) -> dict[str, Any]:
    """A step without the path of the program and the random name of its profile."""
    detail = dict(step.get("detail", {}))
    if "argv" in detail:
        program, *words = detail["argv"]
        if "--profile" in words:
            words[words.index("--profile") + 1] = "<profile>"
        detail["argv"] = [Path(program).name, *words]
    return {"step": step["step"], **detail}


def recorded(root: Path, journals: Iterable[Journal], bodies: list[dict[str, Any]], *, tmp: Path) -> tuple[str, str]:
    """Return the recording as JSON, one frame or item per line, and the long texts that it has only as digests."""
    symbols = Symbols(
        {str(tmp): "<tmp>", str(places.cache_dir()): "<cache>", f'"{proctor.__version__}"': '"<version>"'}
    )
    whole = {"frames": frames_of(root), "requests": requests_of(journals, bodies)}
    lines = _lines(symbols.stable(whole))
    return "\n".join([*lines, ""]), "\n\n".join(dict.fromkeys(symbols.texts))


def _lines(value: Any, indent: str = "", end: str = "") -> Iterable[str]:
    """Lay out JSON so that what fits in one line is in one line."""
    line = json.dumps(value, ensure_ascii=False)
    if len(indent) + len(line) <= 120 or not isinstance(value, dict | list) or not value:
        yield f"{indent}{line}{end}"
        return
    pairs = (
        [("", each) for each in value]
        if isinstance(value, list)
        else [(f"{json.dumps(key)}: ", each) for key, each in value.items()]
    )
    yield f"{indent}{'[' if isinstance(value, list) else '{'}"
    for number, (key, each) in enumerate(pairs, start=1):
        first, *rest = _lines(each, indent + " ", "," if number < len(pairs) else "")
        yield f"{indent} {key}{first.lstrip(' ')}"
        yield from rest
    yield f"{indent}{']' if isinstance(value, list) else '}'}{end}"
