"""What we say and understand, against the schema that the installed program prints of itself: a new version shows."""

import subprocess
from pathlib import Path
from typing import Any

import msgspec
import pytest

from proctor.event.model import ApprovalAsked, Unrecognized
from proctor.event.row import Dir
from proctor.runtime.codex_app_server import policy, wire
from proctor.runtime.codex_app_server.executable import locate
from proctor.runtime.codex_app_server.home import thread_params
from proctor.runtime.codex_app_server.host import HELLO
from proctor.spec.model import Approvals
from tests.runtime.schema import Schema
from tests.runtime.stories import Story
from tests.runtime.twin import session_ask

pytestmark = pytest.mark.real_agent


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The schema of the installed program, experimental parts included."""
    folder = tmp_path_factory.mktemp("schema")
    home = tmp_path_factory.mktemp("home")
    command = [locate().real_path, "app-server", "generate-json-schema", "--experimental", "--out", str(folder)]
    subprocess.run(command, env={"CODEX_HOME": str(home)}, capture_output=True, check=True, timeout=60)
    return folder


def test_every_notification_is_understood_or_known_to_say_nothing(folder: Path) -> None:
    schema = Schema.load(folder / "ServerNotification.json")
    strangers = []
    for method, params in schema.messages().items():
        for least in schema.variants(params):
            events = Story().row(Dir.IN, {"method": method, "params": least})
            strangers += [method for event in events if isinstance(event, Unrecognized)]
    assert strangers == []
    assert set(schema.messages()) >= wire.SILENT | wire.DELTAS, "we know notifications that do not exist"


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
@pytest.mark.parametrize("approvals", list(Approvals))
def test_every_question_is_understood_and_its_answer_fits(folder: Path, approvals: Approvals) -> None:
    schema = Schema.load(folder / "ServerRequest.json")
    assert set(schema.messages()) == set(wire.APPROVALS)
    for method, params in schema.messages().items():
        [asked] = Story().row(Dir.IN, {"id": 1, "method": method, "params": schema.least(params)})
        assert isinstance(asked, ApprovalAsked), method
        answer = policy.answer(method, approvals, now_s=1_700_000_000)
        assert isinstance(params, dict)
        name = params["$ref"].removeprefix("#/definitions/").replace("Params", "Response")
        response = Schema.load(folder / f"{name}.json")
        assert answer.error is not None or response.fits(answer.result, response.root), method


@pytest.mark.requirement("runtime.compat")
@pytest.mark.parametrize(
    ("method", "params"),
    [
        ("initialize", HELLO),
        ("thread/start", thread_params(session_ask())),
        ("turn/start", {"threadId": "t", "input": [{"type": "text", "text": "Go on."}]}),
        ("turn/interrupt", {"threadId": "t", "turnId": "u"}),
        ("thread/backgroundTerminals/clean", {"threadId": "t"}),
        ("thread/unsubscribe", {"threadId": "t"}),
    ],
)
def test_every_request_of_ours_exists_and_takes_what_we_say(folder: Path, method: str, params: Any) -> None:
    schema = Schema.load(folder / "ClientRequest.json")
    said = msgspec.to_builtins(params)
    assert schema.fits(said, schema.messages()[method])
    assert not schema.fits({**said, "noSuchField": 1}, schema.messages()[method]), "the check itself can fail"


def test_the_greeting_we_send_after_the_first_reply_exists(folder: Path) -> None:
    assert "initialized" in Schema.load(folder / "ClientNotification.json").messages()
