"""The protocol schema that the program prints: its digest, and whether it contains the methods that Proctor uses."""

import tempfile
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import anyio
import anyio.to_thread
import msgspec
from anyio.lowlevel import RunVar

from proctor import canonical, places
from proctor.contain.launch import wrap
from proctor.errors import MachineError, disk_error
from proctor.fact import Authority, Fact
from proctor.ids import Digest
from proctor.runtime.base import HostRequest
from proctor.runtime.codex.program import INSTALL
from proctor.runtime.codex_app_server import wire
from proctor.transport.process import run_once

TIMEOUT_S = 20.0
_BUNDLE = "codex_app_server_protocol.schemas.json"

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
    thread/resume thread/fork thread/read thread/turns/list thread/compact/start turn/steer
    thread/started thread/status/changed thread/tokenUsage/updated serverRequest/resolved error item/tool/call
    """.split()
)
# Notifications that `normalize` handles by name.
_NORMALIZED: Final = frozenset(
    """
    error thread/status/changed thread/tokenUsage/updated turn/started turn/completed item/started item/completed
    mcpServer/startupStatus/updated warning guardianWarning configWarning deprecationNotice model/rerouted
    """.split()
)


@dataclass(slots=True)
class SchemaDump:
    """The state of one program's schema dump. Only one task at a time runs the program for it.

    That a program prints no schema is not cached on disk, because the machine may be the cause.
    """

    one: anyio.Lock = field(default_factory=anyio.Lock)
    is_mute: bool = False


# By the program's cache key, and separate for each event loop, because a lock belongs to one loop.
_PRINTINGS = RunVar[dict[str, SchemaDump]]("printings")


class SchemaMethods(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The methods in a program's own schema."""

    digest: Digest
    """Digest of the complete schema."""
    requests: frozenset[str]
    """The requests that the program accepts."""
    notifications: frozenset[str]
    """The notifications that the program sends."""
    questions: frozenset[str]
    """The requests that the program sends."""

    @property
    def lacks(self) -> list[str]:
        """The methods that Proctor uses and the program does not have."""
        return sorted((ESSENTIAL | USEFUL) - self.requests - self.notifications - self.questions)

    @property
    def unknown(self) -> list[str]:
        """The methods that Proctor does not know. Their frames would be counted as unrecognized."""
        heard = self.notifications - wire.SILENT - wire.DELTAS - _NORMALIZED
        return sorted(heard | (self.questions - set(wire.APPROVALS)))


async def read_schema(request: HostRequest) -> SchemaMethods | None:
    """Return the program's schema, from the cache or by running the program. None if it prints no schema."""
    key = request.program.cache_key
    cache_file = places.cache_dir() / "schemas" / f"{key}.json"
    if (schema := _read_cache(cache_file)) is not None:
        return schema
    printings = _PRINTINGS.get({})
    _PRINTINGS.set(printings)
    printing = printings.setdefault(key, SchemaDump())
    async with printing.one:
        if printing.is_mute or (schema := _read_cache(cache_file)) is not None:
            return schema
        schema = await _print_and_cache(request, cache_file)
        printing.is_mute = schema is None
        return schema


def _read_cache(cache_file: Path) -> SchemaMethods | None:
    with suppress(OSError, msgspec.DecodeError):
        return msgspec.json.decode(cache_file.read_bytes(), type=SchemaMethods)
    return None


async def _print_and_cache(request: HostRequest, cache_file: Path) -> SchemaMethods | None:
    try:
        cache_file.parent.mkdir(mode=0o700, exist_ok=True)
        # In the run's scratch folder, which is removed later if the run is killed.
        printed = tempfile.TemporaryDirectory(prefix="printed-", dir=request.tmp, ignore_cleanup_errors=True)
    except OSError as error:
        raise disk_error(error, path=request.tmp) from error
    with printed as name:
        folder = Path(name)
        await _print_schema(request, folder)
        schema = await anyio.to_thread.run_sync(_read_printed, folder)
        if schema is not None:
            with suppress(OSError):  # the schema is then printed again next time
                places.write_private(cache_file, msgspec.json.encode(schema, order="sorted"), drafts=folder)
        return schema


async def _print_schema(request: HostRequest, folder: Path) -> None:
    """Run the program in the containment to print its schema to a folder."""
    argv = [request.program.start_path, "app-server", "generate-json-schema", "--experimental", "--out", str(folder)]
    env = {**request.env, "CODEX_HOME": str(request.home), "HOME": str(request.home), "TMPDIR": str(request.tmp)}
    plan = wrap(request.containment, argv, env=env, cwd=request.home, marker=f"{request.process}-schema")
    await run_once(plan, intents=request.intents, timeout_s=TIMEOUT_S, max_output_bytes=1 << 16)


def _read_printed(folder: Path) -> SchemaMethods | None:
    try:
        whole = msgspec.json.decode((folder / _BUNDLE).read_bytes())
        return SchemaMethods(
            digest=canonical.digest(whole),
            requests=_methods(folder / "ClientRequest.json"),
            notifications=_methods(folder / "ServerNotification.json"),
            questions=_methods(folder / "ServerRequest.json"),
        )
    except (OSError, msgspec.DecodeError, KeyError, TypeError, IndexError):
        return None


def _methods(file: Path) -> frozenset[str]:
    messages: Iterable[Any] = msgspec.json.decode(file.read_bytes())["oneOf"]
    return frozenset(each["properties"]["method"]["enum"][0] for each in messages)


def refuse_incompatible(schema: SchemaMethods) -> None:
    """Raise MachineError if the program lacks an essential method."""
    if missing := sorted(ESSENTIAL & set(schema.lacks)):
        what = f"this Codex has no {', '.join(missing)}, which Proctor needs; install {INSTALL}"
        raise MachineError("machine.binary-incompatible", what)


def schema_fact(schema: SchemaMethods | None) -> Fact:
    if schema is None:
        return Fact(value=None, authority=Authority.UNKNOWN, source="the program prints no schema of its protocol")
    value = {"digest": schema.digest, "lacks": schema.lacks, "strangers": schema.unknown}
    return Fact(value=value, authority=Authority.OBSERVED, source="app-server generate-json-schema --experimental")
