"""Sessions with an id that are held, damaged, on a bad disk, or hold a secret: a code, never a traceback or a loss."""

import os
import shutil
import signal
import sqlite3
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

import proctor
from chaos.play import rows_of, start_player
from chaos.session_player import Sitting
from proctor import places
from proctor.campaign.session_engine import check_engine
from proctor.context.report import list_sessions
from proctor.context.store_check import check_store
from proctor.context.verify import rebuild_session, repair_session
from proctor.errors.codes import CODES
from proctor.evidence.artifacts import AttemptRecord, RunnerRef
from proctor.evidence.layout import RootPaths
from proctor.evidence.reader import read_artifact
from proctor.spec.context_settings import ContextSettings
from proctor.surface.cli.app import answer
from proctor.testing.journals import recorded_journals
from tests.acceptance.sittings import CLAUDE, CODEX, NO_ENGINE, SessionLab, conversation, say_all
from tests.api.talk import bounded

pytestmark = [pytest.mark.real_agent, pytest.mark.long]

HELLO = [("user", "Hello?"), ("agent", "Hello.")]
AGAIN = [("user", "Again?"), ("agent", "Again.")]


@pytest.fixture
def lab(tmp_path: Path) -> SessionLab:
    return SessionLab(tmp_path, context=NO_ENGINE)


@pytest.fixture(params=["none", "lossless"])
def either(request: pytest.FixtureRequest, tmp_path: Path) -> SessionLab:
    """A lab whose sessions have no engine, and one with that of sessions that name none."""
    return SessionLab(tmp_path, context=NO_ENGINE if request.param == "none" else None)


def engine_states(lab: SessionLab) -> set[str]:
    return {shown.turn.state.value for shown in lab.report("x").turns if shown.turn.state.is_completed}


async def _greet(lab: SessionLab) -> None:
    await lab.sit(CODEX, "x", ["Hello?"], {"say": "Hello."})


async def _again(lab: SessionLab) -> None:
    await lab.sit(CODEX, "x", ["Again?"], {"say": "Again."})


def refusal_of(lab: SessionLab) -> proctor.ProctorError:
    """Return the error of opening the session again."""

    async def talk() -> proctor.ProctorError:
        with pytest.raises(proctor.ProctorError) as refused:
            await _again(lab)
        return refused.value

    return bounded(talk)


# ── held ──


@pytest.mark.requirement("session.held")
@pytest.mark.proctor_process
def test_session_held_by_another_process_is_refused_at_once_with_its_pid(either: SessionLab) -> None:
    lab = either
    script = str(lab.script({"fault": "hang"}))
    sitting = Sitting(root=str(lab.root), key="x", script=script, prompts=("Hello?",))
    words = msgspec.json.encode(sitting).decode()
    with start_player("chaos.session_player", words, folder=lab.folder) as player:
        try:
            assert any(row.what == "event" for row in rows_of(player))
            began_s = time.monotonic()
            held = refusal_of(lab)
            assert (held.code, held.exit) == ("session.held", 3)
            assert f"process {player.pid}" in held.what
            assert time.monotonic() - began_s < 20, "it starts no agent and does not wait"
            [summary] = list_sessions(RootPaths(lab.root))
            assert (summary.held_by, summary.unsettled) == (player.pid, 1)
        finally:
            player.send_signal(signal.SIGKILL)
    bounded(lambda: _again(lab))
    assert lab.mirror("x") == AGAIN
    lab.assert_verified("x")


@pytest.mark.requirement("session.held")
def test_session_is_held_within_one_process_too_and_free_when_it_is_closed(lab: SessionLab) -> None:
    async def talk() -> None:
        async with lab.open(CODEX, "x", {"say": "Hello."}) as session:
            with pytest.raises(proctor.MachineError, match=f"process {os.getpid()}") as held:
                await _again(lab)
            assert held.value.code == "session.held"
            await say_all(session, ["Hello?"])
        await _again(lab)

    bounded(talk)
    assert lab.mirror("x") == [*HELLO, *AGAIN]


# ── bad input ──


@pytest.mark.requirement("session.one")
@pytest.mark.parametrize("given", ["option", "workspace"])
def test_first_opening_that_is_refused_as_bad_input_creates_no_session(given: str, lab: SessionLab) -> None:
    hidden = lab.root / "work"
    hidden.mkdir(parents=True)
    options: dict[str, Any] = {"context": proctor.Context(engine="lossless", options={"nosuch": 1})}
    if given == "workspace":
        options = {"workspace": hidden}

    async def talk() -> None:
        with pytest.raises(proctor.InputError):
            await lab.sit(CODEX, "x", ["Hello?"], {"say": "Hello."}, **options)

    before = sorted(places.sessions_dir().glob("*"))
    bounded(talk)
    assert list(lab.root.glob("sessions/*")) == []
    assert sorted(places.sessions_dir().glob("*")) == before
    bounded(lambda: _greet(lab))
    bounded(talk)
    assert lab.mirror("x") == HELLO


@pytest.mark.requirement("session.one")
@pytest.mark.parametrize("key", ["", ".", "..", "../x", "a/b", "/abs", "-x", ".hidden", "a b", "ä", "x" * 300, "a\0b"])
def test_session_id_that_is_no_valid_name_is_refused(key: str, lab: SessionLab) -> None:
    async def talk() -> None:
        with pytest.raises(proctor.InputError) as refused:
            await lab.sit(CODEX, key, ["Hello?"], {"say": "Hello."})
        assert (refused.value.code, refused.value.key) == ("session.id", "id")

    bounded(talk)
    assert list(lab.root.glob("sessions/*")) == []


@pytest.mark.requirement("session.one")
def test_session_in_the_old_layout_is_refused(lab: SessionLab) -> None:
    (lab.root / "sessions" / "x" / "attempts").mkdir(parents=True)
    assert refusal_of(lab).code == "session.layout"
    [summary] = list_sessions(RootPaths(lab.root))
    assert summary.problem is not None
    assert [each.name for each in (lab.root / "sessions" / "x").iterdir()] == ["attempts"]


def _truncate(db: Path) -> None:
    db.write_bytes(db.read_bytes()[:1500])


def _overwrite(db: Path) -> None:
    db.write_bytes(b"not a database" * 500)


def _newer(db: Path) -> None:
    with closing(sqlite3.connect(db)) as connection:
        connection.execute("pragma user_version = 99")
        connection.commit()


def _foreign(db: Path) -> None:
    db.unlink()
    with closing(sqlite3.connect(db)) as connection:
        connection.execute("create table other (x)")
        connection.commit()


def _garble_row(db: Path) -> None:
    with closing(sqlite3.connect(db)) as connection:
        connection.execute("update session set setup = x'7b'")
        connection.execute("update turn set turn = x'7b'")
        connection.commit()


def _drop_table(db: Path) -> None:
    with closing(sqlite3.connect(db)) as connection:
        connection.execute("drop table turn")
        connection.commit()


def _folder(db: Path) -> None:
    db.unlink()
    db.mkdir()


@pytest.mark.requirement("session.mirror")
@pytest.mark.parametrize("damage", [_truncate, _overwrite, _newer, _foreign, _garble_row, _drop_table])
def test_damaged_store_is_an_evidence_error_and_is_rebuilt_from_the_record(
    damage: Callable[[Path], None], either: SessionLab
) -> None:
    lab = either
    bounded(lambda: _greet(lab))
    db = lab.root / "sessions" / "x" / "session.db"
    damage(db)
    refused = refusal_of(lab)
    assert (refused.code, refused.exit) == ("session.damaged", 5)
    assert "--rebuild" in CODES[refused.code].todo
    [summary] = list_sessions(RootPaths(lab.root))
    assert summary.problem is not None
    with pytest.raises(proctor.EvidenceError):
        lab.verify("x")
    rebuild_session(RootPaths(lab.root), "x")
    with recorded_journals() as journals:
        bounded(lambda: _again(lab))
    assert conversation(journals[0].rows[0]) == [*HELLO, AGAIN[0]]
    assert lab.mirror("x") == [*HELLO, *AGAIN]
    lab.assert_verified("x")


def _zero(db: Path) -> None:
    db.write_bytes(b"")


def _middle(db: Path) -> None:
    content = db.read_bytes()
    at = len(content) // 2
    db.write_bytes(content[:at] + b"x" * 20_000 + content[at + 20_000 :])


def _garble_segments(db: Path) -> None:
    with closing(sqlite3.connect(db)) as connection:
        connection.execute("update segment set messages = x'7b'")
        connection.commit()


async def _forgetful(lab: SessionLab, prompt: str, answer: str, **context: str) -> None:
    """Take a turn on a new thread, so that the model knows only what the engine gives."""
    settings = proctor.Context(**context) if context else None  # type: ignore[arg-type]
    await lab.sit(CODEX, "x", [prompt], {"say": answer}, ephemeral=True, context=settings)


def lossless_db(lab: SessionLab) -> Path:
    return lab.root / "sessions" / "x" / "engines" / "lossless" / "lossless.db"


@pytest.mark.requirement("context.engines")
@pytest.mark.parametrize("damage", [_truncate, _overwrite, _foreign, _zero, _middle, _garble_segments])
def test_damaged_engine_state_is_made_again_in_the_next_turn(damage: Callable[[Path], None], tmp_path: Path) -> None:
    lab = SessionLab(tmp_path)
    bounded(lambda: _forgetful(lab, "Hello?", "Hello."))
    damage(lossless_db(lab))
    # SQLite takes an empty file for a new one.
    assert lab.verify("x", check_engine=check_engine).exit == (0 if damage is _zero else 5)
    with recorded_journals() as journals:
        bounded(lambda: _forgetful(lab, "Again?", "Again."))
    assert conversation(journals[0].rows[0]) == [*HELLO, AGAIN[0]]
    summary = lab.report("x").summary
    assert (summary.is_sound, summary.degraded, summary.uncommitted) == (True, 0, 0)
    assert lossless_db(lab).with_name("lossless.db.damaged").exists() == (damage is not _zero)
    assert lab.verify("x", check_engine=check_engine).exit == 0
    lab.assert_verified("x")


@pytest.mark.requirement("context.engines")
@pytest.mark.parametrize("damage", [_newer, _middle])
def test_unusable_engine_state_is_set_aside_by_a_rebuild(damage: Callable[[Path], None], tmp_path: Path) -> None:
    lab = SessionLab(tmp_path)
    bounded(lambda: _forgetful(lab, "Hello?", "Hello."))
    damage(lossless_db(lab))
    content = lossless_db(lab).read_bytes()
    [finding] = lab.verify("x", check_engine=check_engine).findings
    assert finding.code == ("engine.newer" if damage is _newer else "engine.damaged")
    assert "verify ID --rebuild" in CODES[finding.code].todo
    done = repair_session(RootPaths(lab.root), "x", check_engine=check_engine)
    assert (done.exit, done.is_rebuilt, done.set_aside) == (0, False, ("lossless",))
    assert (lab.root / "sessions" / "x" / "engines.old" / "lossless" / "lossless.db").read_bytes() == content
    with recorded_journals() as journals:
        bounded(lambda: _forgetful(lab, "Again?", "Again."))
    assert conversation(journals[0].rows[0]) == [*HELLO, AGAIN[0]]
    assert lab.report("x").summary.is_sound
    lab.assert_verified("x")


@pytest.mark.requirement("context.engines")
def test_engine_state_of_a_newer_version_is_never_replaced_by_a_turn(tmp_path: Path) -> None:
    lab = SessionLab(tmp_path)
    bounded(lambda: _forgetful(lab, "Hello?", "Hello."))
    _newer(lossless_db(lab))
    content = lossless_db(lab).read_bytes()

    async def talk() -> proctor.Ending:
        for n in (1, 2, 3, 4):
            await _forgetful(lab, f"Without {n}?", "Yes.")
        async with lab.open(
            CODEX, "x", {"say": "Never."}, ephemeral=True, context=proctor.Context(policy="strict")
        ) as session:
            ending = await session.say("Never?")
        return ending

    ending = bounded(talk)
    assert (ending.outcome is proctor.Outcome.COMPLETED, ending.code) == (False, "engine.newer")
    assert lossless_db(lab).read_bytes() == content
    for shown in lab.report("x").turns[1:5]:
        assert shown.turn.context is not None
        assert "proctor session verify x --rebuild" in (shown.turn.context.degraded or "")
    repair_session(RootPaths(lab.root), "x", check_engine=check_engine)
    with recorded_journals() as journals:
        bounded(lambda: _forgetful(lab, "Again?", "Again."))
    without = [each for n in (1, 2, 3, 4) for each in (("user", f"Without {n}?"), ("agent", "Yes."))]
    assert conversation(journals[0].rows[0]) == [*HELLO, *without, AGAIN[0]]
    summary = lab.report("x").summary
    # What ran without its engine stays marked; the engine has all of it now.
    assert (summary.degraded, summary.uncommitted) == (4, 0)
    lab.assert_verified("x")


@pytest.mark.requirement("session.mirror")
def test_verify_sees_a_damaged_page_of_the_store_and_makes_it_again(
    lab: SessionLab, capsys: pytest.CaptureFixture[str]
) -> None:
    bounded(lambda: _greet(lab))
    db = lab.root / "sessions" / "x" / "session.db"
    good = db.read_bytes()
    verify = ["session", "verify", "x", "--root", str(lab.root)]
    for page in range(0, len(good), 4096):
        db.write_bytes(good[:page] + bytes(200) + good[page + 200 :])
        try:
            check_store(db)
        except proctor.EvidenceError:
            assert answer(verify) == 5
        else:
            assert answer(verify) == 0
        assert answer([*verify, "--rebuild"]) == 0
        assert answer([*verify]) == 0
        assert lab.mirror("x") == HELLO
    capsys.readouterr()
    bounded(lambda: _again(lab))
    assert lab.mirror("x") == [*HELLO, *AGAIN]


@pytest.mark.requirement("session.mirror")
def test_rebuild_without_the_old_store_restores_the_sandbox_of_the_record(lab: SessionLab) -> None:
    async def talk() -> None:
        await lab.sit(CODEX, "x", ["Hello?"], {"say": "Hello."}, sandbox="read-only", approvals="workspace")

    bounded(talk)
    (lab.root / "sessions" / "x" / "session.db").write_bytes(b"x" * 5000)
    done = rebuild_session(RootPaths(lab.root), "x")
    assert (done.exit, done.lost) == (0, ("workspace", "model"))
    report = lab.report("x")
    assert report.settings is not None
    assert (report.settings.sandbox, report.settings.approvals) == ("read-only", "workspace")
    assert report.settings.context == ContextSettings(engine="none")
    bounded(lambda: _again(lab))
    assert lab.report("x").lost == ()


@pytest.mark.requirement("session.mirror")
@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"schemaVersion":99}', None])
def test_damaged_header_is_an_evidence_error(
    content: bytes | None, lab: SessionLab, capsys: pytest.CaptureFixture[str]
) -> None:
    bounded(lambda: _greet(lab))
    header = lab.root / "sessions" / "x" / "session.json"
    if content is None:
        # The store without its header: the home is not known any more, so nothing may begin anew.
        header.unlink()
    else:
        header.write_bytes(content)
    refused = refusal_of(lab)
    assert (type(refused), refused.exit, refused.file) == (proctor.EvidenceError, 5, str(header))
    if content is not None:
        assert refused.code == ("evidence.version" if b"99" in content else "session.header")
        for words in ([], ["--rebuild"]):
            assert answer(["session", "verify", "x", "--root", str(lab.root), *words]) == 5
            assert str(header) in capsys.readouterr().err
    [summary] = list_sessions(RootPaths(lab.root))
    assert summary.problem is not None


@pytest.mark.requirement("session.mirror")
@pytest.mark.parametrize("kept", ["home", "store"])
def test_session_whose_home_or_store_was_removed_has_lost_its_thread_or_its_turns(kept: str, lab: SessionLab) -> None:
    bounded(lambda: _greet(lab))
    if kept == "store":
        shutil.rmtree(lab.report("x").home)
        assert refusal_of(lab).code == "session.thread-lost"
        assert lab.mirror("x") == HELLO
    else:
        (lab.root / "sessions" / "x" / "session.db").unlink()
        refused = refusal_of(lab)
        assert (refused.code, refused.exit) == ("session.damaged", 5)
        rebuild_session(RootPaths(lab.root), "x")
        bounded(lambda: _again(lab))
        assert lab.mirror("x") == [*HELLO, *AGAIN]


@pytest.mark.requirement("session.mirror")
def test_session_continues_after_the_clock_went_back(either: SessionLab, monkeypatch: pytest.MonkeyPatch) -> None:
    lab = either
    bounded(lambda: _greet(lab))
    real_ns = time.time_ns
    with monkeypatch.context() as patch:
        patch.setattr(time, "time_ns", lambda: real_ns() - 86_400 * 10**9)
        patch.setattr(time, "time", lambda: real_ns() / 1e9 - 86_400)
        bounded(lambda: _again(lab))
    turns = [each.turn for each in lab.report("x").turns]
    assert turns[1].asked_at_ms < turns[0].asked_at_ms - 80_000_000
    assert lab.mirror("x") == [*HELLO, *AGAIN]
    lab.assert_verified("x")
    rebuild_session(RootPaths(lab.root), "x")
    assert lab.mirror("x") == [*HELLO, *AGAIN]
    lab.assert_verified("x")


# ── disks ──


@contextmanager
def _small_disk(place: Path) -> Iterator[None]:
    place.mkdir(parents=True, exist_ok=True)
    mount = ["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(place)]
    if os.geteuid() != 0 or subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("this machine does not let this user mount a tmpfs")
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", str(place)], check=True)


def _fill(place: Path) -> Path:
    ballast = place / "ballast"
    with ballast.open("wb", buffering=0) as file:
        for size in (65536, 4096, 512, 1):
            try:
                while True:
                    file.write(bytes(size))
            except OSError:
                continue
    return ballast


@pytest.mark.requirement("session.mirror")
def test_session_on_a_full_disk_is_refused_and_loses_no_turn(either: SessionLab) -> None:
    lab = either
    place = lab.root / "sessions"

    async def talk() -> None:
        await _greet(lab)
        ballast = _fill(place)
        with pytest.raises(proctor.MachineError) as refused:
            await lab.sit(CODEX, "x", ["Never?"], {"say": "Never."})
        assert refused.value.code == "machine.disk-full", refused.value
        ballast.unlink()
        async with lab.open(CODEX, "x", {"say": "Again."}, {"say": "Never."}) as session:
            ballast = _fill(place)
            ending = await session.say("Never?")
            assert (ending.outcome is not proctor.Outcome.COMPLETED, ending.code) == (True, "machine.disk-full")
            ballast.unlink()
        async with lab.open(CODEX, "x", {"say": "Again."}) as session:
            async for event in session.say("Again?"):
                if isinstance(event, proctor.TurnBegan):
                    ballast = _fill(place)
        ballast.unlink()
        await lab.sit(CODEX, "x", ["And now?"], {"say": "Now."})

    with _small_disk(place):
        with recorded_journals() as journals:
            bounded(talk)
        assert conversation(journals[-1].rows[0]) == [*HELLO, *AGAIN, ("user", "And now?")]
        assert lab.mirror("x") == [*HELLO, *AGAIN, ("user", "And now?"), ("agent", "Now.")]
        lab.assert_verified("x")


@pytest.mark.requirement("session.mirror")
@pytest.mark.requirement("context.commit-once")
@pytest.mark.parametrize("at", ["TurnAsked", "TurnBegan", "TextSaid", "TurnEnded", "TurnCommitted"])
def test_disk_that_becomes_full_in_a_turn_costs_no_completed_turn(at: str, tmp_path: Path) -> None:
    lab = SessionLab(tmp_path)
    place = lab.root / "sessions"

    async def talk() -> proctor.Ending:
        await _greet(lab)
        async with lab.open(CODEX, "x", {"say": "Again."}) as session:
            turn, ballast = session.say("Again?"), place / "ballast"
            async for event in session.events():
                if type(event.event).__name__ == at:
                    ballast = _fill(place)
                    break
            ending = await turn
        ballast.unlink()
        await lab.sit(CODEX, "x", ["And now?"], {"say": "Now."})
        return ending

    with _small_disk(place):
        with recorded_journals() as journals:
            ending = bounded(talk)
        whole = [*HELLO, *(AGAIN if ending.outcome is proctor.Outcome.COMPLETED else []), ("user", "And now?")]
        assert lab.mirror("x") == [*whole, ("agent", "Now.")]
        assert [said for said in conversation(journals[-1].rows[0]) if said[1] != "Again?" or said in whole] == whole
        assert engine_states(lab) == {"acknowledged"}
        lab.assert_verified("x")


@pytest.mark.requirement("session.mirror")
def test_session_on_a_read_only_disk_is_refused_and_can_be_read(either: SessionLab) -> None:
    lab = either
    place = lab.root / "sessions"
    with _small_disk(place):
        bounded(lambda: _greet(lab))
        subprocess.run(["mount", "-o", "remount,ro", str(place)], check=True)
        refused = refusal_of(lab)
        assert (refused.code, refused.exit) == ("machine.unwritable", 3)
        assert lab.mirror("x") == HELLO
        lab.assert_verified("x")


# ── secrets ──


@pytest.mark.requirement("session.mirror")
@pytest.mark.requirement("evidence.redaction")
@pytest.mark.parametrize("runtime", [CODEX, "codex_exec", CLAUDE])
def test_secret_reaches_neither_store_nor_evidence(runtime: str, either: SessionLab) -> None:
    lab, secret = either, "zq7-session-84f1c2d9e0"
    steps = ({"run": f"echo {secret}"}, {"say": {"text": f"It is {secret}, really.", "chunk_chars": 3}})

    async def talk() -> None:
        for _ in range(2):
            await lab.sit(runtime, "x", [f"Say {secret}."], *steps, secrets={"TOKEN": secret})

    bounded(talk)
    assert files_with(secret, lab.root) == []
    masked = "[redacted:TOKEN]"
    once = [
        ("user", f"Say {masked}."),
        ("call", f"echo {masked}"),
        ("result", masked),
        ("agent", f"It is {masked}, really."),
    ]
    assert lab.mirror("x") == once * 2
    lab.assert_verified("x")


def files_with(secret: str, *folders: Path) -> list[Path]:
    files = (file for folder in folders for file in folder.rglob("*") if file.is_file() and not file.is_symlink())
    return [file for file in files if secret.encode() in file.read_bytes()]


@pytest.mark.agent("claude_code")
@pytest.mark.requirement("session.mirror")
@pytest.mark.requirement("evidence.redaction")
@pytest.mark.parametrize(("first", "second"), [(CODEX, "claude_code"), ("claude_code", CODEX), (CODEX, "codex_exec")])
def test_secret_reaches_no_summary_and_no_request_of_another_agent(first: str, second: str, tmp_path: Path) -> None:
    secret, prompts = "zq7-session-84f1c2d9e0", [f"Prompt {n}." for n in range(8)]
    lab = SessionLab(tmp_path)
    said = {"say": {"text": f"It is {secret}, " + "really. " * 200, "chunk_chars": 5}}

    async def talk() -> None:
        async with lab.open(first, "x", {"run": f"echo {secret}"}, *[said] * 9, secrets={"TOKEN": secret}) as session:
            await say_all(session, [f"Say {secret}.", *prompts])
        small = proctor.Context(engine="lossless", window=24_000)
        async with lab.open(second, "x", {"say": "Now."}, {"say": "Then."}, context=small) as session:
            await say_all(session, ["And now?"])
            await session.compact()
            await say_all(session, ["And then?"])

    with recorded_journals() as journals:
        bounded(talk)
    shown = [text for row in journals[-1].rows for text in row.texts]
    assert [text for text in shown if secret in text] == []
    assert any("[redacted:TOKEN]" in text for text in shown), "the placeholders are given"
    given = [shown.turn.context for shown in lab.report("x").turns if shown.turn.kind == "prompt"]
    assert sum(each.placeholders for each in given if each is not None) > 0
    assert files_with(secret, lab.root) == []
    assert (lab.root / "sessions" / "x" / "engines" / "lossless").is_dir()
    lab.assert_verified("x")


# ── the evidence ──


@pytest.mark.requirement("session.one")
def test_evidence_of_sittings_is_valid_and_gc_keeps_it(either: SessionLab, capsys: pytest.CaptureFixture[str]) -> None:
    lab = either

    async def talk() -> None:
        await _greet(lab)
        async with proctor.pool(CODEX, evidence="disk", root=lab.root) as pool:
            for _ in range(2):
                async with pool.session(id="y", script=lab.script({"say": "Hello."}), context=lab.context) as session:
                    await say_all(session, ["Hello?"])
        await _again(lab)

    bounded(talk)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PROCTOR_ROOT", str(lab.root))
        assert answer(["validate", "--strict"]) == 0
        for path in lab.root.rglob("*"):
            os.utime(path, (0, 0))
        assert answer(["gc", "--older-than", "1h"]) == 0
    shown = capsys.readouterr().out
    assert (shown.count("belongs to the session x"), shown.count("belongs to the session y")) == (2, 1)
    for key in ("x", "y"):
        lab.assert_verified(key)
    bounded(lambda: _again(lab))
    assert lab.mirror("x") == [*HELLO, *AGAIN, *AGAIN]
    records = [
        read_artifact(paths.attempt, AttemptRecord).sitting
        for run in RootPaths(lab.root).runs()
        for paths in run.attempts()
    ]
    told = sorted((each.session, each.n, each.is_fresh, each.first_turn) for each in records if each is not None)
    assert told == [("x", 1, True, 1), ("x", 2, False, 2), ("x", 3, False, 3), ("y", 1, True, 1), ("y", 2, False, 2)]
    refs = [read_artifact(p.runner_ref, RunnerRef) for run in RootPaths(lab.root).runs() for p in run.attempts()]
    assert all(ref.sitting is not None and ref.last_turn == ref.sitting.first_turn for ref in refs)
    assert all(ref.sitting is not None and ref.is_fresh_session == ref.sitting.is_fresh for ref in refs)
