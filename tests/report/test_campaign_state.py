"""What there is under an evidence root, whatever state it is in."""

import fcntl
import random
import sqlite3
from contextlib import closing
from pathlib import Path
from xml.etree import ElementTree

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console

from proctor.errors import EvidenceError, InputError
from proctor.evidence.layout import RootPaths
from proctor.evidence.reader import Finding
from proctor.ids import AttemptId, FlowId, MissionId, RuntimeId, TrialId
from proctor.report.ambiguous import AmbiguousError
from proctor.report.campaign import load_campaign
from proctor.report.campaign_state import list_attempts, load_state
from proctor.report.evidence_index import EvidenceIndex
from proctor.report.find import find_attempt, find_place, latest_campaign, place_of
from proctor.report.junit import render_junit
from proctor.report.markdown import render_markdown
from proctor.report.row import AttemptRow
from proctor.report.text import render_attempts
from tests.report.made import CAMPAIGN, CUT, RUN, YES, campaign, summary, tried


def sealed_row(root: Path, mission: str) -> AttemptRow:
    return AttemptRow(
        attempt_id=AttemptId(f"{mission}.codex.r1.1"),
        run_id=RUN,
        campaign_id=CAMPAIGN,
        trial=TrialId(f"{mission}.codex.r1"),
        mission_id=MissionId(mission),
        flow_id=FlowId("codex"),
        repeat=1,
        n=1,
        runtime_id=RuntimeId("codex_app_server"),
        state="sealed",
        summary=summary(AttemptId(f"{mission}.codex.r1.1"), runtime="codex_app_server"),
        tokens=7,
        dir=str(root / "runs" / RUN / "attempts" / f"{mission}.codex.r1.1"),
    )


def test_what_the_ledger_tells_is_listed_without_opening_any_folder(tmp_path: Path) -> None:
    campaign(tmp_path, "one", "two", untried=("three",))
    found = list_attempts(RootPaths(tmp_path))
    assert not (tmp_path / "runs").exists()
    assert found.rows == (sealed_row(tmp_path, "one"), sealed_row(tmp_path, "two"))
    assert load_campaign(latest_campaign(RootPaths(tmp_path)), root=RootPaths(tmp_path)).untried == ["three.codex.r1"]


def test_an_attempt_that_the_ledger_was_not_told_of_is_partial_or_still_running(tmp_path: Path) -> None:
    paths = campaign(tmp_path, unsettled=("one",))
    assert [row.state for row in list_attempts(RootPaths(tmp_path)).rows] == ["partial"]
    with (paths.folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert [row.state for row in list_attempts(RootPaths(tmp_path)).rows] == ["running"]
    assert [row.state for row in list_attempts(RootPaths(tmp_path)).rows] == ["partial"]


def test_an_attempt_whose_proctor_was_killed_is_partial_and_one_without_evidence_abandoned(tmp_path: Path) -> None:
    paths = tried(tmp_path, {"killed.codex.r1": [CUT], "again.codex.r1": [CUT, YES]})
    rows = load_state(paths, root=RootPaths(tmp_path)).attempts
    assert [(row.attempt_id, row.state, row.is_superseded) for row in rows] == [
        ("killed.codex.r1.1", "partial", False),
        ("again.codex.r1.1", "partial", True),
        ("again.codex.r1.2", "sealed", False),
    ]


def test_reading_a_ledger_leaves_nothing_beside_it(tmp_path: Path) -> None:
    paths = campaign(tmp_path, "one")
    before = sorted(paths.folder.iterdir())
    list_attempts(RootPaths(tmp_path))
    assert sorted(paths.folder.iterdir()) == before


def test_evidence_that_the_ledger_says_was_sealed_and_is_gone_is_invalid(tmp_path: Path) -> None:
    paths = campaign(tmp_path, "one")
    [found] = load_state(paths, root=RootPaths(tmp_path), index=EvidenceIndex(lambda _: ("valid", ()))).attempts
    gone = Finding(code="evidence.missing-file", file="seal.json", detail="the ledger says that it was sealed")
    assert (found.evidence, found.state, found.verified, found.findings) == ("invalid", "unreadable", None, (gone,))
    assert (found.mission_id, found.flow_id) == ("one", "codex")


@pytest.mark.parametrize(
    "damage",
    [b"", b"no database at all", b"SQLite format 3\0" + b"\0" * 4096],
    ids=["empty", "text", "a header and nothing"],
)
def test_a_ledger_that_is_none_is_a_problem_and_hides_no_attempt(tmp_path: Path, damage: bytes) -> None:
    paths = campaign(tmp_path, "one")
    (tmp_path / "runs" / RUN / "attempts" / "left.codex.r1.1").mkdir(parents=True)
    paths.ledger.write_bytes(damage)
    found = list_attempts(RootPaths(tmp_path))
    assert [(row.attempt_id, row.state) for row in found.rows] == [("left.codex.r1.1", "partial")]
    assert [finding.code for finding in found.findings] == ["evidence.ledger"]


@pytest.mark.parametrize(
    "forgery",
    [
        "update attempt set state = 'done'",
        "update attempt set outcome = 'victorious'",
        "update attempt set tokens = 'many'",
        "update attempt set summary = json_set(summary, '$.verified', 2)",
        "update attempt set trial = '../../..', n = 1; update trial set id = '../../..'",
        "update attempt set trial = '/etc', n = 1; update trial set id = '/etc'",
        "update attempt set run = '../..'; update run set id = '../..'",
        "update attempt set trial = 'none.codex.r1'",
        "drop table run",
    ],
)
def test_a_forged_ledger_leads_nowhere_else(tmp_path: Path, forgery: str) -> None:
    paths = campaign(tmp_path, "one")
    with closing(sqlite3.connect(paths.ledger)) as book:
        tables = [sql for (sql,) in book.execute("select sql from sqlite_master where type = 'table'")]
        rows = {name: book.execute(f"select * from {name}").fetchall() for name in ("trial", "run", "attempt")}
    paths.ledger.unlink()
    with closing(sqlite3.connect(paths.ledger)) as book:
        # Without `strict` a column takes anything.
        book.executescript(";".join(sql.replace("strict", "").rstrip().rstrip(";") for sql in tables))
        for name, copied in rows.items():
            for each in copied:
                book.execute(f"insert into {name} values ({', '.join('?' * len(each))})", each)
        book.commit()
        book.executescript(f"pragma foreign_keys = off; {forgery}")
    found = list_attempts(RootPaths(tmp_path))
    [finding] = found.findings
    assert (found.rows, finding.code in ("evidence.ledger", "evidence.containment")) == ((), True)


@pytest.mark.parametrize(
    "edit",
    [
        "update attempt set usd = 9e999",
        "update attempt set usd = -0.01",
        "update attempt set summary = json_set(summary, '$.toolCalls', -5)",
        "update attempt set summary = json_set(summary, '$.durationMs', -5)",
        "update attempt set ended_at_ms = 9223372036854775807",
        "update run set ended_at_ms = -1",
        "update attempt set trial = 'two.codex.r1', n = 2 where trial = 'one.codex.r1'",
        "update attempt set run = '20200101-000000-abcdef'",
        "delete from run",
    ],
)
def test_what_no_proctor_wrote_is_a_problem_of_the_ledger(tmp_path: Path, edit: str) -> None:
    paths = campaign(tmp_path, "one", "two")
    with closing(sqlite3.connect(paths.ledger)) as book:
        book.execute(edit)
        book.commit()
    with pytest.raises(EvidenceError) as refused:
        load_state(paths, root=RootPaths(tmp_path))
    assert refused.value.code == "evidence.ledger"
    found = list_attempts(RootPaths(tmp_path))
    assert (found.rows, [finding.code for finding in found.findings]) == ((), ["evidence.ledger"])


@pytest.mark.parametrize("edit", ["tokens = -5", "tokens = 9223372036854775807", "retry_at_ms = 9223372036854775807"])
def test_what_an_agent_says_of_itself_never_makes_a_ledger_unreadable(tmp_path: Path, edit: str) -> None:
    paths = campaign(tmp_path, "one", "two")
    with closing(sqlite3.connect(paths.ledger)) as book:
        book.execute(f"update attempt set {edit} where trial = 'one.codex.r1'")
        book.commit()
    assert not list_attempts(RootPaths(tmp_path)).findings
    assert msgspec.json.encode(load_campaign(paths, root=RootPaths(tmp_path)))


@pytest.mark.long
@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 2**32), flips=st.integers(1, 40))
def test_a_damaged_ledger_gives_rows_or_a_problem_and_never_an_exception(
    tmp_path_factory: pytest.TempPathFactory, seed: int, flips: int
) -> None:
    root = tmp_path_factory.mktemp("root")
    paths = campaign(root, "one", "two", unsettled=("three",))
    chance, data = random.Random(seed), bytearray(paths.ledger.read_bytes())
    for _ in range(flips):
        data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
    paths.ledger.write_bytes(bytes(data))
    found = list_attempts(RootPaths(root))
    for row in found.rows:
        assert Path(row.dir).parent.parent.parent == root / "runs"
    assert msgspec.json.encode(found.rows)
    report = load_campaign(paths, root=RootPaths(root), index=EvidenceIndex(lambda _: ("invalid", ())))
    assert {row.evidence for row in report.attempts} <= {"invalid", "partial"}
    assert msgspec.json.encode(report)
    assert render_markdown(report)
    assert ElementTree.fromstring(render_junit(report)).tag == "testsuites"


def test_names_lead_to_one_attempt_or_to_a_list_of_candidates(tmp_path: Path) -> None:
    campaign(tmp_path, "fix", "fix-more", "claim")
    root = RootPaths(tmp_path)
    folders = {row.attempt_id: Path(row.dir) for row in list_attempts(root).rows}
    for folder in folders.values():
        folder.mkdir(parents=True)
    fix = folders[AttemptId("fix.codex.r1.1")]
    for word in ("fix.codex.r1.1", f"{RUN}/fix.codex.r1.1", f"{RUN[:8]}/fix.", "fix.", str(fix)):
        assert find_attempt(word, root=root).folder == fix
    with pytest.raises(InputError) as ambiguous:
        find_attempt("fix", root=root)
    assert ambiguous.value.code == "evidence.ambiguous"
    assert isinstance(ambiguous.value, AmbiguousError)
    assert ambiguous.value.names == (f"{RUN}/fix-more.codex.r1.1", f"{RUN}/fix.codex.r1.1")
    for word in ("nobody", "/nowhere", "./nowhere", str(tmp_path)):
        with pytest.raises(InputError) as absent:
            find_attempt(word, root=root)
        assert absent.value.code == "evidence.not-found"


def test_a_trial_means_the_attempt_that_counts_of_it_and_those_that_do_not_are_listed_in_brackets(
    tmp_path: Path,
) -> None:
    tried(tmp_path, {"fix.codex.r1": [CUT, YES, CUT], "ask.codex.r1": [YES]})
    rows = list_attempts(RootPaths(tmp_path)).rows
    for row in rows:
        Path(row.dir).mkdir(parents=True)
    assert find_attempt("fix.codex.r1", root=RootPaths(tmp_path)).folder.name == "fix.codex.r1.2"
    console = Console(width=120)
    with console.capture() as told:
        console.print(render_attempts(rows, ()))
    assert "(partial)" in told.get()
    assert "(…) another attempt of its trial counts instead" in told.get()
    with console.capture() as told:
        console.print(render_attempts(rows[-1:], ()))
    assert "(" not in told.get()


def test_an_id_that_several_runs_have_means_the_latest_and_a_campaign_goes_by_its_name(tmp_path: Path) -> None:
    old, new = (f"2026010{day}-120000-cccccc" for day in (2, 3))
    campaigns = [tmp_path / "campaigns" / f"{name}-{old}" for name in ("made", "maid")]
    for folder in (*campaigns, tmp_path / "campaigns" / f"made-{new}"):
        folder.mkdir(parents=True)
    for run in (new, old):
        (tmp_path / "runs" / run / "attempts" / "fix.codex.r1.1").mkdir(parents=True)
    root = RootPaths(tmp_path)
    for word in ("fix.codex.r1.1", "fix", "2026/fix"):
        assert find_attempt(word, root=root).folder.parent.parent.name == new
    assert find_attempt(f"{old}/fix", root=root).folder.parent.parent.name == old
    assert find_place("made", root=root).folder.name == f"made-{new}"
    assert find_place("mai", root=root).folder.name == f"maid-{old}"
    with pytest.raises(AmbiguousError) as ambiguous:
        find_place("ma", root=root)
    assert set(ambiguous.value.names) == {f"made-{old}", f"made-{new}", f"maid-{old}"}
    with pytest.raises(InputError) as absent:
        find_place("nobody", root=root)
    assert absent.value.what == f"no campaign or attempt under {tmp_path} is called 'nobody'"


def test_a_folder_without_evidence_does_not_stand_in_the_way_of_a_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = campaign(tmp_path, "fix")
    attempt = tmp_path / "runs" / RUN / "attempts" / "fix.codex.r1.1"
    attempt.mkdir(parents=True)
    root = RootPaths(tmp_path)
    for name in ("made", "fix", "loose"):
        (tmp_path / "here" / name).mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "here")
    assert find_place("made", root=root) == paths
    assert find_attempt("fix", root=root).folder == attempt
    told = f"no campaign or attempt under {tmp_path} is called 'loose'"
    for word, what in (
        ("./made", "there is no evidence in made"),
        ("loose", f"there is no evidence in loose, and {told}"),
    ):
        with pytest.raises(InputError) as absent:
            find_place(word, root=root)
        assert (absent.value.code, absent.value.what) == ("evidence.not-found", what)


def test_a_folder_is_known_by_what_it_holds_or_where_it_lies(tmp_path: Path) -> None:
    paths = campaign(tmp_path, "fix")
    attempt = tmp_path / "runs" / RUN / "attempts" / "fix.codex.r1.1"
    attempt.mkdir(parents=True)
    root = RootPaths(tmp_path)
    assert place_of(tmp_path) == root
    assert place_of(attempt).folder == attempt
    assert find_place(RUN, root=root) == root.run(RUN)
    assert find_place(CAMPAIGN, root=root) == paths
    assert find_place(str(paths.folder), root=root) == paths
    moved = attempt.rename(tmp_path / "moved")
    (moved / "seal.json").touch()
    assert type(place_of(moved)).__name__ == "AttemptPaths"
