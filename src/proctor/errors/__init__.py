"""The exceptions that Proctor raises, their exit codes and the table of error codes.

ProctorError
├── InputError                  a file or argument of the user is wrong      exit 2
├── MachineError                this machine lacks or refuses something      exit 3
├── PeerError                   the agent process broke its protocol         exit 3
│   ├── WireError               it sent bytes outside its protocol
│   ├── RefusedError            it sent an error reply
│   ├── HangupError             it died or closed the channel
│   └── DeadlineError           it did not answer in time
├── EngineError                 a context engine failed                      exit 3
└── EvidenceError               evidence cannot be trusted                   exit 5

An exception means that Proctor could not observe the agent. An agent that fails, stalls or refuses has an `Outcome`;
that is not an exception.
"""

import errno
from enum import IntEnum
from typing import ClassVar, Final

from proctor.errors.advice import advice as advice
from proctor.errors.advice import bucket_of as bucket_of
from proctor.errors.codes import CODES as CODES
from proctor.errors.meaning import Bucket as Bucket
from proctor.errors.meaning import Meaning as Meaning

DISTRIBUTION: Final = "proctor-harness"
"""The name of the package to install. On PyPI, `proctor` is another project."""


class Exit(IntEnum):
    """The exit status of every command."""

    OK = 0
    """The command succeeded."""

    JUDGED_NO = 1
    """The command ran, and a verdict, gate or check is negative."""

    USAGE = 2
    """A file or argument of the user is wrong."""

    INFRASTRUCTURE = 3
    """The machine or the agent process failed."""

    UNVERIFIED = 4
    """The result is inconclusive: something is missing, cut off or could not be judged."""

    EVIDENCE = 5
    """Evidence cannot be trusted."""

    INTERRUPTED = 130
    """The command was interrupted with Ctrl-C."""


class ProctorError(Exception):
    """Base class of all Proctor errors.

    `code` is a key of CODES and `what` says what is wrong. `file`, `line` and `key` say where, and `suggestion` how to
    fix it; each of these is None if unknown.
    """

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
    def all_errors(self) -> "tuple[ProctorError, ...]":
        """Every error that this one contains: itself, or the errors it was collected from.

        >>> one, other = InputError("usage", "one"), InputError("usage", "other")
        >>> [error.what for error in CollectedInputError((one, other)).all_errors], one.all_errors == (one,)
        (['one', 'other'], True)
        """
        return (self,)

    @property
    def where(self) -> str | None:
        """The location as `file:line: key`, or None if it is unknown.

        >>> InputError("spec.type", "not a number", file="a.yaml", line=3, key="limits.turn").where
        'a.yaml:3: limits.turn'
        """
        place = self.file if self.line is None else f"{self.file}:{self.line}"
        return ": ".join(part for part in (place, self.key) if part) or None

    def __str__(self) -> str:
        return f"{self.where}: {self.what}" if self.where else self.what


class InputError(ProctorError):
    """A file or argument of the user is wrong."""

    exit = Exit.USAGE

    @property
    def all_errors(self) -> "tuple[InputError, ...]":
        return (self,)


class CollectedInputError(InputError):
    """Several input errors, reported together. Its own fields are those of the first error."""

    def __init__(self, errors: tuple[InputError, ...]) -> None:
        first = errors[0]
        super().__init__(
            first.code, first.what, file=first.file, line=first.line, key=first.key, suggestion=first.suggestion
        )
        self.errors = errors

    @property
    def all_errors(self) -> tuple[InputError, ...]:
        return self.errors


class MachineError(ProctorError):
    """This machine lacks something that Proctor needs, or refuses an operation."""


class CollectedMachineError(MachineError):
    """Several machine errors, reported together. Its own fields are those of the first error."""

    def __init__(self, errors: tuple[MachineError, ...]) -> None:
        first = errors[0]
        super().__init__(
            first.code, first.what, file=first.file, line=first.line, key=first.key, suggestion=first.suggestion
        )
        self.errors = errors

    @property
    def all_errors(self) -> tuple[ProctorError, ...]:
        return self.errors


_FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT})
_EXHAUSTED: Final = frozenset({errno.EAGAIN, errno.EIO, errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ESTALE})


def exhaustion_code(number: int | None) -> str | None:
    """Return the code if the machine lacks something or its disk fails, whatever the path; None for other errors.

    >>> exhaustion_code(errno.ENOSPC), exhaustion_code(errno.ENOMEM), exhaustion_code(errno.EACCES)
    ('machine.disk-full', 'machine.exhausted', None)
    """
    if number in _FULL:
        return "machine.disk-full"
    return "machine.exhausted" if number in _EXHAUSTED else None


def install_command(extra: str) -> str:
    """Return the command that installs an extra of Proctor.

    >>> install_command("model")
    "pip install 'proctor-harness[model]'"
    """
    return f"pip install '{DISTRIBUTION}[{extra}]'"


def extra_missing(error: ModuleNotFoundError, *, extra: str) -> MachineError:
    """Return the error for a package that an extra of Proctor would have installed."""
    return MachineError(
        "machine.extra-missing", f"the package `{error.name}` is not installed; run {install_command(extra)}"
    )


def disk_error(error: OSError, *, path: object) -> MachineError:
    """Return the MachineError for a failed write to `path`.

    >>> disk_error(OSError(errno.ENOSPC, "No space left on device"), path="a").code
    'machine.disk-full'
    """
    code = exhaustion_code(error.errno) or "machine.unwritable"
    return MachineError(code, error.strerror or str(error), file=str(path))


class PeerError(ProctorError):
    """The agent process broke its protocol, ended or did not answer."""


class WireError(PeerError):
    """The agent process sent bytes that do not follow its protocol."""


class RefusedError(PeerError):
    """The agent process answered a request with an error."""


class HangupError(PeerError):
    """The agent process ended or closed its channel."""


class DeadlineError(PeerError):
    """The agent process did not answer in time."""


class EngineError(ProctorError):
    """A context engine raised an error, did not answer in time, returned something invalid, or is not used for now."""


INCOMPLETE_EVIDENCE: Final = frozenset({"evidence.partial", "evidence.running"})
"""Codes of evidence that was cut off or may still be completed. Nothing that exists is wrong."""


class EvidenceError(ProctorError):
    """Evidence is missing, damaged or forged."""

    exit = Exit.EVIDENCE


def unwrap_single(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """Return the only exception inside a task group's exception group, or the innermost group that has several.

    >>> unwrap_single(BaseExceptionGroup("", [BaseExceptionGroup("", [KeyError("a")])]))
    KeyError('a')
    """
    inner: BaseException = group
    while isinstance(inner, BaseExceptionGroup) and len(inner.exceptions) == 1:
        inner = inner.exceptions[0]
    return inner
