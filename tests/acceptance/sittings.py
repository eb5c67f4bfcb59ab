"""Sittings of sessions with an id on real agents, and what their models were shown."""

import json
import shlex
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest

import proctor
from proctor.context.report import SessionReport, report_session
from proctor.context.verify import CheckEngine, SessionVerification, verify_session
from proctor.event.message import AgentPart, CallPart, Message, ResultPart, UserPart
from proctor.evidence.check_run import validate_run
from proctor.evidence.layout import RootPaths
from proctor.ids import ThreadId
from proctor.model.journal import Journal, JournalItem, JournalRow
from tests.api.talk import script

CODEX: Final = "codex_app_server"
CLAUDE: Final = pytest.param("claude_code", marks=pytest.mark.agent("claude_code"))
RUNTIMES: Final = (CODEX, "codex_exec", CLAUDE)

NO_ENGINE: Final = proctor.Context(engine="none")
"""Only the native thread remembers."""

Said = tuple[str, str]
"""Who said it (user, agent, call or result), and the text."""

# What agents put into user messages by themselves.
_OWN: Final = ("<environment_context>", "<system-reminder>")
_KINDS: Final = {"tool_use": "call", "function_call": "call", "tool_result": "result", "function_call_output": "result"}


def conversation(row: JournalRow) -> list[Said]:
    """Return what a request repeats of the conversation, in order."""
    return [said for item in row.items if (said := _said(item)) is not None]


def _said(item: JournalItem) -> Said | None:
    text = item.text or ""
    match _KINDS.get(item.kind, item.role):
        case "call":
            return "call", _input(json.loads(text))
        case "result":
            # Codex precedes the output of a command by the time it took and its exit code.
            return "result", text.rpartition("Output:\n")[2].strip()
        case "assistant":
            return "agent", text
        case "user" if not text.startswith(_OWN):
            return "user", text
        case _:
            return None


def _input(arguments: Any) -> str:
    """Return the command of a shell call, whatever the agent calls it; the arguments of any other call as JSON."""
    if isinstance(arguments, Mapping):
        for name in ("cmd", "command"):
            if isinstance(command := arguments.get(name), str):
                return command
    return json.dumps(arguments, sort_keys=True)


def first_requests(journals: Iterable[Journal]) -> list[list[Said]]:
    """Return the conversation in the first request of each sitting."""
    return [conversation(journal.rows[0]) for journal in journals]


def last_request(journal: Journal) -> list[Said]:
    """Return the conversation in the last request for a reply. Claude Code also asks for counts of tokens."""
    return conversation([row for row in journal.rows if row.items][-1])


def mirrored(messages: Iterable[Message]) -> list[Said]:
    """Return entries of the mirror in the same form."""
    return [_entry(each) for each in messages]


def _entry(message: Message) -> Said:
    match message.part:
        case UserPart(text=text):
            return "user", text
        case AgentPart(text=text):
            return "agent", text
        case CallPart(input=input_):
            # Codex reports the whole command line of the shell.
            command = _input(input_)
            is_codex = command.startswith(("/bin/bash -c ", "/bin/bash -lc "))
            return "call", shlex.split(command)[2] if is_codex else command
        case ResultPart(output=output):
            return "result", (output or "").strip()
        case part:
            return type(part).__name__, part.text


@dataclass(frozen=True, slots=True)
class SessionLab:
    """A folder with an evidence root, and sessions that play scripts."""

    folder: Path
    context: proctor.Context | None = None
    """The context engine of its sessions, unless a test names another one."""

    @property
    def root(self) -> Path:
        return self.folder / "root"

    def script(self, *steps: Mapping[str, Any]) -> Path:
        return script(self.folder, *steps)

    def open(
        self, runtime: str, key: str, *steps: Mapping[str, Any], **more: Any
    ) -> AbstractAsyncContextManager[proctor.Session]:
        options = {"context": self.context, **more}
        return proctor.session(runtime, id=key, script=self.script(*steps), root=self.root, **options)

    async def sit(
        self, runtime: str, key: str, prompts: Sequence[str], *steps: Mapping[str, Any], **more: Any
    ) -> ThreadId | None:
        """Take these turns in one sitting, each of which must complete, and return the native thread."""
        async with self.open(runtime, key, *steps, **more) as session:
            await say_all(session, prompts)
            return session.thread

    def report(self, key: str) -> SessionReport:
        return report_session(RootPaths(self.root), key)

    def mirror(self, key: str) -> list[Said]:
        return [said for shown in self.report(key).turns for said in mirrored(shown.messages)]

    def verify(self, key: str, *, check_engine: CheckEngine | None = None) -> SessionVerification:
        return verify_session(RootPaths(self.root), key, check_engine=check_engine)

    def thread_files(self, key: str, thread: str | None) -> list[Path]:
        """Return the files in which the agent keeps a thread of a session."""
        return [each for each in Path(self.report(key).home).rglob(f"*{thread}*.jsonl") if each.is_file()]

    def assert_verified(self, key: str) -> None:
        done = self.verify(key)
        assert (done.exit, done.findings) == (0, ())
        for run in RootPaths(self.root).runs():
            for checked in validate_run(run, is_strict=True):
                assert checked.status in ("valid", "partial"), checked


async def say_all(session: proctor.Session, prompts: Sequence[str]) -> None:
    for prompt in prompts:
        ending = await session.say(prompt)
        assert ending.outcome is proctor.Outcome.COMPLETED, ending


def tool(name: str = "add", *, answer: str = "seven") -> proctor.Tool:
    async def call(_: Any) -> str:
        return answer

    number = {"type": "integer"}
    schema = {"type": "object", "properties": {"a": number, "b": number}}
    return proctor.Tool(name=name, description="Add two numbers.", schema=schema, call=call)
