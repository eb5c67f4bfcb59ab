"""Read the agent's requests and convert them to `Question`."""

import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from proctor import decoding
from proctor.ids import CallId
from proctor.protocol.jsonrpc import RequestId
from proctor.runtime.base import Question
from proctor.runtime.codex_app_server import wire


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerRequest:
    """One request of the agent. Fields that cannot be read are treated as absent."""

    request: RequestId
    method: str
    params: Mapping[str, Any]

    @property
    def call(self) -> str | None:
        return _text(self.params, "itemId") or _text(self.params, "callId")

    @property
    def is_mcp_call(self) -> bool:
        """Whether Codex asks if it may call a tool of an MCP server. Otherwise the server asks the user something."""
        meta = self.params.get("_meta")
        return (
            self.method == wire.ELICITATION
            and isinstance(meta, dict)
            and meta.get("codex_approval_kind") == wire.MCP_CALL_KIND
        )

    def to_question(self, *, paths: tuple[str, ...]) -> Question:
        return Question(
            request=str(self.request),
            about=wire.MCP_CALL if self.is_mcp_call else wire.APPROVALS.get(self.method, "unknown"),
            command=_command(self.params.get("command")),
            cwd=_text(self.params, "cwd"),
            paths=paths,
            reason=_text(self.params, "reason") or _text(self.params, "message"),
            call=None if self.call is None else CallId(self.call),
            native=self.params,
        )


def read_request(request: RequestId, method: str, line: bytes) -> ServerRequest:
    return ServerRequest(request=request, method=method, params=params_in(line))


def params_in(line: bytes) -> Mapping[str, Any]:
    """Return a frame's parameters. Empty if they are not an object."""
    try:
        frame = decoding.decode(line)
    except (msgspec.DecodeError, RecursionError):
        return {}
    params = frame.get("params") if isinstance(frame, dict) else None
    return params if isinstance(params, dict) else {}


def changed_paths(changes: Any) -> tuple[str, ...]:
    """Return every path that a patch touches, including the targets of renames.

    >>> changed_paths([{"path": "/w/a", "kind": {"type": "update", "move_path": "/w/b"}, "diff": ""}])
    ('/w/a', '/w/b')
    >>> changed_paths({"a": {"type": "update", "unified_diff": "", "move_path": None}})
    ('a',)
    """
    return tuple(dict.fromkeys(_touched(changes)))


def _touched(changes: Any) -> Iterator[str]:
    if isinstance(changes, dict):  # the form of the oldest request
        changes = [{"path": path, "kind": kind} for path, kind in changes.items()]
    for change in changes if isinstance(changes, list) else []:
        kind = change.get("kind") if isinstance(change, dict) else None
        # A change that cannot be read could concern any file.
        yield (_text(change, "path") if isinstance(change, dict) else None) or "/"
        if isinstance(kind, dict) and (moved := kind.get("move_path", kind.get("movePath"))) is not None:
            yield moved if isinstance(moved, str) else "/"


def _command(value: Any) -> str | None:
    if isinstance(value, list) and all(isinstance(word, str) for word in value):
        return shlex.join(value)
    return value if isinstance(value, str) else None


def _text(params: Mapping[str, Any], name: str) -> str | None:
    value = params.get(name)
    return value if isinstance(value, str) else None
