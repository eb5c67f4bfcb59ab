"""A session's folder: what is missing is an error unless its creation was cut off, and a failed fork leaves nothing."""

from pathlib import Path

import pytest

from proctor import places
from proctor.context.change_session import fork_session
from proctor.context.kept_session import open_kept_session
from proctor.context.model import Binding
from proctor.errors import EvidenceError, InputError
from proctor.evidence.layout import RootPaths, SessionPaths
from proctor.ids import ProcessId, RuntimeId, SessionKey, ThreadId, TurnId
from proctor.testing.clock import FakeClock
from tests.context.made import sitting

pytestmark = pytest.mark.requirement("session.mirror")
CLOCK = FakeClock()


@pytest.fixture
def root(tmp_path: Path) -> RootPaths:
    return RootPaths(tmp_path / "root")


def made(root: RootPaths, *, has_sitting: bool) -> SessionPaths:
    with open_kept_session(root, "x", clock=CLOCK) as kept:
        if has_sitting:
            kept.store.begin_sitting(sitting())
        return kept.paths


def test_session_whose_creation_was_cut_off_before_its_header_is_created(root: RootPaths) -> None:
    paths = made(root, has_sitting=False)
    paths.header.unlink()
    with open_kept_session(root, "x", clock=CLOCK) as kept:
        assert kept.header.id == SessionKey("x")
    assert paths.header.is_file()


def test_session_with_a_sitting_and_no_header_is_refused(root: RootPaths) -> None:
    paths = made(root, has_sitting=True)
    paths.header.unlink()
    with pytest.raises(EvidenceError) as refused, open_kept_session(root, "x", clock=CLOCK):
        pass
    assert refused.value.code == "evidence.missing-file"
    assert not paths.header.exists()


@pytest.mark.parametrize("must_exist", [True, False])
def test_session_without_its_store_is_refused_and_gets_no_new_one(must_exist: bool, root: RootPaths) -> None:
    paths = made(root, has_sitting=True)
    paths.store.unlink()
    with (
        pytest.raises(EvidenceError) as refused,
        open_kept_session(root, "x", clock=CLOCK, must_exist=must_exist),
    ):
        pass
    assert refused.value.code == "session.damaged"
    assert not paths.store.exists()


def test_fork_that_fails_leaves_neither_session_nor_home(root: RootPaths) -> None:
    with open_kept_session(root, "x", clock=CLOCK) as kept:
        # No package offers this runtime any more, so it is not known what of its home can be copied.
        (kept.home / "homes" / "gone" / "sessions").mkdir(parents=True)
        (kept.home / "homes" / "gone" / "file").touch()
        home = kept.home
    before = set(places.sessions_dir().iterdir())
    with pytest.raises(InputError) as refused:
        fork_session(root, "x", "y", clock=CLOCK)
    assert refused.value.code == "spec.unknown-runtime"
    assert not root.session(SessionKey("y")).folder.exists()
    assert set(places.sessions_dir().iterdir()) == before >= {home}


def test_fork_keeps_the_files_of_a_workspace_whatever_their_names(root: RootPaths) -> None:
    with open_kept_session(root, "x", clock=CLOCK) as kept:
        for file in ("workspace/app.sqlite", "homes/codex_exec/state.sqlite", "homes/codex_exec/sessions/rollout"):
            (kept.home / file).parent.mkdir(parents=True, exist_ok=True)
            (kept.home / file).touch()
    fork_session(root, "x", "y", clock=CLOCK)
    with open_kept_session(root, "y", clock=CLOCK) as fork:
        found = {str(each.relative_to(fork.home)) for each in fork.home.rglob("*") if each.is_file()}
    assert found == {"workspace/app.sqlite", "homes/codex_exec/sessions/rollout"}


def test_fork_of_a_thread_in_a_pool_is_made_up_to_its_last_turn(root: RootPaths) -> None:
    binding = Binding(
        runtime_id=RuntimeId("codex_app_server"),
        thread=ThreadId("t"),
        tools="none",
        process=ProcessId("p-1"),
        last_turn=TurnId("turn-2"),
    )
    with open_kept_session(root, "x", clock=CLOCK) as kept:
        kept.store.bind(binding, revision=0)
    fork_session(root, "x", "y", clock=CLOCK)
    with open_kept_session(root, "y", clock=CLOCK) as fork:
        found, _ = fork.store.binding
    assert found is not None
    assert (found.is_fork, found.thread, found.last_turn) == (True, "t", "turn-2")
