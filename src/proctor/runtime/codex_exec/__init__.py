"""Runtime for `codex exec`, with one process per turn."""

from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

from proctor.errors import InputError
from proctor.ids import ThreadId
from proctor.runtime.base import Confinement, Executable, Host, HostRequest, Normalizer, Runtime, Tap
from proctor.runtime.capability import CapabilityProfile
from proctor.runtime.codex.account import ACCOUNT
from proctor.runtime.codex.home import HOME_INDEXES, RETRY_OPTIONS
from proctor.runtime.codex.program import examine, locate
from proctor.runtime.codex.stored_threads import find_rollout
from proctor.runtime.codex_exec import host
from proctor.runtime.codex_exec.capabilities import CAPABILITIES, ID, TRANSPORTS
from proctor.runtime.codex_exec.failures import FAILURES
from proctor.runtime.codex_exec.normalize import ExecNormalizer
from proctor.runtime.codex_exec.samples import SAMPLES
from proctor.runtime.codex_exec.vocabulary import WORDS
from proctor.runtime.credential import Account
from proctor.runtime.failures import Failure


class CodexExec:
    """A headless runtime: it never asks for approval, and takes one prompt per turn."""

    id = ID
    capabilities = CAPABILITIES
    profile = CapabilityProfile.HEADLESS_LIMITED
    serves: Mapping[str, tuple[str, ...]] | None = None
    transports = TRANSPORTS
    protocol_words = WORDS
    private_paths: frozenset[tuple[str, ...]] = frozenset()
    failures: tuple[Failure, ...] = FAILURES
    option_names = frozenset({*RETRY_OPTIONS, "transport"})
    account: Account | None = ACCOUNT
    reserved_variables = frozenset({"CODEX_HOME", "HOME"})
    confinement = Confinement.SANDBOX
    home_indexes = HOME_INDEXES
    samples = SAMPLES

    def check_options(self, options: Mapping[str, Any]) -> None:
        if (transport := options.get("transport", TRANSPORTS[0])) not in TRANSPORTS:
            raise InputError("spec.type", f"transport must be one of {', '.join(TRANSPORTS)}, not {transport!r}")

    def locate(self, options: Mapping[str, Any]) -> Executable:
        return locate()

    async def examine(self, request: HostRequest) -> Executable:
        return await examine(request)

    def has_thread(self, thread: ThreadId, *, home: Path, user_home: Path | None = None) -> bool:
        return find_rollout(user_home or home, thread) is not None

    def normalizer(self) -> Normalizer:
        return ExecNormalizer()

    def open_host(self, request: HostRequest, tap: Tap) -> AbstractAsyncContextManager[Host]:
        return host.open_host(request, tap)


RUNTIME: Runtime = CodexExec()
