"""A spec in which nothing is wrong, to be changed by a line."""

from pathlib import Path

GOOD = """\
version: 1
campaign: night
missions:
  - id: fix-it
    prompt: Fix it.
    workspace: {copy: tree}
    probes:
      - {kind: headless_run, command: [python3, a.py], stdout: "ok\\n", timeout: 5}
    script: say.yaml
    expect: {verified: no, outcome: timed_out}
flows:
  - id: native
    runtime: [one, two]
    options: {two: {max_turns: 3}}
    env: {LANG: C, MAX_TOKENS: "200000", KEY_FILE: /run/keys/one.pem}
limits: {attempt: 2m, turn: 90s, stall: 500ms}
secrets: [OPENAI_API_KEY]
"""


def write(folder: Path, text: str) -> Path:
    path = folder / "spec.yaml"
    path.write_text(text)
    return path
