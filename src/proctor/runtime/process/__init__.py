"""Any command as a runtime: a process a turn, with the evidence that every agent leaves."""

import shutil
from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec

from proctor.errors import MachineError
from proctor.fact import Authority, Fact
from proctor.runtime.base import Executable, Host, HostAsk, Normalizer, Runtime, Session, SessionAsk, Tap
from proctor.runtime.capability import Capability
from proctor.runtime.credential import Account
from proctor.runtime.executable import identify, identity_fact
from proctor.runtime.process.claims import CLAIMS, FAILURES, ID, TRANSPORTS
from proctor.runtime.process.normalize import ProcessNormalizer
from proctor.runtime.process.options import NAMES, read_options
from proctor.runtime.process.session import OWN_VARIABLES, open_session
from proctor.runtime.talk import Count


class ProcessHost:
    """Starts nothing by itself: each turn of a session has its own process."""

    is_alive = True

    def __init__(self, ask: HostAsk) -> None:
        self._ask = ask
        self._count = Count()

    @property
    def frames_in(self) -> int:
        return self._count.lines

    @property
    def facts(self) -> Mapping[str, Fact]:
        program = self._ask.executable
        return {
            **({} if program is None else {"identity": identity_fact(program)}),
            "capability": Fact(value=msgspec.to_builtins(CLAIMS), authority=Authority.DECLARED, source="claims"),
            "transport": Fact(value=TRANSPORTS[0], authority=Authority.OBSERVED, source="how each process is started"),
            "containment": self._ask.containment.fact(),
            "toolCalls": Fact(value="unseen", authority=Authority.DECLARED, source="it is heard by what it prints"),
        }

    def open_session(self, ask: SessionAsk, tap: Tap) -> AbstractAsyncContextManager[Session]:
        return open_session(self._ask, ask, tap, count=self._count)


class Process:
    id = ID
    claims = CLAIMS
    capability = Capability.HEADLESS_LIMITED
    serves: Mapping[str, tuple[str, ...]] | None = None
    transports = TRANSPORTS
    words: frozenset[str] = frozenset()
    private: frozenset[tuple[str, ...]] = frozenset()
    failures = FAILURES
    option_names = NAMES
    account: Account | None = None
    reserved_variables = OWN_VARIABLES

    def check_options(self, options: Mapping[str, Any]) -> None:
        read_options(options)

    def locate(self, options: Mapping[str, Any]) -> Executable | None:
        """None where no command is named yet, or one of the workspace, which does not exist yet."""
        if "command" not in options:
            return None
        # The rest of the options is judged by `check_options`, when their names are known to be right.
        program = read_options({"command": options["command"]}).argv[0]
        if "/" in program and not program.startswith("/"):
            return None
        found = shutil.which(program)
        if found is None:
            raise MachineError("machine.binary-missing", f"there is no program {program} here; install it")
        return identify(Path(found), source="system-path", install=program)

    def normalizer(self) -> Normalizer:
        return ProcessNormalizer()

    @asynccontextmanager
    async def open_host(self, ask: HostAsk, tap: Tap) -> AsyncIterator[Host]:
        yield ProcessHost(ask)


RUNTIME: Runtime = Process()
