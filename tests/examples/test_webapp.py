"""The example application under a client that is cut off in the middle of a turn, and a server that is stopped."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from proctor.attempt.recheck import examine_run
from proctor.evidence.layout import RootPaths
from tests.examples.served import served
from tests.lab import wait_until

pytestmark = pytest.mark.real_agent

Told = dict[int, dict[str, Any]]


def follow(client: httpx.Client, room: str, *, after: int | None) -> Iterator[tuple[int, dict[str, Any]]]:
    """Events with their ids, as a browser reads them; to leave off is to cut the connection."""
    headers = {} if after is None else {"Last-Event-ID": str(after)}
    with client.stream("GET", f"/sessions/{room}/events", headers=headers) as response:
        number = 0
        for line in response.iter_lines():
            name, _, value = line.partition(": ")
            if name == "id":
                number = int(value)
            elif name == "data":
                yield number, json.loads(value)


def take(told: Told, client: httpx.Client, room: str, *, until: str) -> dict[str, Any]:
    """Goes on after the last event told, up to one of this type."""
    for number, event in follow(client, room, after=max(told, default=None)):
        assert number not in told
        told[number] = event
        if event["type"] == until:
            return event
    raise AssertionError(f"the stream ended before {until}")


@pytest.mark.requirement("surface.embed")
def test_a_client_that_reconnects_in_the_middle_of_a_turn_misses_nothing_and_sees_nothing_twice(tmp_path: Path) -> None:
    with served(tmp_path, KEEP="1") as server, httpx.Client(base_url=server.url, timeout=60) as client:
        room = client.post("/sessions").raise_for_status().json()["id"]
        client.post(f"/sessions/{room}/say", json={"prompt": "Look around."}).raise_for_status()
        told: Told = {}
        for until in ("prompt.sent", "turn.began", "text.streamed", "text.streamed", "text.said"):
            take(told, client, room, until=until)
        busy = client.post(f"/sessions/{room}/say", json={"prompt": "And now?"})
        assert (busy.status_code, busy.json()["code"]) == (409, "session.busy")
        asked = take(told, client, room, until="approval.asked")
        path = f"/sessions/{room}/answers/{asked['request']}"
        assert client.post(path, json={"accept": True}).status_code == 204
        answered = take(told, client, room, until="approval.resolved")
        assert (answered["decision"], answered["by"]) == ("accept", "callback")
        assert client.post(path, json={"accept": True}).status_code == 409
        take(told, client, room, until="turn.ended")
        assert sorted(told) == list(range(1, len(told) + 1))
        assert told == dict(zip(told, whole(client, room, len(told)), strict=True))
        assert [told[number]["type"] for number in told].count("approval.asked") == 1
        refused = client.get(f"/sessions/{room}/events", headers={"Last-Event-ID": "100000"})
        assert (refused.status_code, refused.json()["code"]) == (409, "session.offset")
        assert client.delete(f"/sessions/{room}").status_code == 204
        wait_until(lambda: client.get(f"/sessions/{room}/events").status_code == 404)
        server.stop()
        assert server.processes() == []
    [run] = RootPaths(tmp_path / "proctor_root").runs()
    assert {each.status for each in examine_run(run, is_strict=True)} == {"valid"}


@pytest.mark.trust
@pytest.mark.requirement("surface.embed")
def test_requests_of_other_sites_and_guessed_ids_are_refused(tmp_path: Path) -> None:
    with served(tmp_path) as server, httpx.Client(base_url=server.url, timeout=60) as client:
        own = server.url.removeprefix("http://")
        port = own.rpartition(":")[2]
        rooms = [client.post("/sessions").raise_for_status().json()["id"] for _ in range(2)]
        requests = [
            ("POST", "/sessions"),
            *(("POST", f"/sessions/{rooms[0]}/{path}") for path in ("say", "interrupt", "answers/1")),
            *(("GET", f"/sessions/{rooms[0]}/events"), ("DELETE", f"/sessions/{rooms[0]}")),
        ]
        foreign = [
            # A name that resolves to this machine: it agrees with itself, but it is not one of ours.
            {"Host": f"evil.example:{port}", "Origin": f"http://evil.example:{port}"},
            *({"Host": host} for host in (f"evil.example:{port}", f"127.0.0.1.evil.example:{port}", "[", "")),
            *(
                {"Origin": origin}
                for origin in ("http://evil.example", "null", "http://127.0.0.1:1", f"http://{own}.x")
            ),
            {"Origin": f"http://x@{own}"},
            *({"Sec-Fetch-Site": site} for site in ("cross-site", "same-site")),
        ]
        for headers in foreign:
            for method, path in requests:
                answer = client.request(method, path, headers=headers, json={"prompt": "Hi.", "accept": True})
                assert answer.status_code in (400, 403), (headers, method, path)
        assert client.get("/", headers={"Host": "evil.example"}).status_code == 403
        upgrade = {"Upgrade": "websocket", "Connection": "Upgrade", "Sec-WebSocket-Version": "13"}
        upgrade |= {"Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==", "Origin": "http://evil.example"}
        assert client.get(f"/sessions/{rooms[0]}/events", headers=upgrade).status_code == 403
        # A link on another site leads to the page, which that site can neither read nor frame.
        page = client.get("/", headers={"Sec-Fetch-Site": "cross-site"})
        assert "frame-ancestors 'none'" in page.headers["Content-Security-Policy"]

        guesses = ["session-1.1", "session-2.1", "1", rooms[0][:-1], rooms[0].swapcase()]
        for method, path in requests[1:]:
            for guess in guesses:
                guessed = path.replace(rooms[0], guess)
                answer = client.request(method, guessed, json={"prompt": "Hi.", "accept": True})
                assert answer.status_code == 404, guessed
        assert min(len(room) for room in rooms) >= 43, "256 bits"
        assert len(set(rooms)) == 2
        # The sessions are still there, and nothing was said in them.
        same = {"Origin": f"http://{own}", "Sec-Fetch-Site": "same-origin"}
        for room in rooms:
            client.post(f"/sessions/{room}/say", json={"prompt": "Look around."}, headers=same).raise_for_status()
            take({}, client, room, until="turn.began")


def whole(client: httpx.Client, room: str, count: int) -> list[dict[str, Any]]:
    found = []
    for number, event in follow(client, room, after=None):
        found.append(event)
        if number == count:
            break
    return found


@pytest.mark.requirement("surface.embed")
def test_a_server_that_is_stopped_in_the_middle_of_a_turn_leaves_no_process_and_no_scratch(tmp_path: Path) -> None:
    script = tmp_path / "nap.yaml"
    script.write_text(yaml.safe_dump({"version": 1, "steps": [{"run": "sleep 313.25"}]}))
    with served(tmp_path, script=script) as server, httpx.Client(base_url=server.url, timeout=60) as client:
        rooms = [client.post("/sessions").raise_for_status().json()["id"] for _ in range(2)]
        for room in rooms:
            client.post(f"/sessions/{room}/say", json={"prompt": "Take a nap."}).raise_for_status()
            take({}, client, room, until="tool.began")
        assert len(server.processes()) > 2
        following = follow(client, rooms[0], after=None)
        next(following)  # somebody still looks when the server is stopped
        server.stop()
        assert server.processes() == []
    assert list((tmp_path / "xdg_cache_home" / "proctor" / "runs").iterdir()) == []
