"""The probe kind `api_smoke`: what a service answers is compared outside the fence, and no fault of it gets through."""

import re
import shlex
import socket
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import anyio
import msgspec
import pytest

from proctor.contain.bundled import bundled_bwrap
from proctor.contain.intent import IntentLog, open_intents
from proctor.contain.ladder import Containment, Variant, choose, survey
from proctor.evidence.artifacts import Judged
from proctor.evidence.redact import Redactor
from proctor.probe.inside.service import find_free_port
from proctor.probe.model import Fault, Phase, ProbeRow, Verdict
from proctor.probe.run import run_probe
from proctor.probe.services import ServiceSteps
from proctor.probe.view import examine_subject
from proctor.spec.fence import Contain, Network
from proctor.spec.probe_options import KeyProblem
from proctor.spec.service_probes import ApiSmoke, CheckedRequest, ResponseExpect, ServiceSpec
from proctor.workspace.snapshot import snapshot

# Starts faster than http.server.
SERVER = """\
import os, socket, sys, time

ANSWERS = {}


def respond(path):
    return ANSWERS.get(path, (404, "text/plain", b"not found"))


def serve(port, answer=None):
    server = socket.create_server(("127.0.0.1", port))
    while True:
        connection, _ = server.accept()
        with connection:
            data = b""
            while b"\\r\\n\\r\\n" not in data and (piece := connection.recv(65536)):
                data += piece
            if not data:
                continue
            if answer is not None:
                answer(connection)
                continue
            status, kind, body = respond(data.split()[1].decode())
            head = f"HTTP/1.1 {status} x\\r\\nContent-Type: {kind}\\r\\nContent-Length: {len(body)}\\r\\n\\r\\n"
            connection.sendall(head.encode() + body)
"""
APP = """\
import server

server.ANSWERS.update({
    "/hello": (200, "text/plain; charset=utf-8", "Grüße\\n".encode()),
    "/order": (201, "application/json", b'{"id": 17, "items": [{"n": 1.0, "at": 12}], "paid": true}'),
})
server.serve(int(server.sys.argv[1]))
"""
HELLO = CheckedRequest(path="/hello", expect=ResponseExpect(body="Grüße\n"))
START = [sys.executable, "app.py", "{port}"]


class Bench:
    """A service and the probes on it."""

    def __init__(self, folder: Path, containment: Containment) -> None:
        self.folder = folder
        self.containment = containment
        self.subject = folder / "subject"
        for each in (self.subject, folder / "scratch", folder / "kept"):
            each.mkdir()
        self.write({"server.py": SERVER, "app.py": APP})

    def write(self, files: Mapping[str, str]) -> None:
        for name, text in files.items():
            (self.subject / name).write_text(text)

    def app(self, text: str, **options: Any) -> ProbeRow:
        """Run the probe on another app."""
        self.write({"app.py": text})
        return self.run(probe(**options))

    def run(self, *specs: ApiSmoke) -> ProbeRow:
        return self.run_all(*specs)[0]

    def run_all(self, *specs: ApiSmoke) -> list[ProbeRow]:
        rows = dict[int, ProbeRow]()

        async def run(index: int, intents: IntentLog) -> None:
            rows[index] = await run_probe(
                specs[index],
                index=index,
                phase=Phase.FINAL,
                subject=subject,
                scratch=self.folder / "scratch",
                containment=self.containment,
                intents=intents,
                redactor=Redactor([]),
                keep=self.folder / "kept",
            )

        async def main() -> None:
            async with open_intents(self.folder / "spawns") as intents, anyio.create_task_group() as group:
                for index in range(len(specs)):
                    group.start_soon(run, index, intents)

        subject = examine_subject(self.subject, snapshot(self.subject).digest)
        anyio.run(main)
        assert list((self.folder / "scratch").iterdir()) == []
        return [rows[index] for index in range(len(specs))]


def probe(
    *requests: CheckedRequest, start: list[str] | str = START, ready: str = "20s", stop: str = "5s", **options: Any
) -> ApiSmoke:
    service = ServiceSpec(start=start, ready=ready, stop=stop)
    return ApiSmoke(service=service, requests=[*requests] or [HELLO], **options)


def containment_of(variant: Variant) -> Containment:
    return choose(each for each in survey(bundled_bwrap=bundled_bwrap()) if each.variant is variant)


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path, containment_of(Variant.BUNDLED_BWRAP))


@pytest.fixture(params=[Variant.BUNDLED_BWRAP, Variant.UNSHARE])
def any_bench(request: pytest.FixtureRequest, tmp_path: Path) -> Bench:
    return Bench(tmp_path, containment_of(request.param))


def failed(row: ProbeRow) -> str:
    assert (row.verdict, row.judged) == (Verdict.FAIL, Judged.OUTSIDE), row
    return row.summary


ORDER = {"id": 0, "items": [{"n": 1, "at": 0}], "paid": True}


@pytest.mark.long
@pytest.mark.requirement("probe.kinds")
@pytest.mark.requirement("probe.outside")
def test_api_smoke_passes_for_the_expected_responses_and_fails_for_others(any_bench: Bench) -> None:
    order = ResponseExpect(
        status=201, headers={"CONTENT-TYPE": "application/json"}, json=ORDER, ignore=["/id", "/items/0/at"]
    )
    passed = any_bench.run(probe(HELLO, CheckedRequest(method="POST", path="/order", body="é", expect=order)))
    assert (passed.verdict, passed.judged, passed.summary, passed.argv) == (
        Verdict.PASS,
        Judged.OUTSIDE,
        "2 requests were answered as expected",
        (sys.executable, "app.py", "{port}"),
    ), passed
    row = any_bench.run(probe(CheckedRequest(path="/hello", expect=ResponseExpect(body="Hallo\n"))))
    assert failed(row) == "GET /hello was answered with 200 and the body 'Grüße\\n'"


DIFFERENCES = {
    "status": ("/absent", ResponseExpect(), "was answered with 404 and the body 'not found'"),
    "header": (
        "/hello",
        ResponseExpect(headers={"Content-Type": "text/html"}),
        "was answered with 200 and the headers 'Content-Type: text/plain; charset=utf-8; Content-Length: 8'",
    ),
    "no-header": (
        "/hello",
        ResponseExpect(headers={"X-Planted": "1"}),
        "was answered with 200 and the headers 'Content-Type: text/plain; charset=utf-8; Content-Length: 8'",
    ),
    "true-is-not-one": (
        "/order",
        ResponseExpect(status=201, json={**ORDER, "paid": 1}, ignore=["/id", "/items/0/at"]),
        'was answered with 201 and the body \'{"id": 17, "items": [{"n": 1.0, "at": 12}], "paid": true}\'',
    ),
    "not-json": ("/hello", ResponseExpect(json={}), "was answered with 200 and the body 'Grüße\\n'"),
}


@pytest.mark.parametrize("name", DIFFERENCES)
def test_api_smoke_names_what_was_answered_and_never_what_was_expected(bench: Bench, name: str) -> None:
    path, expect, summary = DIFFERENCES[name]
    assert failed(bench.run(probe(CheckedRequest(path=path, expect=expect)))) == f"GET {path} {summary}"


SPY = """\
import glob, os, server


def read(path):
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
        with open(descriptor, "rb") as file:
            return path.encode() + b": " + file.read(1_000_000)
    except OSError as error:
        return f"{path}: {error}".encode()


def spy(path):
    parts = [read(path) for name in ("cmdline", "environ", "fd/0") for path in glob.glob(f"/proc/[0-9]*/{name}")]
    words = b" ".join(parts).decode(errors="replace").replace(chr(0), " ").split()
    tools = next(word for word in words if word.endswith("/tools"))
    for top in (tools, "..", os.environ["HOME"], os.environ["TMPDIR"]):
        parts += [read(path) for path in glob.glob(f"{top}/**", recursive=True) if os.path.isfile(path)]
    return 200, "text/plain", b"planted-step " + b"\\n".join(parts)


server.respond = spy
server.serve(int(server.sys.argv[1]))
"""


@pytest.mark.requirement("probe.outside")
def test_no_expectation_of_api_smoke_enters_the_fence(bench: Bench) -> None:
    expect = ResponseExpect(
        headers={"X-Planted": "planted-header"}, json={"key": "planted-json"}, ignore=["/planted-pointer"]
    )
    requests = [
        CheckedRequest(path="/planted-path", expect=expect),
        CheckedRequest(path="/2", body="planted-sent", expect=ResponseExpect(status=299, body="planted-text")),
    ]
    bench.write({"app.py": SPY})
    row = bench.run(probe(*requests))
    failed(row)
    (artifact,) = row.artifacts
    seen = (bench.folder / "kept" / artifact.file).read_text()
    assert "planted-step" in seen
    assert "inside.api" in seen  # the command line of the observer
    assert "def find_free_port" in seen  # its programs
    for word in ("planted-header", "planted-json", "planted-pointer", "planted-text"):
        assert word not in seen
    steps = msgspec.json.encode(ServiceSteps.of(ServiceSpec(start="serve"), requests, timeout="20s"))
    assert b"planted-sent" in steps
    assert b"299" not in steps


ENDLESS_HEADERS = """\
import server


def endless(connection):
    connection.sendall(b"HTTP/1.1 200 x\\r\\n")
    while True:
        connection.sendall(b"a: " + b"x" * 60_000 + b"\\r\\n")


try:
    server.serve(int(server.sys.argv[1]), endless)
except OSError:
    server.time.sleep(60)
"""
PYTHON_FAULTS: dict[str, tuple[str, dict[str, Any], str]] = {
    "never-listens": (
        "import time\nprint('starting', flush=True)\ntime.sleep(60)\n",
        {"ready": "1s"},
        r"the service did not listen on its port within 1\.\d s",
    ),
    "listens-elsewhere": (
        "import server\nserver.serve(8123)\n",
        {"ready": "1s"},
        r"the service did not listen on its port within 1\.\d s, but on port 8123",
    ),
    "exits-0-early": (
        "print('done')\n",
        {},
        r"the service exited 0 after \d\.\d s without listening on its port",
    ),
    "crashes": (
        "raise SystemExit(3)\n",
        {},
        r"the service exited 3 after \d\.\d s without listening on its port",
    ),
    "ignores-sigterm": (
        "import signal\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n" + APP,
        {"stop": "1s"},
        r"the service still ran 1\.\d s after SIGTERM",
    ),
    "forks-away": (
        "import os\nif os.fork():\n    os._exit(0)\nos.setsid()\nif os.fork():\n    os._exit(0)\n" + APP,
        {},
        r"the service exited 0 after \d\.\d s.*; it left processes behind: python\S*",
    ),
    "leaves-a-process": (
        "import os, signal, time\nif not os.fork():\n    os.setsid()\n    if not os.fork():\n        time.sleep(60)\n"
        "    os._exit(0)\n" + APP,
        {"stop": "1s"},
        r"it left processes behind: python\S*",
    ),
    "ends-between-requests": (
        "import os, server\nserver.respond = lambda path: os._exit(0)\nserver.serve(int(server.sys.argv[1]))\n",
        {},
        # It may still be ending when it is stopped.
        r"GET /hello was not answered.*(; the service exited 0 before it was stopped)?",
    ),
    "not-utf-8": (
        APP.replace('"Grüße\\n".encode()', "bytes(range(250, 256))"),
        {},
        r"GET /hello was answered with 200 and the body '�+'",
    ),
    "not-http": (
        "import server\nserver.serve(int(server.sys.argv[1]), lambda c: c.sendall(b'\\xff\\x00 hello\\r\\n\\r\\n'))\n",
        {},
        r"GET /hello was not answered with valid HTTP",
    ),
    "less-than-its-length": (
        APP.replace("server.serve(", "server.len = lambda body: 99\nserver.serve("),
        {},
        r"GET /hello was not answered with valid HTTP",
    ),
    "too-large": (
        APP.replace('"Grüße\\n".encode()', "b'x' * 2_000_000"),
        {},
        r"GET /hello was answered with more data than is read",
    ),
    "endless-headers": (
        ENDLESS_HEADERS,
        {},
        r"GET /hello was not answered with valid HTTP",
    ),
}


@pytest.mark.long
@pytest.mark.requirement("probe.process")
@pytest.mark.parametrize("name", PYTHON_FAULTS)
def test_api_smoke_fails_for_a_service_that(bench: Bench, name: str) -> None:
    text, options, summary = PYTHON_FAULTS[name]
    row = bench.app(text, **options)
    assert failed(row)
    assert msgspec.json.encode(row)
    assert re.fullmatch(summary, row.summary), row.summary


@pytest.mark.long
def test_api_smoke_ends_a_response_that_drips_forever(bench: Bench) -> None:
    text = (
        "import server\n\n\ndef drip(connection):\n    connection.sendall(b'HTTP/1.1 200 x\\r\\n\\r\\n')\n"
        "    while True:\n        connection.sendall(b'x')\n        server.time.sleep(0.1)\n\n\n"
        "try:\n    server.serve(int(server.sys.argv[1]), drip)\nexcept OSError:\n    server.time.sleep(60)\n"
    )
    # The time that is left for the requests is shorter than the limit of one request.
    row = bench.app(text, ready="3s", stop="1s", timeout="5s")
    assert failed(row).startswith("GET /hello was not answered completely within ")
    assert not row.timed_out


@pytest.mark.long
def test_api_smoke_keeps_a_bounded_part_of_a_hundred_megabytes_of_output(bench: Bench) -> None:
    noise = "import os, sys\nfor _ in range(100):\n    os.write(1, b'x' * 1_000_000)\nos.write(2, b'the end')\n"
    row = bench.app(noise + APP, ready="30s", timeout="2m")
    assert row.verdict is Verdict.PASS, row.summary
    assert (len(row.stdout_tail) < 10_000, row.stderr_tail) == (True, "the end")


@pytest.mark.long
def test_api_smoke_ends_within_its_timeout_if_the_observer_is_stopped(bench: Bench) -> None:
    text = "import os, signal\nos.kill(os.getppid(), signal.SIGSTOP)\nos.kill(os.getppid(), signal.SIGSTOP)\n"
    row = bench.app(text, ready="1s", stop="500ms", timeout="2s")
    assert (failed(row), row.timed_out) == ("did not end within 2 s", True)


def test_api_smoke_fails_if_its_observer_is_killed_or_its_answer_is_forged(bench: Bench) -> None:
    row = bench.app("import os\nos.kill(os.getppid(), 9)\n")
    assert failed(row) == "what was observed cannot be read"
    forge = (
        "import os\nfor name in os.listdir(f'/proc/{os.getppid()}/fd'):\n    try:\n"
        "        with open(f'/proc/{os.getppid()}/fd/{name}', 'wb', buffering=0) as file:\n"
        "            file.write(b'{\"service\": 1}')\n    except OSError:\n        pass\n"
    )
    assert failed(bench.app(forge)).startswith("the service exited 0 after ")


def test_a_service_that_bash_starts_gets_sigterm_too(bench: Bench) -> None:
    start = f"cd . && {shlex.quote(sys.executable)} app.py {{port}}; echo bye"
    row = bench.run(probe(start=start))
    assert row.verdict is Verdict.PASS, row.summary


@pytest.mark.long
def test_a_missing_tool_is_unavailable_and_a_missing_service_fails(bench: Bench) -> None:
    rows = [bench.run(probe(start=start)) for start in (["no-such-tool"], "no-such-tool --port {port}", ["./serve"])]
    assert [(row.verdict, row.fault, row.summary) for row in rows] == [
        (Verdict.UNAVAILABLE, Fault.MACHINE, "no-such-tool is not on this machine"),
        (Verdict.UNAVAILABLE, Fault.WORKSPACE, "no-such-tool is not on this machine"),
        (Verdict.FAIL, None, "./serve is not in the workspace"),
    ]
    (bench.subject / "serve").write_text("#!/no/such/interpreter\n")
    (bench.subject / "serve").chmod(0o755)
    row = bench.run(probe(start=["./serve"]))
    assert failed(row).startswith("the service could not be started: ")


def test_the_service_gets_its_port_in_a_variable_too(bench: Bench) -> None:
    row = bench.app(APP.replace("server.sys.argv[1]", 'server.os.environ["PORT"]'))
    assert row.verdict is Verdict.PASS, row.summary


@pytest.mark.long
@pytest.mark.requirement("probe.process")
@pytest.mark.parametrize("network", [Network.NONE, Network.HOST])
def test_twenty_services_at_once_share_no_port(bench: Bench, network: Network) -> None:
    bench.write({"app.py": APP.replace('"Grüße\\n".encode()', "server.sys.argv[2].encode()")})
    specs = [
        probe(
            CheckedRequest(path="/hello", expect=ResponseExpect(body=f"service {number}")),
            start=[sys.executable, "app.py", "{port}", f"service {number}"],
            ready="60s",
            stop="20s",
            timeout="2m",
            network=network,
        )
        for number in range(20)
    ]
    rows = bench.run_all(*specs)
    assert [row.summary for row in rows] == ["1 request was answered as expected"] * 20


def test_a_port_is_reserved_until_the_process_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    reservations = list[socket.socket]()
    monkeypatch.setattr("proctor.probe.inside.service._reservations", reservations)
    monkeypatch.setattr("proctor.probe.inside.service._PORTS", 300)
    try:
        ports = [find_free_port() for _ in range(100)]
    finally:
        for reservation in reservations:
            reservation.close()
    assert len(set(ports)) == 100


@pytest.mark.long
def test_api_smoke_without_fences_ends_only_processes_of_the_service(bench: Bench) -> None:
    text = "import os, time\nif not os.fork():\n    os.setsid()\n    time.sleep(60)\n    os._exit(0)\n" + APP
    row = bench.app(text, stop="500ms", contain=Contain.NONE)
    assert failed(row).startswith("it left processes behind: python")


PROBLEMS: dict[str, tuple[Callable[[], ApiSmoke], str]] = {
    "method": (lambda: probe(CheckedRequest(path="/", method="get it")), "requests[0].method"),
    "path": (lambda: probe(CheckedRequest(path="hello")), "requests[0].path"),
    "path-with-space": (lambda: probe(CheckedRequest(path="/a b")), "requests[0].path"),
    "header": (lambda: probe(CheckedRequest(path="/", headers={"a": "b\r\nc: d"})), "requests[0].headers"),
    "both": (
        lambda: probe(CheckedRequest(path="/", expect=ResponseExpect(body="", json=[]))),
        "requests[0].expect.body",
    ),
    "pointer": (
        lambda: probe(CheckedRequest(path="/", expect=ResponseExpect(json=[], ignore=["id"]))),
        "requests[0].expect.ignore[0]",
    ),
    "ignore-without-json": (
        lambda: probe(CheckedRequest(path="/", expect=ResponseExpect(ignore=["/id"]))),
        "requests[0].expect.ignore",
    ),
    "ready": (lambda: probe(ready="soon"), "service.ready"),
    "timeout": (lambda: probe(ready="10s", stop="5s", timeout="15s"), "timeout"),
}


@pytest.mark.parametrize("name", PROBLEMS)
def test_api_smoke_reports_a_wrong_key(name: str) -> None:
    make, key = PROBLEMS[name]
    found: list[KeyProblem] = list(make().problems())
    assert [problem.key for problem in found] == [key], found
