"""Whether the protocol schema that the program prints contains the methods that Proctor uses."""

from typing import Final

from proctor.errors import MachineError
from proctor.fact import Authority, Fact
from proctor.runtime.codex.program import INSTALL
from proctor.runtime.codex.schema import NO_SCHEMA, SCHEMA_SOURCE, SchemaMethods
from proctor.runtime.codex_app_server import wire

# No session is possible without these methods.
ESSENTIAL: Final = frozenset(
    """
    initialize thread/start thread/unsubscribe thread/backgroundTerminals/clean turn/start turn/interrupt
    turn/started turn/completed item/started item/completed
    item/commandExecution/requestApproval item/fileChange/requestApproval
    """.split()
)
# Without one of these methods, only one feature is missing.
USEFUL: Final = frozenset(
    """
    thread/resume thread/fork thread/archive thread/unarchive thread/read thread/turns/list thread/compact/start
    turn/steer thread/started thread/status/changed thread/tokenUsage/updated serverRequest/resolved error
    item/tool/call
    """.split()
)
# Notifications that `normalize` handles by name.
_NORMALIZED: Final = frozenset(
    """
    error thread/status/changed thread/tokenUsage/updated turn/started turn/completed item/started item/completed
    mcpServer/startupStatus/updated warning guardianWarning configWarning deprecationNotice model/rerouted
    """.split()
)


def lacks(schema: SchemaMethods) -> list[str]:
    """Return the methods that Proctor uses and the program does not have."""
    return sorted((ESSENTIAL | USEFUL) - schema.requests - schema.notifications - schema.questions)


def unknown(schema: SchemaMethods) -> list[str]:
    """Return the methods that Proctor does not know. Their frames would be counted as unrecognized."""
    heard = schema.notifications - wire.SILENT - wire.DELTAS - _NORMALIZED
    return sorted(heard | (schema.questions - set(wire.APPROVALS)))


def refuse_incompatible(schema: SchemaMethods) -> None:
    """Raise MachineError if the program lacks an essential method."""
    if missing := sorted(ESSENTIAL & set(lacks(schema))):
        what = f"this Codex has no {', '.join(missing)}, which Proctor needs; install {INSTALL}"
        raise MachineError("machine.binary-incompatible", what)


def schema_fact(schema: SchemaMethods | None) -> Fact:
    if schema is None:
        return NO_SCHEMA
    value = {"digest": schema.digest, "lacks": lacks(schema), "strangers": unknown(schema)}
    return Fact(value=value, authority=Authority.OBSERVED, source=SCHEMA_SOURCE)
