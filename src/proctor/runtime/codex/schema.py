"""The protocol schema that the Codex program prints: its digest and its methods, cached for each program."""

import tempfile
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import msgspec
from anyio.lowlevel import RunVar

from proctor import canonical, decoding, places
from proctor.contain.launch import wrap
from proctor.errors import disk_error
from proctor.fact import Authority, Fact
from proctor.ids import Digest
from proctor.runtime.base import HostRequest
from proctor.transport.process import run_once

TIMEOUT_S = 20.0
_BUNDLE = "codex_app_server_protocol.schemas.json"
SCHEMA_SOURCE = "app-server generate-json-schema --experimental"
NO_SCHEMA = Fact(value=None, authority=Authority.UNKNOWN, source="the program prints no schema of its protocol")


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
        return decoding.decode(cache_file.read_bytes(), SchemaMethods)
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
        whole = decoding.decode((folder / _BUNDLE).read_bytes())
        return SchemaMethods(
            digest=canonical.digest(whole),
            requests=_methods(folder / "ClientRequest.json"),
            notifications=_methods(folder / "ServerNotification.json"),
            questions=_methods(folder / "ServerRequest.json"),
        )
    except (OSError, msgspec.DecodeError, KeyError, TypeError, IndexError):
        return None


def _methods(file: Path) -> frozenset[str]:
    messages: Iterable[Any] = decoding.decode(file.read_bytes())["oneOf"]
    return frozenset(each["properties"]["method"]["enum"][0] for each in messages)


def digest_fact(schema: SchemaMethods | None) -> Fact:
    """Return the fact `schemaDigest`."""
    if schema is None:
        return NO_SCHEMA
    return Fact(value=schema.digest, authority=Authority.OBSERVED, source=SCHEMA_SOURCE)
