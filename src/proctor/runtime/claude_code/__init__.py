"""Claude Code, driven over its stream of JSON lines with control requests."""

from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from typing import Any

from proctor.runtime.base import Executable, Host, HostAsk, Normalizer, Runtime, Tap
from proctor.runtime.capability import Capability
from proctor.runtime.claude_code import home, host
from proctor.runtime.claude_code.claims import CLAIMS, ID, SERVES, TRANSPORTS
from proctor.runtime.claude_code.failures import FAILURES
from proctor.runtime.claude_code.login import ACCOUNT
from proctor.runtime.claude_code.normalize import ClaudeNormalizer
from proctor.runtime.claude_code.program import locate
from proctor.runtime.claude_code.samples import SAMPLES
from proctor.runtime.claude_code.vocabulary import PRIVATE, WORDS
from proctor.runtime.credential import Account


class ClaudeCode:
    """One process a session."""

    id = ID
    claims = CLAIMS
    capability = Capability.INTERACTIVE_APPROVALS
    serves: Mapping[str, tuple[str, ...]] | None = SERVES
    transports = TRANSPORTS
    words = WORDS
    private = PRIVATE
    failures = FAILURES
    option_names = frozenset({*home.OPTIONS, "transport"})
    account: Account | None = ACCOUNT
    reserved_variables = home.RESERVED
    samples = SAMPLES

    def check_options(self, options: Mapping[str, Any]) -> None:
        home.check_options(options)

    def locate(self, options: Mapping[str, Any]) -> Executable:
        return locate()

    def normalizer(self) -> Normalizer:
        return ClaudeNormalizer()

    def open_host(self, ask: HostAsk, tap: Tap) -> AbstractAsyncContextManager[Host]:
        return host.open_host(ask)


RUNTIME: Runtime = ClaudeCode()
