"""Runtime that replays a recorded attempt, without a program or a model, and produces the same evidence again."""

from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import msgspec

from proctor.fact import Authority, Fact
from proctor.ids import RuntimeId
from proctor.runtime.base import Executable, Host, HostRequest, Normalizer, Runtime, Session, SessionRequest, Tap
from proctor.runtime.capability import CapabilityProfile
from proctor.runtime.credential import Account
from proctor.runtime.failures import Failure
from proctor.runtime.line_process import LineCount
from proctor.runtime.registry import runtime_by_id
from proctor.runtime.replay.capabilities import CAPABILITIES, ID, TRANSPORTS
from proctor.runtime.replay.normalize import ReplayNormalizer
from proctor.runtime.replay.options import NAMES, read_options
from proctor.runtime.replay.recording import read_attempt
from proctor.runtime.replay.session import open_session
from proctor.runtime.thread_normalizer import normalizer_of


def reader_of(runtime_id: RuntimeId) -> Normalizer:
    return normalizer_of(runtime_by_id(runtime_id))


class ReplayHost:
    """The host of replay sessions. It starts no process."""

    is_alive = True

    def __init__(self, request: HostRequest) -> None:
        self._request = request
        self._count = LineCount()

    @property
    def frames_in(self) -> int:
        return self._count.lines

    @property
    def facts(self) -> Mapping[str, Fact]:
        return {
            "capability": Fact(
                value=msgspec.to_builtins(CAPABILITIES), authority=Authority.DECLARED, source="capabilities"
            ),
            "transport": Fact(value=TRANSPORTS[0], authority=Authority.OBSERVED, source="there is no process"),
        }

    def open_session(self, request: SessionRequest, tap: Tap) -> AbstractAsyncContextManager[Session]:
        return open_session(self._request, request, tap, reader_of=reader_of, count=self._count)


class Replay:
    """The replay runtime."""

    id = ID
    capabilities = CAPABILITIES
    profile = CapabilityProfile.REPLAY_ONLY
    serves: Mapping[str, tuple[str, ...]] | None = None
    transports = TRANSPORTS
    protocol_words: frozenset[str] = frozenset()
    private_paths: frozenset[tuple[str, ...]] = frozenset()
    failures: tuple[Failure, ...] = ()
    option_names = NAMES
    account: Account | None = None
    reserved_variables: frozenset[str] = frozenset()

    def check_options(self, options: Mapping[str, Any]) -> None:
        runtime_by_id(read_attempt(read_options(options)).runtime_id)

    def locate(self, options: Mapping[str, Any]) -> Executable | None:
        return None

    def normalizer(self) -> Normalizer:
        return ReplayNormalizer(reader_of)

    @asynccontextmanager
    async def open_host(self, request: HostRequest, tap: Tap) -> AsyncIterator[Host]:
        yield ReplayHost(request)


RUNTIME: Runtime = Replay()
