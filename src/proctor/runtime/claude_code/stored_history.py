"""Write messages into a session file of Claude Code, which a new session then begins with."""

import re
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final
from uuid import UUID, uuid4, uuid5

from proctor import canonical
from proctor.errors import disk_error
from proctor.ids import ThreadId
from proctor.runtime.base import SessionRequest
from proctor.runtime.claude_code.native_items import is_agents_text, native_items
from proctor.runtime.conversion import Conversion

MOST_MESSAGES: Final = 50
"""Longer histories of new threads are read from a file. The program takes about 13 ms for a frame."""

# The program cuts longer names, and appends a hash.
_MOST_FOLDER_CHARS: Final = 200
_NOT_IN_FOLDERS: Final = re.compile(r"[^a-zA-Z0-9]")


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredHistory:
    """A session file that Proctor writes."""

    thread: ThreadId
    """The id of the session, with which the program is started."""
    path: Path
    conversion: Conversion
    """What the file holds. It ends with a message of the agent."""
    rest: Conversion
    """What must be given as frames afterwards."""

    def write(self, *, at: datetime) -> None:
        """Write the file. Raises MachineError if that fails."""
        try:
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            self.path.touch(mode=0o600, exist_ok=False)
            self.path.write_bytes(file_content(self.conversion, session=UUID(self.thread), at=at))
        except OSError as error:
            raise disk_error(error, path=self.path) from error


def stored_history(request: SessionRequest, *, config: Path) -> StoredHistory | None:
    """Return the session file for the history of a new thread, or None if the history must be given as frames.

    That is so for a short history, for an existing thread, and if the name of the file's folder cannot be known.
    """
    if len(request.history) <= MOST_MESSAGES or request.resume is not None or request.fork is not None:
        return None
    folder, thread = folder_name(request.workspace.resolve()), ThreadId(str(uuid4()))
    stored, rest = split_history(native_items(request.history))
    if not stored.items or len(folder) > _MOST_FOLDER_CHARS:
        return None
    path = config / "projects" / folder / f"{thread}.jsonl"
    return StoredHistory(thread=thread, path=path, conversion=stored, rest=rest)


def split_history(conversion: Conversion) -> tuple[Conversion, Conversion]:
    """Split a history after the last text of the agent.

    If a file ends with another message, the program adds an answer, `No response requested.` (seen with 2.1.325).
    """
    items = conversion.items
    ends = (at for at in range(len(items), 0, -1) if is_agents_text(items[at - 1]))
    end = next(ends, 0)
    return Conversion(items=items[:end]), Conversion(items=items[end:])


def folder_name(workspace: Path) -> str:
    """Return the name of the folder for sessions in a workspace. JavaScript counts UTF-16 units.

    >>> folder_name(Path("/tmp/a b/\N{GRINNING FACE}"))
    '-tmp-a-b---'
    """
    return _NOT_IN_FOLDERS.sub(lambda found: "-" * (len(found[0].encode("utf-16-le")) // 2), str(workspace))


def file_content(conversion: Conversion, *, session: UUID, at: datetime) -> bytes:
    """Return the lines of a session file: each message with the id of the one before."""
    stamp = at.astimezone(UTC).isoformat(timespec="milliseconds").removesuffix("+00:00") + "Z"
    lines, parent = [], None
    for number, item in enumerate(conversion.items):
        uuid = str(uuid5(session, str(number)))
        line = {"parentUuid": parent, "isSidechain": False, **item.value, "uuid": uuid, "timestamp": stamp}
        lines.append(canonical.encode({**line, "sessionId": str(session)}) + b"\n")
        parent = uuid
    return b"".join(lines)
