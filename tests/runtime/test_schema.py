"""What we say and understand, against the schema that the installed program prints of itself: a new version shows."""

import subprocess
from pathlib import Path
from typing import Any

import anyio
import msgspec
import pytest

from proctor import places
from proctor.errors import MachineError, PeerError
from proctor.event.model import ApprovalAsked, Unrecognized
from proctor.event.row import Direction, StepTaken
from proctor.fact import Authority, Fact
from proctor.ids import ThreadId
from proctor.runtime.base import Decision, Tool
from proctor.runtime.codex.program import locate
from proctor.runtime.codex.schema import SchemaMethods, _read_printed, read_schema
from proctor.runtime.codex_app_server import policy, wire
from proctor.runtime.codex_app_server.failures import FAILURES
from proctor.runtime.codex_app_server.host import HELLO
from proctor.runtime.codex_app_server.open_thread import opening_request
from proctor.runtime.codex_app_server.schema import ESSENTIAL, USEFUL, lacks, schema_fact, unknown
from proctor.runtime.failures import diagnose
from proctor.testing.agent_under_test import host_asked
from tests.made_once import made_once
from tests.runtime.json_schema import Schema
from tests.runtime.real import real_server
from tests.runtime.stories import Story
from tests.runtime.twin import MemoryTap, run, session_ask

pytestmark = pytest.mark.real_agent


async def add(arguments: Any) -> str:
    return str(arguments["a"] + arguments["b"])


ADD = Tool(name="add", description="Adds two numbers.", schema={"type": "object"}, call=add)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The schema of the installed program, experimental parts included."""
    home = tmp_path_factory.mktemp("home")

    def generate(folder: Path) -> None:
        command = [locate().real_path, "app-server", "generate-json-schema", "--experimental", "--out", str(folder)]
        subprocess.run(command, env={"CODEX_HOME": str(home)}, capture_output=True, check=True, timeout=60)

    return made_once(tmp_path_factory, "schema", generate)


def test_every_notification_is_understood_or_known_to_say_nothing(folder: Path) -> None:
    schema = Schema.load(folder / "ServerNotification.json")
    strangers = []
    for method, params in schema.messages().items():
        for least in schema.variants(params):
            events = Story().row(Direction.IN, {"method": method, "params": least})
            strangers += [method for event in events if isinstance(event, Unrecognized)]
    assert strangers == []
    assert set(schema.messages()) >= wire.SILENT | wire.DELTAS, "we know notifications that do not exist"


@pytest.mark.requirement("schedule.recovery")
def test_every_class_of_error_has_a_row_in_the_failure_table(folder: Path) -> None:
    schema = Schema.load(folder / "ServerNotification.json")
    kinds = schema.root["definitions"]["CodexErrorInfo"]["anyOf"]
    named = [name for kind in kinds for name in (*kind.get("enum", ()), *kind.get("required", ()))]
    assert len(named) >= 20
    without = [each for each in named if diagnose(FAILURES, each, "a new text") is None]
    assert without == []


@pytest.mark.requirement("evidence.trace")
def test_every_kind_of_item_is_understood_at_its_beginning_and_at_its_end(folder: Path) -> None:
    schema = Schema.load(folder / "ServerNotification.json")
    items = list(schema.variants({"$ref": "#/definitions/ThreadItem"}))
    assert len({item["type"] for item in items}) >= 19
    for item in items:
        for method in ("item/started", "item/completed"):
            events = Story().heard(method, item=item)
            assert not any(isinstance(event, Unrecognized) for event in events), (method, item)


@pytest.mark.requirement("runtime.approvals.answered")
@pytest.mark.parametrize("decision", list(Decision))
def test_every_question_is_understood_and_its_answer_fits(folder: Path, decision: Decision) -> None:
    schema = Schema.load(folder / "ServerRequest.json")
    assert set(schema.messages()) == set(wire.APPROVALS)
    for method, params in schema.messages().items():
        [asked] = Story().row(Direction.IN, {"id": 1, "method": method, "params": schema.least(params)})
        assert isinstance(asked, ApprovalAsked), method
        assert isinstance(params, dict)
        answer = policy.answer(method, decision, params=schema.least(params), now_s=1_700_000_000)
        name = params["$ref"].removeprefix("#/definitions/").replace("Params", "Response")
        response = Schema.load(folder / f"{name}.json")
        assert answer.error is not None or response.fits(answer.result, response.root), method


REQUESTS: list[tuple[str, Any]] = [
    ("initialize", HELLO),
    opening_request(session_ask()),
    ("turn/start", {"threadId": "t", "input": [{"type": "text", "text": "Go on."}]}),
    ("turn/start", {"threadId": "t", "input": [], "outputSchema": {"type": "object"}}),
    ("turn/steer", {"threadId": "t", "expectedTurnId": "u", "input": [{"type": "text", "text": "Go on."}]}),
    opening_request(session_ask(is_persistent=True, tools=(ADD,))),
    opening_request(session_ask(resume=ThreadId("t"))),
    opening_request(session_ask(fork=ThreadId("t"))),
    ("thread/read", {"threadId": "t"}),
    ("thread/archive", {"threadId": "t"}),
    ("thread/unarchive", {"threadId": "t"}),
    ("thread/turns/list", {"threadId": "t", "itemsView": "full", "sortDirection": "asc", "cursor": None}),
    ("thread/compact/start", {"threadId": "t"}),
    ("turn/interrupt", {"threadId": "t", "turnId": "u"}),
    ("thread/backgroundTerminals/clean", {"threadId": "t"}),
    ("thread/unsubscribe", {"threadId": "t"}),
]


@pytest.mark.requirement("runtime.compat")
@pytest.mark.parametrize(("method", "params"), REQUESTS)
def test_every_request_of_ours_exists_and_takes_what_we_say(folder: Path, method: str, params: Any) -> None:
    schema = Schema.load(folder / "ClientRequest.json")
    said = msgspec.to_builtins(params)
    assert schema.fits(said, schema.messages()[method])
    assert not schema.fits({**said, "noSuchField": 1}, schema.messages()[method]), "the check itself can fail"


def test_the_greeting_we_send_after_the_first_reply_exists(folder: Path) -> None:
    assert "initialized" in Schema.load(folder / "ClientNotification.json").messages()


@pytest.mark.requirement("runtime.compat")
def test_what_is_checked_before_a_run_is_what_we_use_and_the_program_has_all_of_it(folder: Path) -> None:
    spoken = _read_printed(folder)
    assert spoken is not None
    assert (lacks(spoken), unknown(spoken)) == ([], [])
    used = ESSENTIAL | USEFUL
    assert used & spoken.requests == {method for method, _ in REQUESTS}
    assert used - spoken.requests <= spoken.notifications | spoken.questions


@pytest.mark.requirement("runtime.identity")
def test_the_schema_is_asked_for_once_and_its_digest_is_on_record(
    tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))

    async def test() -> list[Fact]:
        found = []
        for _ in range(2):
            async with real_server(tmp_path) as server:
                found.append(server.host.facts["schema"])
        return found

    expected = _read_printed(folder)
    assert expected is not None
    first, second = run(test)
    assert first == second
    assert first.value == {"digest": expected.digest, "lacks": [], "strangers": []}
    book = places.cache_dir() / "schemas"
    assert [file.name for file in book.iterdir()] == [f"{locate().sha256}.json"]


@pytest.mark.parametrize("can_print", [True, False])
def test_many_who_start_at_once_have_the_program_print_once(tmp_path: Path, can_print: bool) -> None:
    program, printed = tmp_path / "codex", tmp_path / "home" / "printed"
    rest = f'exec {locate().real_path} "$@"' if can_print else "exit 1"
    program.write_text(f"#!/bin/sh\necho once >> {printed}\n{rest}\n")
    program.chmod(0o755)
    own = msgspec.structs.replace(locate(), real_path=str(program), sha256=f"of-{tmp_path.name}")

    async def test() -> list[SchemaMethods | None]:
        async with host_asked(tmp_path, name="p", program=own) as ask:
            ask.home.mkdir()
            ask.tmp.mkdir()
            found: list[SchemaMethods | None] = []

            async def read() -> None:
                found.append(await read_schema(ask))

            async with anyio.create_task_group() as tasks:
                for _ in range(4):
                    tasks.start_soon(read)
            return found

    found = run(test)
    (places.cache_dir() / "schemas" / f"{own.sha256}.json").unlink(missing_ok=True)
    assert [spoken is not None for spoken in found] == [can_print] * 4
    assert printed.read_text() == "once\n"


@pytest.mark.requirement("runtime.compat")
def test_a_program_without_a_method_we_need_is_refused_before_it_is_started(tmp_path: Path) -> None:
    async def test() -> MemoryTap:
        async with real_server(tmp_path) as server:
            return server.tap

    book = places.cache_dir() / "schemas" / f"{locate().sha256}.json"
    run(test)
    whole = msgspec.json.decode(book.read_bytes(), type=SchemaMethods)
    try:
        less = msgspec.structs.replace(whole, requests=whole.requests - {"turn/steer"})
        book.write_bytes(msgspec.json.encode(less))
        [said] = [seen for seen in run(test).of(Direction.SELF) if isinstance(seen, StepTaken)]
        assert said == StepTaken(step="the program lacks methods", detail={"methods": ["turn/steer"]})
        book.write_bytes(msgspec.json.encode(msgspec.structs.replace(whole, notifications=frozenset())))
        with pytest.raises(MachineError, match=r"no item/completed, item/started, turn/completed, .* install openai"):
            run(test)
    finally:
        book.unlink()


def test_a_program_that_prints_no_schema_is_not_known_and_not_refused(tmp_path: Path) -> None:
    for file, text in (("ClientRequest.json", "{}"), ("codex_app_server_protocol.schemas.json", "{}")):
        assert _read_printed(tmp_path) is None
        (tmp_path / file).write_text(text)
    assert _read_printed(tmp_path) is None
    assert schema_fact(None).authority is Authority.UNKNOWN


def test_what_is_printed_lies_in_the_scratch_of_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "codex"
    program.write_text(
        f'#!/bin/sh\nfor last; do :; done\nmkdir "{tmp_path}/asked"; echo "$last" > "{tmp_path}/asked/$2"\n'
    )
    program.chmod(0o700)
    monkeypatch.setenv("PROCTOR_CODEX", str(program))

    async def test() -> None:
        async with real_server(tmp_path):
            pass

    with pytest.raises(PeerError):
        run(test)
    printed = Path((tmp_path / "asked" / "generate-json-schema").read_text().strip())
    assert (printed.parent, printed.exists()) == (tmp_path / "process-tmp", False)
