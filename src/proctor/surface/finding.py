"""One thing that the doctor looked at."""

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Literal

import msgspec

from proctor.errors import CODES, ProctorError


class Finding(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """`fail` is what Proctor cannot do without, or what is broken; `warn` is worth knowing."""

    name: str
    status: Literal["ok", "warn", "fail"]
    what: str
    more: tuple[str, ...] = ()
    todo: str | None = None
    facts: dict[str, Any] = {}


def look(
    name: str, check: Callable[..., Finding | Iterable[Finding]], *given: Any, todo: str | None = None
) -> Iterator[Finding]:
    """What a check finds; where it could not look, that is the finding, so that the others are told all the same."""
    try:
        found = check(*given)
        findings = [found] if isinstance(found, Finding) else list(found)
    except (ProctorError, OSError) as error:
        findings = [failed(name, error, todo=todo)]
    yield from findings


def failed(name: str, error: ProctorError | OSError, *, todo: str | None = None) -> Finding:
    """`todo`, where it is known better than by the error's code."""
    if isinstance(error, ProctorError):
        facts = {"code": error.code}
        return Finding(name=name, status="fail", what=error.what, todo=todo or error.meaning.todo, facts=facts)
    what = str(error) if error.filename is None else f"{error.filename}: {error.strerror}"
    return Finding(name=name, status="fail", what=what, todo=todo or CODES["machine.unwritable"].todo)
