"""The Codex app-server, driven over stdio."""

from contextlib import AbstractAsyncContextManager

from proctor.runtime.base import Executable, Host, HostAsk, Normalizer, Runtime, Tap
from proctor.runtime.codex_app_server import executable, host
from proctor.runtime.codex_app_server.claims import CLAIMS, ID, TRANSPORT
from proctor.runtime.codex_app_server.normalize import CodexNormalizer
from proctor.runtime.codex_app_server.vocabulary import PRIVATE, WORDS


class CodexAppServer:
    """One process carries many sessions; one process an attempt is the same thing with capacity 1."""

    id = ID
    claims = CLAIMS
    transport = TRANSPORT
    words = WORDS
    private = PRIVATE
    option_names: frozenset[str] = frozenset()
    reserved_variables = frozenset({"CODEX_HOME", "HOME"})

    def locate(self) -> Executable:
        return executable.locate()

    def normalizer(self) -> Normalizer:
        return CodexNormalizer()

    def open_host(self, ask: HostAsk, tap: Tap) -> AbstractAsyncContextManager[Host]:
        return host.open_host(ask, tap)


RUNTIME: Runtime = CodexAppServer()
