"""The campaigns of a chaos run, with cheap fake agents or with the real Codex, and their environment."""

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import msgspec

from bench.runtimes import write_fake

_MODEL = {"provider": "none", "name": "none", "base_url": "http://127.0.0.1:1/v1"}
_KEYS = {"NONE_API_KEY": "none-needed-here", "ANTHROPIC_API_KEY": "none-needed-here"}
_SAID = 'It is done.\nPROCTOR-RESULT: {"done": true, "answer": "%d"}'
# Fixed, because the real count would depend on the length of the path of the workspace.
_USED = {"input": 100, "output": 10}
# `codex` is one program that is driven in two ways; there is a fake for each.
_BOTH = """\
#!/bin/bash
case " $* " in *" app-server "*) exec "{folder}/fake-codex" "$@" ;; *) exec "{folder}/fake-exec" "$@" ;; esac
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cast:
    """A campaign with `missions` × flows trials. Only the real Codex changes its workspace."""

    name: str
    is_real: bool
    missions: int

    def spec(self) -> dict[str, object]:
        flows: list[dict[str, object]] = [
            {"id": "server", "runtime": ["codex_app_server"]},
            {"id": "exec", "runtime": ["codex_exec"], "isolation": "process"},
            {
                "id": "claude",
                "runtime": ["claude_code"],
                "isolation": "process",
                "model": {**_MODEL, "provider": "anthropic"},
                "login": "api-key",
            },
        ]
        return {
            "version": 1,
            "campaign": self.name,
            "missions": [
                {
                    "id": f"m{number}",
                    "prompt": "Do it.",
                    "script": f"m{number}.yaml",
                    "expect": {"outcome": "completed"},
                }
                for number in range(self.missions)
            ],
            "flows": flows if self.is_real else [{"model": _MODEL, "login": "api-key", **flow} for flow in flows],
            "limits": {"attempt": "90s", "turn": "60s", "stall": "6s"},
            # A trial must get its result even if it is hit many times.
            "schedule": {"parallel": 8, "retries": 20, "backoff": "20ms"},
        }

    def write(self, folder: Path) -> Path:
        """Write the spec and its scripts, and return the path of the spec. Its folder is hidden from the agents."""
        folder = folder / "spec"
        folder.mkdir()
        for number in range(self.missions):
            actions = {"run": f"echo {number} > out; sleep 0.2; cat out"}, {"say": _SAID % number}
            steps = [{**action, "usage": _USED} for action in actions]
            (folder / f"m{number}.yaml").write_bytes(msgspec.json.encode({"version": 1, "steps": steps}))
        file = folder / "spec.yaml"
        file.write_bytes(msgspec.json.encode(self.spec()))  # JSON is valid YAML
        return file

    def environment(self, folder: Path) -> Mapping[str, str]:
        """Return the environment of every Proctor that runs the campaign. Writes the fakes into the folder."""
        write_fake(folder, "fake-claude", source="fakes/claude_code.py")
        env = {**_KEYS, "PROCTOR_CLAUDE": str(folder / "fake-claude")}
        if not self.is_real:
            write_fake(folder)
            write_fake(folder, "fake-exec", source="fakes/codex_exec.py")
            codex = folder / "codex"
            codex.write_text(_BOTH.format(folder=folder), encoding="utf-8")
            codex.chmod(0o755)
            env["PROCTOR_CODEX"] = str(codex)
        # Fences keep the folders on PATH readable, and the fakes need their interpreter.
        env["PATH"] = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        return {**env, "XDG_CACHE_HOME": str(folder / "cache"), "XDG_STATE_HOME": str(folder / "state")}


FAKE = Cast(name="fakes", is_real=False, missions=36)
REAL = Cast(name="codex", is_real=True, missions=14)
