"""Everything Proctor can say went wrong, in one tree and one table.

ProctorError
├── InputError                  the user's file or argument        exit 2
├── MachineError                this machine cannot                exit 3
├── PeerError                   the other process broke its side   exit 3
│   ├── WireError               bytes that are not its protocol
│   ├── RefusedError            a well-formed error reply
│   ├── HangupError             it died or closed the channel
│   └── DeadlineError           it did not answer in time
└── EvidenceError               evidence that cannot be trusted    exit 5

An exception means *we could not observe*. An agent that fails, stalls or refuses is an Outcome, not an exception.
"""

import errno
from enum import IntEnum
from typing import ClassVar

from proctor.errors.advice import advice as advice
from proctor.errors.advice import bucket_of as bucket_of
from proctor.errors.codes import CODES as CODES
from proctor.errors.meaning import Bucket as Bucket
from proctor.errors.meaning import Meaning as Meaning


class Exit(IntEnum):
    """What a command tells its caller, the same everywhere."""

    OK = 0
    JUDGED_NO = 1
    USAGE = 2
    INFRASTRUCTURE = 3
    UNVERIFIED = 4
    EVIDENCE = 5
    INTERRUPTED = 130


class ProctorError(Exception):
    """Root of all. Fields, not prose: `code` is a row of CODES, the rest says where and what."""

    exit: ClassVar[Exit] = Exit.INFRASTRUCTURE

    def __init__(
        self,
        code: str,
        what: str,
        *,
        file: str | None = None,
        line: int | None = None,
        key: str | None = None,
        suggestion: str | None = None,
    ) -> None:
        super().__init__(what)
        self.code = code
        self.what = what
        self.file = file
        self.line = line
        self.key = key
        self.suggestion = suggestion

    @property
    def meaning(self) -> Meaning:
        return CODES[self.code]

    @property
    def each(self) -> "tuple[ProctorError, ...]":
        """All that is wrong: itself, or what it was collected from.

        >>> one, other = InputError("usage", "one"), InputError("usage", "other")
        >>> [error.what for error in CollectedInputError((one, other)).each], one.each == (one,)
        (['one', 'other'], True)
        """
        return (self,)

    @property
    def where(self) -> str | None:
        """
        >>> InputError("spec.type", "not a number", file="a.yaml", line=3, key="limits.turn").where
        'a.yaml:3 limits.turn'
        """
        place = self.file if self.line is None else f"{self.file}:{self.line}"
        return " ".join(part for part in (place, self.key) if part) or None

    def __str__(self) -> str:
        return f"{self.where}: {self.what}" if self.where else self.what


class InputError(ProctorError):
    """The user's file or argument is at fault."""

    exit = Exit.USAGE

    @property
    def each(self) -> "tuple[InputError, ...]":
        return (self,)


class CollectedInputError(InputError):
    """Several faults of one file, all told at once."""

    def __init__(self, errors: tuple[InputError, ...]) -> None:
        first = errors[0]
        super().__init__(
            first.code, first.what, file=first.file, line=first.line, key=first.key, suggestion=first.suggestion
        )
        self.errors = errors

    @property
    def each(self) -> tuple[InputError, ...]:
        return self.errors


class MachineError(ProctorError):
    """This machine lacks something, or refuses it."""


def disk_refusal(error: OSError, *, path: object) -> MachineError:
    """What this machine says when it will not let us write.

    >>> disk_refusal(OSError(errno.ENOSPC, "No space left on device"), path="a").code
    'machine.disk-full'
    """
    is_full = error.errno in (errno.ENOSPC, errno.EDQUOT)
    return MachineError(
        "machine.disk-full" if is_full else "machine.unwritable", error.strerror or str(error), file=str(path)
    )


class PeerError(ProctorError):
    """The other process broke its side of the protocol."""


class WireError(PeerError):
    """Bytes that are not its protocol."""


class RefusedError(PeerError):
    """A well-formed error reply."""


class HangupError(PeerError):
    """It died or closed the channel."""


class DeadlineError(PeerError):
    """It did not answer in time."""


class EvidenceError(ProctorError):
    """Evidence that cannot be trusted."""

    exit = Exit.EVIDENCE


def lone(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """The only thing that went wrong inside a task group, or the group where it was more than one.

    >>> lone(BaseExceptionGroup("", [BaseExceptionGroup("", [KeyError("a")])]))
    KeyError('a')
    """
    found: BaseException = group
    while isinstance(found, BaseExceptionGroup) and len(found.exceptions) == 1:
        found = found.exceptions[0]
    return found
