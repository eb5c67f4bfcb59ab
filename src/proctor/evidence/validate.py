"""Whether an attempt's evidence can be trusted: every problem by its code, and what they come to."""

import os
from collections.abc import Iterable, Iterator
from enum import StrEnum
from typing import Literal

import msgspec

from proctor.errors import EvidenceError
from proctor.evidence.check_artifacts import check_artifacts
from proctor.evidence.check_streams import check_streams
from proctor.evidence.layout import (
    ATTEMPT,
    FEEDBACK,
    FRAMES,
    PROBES,
    PROMPT,
    REPORT,
    RUNNER_REF,
    TOOL_CALLS,
    TRANSCRIPT,
    WORKSPACE_DIFF,
    AttemptPaths,
)
from proctor.evidence.reader import Problem
from proctor.evidence.seal import check_seal, read_seal

# The order in which an attempt makes its files: a cut-off leaves a beginning of this list, never a gap in it.
_WRITTEN = (
    FRAMES,
    TOOL_CALLS,
    TRANSCRIPT,
    PROBES,
    PROMPT,
    ATTEMPT,
    RUNNER_REF,
    FEEDBACK,
    WORKSPACE_DIFF,
    REPORT,
)


class Status(StrEnum):
    VALID = "valid"
    PARTIAL = "partial"  # as far as it goes nothing is wrong, but it was cut off or cannot all be checked here
    INVALID = "invalid"


Kind = Literal["attempt", "process", "run", "campaign"]


class Validation(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What was found about one attempt, one runtime process, or the folder of a run or of a campaign."""

    kind: Kind
    name: str
    status: Status
    problems: tuple[Problem, ...]


def validate_attempt(paths: AttemptPaths, *, is_strict: bool) -> Validation:
    """Whatever lies there, this gives codes and never raises.

    Strict reads everything that can be checked without knowing the runtime; else only the seal's digests are compared.
    """
    problems = list(check_seal(paths))
    name = paths.folder.name
    if is_strict and all(problem.file != name for problem in problems):
        try:
            seal = read_seal(paths.seal)
        except EvidenceError:  # check_seal has said so
            seal = None
        problems += check_artifacts(paths, seal=seal)
        problems += check_streams(paths, seal=seal)
        problems += _gaps(paths)
    return conclude("attempt", name, problems)


def conclude(kind: Kind, name: str, problems: Iterable[Problem]) -> Validation:
    """Each problem once, in words that can be printed anywhere, and their sum."""
    told = tuple(
        msgspec.structs.replace(problem, file=_printable(problem.file), detail=_printable(problem.detail))
        for problem in dict.fromkeys(problems)
    )
    return Validation(kind=kind, name=_printable(name), status=_status(told), problems=told)


def _status(problems: Iterable[Problem]) -> Status:
    codes = {problem.code for problem in problems}
    # A runtime that cannot be had here says nothing against what it recorded.
    explained = {"spec.unknown-runtime", "runtime.uninvited", "runtime.ambiguous", "runtime.broken"}
    if "evidence.partial" in codes:
        explained |= {"evidence.partial", "evidence.torn"}
    if not codes:
        return Status.VALID
    return Status.PARTIAL if codes <= explained else Status.INVALID


def _gaps(paths: AttemptPaths) -> Iterator[Problem]:
    """Files that are absent although a later one is there; with a seal, check_seal says the same."""
    is_there = [os.path.lexists(paths.folder / name) for name in _WRITTEN]
    for at, name in enumerate(_WRITTEN):
        if not is_there[at] and any(is_there[at:]):
            yield Problem(code="evidence.missing-file", file=name, detail="absent")


def _printable(text: str) -> str:
    r"""File names and agents may hold anything; a lone surrogate cannot even be encoded.

    >>> _printable("café \udcff \x1b[2J")
    'café \\udcff \\x1b[2J'
    """
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)
