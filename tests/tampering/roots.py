"""How genuine evidence is made, once a session: real campaigns, run by the command line."""

import fcntl
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from bench.runtimes import write_fake
from tests.keys import make_key, public
from tests.tampering.names import FRAMES, SEAL

Base = Literal["whole", "signed", "priced", "killed"]

DEADLINE_S = 150
KEY = {"TAMPERING_API_KEY": "none-needed-here"}

WHOLE = """\
version: 1
campaign: whole
missions:
  - id: fix
    prompt: greet.txt should greet Ada. Fix it.
    script: fix.yaml
    workspace: {copy: greeting}
    probes: [{kind: headless_run, command: [cat, greet.txt], stdout: "Hello, Ada\\n"}]
    expect:
      verified: yes
      matches: ^Ad
      trace: {max_tool_calls: 2, max_repeats: 1, tools: [patch], commands: ["cat "]}
      workspace: {changed: ["*.txt"], only: [greet.txt]}
  - id: claim
    prompt: greet.txt should greet Ada. Fix it.
    script: claim.yaml
    workspace: {copy: greeting}
    probes: [{kind: headless_run, command: [cat, greet.txt], stdout: "Hello, Ada\\n"}]
    expect: {verified: no}
  - id: ask
    prompt: What is the capital of France?
    script: ask.yaml
    expect: {answer: Paris}
flows: [{id: codex, runtime: [codex_app_server], isolation: shared}]
model: {provider: scripted}
schedule: {parallel: 3, retries: 0}
"""
WHOLE_FILES = {
    "spec.yaml": WHOLE,
    "greeting/greet.txt": "Hello, world\n",
    "fix.yaml": """\
version: 1
steps:
  - run: cat greet.txt
  - patch: {file: greet.txt, old: "Hello, world", new: "Hello, Ada"}
  - say: 'PROCTOR-RESULT: {"done": true, "answer": "Ada"}'
""",
    "claim.yaml": """\
version: 1
steps: [{say: 'PROCTOR-RESULT: {"done": true, "answer": "Ada"}'}]
""",
    "ask.yaml": """\
version: 1
steps: [{say: 'PROCTOR-RESULT: {"done": true, "answer": "Paris"}'}]
""",
}

PRICED = """\
version: 1
campaign: priced
missions:
  - id: first
    prompt: Do it.
    probes: [{kind: headless_run, command: [cat, done.txt]}]
    expect: {verified: no}
  - id: second
    prompt: Do it.
    probes: [{kind: headless_run, command: [cat, done.txt]}]
    expect: {verified: no}
flows: [{id: f, runtime: [codex_app_server], isolation: shared}]
model: {provider: tampering, name: gpt-5, base_url: "http://127.0.0.1:1/v1"}
login: api-key
prices: prices.yaml
schedule: {parallel: 2, retries: 0}
"""
PRICED_FILES = {
    "spec.yaml": PRICED,
    "prices.yaml": "version: 1\nsince: 2026-11-01\nmodels: {tampering/gpt-5: {input: 2, output: 10}}\n",
}

KILLED = """\
version: 1
campaign: killed
missions:
  - {id: m0, prompt: Do it.}
  - {id: m1, prompt: Do it.}
  - {id: m2, prompt: Wait.}
flows:
  - id: f
    runtime: [process]
    isolation: process
    contain: none
    options:
      process:
        command: |-
          read -rd '' prompt
          case "$prompt" in *Wait*) until [ -e GATE ]; do sleep 0.05; done;; esac
          echo 'PROCTOR-RESULT: {"done": true, "answer": ""}'
model: {provider: tampering, name: gpt-5, base_url: "http://127.0.0.1:1/v1"}
login: api-key
schedule: {parallel: 1, retries: 0}
"""


@dataclass(frozen=True, slots=True)
class Roots:
    """Evidence roots by their names, each made when it is first asked for, by whichever process asks first.

    `whole` is of three missions on the real Codex, all as expected. `signed` is the same, signed by Ada. `priced` is of
    two attempts on a program that only answers, and has costs. `killed` was killed in its third attempt.
    """

    folder: Path

    def genuine(self, base: Base) -> Path:
        make = {"whole": self._whole, "signed": self._signed, "priced": self._priced, "killed": self._killed}
        with (self.folder / f"{base}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            made = self.folder / f"{base}.made"
            if not made.exists():
                assert not (self.folder / base).exists(), f"{base} could not be made before"
                make[base]()
                made.touch()
        return self._root(base)

    def _root(self, base: Base) -> Path:
        return self.folder / base / "root"

    @property
    def keys(self) -> Path:
        return self.folder / "keys"

    def env(self, base: Base) -> Mapping[str, str]:
        """What a command needs that goes on with this campaign."""
        match base:
            case "priced":
                return {**KEY, "PROCTOR_CODEX": str(self.folder / "priced" / "fake-codex")}
            case "killed":
                return KEY
            case _:
                return {}

    def _whole(self) -> None:
        self._run("whole", WHOLE_FILES)

    def _signed(self) -> None:
        root = self._root("signed")
        shutil.copytree(self.genuine("whole"), root)
        self.keys.mkdir()
        for name in ("ada", "eve"):
            (self.keys / f"{name}.allowed").write_text(f"{name}@example.org {public(make_key(self.keys, name))}\n")
        self._proctor("signed", "sign", str(root), "--key", str(self.keys / "ada"), "--root", str(root))

    def _priced(self) -> None:
        (self.folder / "priced").mkdir()
        write_fake(self.folder / "priced")
        self._run("priced", PRICED_FILES)

    def _killed(self) -> None:
        """Two attempts are sealed and the third is at work when SIGKILL comes; a resume finds its gate open."""
        gate, root = self.folder / "gate", self._root("killed")
        spec = self._write("killed", {"spec.yaml": KILLED.replace("GATE", str(gate))})
        words = [sys.executable, "-m", "proctor", "run", str(spec), "--root", str(root)]
        victim = subprocess.Popen(words, env={**os.environ, **KEY}, start_new_session=True, stderr=subprocess.DEVNULL)
        try:
            end_s = time.monotonic() + DEADLINE_S
            while len(list(root.glob(f"runs/*/attempts/*/{SEAL}"))) < 2 or not any(
                path.stat().st_size for path in root.glob(f"runs/*/attempts/m2.*/{FRAMES}")
            ):
                assert time.monotonic() < end_s, "the third attempt has not begun"
                assert victim.poll() is None, "it has ended"
                time.sleep(0.02)
        finally:
            with suppress(ProcessLookupError):
                os.killpg(victim.pid, signal.SIGKILL)
            victim.wait(timeout=DEADLINE_S)
        gate.touch()

    def _run(self, base: Base, files: Mapping[str, str]) -> None:
        self._proctor(base, "run", str(self._write(base, files)), "--yes", "--root", str(self._root(base)))

    def _write(self, base: Base, files: Mapping[str, str]) -> Path:
        for name, text in files.items():
            file = self.folder / base / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)
        return self.folder / base / "spec.yaml"

    def _proctor(self, base: Base, *words: str) -> None:
        said = subprocess.run(
            [sys.executable, "-m", "proctor", *words],
            env={**os.environ, **self.env(base)},
            capture_output=True,
            text=True,
            timeout=DEADLINE_S,
        )
        assert said.returncode == 0, said.stdout + said.stderr
