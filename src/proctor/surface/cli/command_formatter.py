"""Format commands so that the user can paste them: program name as it was called, quoted paths, same evidence root."""

import os
import re
import shlex
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT_VARIABLE = "PROCTOR_ROOT"

_COMMAND = re.compile(r"^proctor (?P<whole>[^`\n]+)$|`proctor (?P<quoted>[^`\n]+)`", re.MULTILINE)
# Listed, because the modules that declare the commands are imported only when they are called.
_ROOTED = (
    *("demo", "run", "try", "report", "validate", "attempt", "campaign", "retry", "suite", "parity", "compare"),
    *("sign", "verify", "doctor", "gc", "pin", "regrade", "session"),
)
_ROOTLESS = ("campaign lint",)


def program() -> str:
    """Return the words that the user typed to call this program."""
    called = Path(sys.argv[0])
    if called.name == "__main__.py":
        return f"{_typed(Path(sys.orig_argv[0]))} -m proctor"
    return _typed(called) if called.name == "proctor" else "proctor"


def _typed(called: Path) -> str:
    from shutil import which  # slow to import

    # A shell passes the full path of a program found on PATH, and a relative path as it was typed.
    if not called.is_absolute():
        return shlex.quote(str(called))
    found = which(called.name)
    if found is not None and Path(found) == called:
        return called.name
    here = Path.cwd()
    return shlex.quote(str(called.relative_to(here) if called.is_relative_to(here) else called))


@dataclass(frozen=True, slots=True)
class CommandFormatter:
    """Formats suggested commands with the evidence root of this call. `root` is None for the default root."""

    root: str | None = None
    session: str | None = None
    """The session that the command is about, for advice that names it `ID`. None if it is about none."""

    @classmethod
    def of(cls, root: Path | None) -> "CommandFormatter":
        """Return a formatter for the value of --root, or for the environment if it was not given."""
        return cls(os.environ.get(ROOT_VARIABLE) or None if root is None else str(root))

    @classmethod
    def in_words(cls, words: Sequence[str]) -> "CommandFormatter":
        """Return a formatter for a command line that may not be valid."""
        session = words[2] if len(words) > 2 and words[0] == "session" and not words[2].startswith("-") else None
        for at, word in enumerate(words):
            if word == "--root" and at + 1 < len(words):
                return cls(words[at + 1], session)
            if word.startswith("--root="):
                return cls(word.partition("=")[2], session)
        return cls(cls.of(None).root, session)

    def command(self, *words: str) -> str:
        """Return a complete command line."""
        return self._called(shlex.join(words))

    def spell(self, text: str) -> str:
        """Return a text with its commands, whole lines or parts in backticks, as they must be typed here."""
        return _COMMAND.sub(self._spelled, text)

    def _spelled(self, found: "re.Match[str]") -> str:
        whole = found["whole"]
        return f"`{self._called(found['quoted'])}`" if whole is None else self._called(whole)

    def _called(self, words: str) -> str:
        first, second = (*words.split(), "")[:2]
        if self.session is not None and first == "session":
            words = re.sub(r"\bID\b", lambda _: shlex.quote(self.session or "ID"), words)
        is_rooted = first in _ROOTED and f"{first} {second}" not in _ROOTLESS
        is_rooted = is_rooted and "--root" not in words and "--help" not in words
        return f"{program()} {words}{self._option}" if is_rooted else f"{program()} {words}"

    @property
    def _option(self) -> str:
        return "" if self.root is None else f" --root {shlex.quote(self.root)}"
