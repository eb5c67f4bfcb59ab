"""The session of an attempt whose flow has a context engine: how it is opened, and what stays of it."""

from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any, Final

import anyio
import msgspec
import pytest

from proctor.campaign.flow_engines import (
    AttemptSession,
    SessionPlace,
    find_flow_engines,
    open_attempt_session,
)
from proctor.canonical import digest
from proctor.clock import SYSTEM_CLOCK
from proctor.config.load import load_config
from proctor.context.model import Sitting
from proctor.context.store import read_store
from proctor.evidence.layout import RootPaths, SessionPaths
from proctor.ids import AttemptId, FlowId, RunId, RuntimeId
from proctor.plan.expand import resolve_flow
from proctor.runtime.registry import runtime_by_id
from proctor.runtime.resolve import Candidate
from proctor.runtime.rollout import rollout_of
from proctor.spec.context_settings import ContextSettings
from proctor.spec.load import LoadedSpec, load_built

CODEX: Final = RuntimeId("codex_app_server")
RUN: Final = RunId("20300101-000000-abcdef")


@pytest.fixture
def spec(tmp_path: Path) -> LoadedSpec:
    (tmp_path / "script.yaml").write_text("version: 1\nsteps: [{say: Hello.}]\n")
    built: dict[str, Any] = {
        "version": 1,
        "campaign": "engines",
        "missions": [{"id": "hello", "prompt": "Say hello.", "script": "script.yaml"}],
        "flows": [{"id": "codex", "runtime": [CODEX], "context": {"engine": "lossless"}}],
    }
    return load_built(built, name="spec.yaml", folder=tmp_path)


@pytest.fixture
def open_session(spec: LoadedSpec, tmp_path: Path) -> Callable[..., AbstractAsyncContextManager[AttemptSession]]:
    config, flow = load_config(tmp_path), resolve_flow(spec.spec.flows[0], spec=spec.spec)
    candidate = Candidate(rollout=rollout_of(CODEX, config), runtime=runtime_by_id(CODEX), executable=None)
    engine = find_flow_engines(spec, [flow], config=config, chains={flow.id: [candidate]})[FlowId("codex")]

    def open_(place: SessionPlace, *, n: int = 1) -> AbstractAsyncContextManager[AttemptSession]:
        return open_attempt_session(
            engine,
            place,
            root=RootPaths(tmp_path / "root"),
            run_id=RUN,
            attempt=AttemptId(f"hello.codex.r1.{n}"),
            flow=flow,
            candidate=candidate,
            is_ephemeral=True,
            clock=SYSTEM_CLOCK,
        )

    return open_


def bounded(work: Callable[[], Awaitable[None]]) -> None:
    async def main() -> None:
        with anyio.fail_after(30):
            await work()

    anyio.run(main)


def sittings(place: SessionPlace) -> tuple[Sitting, ...]:
    with read_store(SessionPaths(place.folder).store) as store:
        return store.sittings()


@pytest.mark.requirement("context.selection")
def test_session_of_an_attempt_is_removed_with_its_engine_when_it_is_closed(
    open_session: Callable[..., AbstractAsyncContextManager[AttemptSession]], tmp_path: Path
) -> None:
    place = SessionPlace(folder=tmp_path / "sessions" / "one", is_kept=False)

    async def work() -> None:
        async with open_session(place) as opened:
            assert opened.refusal is None
            assert opened.kept is not None
            assert (opened.context.engine, opened.context.owns_compaction) == ("lossless", True)
            # An engine may keep something of a session elsewhere, under its id.
            assert opened.kept.keeper.key == "one"
            assert {tool.name for tool in opened.tools} == {"context_search", "context_expand"}
            assert (place.folder / "session.db").is_file()
        assert not place.folder.exists()

    bounded(work)


@pytest.mark.requirement("context.selection")
def test_session_of_an_attempt_that_is_kept_continues_in_the_next_attempt(
    open_session: Callable[..., AbstractAsyncContextManager[AttemptSession]], tmp_path: Path
) -> None:
    place = SessionPlace(folder=tmp_path / "sessions" / "kept", is_kept=True)

    async def work() -> None:
        for n in (1, 2):
            async with open_session(place, n=n) as opened:
                assert opened.refusal is None

    bounded(work)
    assert [(each.n, each.attempt_id) for each in sittings(place)] == [
        (1, "hello.codex.r1.1"),
        (2, "hello.codex.r1.2"),
    ]


@pytest.mark.requirement("context.errors")
def test_session_that_cannot_be_opened_is_the_refusal_of_its_attempt(
    open_session: Callable[..., AbstractAsyncContextManager[AttemptSession]], tmp_path: Path
) -> None:
    place = SessionPlace(folder=tmp_path / "sessions" / "held", is_kept=True)

    async def work() -> None:
        async with open_session(place) as first, open_session(place, n=2) as second:
            assert first.refusal is None
            assert second.kept is None
            assert second.refusal is not None
            assert second.refusal.code == "session.held"
            assert second.context == first.context

    bounded(work)


@pytest.mark.requirement("campaign.matrix")
def test_flow_with_another_context_is_other_work(spec: LoadedSpec) -> None:
    [flow] = spec.spec.flows
    contexts = [None, ContextSettings(engine="none"), ContextSettings(engine="none", policy="strict")]
    flows = [resolve_flow(msgspec.structs.replace(flow, context=each), spec=spec.spec) for each in contexts]
    assert len({digest(each) for each in flows}) == len(contexts)
    assert "context" not in msgspec.to_builtins(flows[0])
