"""Proctor runtime for pi, driven over its RPC with one process per session."""

from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from typing import Any

from proctor.ids import RuntimeId
from proctor.runtime.base import Confinement, Executable, Host, HostRequest, Normalizer, Runtime, Tap
from proctor.runtime.capability import CapabilityProfile
from proctor.runtime.credential import Account
from proctor_pi import home, host, program
from proctor_pi.failures import FAILURES
from proctor_pi.normalize import PiNormalizer
from proctor_pi.samples import SAMPLES
from proctor_pi.vocabulary import WORDS


class Pi:
    """Implements `proctor.runtime.base.Runtime`."""

    id = RuntimeId("pi")
    capabilities = host.CAPABILITIES
    profile = CapabilityProfile.INTERACTIVE_APPROVALS
    serves: Mapping[str, tuple[str, ...]] | None = None
    transports = (host.TRANSPORT,)
    protocol_words = WORDS
    private_paths: frozenset[tuple[str, ...]] = frozenset()
    failures = FAILURES
    option_names = home.OPTIONS
    account: Account | None = None
    reserved_variables = home.OWN_VARIABLES
    confinement = Confinement.FENCES
    samples = SAMPLES

    def check_options(self, options: Mapping[str, Any]) -> None:
        home.check_options(options)

    def locate(self, options: Mapping[str, Any]) -> Executable:
        return program.locate(options)

    def normalizer(self) -> Normalizer:
        return PiNormalizer()

    def open_host(self, request: HostRequest, tap: Tap) -> AbstractAsyncContextManager[Host]:
        return host.open_host(request, tap)


RUNTIME: Runtime = Pi()
