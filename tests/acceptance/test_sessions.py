"""Sessions with an id on the real agents: what the model is shown after the session was closed and opened again."""

import sqlite3
from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from pathlib import Path
from typing import Any, Final

import anyio
import msgspec
import pytest

import proctor
from proctor.ids import ThreadId
from proctor.testing.journals import recorded_journals
from tests.acceptance.sittings import (
    CLAUDE,
    CODEX,
    NO_ENGINE,
    RUNTIMES,
    Said,
    SessionLab,
    conversation,
    first_requests,
    say_all,
    tool,
)
from tests.api.talk import bounded

pytestmark = [pytest.mark.real_agent, pytest.mark.long]

FIRST: Final = ({"run": "echo marker-$((40+2))"}, {"say": "It says so."})
FIRST_SAID: Final[list[Said]] = [
    ("user", "What does it say?"),
    ("call", "echo marker-$((40+2))"),
    ("result", "marker-42"),
    ("agent", "It says so."),
]
ADD: Final = {"call": {"tool": "add", "arguments": {"a": 3, "b": 4}}}
ADD_SAID: Final[list[Said]] = [("call", '{"a": 3, "b": 4}'), ("result", "seven")]


@pytest.fixture
def lab(tmp_path: Path) -> SessionLab:
    return SessionLab(tmp_path, context=NO_ENGINE)


# ── another process ──


@pytest.mark.requirement("session.one")
@pytest.mark.requirement("session.mirror")
@pytest.mark.parametrize("runtime", RUNTIMES)
def test_session_continues_in_new_agent_process_with_all_that_was_said(runtime: str, lab: SessionLab) -> None:
    async def talk() -> None:
        thread = await lab.sit(runtime, "x", ["What does it say?"], *FIRST)
        again = await lab.sit(runtime, "x", ["Once more?"], {"run": "echo other"}, {"say": "Done."})
        third = await lab.sit(runtime, "x", ["And now?", "Sure?"], {"say": "Yes."}, {"say": "Sure."})
        assert thread == again == third is not None

    with recorded_journals() as journals:
        bounded(talk)
    second: list[Said] = [("user", "Once more?"), ("call", "echo other"), ("result", "other"), ("agent", "Done.")]
    assert first_requests(journals) == [
        FIRST_SAID[:1],
        [*FIRST_SAID, second[0]],
        [*FIRST_SAID, *second, ("user", "And now?")],
    ]
    last: list[Said] = [("user", "And now?"), ("agent", "Yes."), ("user", "Sure?")]
    assert conversation(journals[-1].rows[-1]) == [*FIRST_SAID, *second, *last]
    assert lab.mirror("x") == [*FIRST_SAID, *second, *last, ("agent", "Sure.")]
    lab.assert_verified("x")


@pytest.mark.requirement("session.one")
@pytest.mark.parametrize("runtime", [CODEX, CLAUDE])
def test_session_continues_with_the_same_tools(runtime: str, lab: SessionLab) -> None:
    async def talk() -> None:
        for prompt in ("Three and four?", "Again?"):
            await lab.sit(runtime, "x", [prompt], ADD, {"say": "Seven."}, tools=[tool()])

    with recorded_journals() as journals:
        bounded(talk)
    whole = [("user", "Three and four?"), *ADD_SAID, ("agent", "Seven."), ("user", "Again?"), *ADD_SAID]
    assert conversation(journals[-1].rows[-1]) == whole
    assert lab.mirror("x") == [*whole, ("agent", "Seven.")]
    lab.assert_verified("x")


@pytest.mark.requirement("session.one")
@pytest.mark.parametrize("runtime", RUNTIMES)
def test_open_session_that_is_reset_begins_a_new_thread(runtime: str, lab: SessionLab) -> None:
    async def talk() -> None:
        async with lab.open(runtime, "x", {"say": "In the cellar."}) as session:
            await say_all(session, ["Where is the lamp?"])
            await session.reset()
            with pytest.raises(proctor.InputError, match="it was reset"):
                session.say("Again?")
        await lab.sit(runtime, "x", ["Where?"], {"say": "I do not know."})

    with recorded_journals() as journals:
        bounded(talk)
    assert conversation(journals[-1].rows[-1]) == [("user", "Where?")]
    assert [text for _, text in lab.mirror("x")] == ["Where is the lamp?", "In the cellar.", "Where?", "I do not know."]
    lab.assert_verified("x")


@pytest.mark.requirement("session.one")
@pytest.mark.parametrize("others", [[], [tool("subtract")], [tool(), tool("subtract")]])
def test_session_with_other_tools_has_lost_its_thread(others: list[proctor.Tool], lab: SessionLab) -> None:
    async def talk() -> None:
        await lab.sit(CODEX, "x", ["Three and four?"], ADD, {"say": "Seven."}, tools=[tool()])
        with pytest.raises(proctor.MachineError, match="other tools") as lost:
            await lab.sit(CODEX, "x", ["Again?"], {"say": "Never."}, tools=others)
        assert lost.value.code == "session.thread-lost"
        await lab.sit(CODEX, "x", ["Again?"], {"say": "Seven."}, tools=[tool()])

    bounded(talk)
    lab.assert_verified("x")


@pytest.mark.requirement("session.one")
def test_session_adopts_no_thread_with_tools_and_refuses_what_its_runtime_cannot_do(lab: SessionLab) -> None:
    async def nobody(_: proctor.Question) -> proctor.Decision:
        return proctor.Decision.DENY

    async def talk() -> None:
        with pytest.raises(proctor.InputError) as refused:
            await lab.sit(CODEX, "x", ["Hello?"], {"say": "Never."}, thread="some", tools=[tool()])
        assert (refused.value.code, refused.value.key) == ("spec.unsupported", "tools")
        await lab.sit("codex_exec", "y", ["Hello?"], {"say": "Hello."})
        # The thread is still there: only what is asked for is not possible.
        with pytest.raises(proctor.RefusedError) as incapable:
            await lab.sit("codex_exec", "y", ["Again?"], {"say": "Never."}, approvals=nobody)
        assert incapable.value.code == "runtime.capability"

    bounded(talk)


# ── a pool ──


@pytest.mark.requirement("session.one")
@pytest.mark.parametrize("runtime", RUNTIMES)
def test_pool_sessions_continue_until_the_pool_is_closed(runtime: str, lab: SessionLab) -> None:
    def open_in(pool: proctor.Pool, key: str, answer: str) -> AbstractAsyncContextManager[proctor.Session]:
        return pool.session(id=key, script=lab.script({"say": answer}), context=lab.context)

    async def talk() -> None:
        async with proctor.pool(runtime, evidence="disk", root=lab.root) as pool:
            async with (
                open_in(pool, "ada", "I am Ada's.") as ada,
                open_in(pool, "bob", "I am Bob's.") as bob,
                anyio.create_task_group() as tasks,
            ):
                tasks.start_soon(say_all, ada, ["Whose are you?"])
                tasks.start_soon(say_all, bob, ["And you?"])
            threads = {ada.thread, bob.thread}
            async with open_in(pool, "bob", "Still Bob's.") as bob, open_in(pool, "ada", "Still Ada's.") as ada:
                await say_all(bob, ["Still?"])
                await say_all(ada, ["And still?"])
            assert {ada.thread, bob.thread} == threads
            assert len(threads - {None}) == 2
        with pytest.raises(proctor.MachineError, match="process gone") as lost:
            async with proctor.pool(runtime, evidence="disk", root=lab.root) as pool, open_in(pool, "ada", "Never."):
                pass
        with pytest.raises(proctor.MachineError) as lost_too:
            await lab.sit(runtime, "ada", ["Once more?"], {"say": "Never."})
        assert (lost.value.code, lost_too.value.code) == ("session.thread-lost", "session.thread-lost")

    with recorded_journals() as journals:
        bounded(talk)
    assert first_requests([journal for journal in journals if journal.rows])[2:] == [
        [("user", "And you?"), ("agent", "I am Bob's."), ("user", "Still?")],
        [("user", "Whose are you?"), ("agent", "I am Ada's."), ("user", "And still?")],
    ]
    for key in ("ada", "bob"):
        lab.assert_verified(key)


@pytest.mark.requirement("session.one")
@pytest.mark.parametrize("runtime", RUNTIMES)
def test_pool_sessions_keep_their_workspace_and_forks_get_a_copy(runtime: str, lab: SessionLab) -> None:
    async def talk() -> None:
        async with proctor.pool(runtime, evidence="disk", root=lab.root) as pool:

            async def sit(key: str, command: str, *, fork: str | None = None) -> None:
                steps = lab.script({"run": command}, {"say": "Done."})
                async with pool.session(id=key, script=steps, context=NO_ENGINE) as session:
                    await say_all(session, ["Do it."])
                    if fork is not None:
                        await session.fork(fork)

            await sit("x", "echo planted > made; cat made", fork="y")
            # Before its origin continues: `codex exec` forks whole threads only.
            await sit("y", "cat made; echo of-y > made")
            await sit("x", "cat made")

    bounded(talk)
    found = [text for who, text in (*lab.mirror("x"), *lab.mirror("y")) if who == "result"]
    assert found == ["planted"] * 4


# ── forks ──


@pytest.mark.requirement("session.one")
@pytest.mark.parametrize(
    ("where", "runtime"),
    [
        ("process", CODEX),
        ("process", "codex_exec"),
        pytest.param("process", "claude_code", marks=pytest.mark.agent("claude_code")),
        ("pool", CODEX),
        pytest.param("pool", "claude_code", marks=pytest.mark.agent("claude_code")),
    ],
)
def test_fork_and_its_origin_continue_without_each_other(runtime: str, where: str, lab: SessionLab) -> None:
    tools = [] if runtime == "codex_exec" else [tool()]
    step, said = (ADD, ADD_SAID) if tools else (FIRST[0], FIRST_SAID[1:3])

    async def talk() -> list[ThreadId]:
        async with AsyncExitStack() as stack:
            pool = None
            if where == "pool":
                pool = await stack.enter_async_context(proctor.pool(runtime, evidence="disk", root=lab.root))

            def sitting(key: str, *steps: Mapping[str, Any]) -> AbstractAsyncContextManager[proctor.Session]:
                if pool is None:
                    return lab.open(runtime, key, *steps, tools=tools)
                return pool.session(id=key, script=lab.script(*steps), tools=tools)

            async with sitting("x", {"say": "One."}, {"say": "Two."}) as x:
                await say_all(x, ["First?"])
                await x.fork("y")
                await say_all(x, ["Second?"])
            for key in ("y", "x", "y"):
                async with sitting(key, step, {"say": f"It is {key}."}) as session:
                    await say_all(session, [f"And {key}?"])
            return [each.thread for key in ("x", "y") if (each := lab.report(key).binding) is not None]

    with recorded_journals() as journals:
        threads = bounded(talk)
    first: list[Said] = [("user", "First?"), ("agent", "One.")]
    y: list[Said] = [("user", "And y?"), *said, ("agent", "It is y.")]
    x: list[Said] = [("user", "Second?"), ("agent", "Two."), ("user", "And x?")]
    assert first_requests(journals)[1:] == [[*first, y[0]], [*first, *x], [*first, *y, y[0]]]
    assert lab.mirror("y") == [*first, *y, *y]
    assert lab.mirror("x") == [*first, *x, *said, ("agent", "It is x.")]
    if where == "pool":
        assert threads[0] != threads[1]
    for key in ("x", "y"):
        lab.assert_verified(key)


@pytest.mark.requirement("session.one")
def test_fork_in_a_pool_is_lost_if_codex_exec_continued_the_thread_before(lab: SessionLab) -> None:
    async def talk() -> None:
        async with proctor.pool("codex_exec", evidence="disk", root=lab.root) as pool:
            steps = lab.script({"say": "One."}, {"say": "Two."})
            async with pool.session(id="x", script=steps, context=NO_ENGINE) as x:
                await say_all(x, ["First?"])
                await x.fork("y")
                await say_all(x, ["Second?"])
            with pytest.raises(proctor.MachineError, match="whole threads only") as lost:
                async with pool.session(id="y", script=steps, context=NO_ENGINE):
                    pass
            assert lost.value.code == "session.thread-lost"

    bounded(talk)
    assert lab.mirror("y") == [("user", "First?"), ("agent", "One.")]
    lab.assert_verified("y")


# ── threads of the user's own home ──


@pytest.fixture
def users_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The home of a user of all agents, which has no settings."""
    home = tmp_path / "users-home"
    for name, variable in ((".codex", "CODEX_HOME"), (".claude", "CLAUDE_CONFIG_DIR")):
        (home / name).mkdir(parents=True)
        monkeypatch.setenv(variable, str(home / name))
    monkeypatch.setenv("HOME", str(home))
    return home


async def _make_users_thread(lab: SessionLab, runtime: str) -> str:
    """Take a turn that leaves a thread in the user's home, and return its id."""
    workspace = lab.folder / "shop"
    workspace.mkdir()
    thread = await lab.sit(runtime, "earlier", ["What does it say?"], *FIRST, profile="mine", workspace=workspace)
    assert thread is not None
    return thread


@pytest.mark.requirement("session.one")
@pytest.mark.requirement("session.mirror")
@pytest.mark.parametrize("runtime", RUNTIMES)
def test_adopted_thread_brings_its_history(runtime: str, lab: SessionLab, users_home: Path) -> None:
    async def talk() -> None:
        thread = await _make_users_thread(lab, runtime)
        # The same workspace too: Claude Code keeps threads by folder.
        mine: Any = {"profile": "mine", "workspace": lab.folder / "shop"}
        assert await lab.sit(runtime, "x", ["And now?"], {"say": "Now."}, thread=thread, **mine) == thread
        with pytest.raises(proctor.InputError) as refused:
            await lab.sit(runtime, "x", ["Again?"], {"say": "Never."}, thread=thread, **mine)
        assert (refused.value.code, refused.value.key) == ("spec.unsupported", "thread")
        assert await lab.sit(runtime, "x", ["Again?"], {"say": "Again."}, **mine) == thread
        with pytest.raises(proctor.MachineError) as lost:
            await lab.sit(runtime, "z", ["Hello?"], {"say": "Never."}, thread=thread[:-4] + "0000", **mine)
        assert lost.value.code == "session.thread-lost"

    with recorded_journals() as journals:
        bounded(talk)
    assert conversation(journals[1].rows[0]) == [*FIRST_SAID, ("user", "And now?")]
    own: list[Said] = [("user", "And now?"), ("agent", "Now."), ("user", "Again?"), ("agent", "Again.")]
    assert lab.mirror("x") == [*FIRST_SAID, *own]
    assert [shown.turn.kind for shown in lab.report("x").turns] == ["import", "prompt", "prompt"]
    lab.assert_verified("x")


@pytest.mark.requirement("session.one")
@pytest.mark.parametrize("runtime", [CODEX, CLAUDE])
def test_fork_of_a_thread_in_the_users_home_is_another_thread(runtime: str, lab: SessionLab, users_home: Path) -> None:
    mine: Any = {"profile": "mine", "workspace": lab.folder / "shop"}
    (lab.folder / "shop").mkdir()

    async def talk() -> None:
        async with lab.open(runtime, "x", {"say": "One."}, {"say": "Two."}, **mine) as x:
            await say_all(x, ["First?"])
            await x.fork("y")
            await say_all(x, ["Second?"])
        for key in ("y", "x"):
            await lab.sit(runtime, key, [f"And {key}?"], {"say": f"It is {key}."}, **mine)

    with recorded_journals() as journals:
        bounded(talk)
    first: list[Said] = [("user", "First?"), ("agent", "One.")]
    x: list[Said] = [("user", "Second?"), ("agent", "Two."), ("user", "And x?")]
    assert first_requests(journals)[1:] == [[*first, ("user", "And y?")], [*first, *x]]


# ── threads that are not stored yet, or not any more ──


@pytest.mark.requirement("session.one")
@pytest.mark.parametrize("runtime", RUNTIMES)
def test_session_without_a_turn_begins_when_it_is_opened_again(runtime: str, lab: SessionLab) -> None:
    async def talk() -> None:
        await lab.sit(runtime, "x", [], {"say": "Never."})
        await lab.sit(runtime, "x", [], {"say": "Never."})
        await lab.sit(runtime, "x", ["Hello?"], {"say": "Hello."})
        await lab.sit(runtime, "x", [], {"say": "Never."})
        await lab.sit(runtime, "x", ["Again?"], {"say": "Again."})

    with recorded_journals() as journals:
        bounded(talk)
    assert conversation(journals[-1].rows[-1]) == [("user", "Hello?"), ("agent", "Hello."), ("user", "Again?")]
    assert lab.mirror("x") == [("user", "Hello?"), ("agent", "Hello."), ("user", "Again?"), ("agent", "Again.")]
    lab.assert_verified("x")


@pytest.mark.requirement("session.one")
@pytest.mark.parametrize("runtime", RUNTIMES)
def test_session_whose_stored_thread_was_deleted_has_lost_it(runtime: str, lab: SessionLab) -> None:
    async def talk() -> None:
        thread = await lab.sit(runtime, "x", ["Hello?"], {"say": "Hello."})
        [file] = lab.thread_files("x", thread)
        file.unlink()
        for _ in range(2):  # not the first refusal, nor what it left, makes the session begin anew
            with pytest.raises(proctor.MachineError) as lost:
                await lab.sit(runtime, "x", ["Again?"], {"say": "Never."})
            assert lost.value.code == "session.thread-lost"

    with recorded_journals() as journals:
        bounded(talk)
    assert [len(journal.rows) for journal in journals] == [1, 0, 0]
    assert lab.mirror("x") == [("user", "Hello?"), ("agent", "Hello.")]
    lab.assert_verified("x")


# ── the caller's own errors ──


@pytest.mark.requirement("session.one")
@pytest.mark.parametrize(
    "error", [sqlite3.OperationalError("disk I/O error"), msgspec.DecodeError("truncated"), OverflowError("too large")]
)
def test_session_raises_the_callers_own_error_unchanged(error: Exception, lab: SessionLab) -> None:
    async def talk() -> None:
        async with lab.open(CODEX, "x", {"say": "Hello."}) as session:
            await say_all(session, ["Hello?"])
            raise error

    with pytest.raises(type(error)) as raised:
        bounded(talk)
    assert raised.value is error
    assert lab.mirror("x") == [("user", "Hello?"), ("agent", "Hello.")]
    lab.assert_verified("x")
