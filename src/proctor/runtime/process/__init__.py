"""Runtime for any command, with one process per turn."""

import shutil
from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec

from proctor.errors import MachineError
from proctor.fact import Authority, Fact
from proctor.runtime.base import (
    Confinement,
    Executable,
    Host,
    HostRequest,
    Normalizer,
    Runtime,
    Session,
    SessionRequest,
    Tap,
)
from proctor.runtime.capability import CapabilityProfile
from proctor.runtime.credential import Account
from proctor.runtime.executable import identify, identity_fact
from proctor.runtime.line_process import LineCount
from proctor.runtime.process.capabilities import CAPABILITIES, FAILURES, ID, TRANSPORTS
from proctor.runtime.process.normalize import ProcessNormalizer
from proctor.runtime.process.options import NAMES, read_options
from proctor.runtime.process.session import OWN_VARIABLES, open_session


class ProcessHost:
    """Starts no process itself. Each turn of a session starts one."""

    is_alive = True

    def __init__(self, request: HostRequest) -> None:
        self._request = request
        self._count = LineCount()

    @property
    def frames_in(self) -> int:
        return self._count.lines

    @property
    def facts(self) -> Mapping[str, Fact]:
        program = self._request.executable
        return {
            **({} if program is None else {"identity": identity_fact(program)}),
            "capability": Fact(
                value=msgspec.to_builtins(CAPABILITIES), authority=Authority.DECLARED, source="capabilities"
            ),
            "transport": Fact(value=TRANSPORTS[0], authority=Authority.OBSERVED, source="how each process is started"),
            "containment": self._request.containment.fact(),
            "toolCalls": Fact(value="unseen", authority=Authority.DECLARED, source="it is heard by what it prints"),
        }

    def open_session(self, request: SessionRequest, tap: Tap) -> AbstractAsyncContextManager[Session]:
        return open_session(self._request, request, tap, count=self._count)


class Process:
    id = ID
    capabilities = CAPABILITIES
    profile = CapabilityProfile.HEADLESS_LIMITED
    serves: Mapping[str, tuple[str, ...]] | None = None
    transports = TRANSPORTS
    protocol_words: frozenset[str] = frozenset()
    private_paths: frozenset[tuple[str, ...]] = frozenset()
    failures = FAILURES
    option_names = NAMES
    account: Account | None = None
    reserved_variables = OWN_VARIABLES
    confinement = Confinement.FENCES
    forgets_turns = True

    def check_options(self, options: Mapping[str, Any]) -> None:
        read_options(options)

    def prompt_bytes(self, options: Mapping[str, Any]) -> int | None:
        return read_options(options).prompt_bytes

    def locate(self, options: Mapping[str, Any]) -> Executable | None:
        """Find the program. None without a command, or if it is in the workspace, which does not exist yet."""
        if "command" not in options:
            return None
        # `check_options` checks the other options.
        program = read_options({"command": options["command"]}).argv[0]
        if "/" in program and not program.startswith("/"):
            return None
        found = shutil.which(program)
        if found is None:
            raise MachineError("machine.binary-missing", f"the program {program} was not found on PATH; install it")
        return identify(Path(found), source="system-path", install=program)

    def normalizer(self) -> Normalizer:
        return ProcessNormalizer()

    @asynccontextmanager
    async def open_host(self, request: HostRequest, tap: Tap) -> AsyncIterator[Host]:
        yield ProcessHost(request)


RUNTIME: Runtime = Process()
