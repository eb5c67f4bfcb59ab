"""Runtime for the Codex app-server, over stdio or a websocket."""

from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from pathlib import Path
from typing import Any

from proctor.ids import ThreadId
from proctor.runtime.base import Confinement, Executable, Host, HostRequest, Normalizer, Runtime, Tap
from proctor.runtime.capability import CapabilityProfile
from proctor.runtime.codex.account import ACCOUNT
from proctor.runtime.codex.home import HOME_INDEXES, RETRY_OPTIONS
from proctor.runtime.codex.program import examine, locate
from proctor.runtime.codex.schema import read_schema
from proctor.runtime.codex.stored_threads import find_rollout
from proctor.runtime.codex_app_server import host
from proctor.runtime.codex_app_server.capabilities import CAPABILITIES, ID, TRANSPORTS
from proctor.runtime.codex_app_server.failures import FAILURES
from proctor.runtime.codex_app_server.normalize import CodexNormalizer
from proctor.runtime.codex_app_server.samples import SAMPLES
from proctor.runtime.codex_app_server.schema import refuse_incompatible
from proctor.runtime.codex_app_server.session import MOST_REFERENCE_BYTES
from proctor.runtime.codex_app_server.vocabulary import PRIVATE, WORDS
from proctor.runtime.credential import Account


class CodexAppServer:
    """One process carries many sessions. With `isolation: process` it carries one."""

    id = ID
    capabilities = CAPABILITIES
    profile = CapabilityProfile.FULL_APP_SERVER
    serves: Mapping[str, tuple[str, ...]] | None = None
    transports = TRANSPORTS
    protocol_words = WORDS
    private_paths = PRIVATE
    failures = FAILURES
    option_names = frozenset({*RETRY_OPTIONS, "transport"})
    account: Account | None = ACCOUNT
    reserved_variables = frozenset({"CODEX_HOME", "HOME"})
    confinement = Confinement.SANDBOX
    home_indexes = HOME_INDEXES
    reference_bytes = MOST_REFERENCE_BYTES
    samples = SAMPLES

    def check_options(self, options: Mapping[str, Any]) -> None:
        host.transport_in(options)

    def locate(self, options: Mapping[str, Any]) -> Executable:
        return locate()

    async def examine(self, request: HostRequest) -> Executable:
        program = await examine(request)
        schema = await read_schema(replace(request, executable=program))
        if schema is not None:
            refuse_incompatible(schema)
        return program

    def has_thread(self, thread: ThreadId, *, home: Path, user_home: Path | None = None) -> bool:
        return find_rollout(user_home or home, thread) is not None

    def normalizer(self) -> Normalizer:
        return CodexNormalizer()

    def open_host(self, request: HostRequest, tap: Tap) -> AbstractAsyncContextManager[Host]:
        return host.open_host(request, tap)


RUNTIME: Runtime = CodexAppServer()
