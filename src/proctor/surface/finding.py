"""The findings of `proctor doctor`, and how a check becomes findings."""

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Literal

import msgspec

from proctor.errors import CODES, ProctorError


class DoctorFinding(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The result of one check of this machine."""

    name: str
    """What was checked."""
    status: Literal["ok", "warn", "fail"]
    """`fail` if Proctor cannot work without it or it is broken, `warn` if it only limits what can be done."""
    what: str
    """The result, on one line."""
    more: tuple[str, ...] = ()
    """Details, one per line."""
    todo: str | None = None
    """What the user can do about it; null if nothing needs to be done."""
    facts: dict[str, Any] = {}
    """The details as data; its keys depend on the check."""


def run_check(
    name: str, check: Callable[..., DoctorFinding | Iterable[DoctorFinding]], *arguments: Any, todo: str | None = None
) -> Iterator[DoctorFinding]:
    """Run a check and yield its findings. An error becomes a finding, so that the other checks still run."""
    try:
        result = check(*arguments)
        findings = [result] if isinstance(result, DoctorFinding) else list(result)
    except (ProctorError, OSError) as error:
        findings = [failed(name, error, todo=todo)]
    yield from findings


def failed(name: str, error: ProctorError | OSError, *, todo: str | None = None) -> DoctorFinding:
    """Return an error as a finding. `todo` replaces the advice that belongs to the error's code."""
    if isinstance(error, ProctorError):
        facts = {"code": error.code}
        return DoctorFinding(name=name, status="fail", what=error.what, todo=todo or error.meaning.todo, facts=facts)
    what = str(error) if error.filename is None else f"{error.filename}: {error.strerror}"
    return DoctorFinding(name=name, status="fail", what=what, todo=todo or CODES["machine.unwritable"].todo)
