"""The real Codex, driven against one model: by Proctor, by a bare client, and by `codex exec` in a shell.

Proctor and the bare client are measured from the first turn, when the agent is already running. `codex exec` starts an
agent for each turn, so it is measured from its spawn.
"""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.campaign import KEY, PARALLEL, campaign_cost, spec_of
from bench.cost import DEADLINE_S, ROOT, Cost, Meter, in_own_process
from bench.model import PROMPT
from proctor.attempt.machine import State
from proctor.ids import RuntimeId
from proctor.runtime.registry import runtime_by_id

_VALUE = "none-needed-here"

_CONFIG = """\
model = "gpt-5"
model_provider = "proctor"
check_for_update_on_startup = false
web_search = "disabled"
allow_login_shell = false
[model_providers.proctor]
name = "bench"
base_url = "{url}"
wire_api = "responses"
env_key = "{key}"
[features]
plugins = false
shell_snapshot = false
[skills.bundled]
enabled = false
[analytics]
enabled = false
[feedback]
enabled = false
"""


def codex_program() -> str:
    program = runtime_by_id(RuntimeId("codex_app_server")).locate({})
    assert program is not None
    return program.real_path


def codex_environment(home: str) -> dict[str, str]:
    """Return the variables that Proctor sets too, except those per attempt."""
    return {"PATH": os.environ["PATH"], "CODEX_HOME": home, "HOME": home, KEY: _VALUE}


@contextmanager
def open_model() -> Iterator[str]:
    """Start a model in a separate process, and yield its address."""
    with subprocess.Popen(
        [sys.executable, "-m", "bench.model"], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            yield f"http://127.0.0.1:{int(process.stdout.readline())}/v1"
        finally:
            process.stdin.close()
            process.wait(timeout=10)


def by_proctor(folder: Path, attempts: int, url: str) -> Cost:
    spec = spec_of(attempts, isolation="shared", base_url=url)
    return campaign_cost(folder, spec=spec, env={}, since=State.TURN_RUNNING)


def by_bare_driver(folder: Path, attempts: int, url: str, *, asks: str) -> Cost:
    """Measure the bare driver. `asks` is "least" for the fewest requests, or "same" for those that Proctor sends."""
    return in_own_process("bench.bare_driver", str(write_home(folder, url)), str(attempts), url, asks, env={})


def by_exec(folder: Path, attempts: int, url: str) -> Cost:
    """Measure `codex exec` under xargs, as many at a time as the others, each in its own empty folder."""
    home = write_home(folder, url)
    workspaces = [folder / str(number) for number in range(attempts)]
    for workspace in workspaces:
        workspace.mkdir()
    words = [codex_program(), "exec", "--json", "--ephemeral", "--skip-git-repo-check", "-s", "workspace-write"]
    meter = Meter()
    done = subprocess.run(
        ["xargs", "-P", str(PARALLEL), "-I", "{}", *words, "-C", "{}", PROMPT],
        input="\n".join(map(str, workspaces)),
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=codex_environment(str(home)),
        timeout=DEADLINE_S,
        check=True,
    )
    cost = meter.read()
    ended = done.stdout.count('"turn.completed"')
    assert ended == attempts, f"{ended} of {attempts} turns of codex exec ended well"
    return cost


def write_home(folder: Path, url: str) -> Path:
    home = folder / "home"
    home.mkdir(parents=True)
    (home / "config.toml").write_text(_CONFIG.format(url=url, key=KEY), encoding="utf-8")
    return home
