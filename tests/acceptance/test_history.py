"""What is said of a thread's history, on the real agent: read back where it is kept, and compared by content."""

import json

import pytest

from proctor.ids import FlowId
from proctor.transport.channel import Channel
from proctor.transport.fault import Alter, FaultChannel, LineFault
from tests.lab import Lab, jsonl, mission, runner_ref_of, say_done

pytestmark = pytest.mark.real_agent

PERSISTENT = ("kept", "altered", "emptied", "denied")


def _is_opening(line: bytes) -> bool:
    return b'"ephemeral":false' in line and line.startswith(b'{"id"')


def _is_page(line: bytes) -> bool:
    return b'"itemsView":"full"' in line


def _reworded(line: bytes) -> bytes:
    reply = json.loads(line)
    [turn] = reply["result"]["data"]
    [message] = [item for item in turn["items"] if item["type"] == "agentMessage"]
    message["text"] += " Or not."
    return json.dumps(reply).encode()


def _emptied(line: bytes) -> bytes:
    reply = json.loads(line)
    for turn in reply["result"]["data"]:
        turn["items"] = []
    return json.dumps(reply).encode()


def _denied(line: bytes) -> bytes:
    return line.replace(b'"ephemeral":false', b'"ephemeral":true')


ON_THE_WAY = {
    "altered": LineFault(at=_is_page, how=Alter(to=_reworded)),
    "emptied": LineFault(at=_is_page, how=Alter(to=_emptied)),
    "denied": LineFault(at=_is_opening, how=Alter(to=_denied)),
}


def _between(flow: FlowId, channel: Channel) -> Channel:
    fault = ON_THE_WAY.get(flow)
    return channel if fault is None else FaultChannel(channel, [fault])


@pytest.mark.requirement("runtime.history")
@pytest.mark.requirement("runtime.identity")
@pytest.mark.requirement("evidence.transcript")
def test_a_history_is_live_only_or_read_back_and_compared(lab: Lab) -> None:
    workspace = {"copy": lab.workspace("greeting", {"greet.txt": "Hello\n"})}
    steps = ({"think": "A greeting.", "run": "cat greet.txt"}, say_done("Ada"))
    flows = [
        {"id": "gone", "runtime": ["codex_app_server"]},
        *({"id": id_, "runtime": ["codex_app_server"], "persistence": "persistent"} for id_ in PERSISTENT),
    ]
    lab.run(lab.write_spec([mission("look", *steps, workspace=workspace)], flows=flows), between=_between)

    facts = {id_.split(".")[1]: runner_ref_of(paths).facts for id_, paths in lab.attempts().items()}
    told = {flow: (each["persistence"].value, each["history"].value) for flow, each in facts.items()}
    assert told == {
        "gone": ("ephemeral", "live-only"),
        "kept": ("persistent", "hydrated-verified"),
        "altered": ("persistent", "hydrated-divergent"),
        "emptied": ("persistent", "truncated"),
        "denied": ("ephemeral", "hydrated-verified"),
    }
    [conflict] = facts["denied"]["persistence"].conflicts
    assert (conflict.value, conflict.authority) == ("persistent", "declared")
    assert {each["persistence"].authority for each in facts.values()} == {"reported"}
    assert facts["kept"]["history"].authority == "verified"
    [difference] = facts["altered"]["historyDifferences"].value
    assert difference.endswith("is stored with other content")
    assert "historyDifferences" not in facts["kept"]
    for each in facts.values():
        model, versions = each["model"].value, each["versions"].value
        assert (model["requested"], model["effective"]) == ("proctor-scripted", "proctor-scripted")
        assert len(versions) == 4
        assert versions["agree"] is True
        assert (each["threadStatus"].value, each["processState"].value) == ("idle", "alive")
        assert each["identityAfter"].value == "same"
        assert each["usage"].value["authority"] == "live-thread-usage"
    for id_, paths in lab.attempts().items():
        first, *_, last = jsonl(paths.transcript)
        ref = runner_ref_of(paths)
        assert first["kind"] == "facts"
        assert first["facts"]["executableSha256"] == ref.facts["identity"].value["sha256"]
        assert (last["kind"], last["facts"]["thread"]) == ("summary", ref.thread_id)
        assert last["facts"]["history"] == told[id_.split(".")[1]][1]
    lab.assert_all_evidence_is_valid()
