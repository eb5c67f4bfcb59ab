"""`proctor model serve`: a script on loopback until it is stopped."""

import json
import signal
from pathlib import Path

import httpx
import pytest

from tests.lab import Lab
from tests.surface.conftest import started

SCRIPTS = Path(__file__).parents[2] / "examples" / "scripts"


@pytest.mark.proctor_process
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_it_says_its_address_answers_there_and_ends_well_when_stopped(lab: Lab, number: signal.Signals) -> None:
    with started(lab, "model", "serve", str(SCRIPTS / "ask.yaml"), "--json") as process:
        assert process.stdout is not None
        url = json.loads(process.stdout.readline())["baseUrl"]
        assert url.startswith("http://127.0.0.1:")
        with httpx.Client(trust_env=False) as client:
            assert client.get(f"{url}/models").status_code == 200
        process.send_signal(number)
        assert process.wait(timeout=30) == 0


def test_a_script_that_is_none_is_refused_with_its_place(lab: Lab) -> None:
    said = lab.proctor("model", "serve", str(SCRIPTS.parent / "quickstart.yaml"))
    assert said.returncode == 2
    assert "code   spec.unknown-key" in said.stderr
