"""The plain script, run as a user runs it, and the page that shows it."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from proctor.attempt.recheck import examine_run
from proctor.evidence.layout import RootPaths
from tests.examples.served import EXAMPLES, ROOT

SCRIPT = EXAMPLES / "session.py"
TOOLS = EXAMPLES / "tools.py"


@pytest.mark.real_agent
@pytest.mark.requirement("surface.api")
def test_the_plain_script_tells_a_conversation_and_keeps_its_evidence(tmp_path: Path) -> None:
    said = subprocess.run(
        [sys.executable, str(SCRIPT), "--keep"], cwd=tmp_path, capture_output=True, text=True, timeout=120
    )
    assert (said.returncode, said.stderr) == (0, "")
    assert re.sub(r"after \d+|runs/\S+", "#", said.stdout).splitlines() == [
        r"""[asked]  /bin/bash -c "printf 'old pond\\nfrog leaps in\\nwater sound\\n' > haiku.txt" """.rstrip(),
        "[shell]  completed",
        "The haiku is in haiku.txt.",
        "[completed]  # events",
        "[shell]  completed",
        "It has three lines.",
        "[completed]  # events",
        "evidence: .proctor/#",
    ]
    [run] = RootPaths(tmp_path / ".proctor").runs()
    found = examine_run(run, is_strict=True)
    assert [(each.status, each.findings) for each in found] == [("valid", ())] * 3
    assert [each.name for each in tmp_path.iterdir()] == [".proctor"]


@pytest.mark.requirement("surface.docs")
def test_the_page_about_python_shows_the_script_that_is_run_here() -> None:
    shown = re.findall(r"^```python\n(.*?)^```", (ROOT / "docs/howto/python.md").read_text(), re.DOTALL | re.MULTILINE)
    assert shown[:2] == [SCRIPT.read_text(), TOOLS.read_text()]
    app = (EXAMPLES / "webapp" / "app.py").read_text()
    assert [block for block in shown[2:] if block not in app] == []


@pytest.mark.trust
@pytest.mark.real_agent
@pytest.mark.requirement("surface.api")
def test_example_of_tools_shows_schema_approval_and_cancellation(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, str(TOOLS)], cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == [
        "[completed]  tea costs 350 cents",
        "[asked]      /bin/bash -c 'rm -rf stock'",
        "[completed]  I was not allowed to delete the stock.",
        "[cancelled]  run.cancelled",
    ]
    assert list(tmp_path.iterdir()) == []
