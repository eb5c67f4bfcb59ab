"""Proctor's CPU time per attempt with each runtime, driving fake agents."""

import os
import shutil
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from bench.campaign import campaign_cost, spec_of
from bench.cost import Cost

_BENCH = Path(__file__).parent
_FRAMES = 30
# Prints 30 lines. The shell prints them itself and starts no other process.
_COMMAND = f"""\
read -rd '' prompt
for ((i = 1; i < {_FRAMES}; i++)); do echo 'So it is done, and this is the answer to it, as far as it goes.'; done
echo 'PROCTOR-RESULT: {{"done": true, "answer": ""}}'"""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Kind:
    """A way to drive an agent. `program` is the variable that names the fake agent, and its file."""

    runtime: str
    how: str
    isolation: str = "shared"
    program: tuple[str, str] | None = None
    flow: Mapping[str, object] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return f"{self.runtime} ({self.how})"


SHARED = Kind(runtime="codex_app_server", how="one fake agent for all", program=("PROCTOR_CODEX", "fake-codex"))
SPAWNED = Kind(
    runtime="codex_app_server", how="a spawn each", isolation="process", program=("PROCTOR_CODEX", "fake-codex")
)
_EXEC = Kind(runtime="codex_exec", how="a spawn each", program=("PROCTOR_CODEX", "fake-exec"))
_CLAUDE = Kind(
    runtime="claude_code",
    how="a spawn each, fenced",
    program=("PROCTOR_CLAUDE", "fake-claude"),
    flow={"model": {"provider": "anthropic", "name": "claude-bench", "base_url": "http://127.0.0.1:1/v1"}},
)
_PI = Kind(runtime="pi", how="a spawn each, fenced", program=("PROCTOR_PI", "fake-pi/cli.js"))
_PROCESS = {"options": {"process": {"command": _COMMAND}}}


def kinds(recorded: Path) -> list[Kind]:
    """Return all kinds except the app-server. `recorded` holds the attempt that is replayed."""
    attempt = min(recorded.glob("runs/*/attempts/*"))
    return [
        _EXEC,
        _CLAUDE,
        *([_PI] if shutil.which("node") else []),
        Kind(runtime="process", how="a spawn each, fenced", flow=_PROCESS),
        Kind(runtime="process", how="a spawn each, no fences", flow={**_PROCESS, "contain": "none"}),
        Kind(
            runtime="replay",
            how="no spawn",
            isolation="process",
            flow={"options": {"replay": {"attempt": str(attempt)}}},
        ),
    ]


def write_fake(folder: Path, name: str = "fake-codex", *, source: str = "fake_agent.py") -> Path:
    """Write a script of this package as an executable program."""
    program = folder / name
    program.write_text(f"#!{sys.executable} -IS\n{(_BENCH / source).read_text(encoding='utf-8')}", encoding="utf-8")
    program.chmod(0o755)
    return program


def write_fakes(folder: Path) -> None:
    """Write the fake agents as programs. pi also needs a package.json, and a config that enables the plugin."""
    write_fake(folder)
    write_fake(folder, "fake-exec", source="fakes/codex_exec.py")
    write_fake(folder, "fake-claude", source="fakes/claude_code.py")
    package = folder / "fake-pi"
    package.mkdir()
    (package / "package.json").write_text('{"name": "fake-pi", "version": "0.73.1"}', encoding="utf-8")
    shutil.copyfile(_BENCH / "fakes" / "pi.js", package / "cli.js")
    (package / "cli.js").chmod(0o755)
    (folder / "proctor.toml").write_text('plugins = ["pi"]\n', encoding="utf-8")


def cost_of(kind: Kind, folder: Path, *, attempts: int, with_growth: bool = False) -> Cost:
    """Return the cost of a campaign in that folder, which is created inside the folder of the fakes."""
    # Fences keep the folders on PATH readable, and the fakes need their interpreter.
    env = {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "ANTHROPIC_API_KEY": "none-needed-here"}
    if kind.program is not None:
        env[kind.program[0]] = str(folder.parent / kind.program[1])
    spec = spec_of(attempts, runtime=kind.runtime, isolation=kind.isolation, flow=kind.flow)
    return campaign_cost(folder, spec=spec, env=env, growth_of=attempts if with_growth else None)
