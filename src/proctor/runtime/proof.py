"""What the conformance suite has proven of a runtime's capabilities, with the program that is installed now."""

import hashlib
import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Final

import msgspec

from proctor import __version__
from proctor.evidence.proofs import ProofRow, Result
from proctor.runtime.base import Executable, Runtime
from proctor.runtime.capability import Capabilities

PROVING_CASES: Final[Mapping[str, tuple[str, ...]]] = {
    "thread_start": ("one-turn",),
    "event_stream": ("event-stream",),
    "approvals": ("approval-accepted", "approval-denied"),
    "turn_steer": ("steer",),
    "interrupt": ("interrupt",),
    "thread_resume": ("resume",),
    "parallel_sessions": ("parallel-sessions",),
    "dynamic_tools": ("dynamic-tools",),
    "compaction": ("compaction",),
    "structured_output": ("structured-output",),
    "takes_history": ("history", "history-resumed"),
    "takes_instructions": ("start-instructions",),
    "takes_turn_instructions": ("turn-instructions",),
}
"""The conformance cases that prove each capability. All of them must pass."""


class ProofState(StrEnum):
    """State of a capability or a case on one transport."""

    PROVEN = "proven"  # every case for it passed, with the current program and Proctor version
    FAILED = "FAILED"  # a case for it failed
    STALE = "stale"  # it was proven with another program or Proctor version
    DECLARED = "declared"  # declared by the runtime, but not every case for it has passed
    UNTRIED = "untried"  # the case has not been run
    NOT_DECLARED = "not declared"  # the runtime does not declare it
    NOT_APPLICABLE = "not applicable"  # the case could not be run on this runtime


@dataclass(frozen=True, slots=True, kw_only=True)
class ProofSet:
    """The results for one runtime over one transport."""

    rows: tuple[ProofRow, ...]
    """All results, oldest first."""
    current: tuple[ProofRow, ...]
    """Those with the subject and the version of Proctor of today."""

    def case_state(self, case: str) -> ProofState:
        # The newest result of each isolation counts; a failure in one isolation is not outweighed by a pass in another.
        newest = {row.isolation: row.result for row in self.current if row.case == case}
        if Result.FAILED in newest.values():
            return ProofState.FAILED
        if Result.PASSED in newest.values():
            return ProofState.PROVEN
        if Result.NOT_APPLICABLE in newest.values():
            return ProofState.NOT_APPLICABLE
        has_passed = any(row.case == case and row.result == Result.PASSED for row in self.rows)
        return ProofState.STALE if has_passed else ProofState.UNTRIED

    def capability_state(self, capability: str, declared: Capabilities) -> ProofState:
        """Return the worst state of the cases that prove a capability."""
        if not getattr(declared, capability):
            return ProofState.NOT_DECLARED
        states = {self.case_state(case) for case in PROVING_CASES[capability]}
        if ProofState.FAILED in states:
            return ProofState.FAILED
        if states == {ProofState.PROVEN}:
            return ProofState.PROVEN
        is_stale = ProofState.STALE in states <= {ProofState.STALE, ProofState.PROVEN}
        return ProofState.STALE if is_stale else ProofState.DECLARED

    def capability_states(self, declared: Capabilities) -> dict[str, ProofState]:
        """Return the state of every capability, by its name on disk."""
        return {
            field.encode_name: self.capability_state(field.name, declared)
            for field in msgspec.structs.fields(Capabilities)
        }

    @property
    def failed_cases(self) -> list[str]:
        """The cases whose newest result in some isolation is a failure."""
        cases = dict.fromkeys(row.case for row in self.current)
        return [case for case in cases if self.case_state(case) is ProofState.FAILED]


def proofs_of(runtime: Runtime, transport: str, subject: str | None, rows: Sequence[ProofRow]) -> ProofSet:
    """Select the results that apply to a runtime, a transport and what `subject_of` returns."""
    its = tuple(row for row in rows if (row.runtime_id, row.transport) == (runtime.id, transport))
    return ProofSet(rows=its, current=tuple(row for row in its if (row.subject, row.proctor) == (subject, __version__)))


def subject_of(runtime: Runtime, program: Executable | None) -> str:
    """Return the digest that a proof applies to: of the program, or of the runtime's code if there is no program.

    `program` is None for a runtime that locates no program without options, such as one that runs a flow's command.
    """
    if program is not None:
        return program.sha256
    sources = sorted(Path(inspect.getfile(type(runtime))).parent.rglob("*.py"))
    return hashlib.sha256(b"".join(hashlib.sha256(each.read_bytes()).digest() for each in sources)).hexdigest()
