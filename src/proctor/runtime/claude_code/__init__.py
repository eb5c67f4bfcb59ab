"""Runtime for Claude Code, over its JSON line stream with control requests."""

from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

from proctor.ids import ThreadId
from proctor.runtime.base import Confinement, Executable, Host, HostRequest, Normalizer, Runtime, Tap
from proctor.runtime.capability import CapabilityProfile
from proctor.runtime.claude_code import home, host
from proctor.runtime.claude_code.capabilities import CAPABILITIES, ID, SERVES, TRANSPORTS
from proctor.runtime.claude_code.failures import FAILURES
from proctor.runtime.claude_code.history import find_home, session_file
from proctor.runtime.claude_code.login import ACCOUNT
from proctor.runtime.claude_code.normalize import ClaudeNormalizer
from proctor.runtime.claude_code.program import examine, locate
from proctor.runtime.claude_code.samples import SAMPLES
from proctor.runtime.claude_code.vocabulary import PRIVATE, WORDS
from proctor.runtime.credential import Account


class ClaudeCode:
    """The Claude Code runtime. Each session has its own process."""

    id = ID
    capabilities = CAPABILITIES
    profile = CapabilityProfile.FULL_APP_SERVER
    serves: Mapping[str, tuple[str, ...]] | None = SERVES
    transports = TRANSPORTS
    protocol_words = WORDS
    private_paths = PRIVATE
    failures = FAILURES
    option_names = frozenset({*home.OPTIONS, "transport"})
    account: Account | None = ACCOUNT
    reserved_variables = home.RESERVED
    confinement = Confinement.FENCES
    samples = SAMPLES

    def check_options(self, options: Mapping[str, Any]) -> None:
        home.check_options(options)

    def locate(self, options: Mapping[str, Any]) -> Executable:
        return locate()

    async def examine(self, request: HostRequest) -> Executable:
        return await examine(request)

    def has_thread(self, thread: ThreadId, *, home: Path, user_home: Path | None = None) -> bool:
        return find_home(home, thread) is not None if user_home is None else session_file(user_home, thread) is not None

    def normalizer(self) -> Normalizer:
        return ClaudeNormalizer()

    def open_host(self, request: HostRequest, tap: Tap) -> AbstractAsyncContextManager[Host]:
        return host.open_host(request)


RUNTIME: Runtime = ClaudeCode()
