"""One tampering case: an edit of genuine evidence, and what each command must answer then."""

from collections.abc import Sequence
from dataclasses import dataclass

from tests.tampering.edits import Edit
from tests.tampering.evidence import Answer
from tests.tampering.roots import Base

VALIDATE = "validate --strict"
PUBLISH = "campaign publish-check {campaign}"


@dataclass(frozen=True, slots=True)
class Expected:
    """The exit codes that are right and what must be named, as `code file` or as the code of any file.

    Nothing else may be named where `is_all`.
    """

    exits: tuple[int, ...]
    named: frozenset[str]
    is_all: bool

    def matches(self, answer: Answer) -> bool:
        codes = {each.partition(" ")[0] for each in answer.named}
        strange = {each for each in answer.named if each not in self.named and each.partition(" ")[0] not in self.named}
        return answer.exit in self.exits and self.named <= answer.named | codes and not (self.is_all and strange)


def says(code: int, *named: str) -> Expected:
    """At least these are named."""
    return Expected((code,), frozenset(named), is_all=False)


def says_only(code: int, *named: str) -> Expected:
    """Just these are named."""
    return Expected((code,), frozenset(named), is_all=True)


REFUSES = Expected((3, 5), frozenset(), is_all=False)
"""As the machine's fault or the evidence's, but never as a fault of Proctor's own."""


Step = tuple[str, Expected]


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """`validate` is the answer of `validate --strict` of the whole root, and `publish` that of `publish-check`.

    The commands of `then` come after these two, in order.
    """

    name: str
    edit: Edit
    base: Base = "whole"
    validate: Expected
    publish: Expected
    then: Sequence[Step] = ()

    @property
    def commands(self) -> tuple[Step, ...]:
        return ((VALIDATE, self.validate), (PUBLISH, self.publish), *self.then)


def of_fix(name: str, edit: Edit, alone: Expected, *then: Step) -> Case:
    """`alone` is what strict validation says of the attempt `fix` by itself; of the root it says the same and more."""
    return _of_attempt("{fix}", name, edit, alone, then)


def of_claim(name: str, edit: Edit, alone: Expected, *then: Step) -> Case:
    return _of_attempt("{claim}", name, edit, alone, then)


def _of_attempt(attempt: str, name: str, edit: Edit, alone: Expected, then: Sequence[Step]) -> Case:
    return Case(
        name=name,
        edit=edit,
        validate=says(5, *alone.named),
        publish=says(5, *(each.partition(" ")[0] for each in alone.named)),
        then=((f"validate --strict {attempt}", alone), *then),
    )
