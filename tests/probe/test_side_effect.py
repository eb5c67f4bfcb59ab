"""The probe kind `side_effect`: exactly the stated changes pass, whatever the command says about itself."""

import os
import re
import sqlite3
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import anyio
import msgspec
import pytest

from proctor.contain.bundled import bundled_bwrap
from proctor.contain.intent import open_intents
from proctor.contain.ladder import Containment, Variant, choose, survey
from proctor.evidence.artifacts import Judged
from proctor.evidence.redact import Redactor
from proctor.probe.changes import TreeEntry
from proctor.probe.kind import ProbeReference
from proctor.probe.model import Fault, Phase, ProbeRow, Verdict, ViewKind
from proctor.probe.run import run_probe
from proctor.probe.sqlite import QueryError, query
from proctor.probe.view import examine_subject
from proctor.spec.probe_options import KeyProblem
from proctor.spec.service_probes import (
    ChangeKind,
    RequestSpec,
    ServiceSpec,
    SideEffect,
    SinkCall,
    SqliteQuery,
    StatedChange,
)
from proctor.workspace.snapshot import snapshot
from proctor.workspace.walk import walk
from tests.probe.test_api_smoke import SERVER

PYTHON = sys.executable


class Bench:
    """A workspace and the probes on it."""

    def __init__(self, folder: Path, containment: Containment) -> None:
        self.folder = folder
        self.containment = containment
        self.subject = folder / "subject"
        for each in (self.subject, folder / "scratch", folder / "kept"):
            each.mkdir()
        self.write({"old.txt": "old\n", "data/a.txt": "a\n", "data/deep/b.txt": "b\n"})
        (self.subject / "empty").mkdir()

    def write(self, files: Mapping[str, str]) -> None:
        for name, text in files.items():
            (self.subject / name).parent.mkdir(parents=True, exist_ok=True)
            (self.subject / name).write_text(text)

    def make_database(self, *statements: str, name: str = "shop.db") -> None:
        connection = sqlite3.connect(self.subject / name)
        with connection:
            for statement in statements:
                connection.execute(statement)
        connection.close()

    def run(self, spec: SideEffect, sources: Mapping[str, bytes] | None = None) -> ProbeRow:
        async def main() -> ProbeRow:
            async with open_intents(self.folder / "spawns") as intents:
                return await run_probe(
                    spec,
                    index=0,
                    phase=Phase.FINAL,
                    subject=examine_subject(self.subject, before),
                    scratch=self.folder / "scratch",
                    containment=self.containment,
                    intents=intents,
                    redactor=Redactor([]),
                    reference=ProbeReference(sources=sources or {}),
                    keep=self.folder / "kept",
                )

        before = snapshot(self.subject).digest
        row = anyio.run(main)
        assert snapshot(self.subject).digest == before
        assert list((self.folder / "scratch").iterdir()) == []
        return row

    def effects(self, command: str) -> tuple[dict[str, str], ProbeRow]:
        """Return the changes that a command made, by path."""
        row = self.run(SideEffect(command=command, allow=["**"]))
        (artifact,) = row.artifacts
        kept = msgspec.json.decode((self.folder / "kept" / artifact.file).read_bytes())
        return kept["changes"], row


def containment_of(variant: Variant) -> Containment:
    return choose(each for each in survey(bundled_bwrap=bundled_bwrap()) if each.variant is variant)


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path, containment_of(Variant.BUNDLED_BWRAP))


@pytest.fixture(params=[Variant.BUNDLED_BWRAP, Variant.UNSHARE])
def any_bench(request: pytest.FixtureRequest, tmp_path: Path) -> Bench:
    """A bench whose views are overlays, and one whose views are copies."""
    return Bench(tmp_path, containment_of(request.param))


def failed(row: ProbeRow) -> str:
    assert (row.verdict, row.judged) == (Verdict.FAIL, Judged.OUTSIDE), row
    return row.summary


def passed(row: ProbeRow) -> str:
    assert (row.verdict, row.judged) == (Verdict.PASS, Judged.OUTSIDE), row
    return row.summary


ALL = "echo new >new.txt; echo other >old.txt; rm data/a.txt"
CHANGES = [
    StatedChange(path="new.txt", change=ChangeKind.CREATED, golden="goldens/new.txt"),
    StatedChange(path="old.txt", change=ChangeKind.CHANGED),
    StatedChange(path="data/a.txt", change=ChangeKind.DELETED),
]
GOLDEN = {"goldens/new.txt": b"new\n"}


@pytest.mark.long
@pytest.mark.requirement("probe.kinds")
@pytest.mark.requirement("probe.outside")
def test_side_effect_passes_for_exactly_the_stated_changes(any_bench: Bench) -> None:
    spec = SideEffect(command=ALL, changes=CHANGES)
    row = any_bench.run(spec, GOLDEN)
    assert passed(row) == "3 files changed, 0 calls arrived at the sink"
    is_overlay = any_bench.containment.variant is Variant.BUNDLED_BWRAP
    assert row.view is (ViewKind.OVERLAY if is_overlay else ViewKind.COPY)

    more = any_bench.run(SideEffect(command=f"{ALL}; echo x >extra.txt", changes=CHANGES), GOLDEN)
    assert failed(more) == "files: deleted data/a.txt, created extra.txt, created new.txt, changed old.txt"
    less = any_bench.run(SideEffect(command=ALL.partition(";")[0], changes=CHANGES), GOLDEN)
    assert failed(less) == "files: created new.txt"
    none = any_bench.run(SideEffect(command="echo done", changes=CHANGES), GOLDEN)
    assert (failed(none), none.stdout_tail) == ("no file changed", "done\n")
    other = any_bench.run(spec, {"goldens/new.txt": b"planted\n"})
    assert failed(other) == "new.txt contains 'new\\n'"


EFFECTS: dict[str, tuple[str, dict[str, str]]] = {
    "nothing": ("true", {}),
    "same-content": ("cat old.txt >x; cat x >old.txt; rm x; touch data/a.txt; chmod 600 old.txt", {}),
    "executable": ("chmod +x old.txt", {"old.txt": "changed"}),
    "same-size-and-time": (
        "touch -r old.txt t; printf 'OLD\\n' >old.txt; touch -r t old.txt; rm t",
        {"old.txt": "changed"},
    ),
    "folder-deleted": ("rm -r data", {"data/a.txt": "deleted", "data/deep/b.txt": "deleted"}),
    "folder-replaced": (
        "rm -r data; mkdir data; echo c >data/c.txt",
        {"data/a.txt": "deleted", "data/deep/b.txt": "deleted", "data/c.txt": "created"},
    ),
    "folder-restored": ("cp -r data x; rm -r data; mv x data", {}),
    "folder-moved": (
        "mv data moved",
        dict.fromkeys(("data/a.txt", "data/deep/b.txt"), "deleted")
        | dict.fromkeys(("moved/a.txt", "moved/deep/b.txt"), "created"),
    ),
    "folder-becomes-a-file": (
        "rm -r data; echo x >data",
        {"data": "created", "data/a.txt": "deleted", "data/deep/b.txt": "deleted"},
    ),
    "file-becomes-a-folder": (
        "rm old.txt; mkdir old.txt; echo x >old.txt/x",
        {"old.txt": "deleted", "old.txt/x": "created"},
    ),
    "file-becomes-a-link": ("ln -sf data/a.txt old.txt", {"old.txt": "changed"}),
    "link-out": ("ln -s /etc/passwd link", {"link": "created"}),
    "pipe": ("mkfifo pipe", {"pipe": "created"}),
    "empty-folder-made": ("mkdir -p made/below", {"made/below": "created"}),
    "empty-folder-removed": ("rmdir empty", {"empty": "deleted"}),
    "empty-folder-filled": ("echo x >empty/x", {"empty/x": "created"}),
    "folder-emptied": ("rm data/deep/b.txt", {"data/deep/b.txt": "deleted"}),
    "odd-name": ("touch $'new\\nline \\xff'", {'"new\\nline \\377"': "created"}),
}


@pytest.mark.long
@pytest.mark.parametrize("name", EFFECTS)
def test_side_effect_sees_on_the_disk_what_a_command_changed(any_bench: Bench, name: str) -> None:
    command, changes = EFFECTS[name]
    seen, row = any_bench.effects(command)
    assert (seen, row.verdict) == (changes, Verdict.PASS), row


@pytest.mark.long
def test_side_effect_allows_other_files_by_glob(bench: Bench) -> None:
    command = "mkdir logs; echo x >logs/a.log; echo x >old.txt"
    changes = [StatedChange(path="old.txt", change=ChangeKind.CHANGED)]
    assert failed(bench.run(SideEffect(command=command, changes=changes))) == (
        "files: created logs/a.log, changed old.txt"
    )
    assert passed(bench.run(SideEffect(command=command, changes=changes, allow=["logs/"])))
    # A stated file must change even if others like it may.
    row = bench.run(SideEffect(command="true", changes=changes, allow=["**"]))
    assert failed(row) == "no file changed"


@pytest.mark.long
def test_side_effect_does_not_read_a_golden_through_a_link(bench: Bench) -> None:
    change = StatedChange(path="new.txt", change=ChangeKind.CREATED, golden="g")
    row = bench.run(
        SideEffect(command="ln -s /etc/hostname new.txt", changes=[change]), {"g": Path("/etc/hostname").read_bytes()}
    )
    assert failed(row) == "new.txt is not a file"


ORDER = """\
import json, os, socket, sqlite3, sys, urllib.request


def connect():
    return socket.create_connection(("127.0.0.1", int(os.environ["PROCTOR_SINK"].rpartition(":")[2])))


def call(path, data, method="POST"):
    request = urllib.request.Request(os.environ["PROCTOR_SINK"] + path, data=data, method=method)
    with urllib.request.urlopen(request) as response:
        assert response.status == 200


def order(name, count):
    with sqlite3.connect("shop.db") as database:
        database.execute("INSERT INTO orders (name, count) VALUES (?, ?)", (name, count))
        (number,) = database.execute("SELECT max(rowid) FROM orders").fetchone()
    call("/orders?new=1", json.dumps({"number": number, "name": name, "at": os.getpid()}).encode())
"""
TABLE = ("CREATE TABLE orders (name TEXT, count INTEGER)", "INSERT INTO orders VALUES ('tea', 2)")
ROWS = SqliteQuery(
    database="shop.db",
    sql="SELECT name, count FROM orders ORDER BY rowid",
    before=[["tea", 2]],
    after=[["tea", 2], ["cup", 1]],
)
CALL = SinkCall(path="/orders?new=1", json={"number": 2, "name": "cup"}, ignore=["/at"])
RUN = [PYTHON, "-c", "import order; order.order('cup', 1)"]


@pytest.mark.long
def test_side_effect_compares_rows_and_calls(any_bench: Bench) -> None:
    any_bench.write({"order.py": ORDER})
    any_bench.make_database(*TABLE)
    spec = SideEffect(command=RUN, queries=[ROWS], calls=[CALL])
    assert passed(any_bench.run(spec)) == "1 file changed, 1 call arrived at the sink"

    twice = [PYTHON, "-c", "import order; order.order('cup', 1); order.order('cup', 1)"]
    row = any_bench.run(SideEffect(command=twice, queries=[ROWS], calls=[CALL]))
    assert re.fullmatch(
        r"the query of shop\.db returned 3 rows: '\[\[\"tea\",2\],\[\"cup\",1\],\[\"cup\",1\]\]'; "
        r"2 calls arrived at the sink: POST /orders\?new=1, POST /orders\?new=1 with '\{\"number\": 2, .*\}'",
        failed(row),
    ), row.summary
    none = any_bench.run(SideEffect(command="true", queries=[ROWS], calls=[CALL]))
    assert failed(none) == ("the query of shop.db returned 1 row: '[[\"tea\",2]]'; 0 calls arrived at the sink")


ORDER_APP = """\
import order, server


def respond(path):
    order.order("cup", 1)
    return 500, "text/plain", b"sorry"


server.respond = respond
server.serve(int(server.sys.argv[1]))
"""


@pytest.mark.long
def test_side_effect_takes_a_request_as_its_trigger(any_bench: Bench) -> None:
    any_bench.write({"order.py": ORDER, "server.py": SERVER, "app.py": ORDER_APP})
    any_bench.make_database(*TABLE)
    service = ServiceSpec(start=[PYTHON, "app.py", "{port}"], ready="20s")
    request = RequestSpec(method="POST", path="/order")
    spec = SideEffect(service=service, request=request, queries=[ROWS], calls=[CALL])
    assert passed(any_bench.run(spec)) == "1 file changed, 1 call arrived at the sink"
    any_bench.write({"app.py": "import time\ntime.sleep(60)\n"})
    never = msgspec.structs.replace(spec, service=msgspec.structs.replace(service, ready="500ms"))
    assert failed(any_bench.run(never)).startswith("the service did not listen on its port within 0.")


SINK_CALLS: dict[str, tuple[str, list[SinkCall], str | None]] = {
    "body": ("order.call('/a', 'é'.encode())", [SinkCall(path="/a", body="é")], None),
    "other-body": (
        "order.call('/a', b'x')",
        [SinkCall(path="/a", body="planted")],
        "1 call arrived at the sink: POST /a with 'x'",
    ),
    "other-method": (
        "order.call('/a', None, 'DELETE')",
        [SinkCall(path="/a")],
        "1 call arrived at the sink: DELETE /a",
    ),
    "no-json": (
        "order.call('/a', b'{')",
        [SinkCall(path="/a", json={})],
        "1 call arrived at the sink: POST /a with '{'",
    ),
    "chunks": ("order.call('/a', iter([b'x', b'yz']))", [SinkCall(path="/a", body="xyz")], None),
    "not-utf-8": (
        "order.call('/a', b'\\xff\\x00')",
        [SinkCall(path="/a", body="x")],
        "1 call arrived at the sink: POST /a with 'ÿ\\x00'",
    ),
    "unstated": ("order.call('/a', b'')", [], "1 call arrived at the sink: POST /a"),
    "order": (
        "order.call('/b', b''); order.call('/a', b'')",
        [SinkCall(path="/a"), SinkCall(path="/b")],
        "2 calls arrived at the sink: POST /b, POST /a",
    ),
    "no-answer-awaited": (
        "order.connect().sendall(b'PUT /late HTTP/1.1\\r\\n\\r\\n')",
        [SinkCall(method="PUT", path="/late")],
        None,
    ),
    "not-http": (
        "sink = order.connect(); sink.sendall(b'hello\\r\\n\\r\\n'); sink.recv(1)",
        [],
        "the sink received more than it records, or requests that are not valid HTTP",
    ),
    "too-large": (
        "try:\n    order.call('/a', b'x' * 2_000_000)\nexcept OSError:\n    pass",
        [SinkCall(path="/a")],
        "the sink received more than it records, or requests that are not valid HTTP",
    ),
}


@pytest.mark.long
@pytest.mark.parametrize("name", SINK_CALLS)
def test_side_effect_records_each_call_to_the_sink(bench: Bench, name: str) -> None:
    code, calls, summary = SINK_CALLS[name]
    bench.write({"order.py": ORDER})
    bench.write({"send.py": f"import order\n{code}\n"})
    row = bench.run(SideEffect(command=[PYTHON, "send.py"], calls=calls))
    if summary is None:
        passed(row)
    else:
        assert failed(row) == summary


def test_the_address_of_the_sink_is_replaced_in_the_command(bench: Bench) -> None:
    row = bench.run(SideEffect(command="test {sink} = $PROCTOR_SINK && echo {sink}"))
    assert passed(row)
    assert re.fullmatch(r"http://127\.0\.0\.1:\d+\n", row.stdout_tail)


@pytest.mark.long
@pytest.mark.requirement("probe.process")
def test_side_effect_fails_for_a_trigger_that_does_not_end_well(bench: Bench) -> None:
    assert failed(bench.run(SideEffect(command="exit 3"))) == "exited 3"
    assert passed(bench.run(SideEffect(command="exit 3", exit=3)))
    assert failed(bench.run(SideEffect(command="kill -9 $$"))) == "was killed by signal 9"
    row = bench.run(SideEffect(command="echo x >new.txt; setsid sleep 60 & exit 0"))
    assert failed(row) == "it left processes behind: sleep; files: created new.txt"
    endless = bench.run(SideEffect(command=["sleep", "60"], timeout="2s"))
    assert failed(endless) == "did not end within 2 s"
    missing = [bench.run(SideEffect(command=each)) for each in (["no-such-tool"], "no-such-tool", ["./absent"])]
    assert [(row.verdict, row.fault) for row in missing] == [
        (Verdict.UNAVAILABLE, Fault.MACHINE),
        (Verdict.UNAVAILABLE, Fault.WORKSPACE),
        (Verdict.FAIL, None),
    ]


SPY = """\
import glob, os


def read(path):
    try:
        with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK), "rb") as file:
            return file.read(1_000_000)
    except OSError:
        return b""


seen = b" ".join(read(path) for name in ("cmdline", "environ", "fd/0") for path in glob.glob(f"/proc/[0-9]*/{name}"))
tools = next(word for word in seen.replace(bytes(1), b" ").decode().split() if word.endswith("/tools"))
for top in (tools, "..", os.environ["HOME"], os.environ["TMPDIR"]):
    for folder, _, names in os.walk(top):
        seen += b" ".join(read(f"{folder}/{name}") + name.encode() for name in names)
print([word.encode() in seen for word in ("inside.effect", "def find_free_port", "tea", "plan" + "ted")])
"""


@pytest.mark.requirement("probe.outside")
def test_no_expectation_of_side_effect_enters_the_fence(bench: Bench) -> None:
    bench.make_database(*TABLE)
    bench.write({"spy.py": SPY})
    spec = SideEffect(
        command=[PYTHON, "spy.py"],
        changes=[StatedChange(path="planted.txt", change=ChangeKind.CREATED, golden="planted-golden")],
        queries=[SqliteQuery(database="shop.db", sql="SELECT 'planted-sql'", after=[["planted-row"]])],
        calls=[SinkCall(path="/planted-call", json={"planted": 1})],
        allow=["planted"],
    )
    row = bench.run(spec, {"planted-golden": b"planted-content"})
    failed(row)
    # It sees the observer's command line, its programs and the workspace, and nothing that is expected of it.
    assert row.stdout_tail == "[True, True, True, False]\n", row.stderr_tail


# ── hostile databases ──


def tree_of(folder: Path) -> dict[str, TreeEntry]:
    return {item.path: TreeEntry(item=item, place=folder / item.path) for item in walk(folder)}


def ask(bench: Bench, sql: str, database: str = "shop.db") -> Any:
    copies = bench.folder / "copies"
    copies.mkdir(exist_ok=True)
    try:
        return query(tree_of(bench.subject), database, sql, folder=copies, within_s=0.5)
    finally:
        assert list(copies.iterdir()) == []


def test_query_reads_every_kind_of_value(bench: Bench) -> None:
    bench.make_database(*TABLE)
    assert ask(bench, "SELECT name, count, count / 4.0, NULL, x'ff', CAST(x'ff' AS TEXT) FROM orders") == [
        ["tea", 2, 0.5, None, b"\xff", "�"]
    ]


def test_query_sees_what_is_only_in_the_write_ahead_log(bench: Bench) -> None:
    bench.make_database(*TABLE)
    connection = sqlite3.connect(bench.subject / "shop.db")
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute("INSERT INTO orders VALUES ('cup', 1)")
    connection.commit()
    try:
        assert (bench.subject / "shop.db-wal").stat().st_size > 0
        assert ask(bench, "SELECT count(*) FROM orders") == [[2]]
    finally:
        connection.close()


HOSTILE_SQL = {
    "endless": "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) SELECT count(*) FROM n",
    "many-rows": "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n LIMIT 5000) SELECT x FROM n",
    "large-value": "SELECT hex(zeroblob(100000000))",
    "attach": "ATTACH DATABASE '/etc/passwd' AS other",
    "write": "INSERT INTO orders VALUES ('x', 1)",
    "pragma": "PRAGMA journal_mode=DELETE",
    "extension": "SELECT load_extension('/tmp/x.so')",
    "two": "SELECT 1; SELECT 2",
    "no-table": "SELECT * FROM absent",
    "view": "SELECT * FROM endless",
}


@pytest.mark.long
@pytest.mark.parametrize("name", HOSTILE_SQL)
def test_query_is_bounded_and_changes_nothing(bench: Bench, name: str) -> None:
    bench.make_database(*TABLE, f"CREATE VIEW endless AS {HOSTILE_SQL['endless']}")
    before = (bench.subject / "shop.db").read_bytes()
    with pytest.raises(QueryError):
        ask(bench, HOSTILE_SQL[name])
    assert (bench.subject / "shop.db").read_bytes() == before


def replace_by(place: Path, make: Callable[[], None]) -> None:
    place.unlink()
    make()


HOSTILE_FILES: dict[str, tuple[Callable[[Path], object], str]] = {
    "text": (lambda place: place.write_text("no database"), "cannot be queried"),
    "cut": (lambda place: place.write_bytes(place.read_bytes()[:5000]), "cannot be queried"),
    "link": (
        lambda place: replace_by(place, lambda: place.symlink_to("/etc/passwd")),
        "is not a file of the workspace",
    ),
    "folder": (lambda place: replace_by(place, place.mkdir), "is not a file of the workspace"),
    "journal": (
        lambda place: Path(f"{place}-journal").write_bytes(bytes.fromhex("d9d505f920a163d7") + bytes(600)),
        "was left in the middle of a transaction",
    ),
    "journal-link": (
        lambda place: Path(f"{place}-journal").symlink_to("/etc/passwd"),
        "is not a file of the workspace",
    ),
    "sparse": (lambda place: os.truncate(place, 10**12), "is larger than 256 MiB"),
}


@pytest.mark.parametrize("name", HOSTILE_FILES)
def test_query_refuses_a_hostile_file(bench: Bench, name: str) -> None:
    bench.make_database(*TABLE, *(f"INSERT INTO orders VALUES ('{'x' * 900}', {at})" for at in range(20)))
    spoil, summary = HOSTILE_FILES[name]
    spoil(bench.subject / "shop.db")
    with pytest.raises(QueryError, match=summary):
        ask(bench, "SELECT name, count FROM orders")


def test_side_effect_does_not_quote_the_query_or_the_rows_that_it_expects(bench: Bench) -> None:
    bench.make_database(*TABLE)
    spec = SideEffect(
        command="true",
        queries=[
            SqliteQuery(database="shop.db", sql="SELECT planted FROM orders", after=[["planted"]]),
            SqliteQuery(database="absent.db", sql="SELECT 1", before=[[1]], after=[[1]]),
        ],
    )
    assert failed(bench.run(spec)) == (
        "shop.db cannot be queried; before the trigger, absent.db is not a file of the workspace; "
        "absent.db is not a file of the workspace"
    )


# ── the keys ──


def service(**options: Any) -> SideEffect:
    return SideEffect(service=ServiceSpec(start="serve"), **options)


def changed(path: str, kind: ChangeKind = ChangeKind.CHANGED, golden: str | None = None) -> StatedChange:
    return StatedChange(path=path, change=kind, golden=golden)


PROBLEMS: dict[str, tuple[SideEffect, list[str]]] = {
    "no-trigger": (SideEffect(), ["command"]),
    "two-triggers": (service(command="true", request=RequestSpec(path="/")), ["service", "request"]),
    "no-request": (service(), ["request"]),
    "exit": (service(request=RequestSpec(path="/"), exit=1), ["exit"]),
    "request": (service(request=RequestSpec(path="a")), ["request.path"]),
    "outside": (SideEffect(command="true", changes=[changed("../a")]), ["changes[0].path"]),
    "twice": (SideEffect(command="true", changes=[changed("a"), changed("a")]), ["changes[1].path"]),
    "golden": (
        SideEffect(command="true", changes=[changed("a", ChangeKind.DELETED, "g")]),
        ["changes[0].golden"],
    ),
    "sql": (
        SideEffect(command="true", queries=[SqliteQuery(database="/a", sql="DROP TABLE a", after=[])]),
        ["queries[0].database", "queries[0].sql"],
    ),
    "call": (
        SideEffect(command="true", calls=[SinkCall(method="x", path="a", ignore=["b"])]),
        ["calls[0].method", "calls[0].path", "calls[0].ignore", "calls[0].ignore[0]"],
    ),
    "glob": (SideEffect(command="true", allow=["[z-a]"]), ["allow[0]"]),
}


@pytest.mark.parametrize("name", PROBLEMS)
def test_side_effect_reports_a_wrong_key(name: str) -> None:
    spec, keys = PROBLEMS[name]
    found: list[KeyProblem] = list(spec.problems())
    assert [problem.key for problem in found] == keys, found


def test_side_effect_names_its_goldens_by_key() -> None:
    spec = SideEffect(command="true", changes=[changed("a"), changed("b", golden="goldens/b")])
    assert spec.files == {"changes[1].golden": "goldens/b"}


FORGE = """\
import json, os, signal

body = {"calls": [{"method": "POST", "path": "/orders", "body": ""}], "isCut": False}
command = {"ended": {"exit": 0, "left": []}, "output": {"stdout": "", "stderr": ""}}
forged = json.dumps({"service": None, "exchanges": [], "command": command, "sink": body}).encode()
observer = os.getppid()
os.kill(observer, signal.SIGSTOP)
pipes = [f"/proc/{observer}/fd/{number}" for number in range(3, 40)]
found = [each for each in pipes if os.path.exists(each) and os.readlink(each).startswith("pipe:")]
for pipe in found or ["/proc/1/fd/1"]:
    try:
        with open(pipe, "wb", buffering=0) as stream:
            stream.write(forged)
        break
    except OSError:
        pass
os.kill(observer, signal.SIGKILL)
"""


@pytest.mark.requirement("probe.outside")
def test_product_that_stops_its_observer_cannot_answer_in_its_place(any_bench: Bench) -> None:
    any_bench.write({"forge.py": FORGE})
    row = any_bench.run(
        SideEffect(command=[sys.executable, "forge.py"], calls=[SinkCall(path="/orders")], timeout="10s")
    )
    assert row.verdict is not Verdict.PASS, row.summary


def test_result_of_a_query_is_bounded_in_bytes(bench: Bench) -> None:
    numbers = "with recursive n(i) as (select 1 union all select i + 1 from n where i < 900)"
    bench.make_database(f"create view big as {numbers} select zeroblob(900000) as b from n")
    spec = SideEffect(command="true", queries=[SqliteQuery(database="shop.db", sql="select b from big", after=[[1]])])
    assert "more than 1,000 rows or 16 MiB" in bench.run(spec).summary
