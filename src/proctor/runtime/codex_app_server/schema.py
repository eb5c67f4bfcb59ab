"""The protocol as the program itself prints it: its digest, and whether all that we use is in it."""

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
from proctor.errors import MachineError, disk_refusal
from proctor.fact import Authority, Fact
from proctor.ids import Digest
from proctor.runtime.base import HostAsk
from proctor.runtime.codex.program import INSTALL
from proctor.runtime.codex_app_server import wire
from proctor.transport.process import run_once

TIMEOUT_S = 20.0
_BUNDLE = "codex_app_server_protocol.schemas.json"

# Without these there is no session to supervise.
ESSENTIAL: Final = frozenset(
    """
    initialize thread/start thread/unsubscribe thread/backgroundTerminals/clean turn/start turn/interrupt
    turn/started turn/completed item/started item/completed
    item/commandExecution/requestApproval item/fileChange/requestApproval
    """.split()
)
# Without one of these something cannot be done, and everything else can.
USEFUL: Final = frozenset(
    """
    thread/resume thread/fork thread/read thread/turns/list thread/compact/start turn/steer
    thread/started thread/status/changed thread/tokenUsage/updated serverRequest/resolved error item/tool/call
    """.split()
)
# Notifications that `normalize` tells apart by name.
_TOLD_APART: Final = frozenset(
    """
    error thread/status/changed thread/tokenUsage/updated turn/started turn/completed item/started item/completed
    mcpServer/startupStatus/updated warning guardianWarning configWarning deprecationNotice model/rerouted
    """.split()
)


@dataclass(slots=True)
class Printing:
    """Of one program: only one at a time has it print. That it prints nothing may be the machine's fault, so it is not
    kept on disk."""

    one: anyio.Lock = field(default_factory=anyio.Lock)
    is_mute: bool = False


# By sha256. A lock belongs to one event loop, and so does this.
_PRINTINGS = RunVar[dict[str, Printing]]("printings")


class Spoken(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What a program speaks, by its own schema: our requests, its notifications, its questions."""

    digest: Digest
    requests: frozenset[str]
    notifications: frozenset[str]
    questions: frozenset[str]

    @property
    def lacks(self) -> list[str]:
        """What we use and it does not have."""
        return sorted((ESSENTIAL | USEFUL) - self.requests - self.notifications - self.questions)

    @property
    def strangers(self) -> list[str]:
        """What it has and we do not know: it would be counted as unrecognized."""
        heard = self.notifications - wire.SILENT - wire.DELTAS - _TOLD_APART
        return sorted(heard | (self.questions - set(wire.APPROVALS)))


async def read_spoken(ask: HostAsk) -> Spoken | None:
    """Asked of the program once, and kept by its sha256. None where it does not print a schema."""
    sha256 = ask.program.sha256
    book = places.cache_dir() / "schemas" / f"{sha256}.json"
    if (spoken := _kept(book)) is not None:
        return spoken
    printings = _PRINTINGS.get({})
    _PRINTINGS.set(printings)
    printing = printings.setdefault(sha256, Printing())
    async with printing.one:
        if printing.is_mute or (spoken := _kept(book)) is not None:
            return spoken
        spoken = await _printed(ask, book)
        printing.is_mute = spoken is None
        return spoken


def _kept(book: Path) -> Spoken | None:
    with suppress(OSError, msgspec.DecodeError):
        return msgspec.json.decode(book.read_bytes(), type=Spoken)
    return None


async def _printed(ask: HostAsk, book: Path) -> Spoken | None:
    try:
        book.parent.mkdir(mode=0o700, exist_ok=True)
        # In the run's own scratch, which is swept when the run was killed.
        printed = tempfile.TemporaryDirectory(prefix="printed-", dir=ask.tmp, ignore_cleanup_errors=True)
    except OSError as error:
        raise disk_refusal(error, path=ask.tmp) from error
    with printed as name:
        folder = Path(name)
        await _print_schema(ask, folder)
        spoken = await anyio.to_thread.run_sync(_digested, folder)
        if spoken is not None:
            draft = folder / book.name
            with suppress(OSError):  # then it is asked again next time
                draft.write_bytes(msgspec.json.encode(spoken, order="sorted"))
                draft.replace(book)
        return spoken


async def _print_schema(ask: HostAsk, folder: Path) -> None:
    """Contained like everything that is run of it."""
    argv = [ask.program.real_path, "app-server", "generate-json-schema", "--experimental", "--out", str(folder)]
    env = {**ask.env, "CODEX_HOME": str(ask.home), "HOME": str(ask.home), "TMPDIR": str(ask.tmp)}
    plan = wrap(ask.containment, argv, env=env, cwd=ask.home, marker=f"{ask.process}-schema")
    await run_once(plan, intents=ask.intents, timeout_s=TIMEOUT_S, max_output_bytes=1 << 16)


def _digested(folder: Path) -> Spoken | None:
    try:
        whole = msgspec.json.decode((folder / _BUNDLE).read_bytes())
        return Spoken(
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


def refuse_incompatible(spoken: Spoken) -> None:
    """MachineError where it lacks what no session can do without."""
    if missing := sorted(ESSENTIAL & set(spoken.lacks)):
        what = f"this Codex has no {', '.join(missing)}, which Proctor needs; install {INSTALL}"
        raise MachineError("machine.binary-incompatible", what)


def schema_fact(spoken: Spoken | None) -> Fact:
    if spoken is None:
        return Fact(value=None, authority=Authority.UNKNOWN, source="the program prints no schema of its protocol")
    value = {"digest": spoken.digest, "lacks": spoken.lacks, "strangers": spoken.strangers}
    return Fact(value=value, authority=Authority.OBSERVED, source="app-server generate-json-schema --experimental")
