"""A launcher is followed to the program that it runs, and another program than the located one is refused."""

import shlex
import shutil
from collections.abc import Callable
from pathlib import Path

import anyio
import msgspec
import pytest

from bench.runtimes import write_fake
from proctor.campaign.examine_programs import ProgramExaminer
from proctor.errors import MachineError
from proctor.event.model import FactsStated
from proctor.evidence.artifacts import RunnerRef
from proctor.ids import RuntimeId
from proctor.runtime.base import Executable
from proctor.runtime.claude_code.program import locate as locate_claude
from proctor.runtime.codex.program import OVERRIDE, locate
from proctor.runtime.executable import identify
from proctor.runtime.registry import runtime_by_id
from proctor.testing.agent_under_test import EventTap, open_agent
from tests.lab import Lab, mission, runner_ref_of, say_done
from tests.locked import locked_codex_sha256


def executing(program: str) -> str:
    """A script that is replaced by the program."""
    return f'#!/bin/sh\nexec {shlex.quote(program)} "$@"\n'


def waiting(program: str) -> str:
    """A script that runs the program as a child, after another one."""
    return f'#!/bin/sh\nmkdir -p "$HOME"\n{shlex.quote(program)} "$@"\nexit $?\n'


def javascript(program: str) -> str:
    """The launcher of the npm package, on a Node without `execve`."""
    return (
        "#!/usr/bin/env node\n"
        "const { spawn } = require('node:child_process')\n"
        f"const child = spawn({program!r}, process.argv.slice(2), {{ stdio: 'inherit' }})\n"
        "process.on('SIGTERM', () => child.kill('SIGTERM'))\n"
        "child.on('exit', (code) => process.exit(code ?? 1))\n"
    )


needs_node = pytest.mark.skipif(shutil.which("node") is None, reason="Node is not installed")


def write(file: Path, text: str) -> Path:
    file.write_text(text)
    file.chmod(0o755)
    return file


def facts_of(lab: Lab) -> RunnerRef:
    [paths] = lab.attempts().values()
    return runner_ref_of(paths)


@pytest.mark.real_agent
@pytest.mark.requirement("runtime.identity")
@pytest.mark.parametrize(
    ("launcher", "runtime"),
    [
        (executing, "codex_app_server"),
        (waiting, "codex_exec"),
        pytest.param(javascript, "codex_app_server", marks=needs_node),
    ],
)
def test_launcher_is_followed_to_the_native_program_in_the_evidence(
    lab: Lab, monkeypatch: pytest.MonkeyPatch, launcher: Callable[[str], str], runtime: str
) -> None:
    script = write(lab.folder / "codex", launcher(locate().real_path))
    monkeypatch.setenv(OVERRIDE, str(script))
    lab.run(lab.write_spec([mission("m", say_done())], flow={"runtime": [runtime], "isolation": "process"}))
    facts = facts_of(lab).facts
    identity = msgspec.convert(facts["identity"].value, Executable)
    assert identity.sha256 == facts["runtimeBinary"].value == locked_codex_sha256()
    assert identity.launcher is not None
    assert (identity.path, identity.launcher.path, identity.sha256 == identity.launcher.sha256) == (
        str(script),
        str(script),
        False,
    )
    assert facts["runningProgram"].value == {
        "path": identity.real_path,
        "sha256": locked_codex_sha256(),
        "isLocated": True,
    }
    assert facts["identityAfter"].value == "same"


@pytest.mark.agent("claude_code")
@pytest.mark.requirement("runtime.identity")
def test_launcher_of_claude_is_followed_to_the_native_program(tmp_path: Path) -> None:
    native = locate_claude()
    script = write(tmp_path / "claude", waiting(native.real_path))
    runtime = runtime_by_id(RuntimeId("claude_code"))

    async def main() -> tuple[Executable | None, EventTap]:
        located = identify(script, source="env-override", install="")
        program = await ProgramExaminer().examine(runtime, located)
        async with open_agent(runtime, program) as agent, agent.session(say_done(), name="a") as (session, tap):
            await session.turn("Go on.")
            return program, tap

    program, tap = anyio.run(main)
    assert program is not None
    assert program.launcher is not None
    assert (program.sha256, program.launcher.path) == (native.sha256, str(script))
    [running] = [each.facts["runningProgram"] for each in tap.of(FactsStated) if "runningProgram" in each.facts]
    assert running.value == {"path": native.real_path, "sha256": native.sha256, "isLocated": True}


@pytest.mark.agent("claude_code")
@pytest.mark.requirement("runtime.identity")
def test_file_that_a_launcher_passes_on_is_not_taken_for_the_program(tmp_path: Path) -> None:
    native, settings = locate_claude(), tmp_path / "settings.json"
    settings.write_text("{}")
    text = executing(native.real_path).replace('"$@"', f'--settings {settings} "$@"')
    located = identify(write(tmp_path / "claude", text), source="env-override", install="")
    program = anyio.run(ProgramExaminer().examine, runtime_by_id(RuntimeId("claude_code")), located)
    assert program is not None
    assert (program.real_path, program.sha256) == (native.real_path, native.sha256)


@pytest.mark.real_agent
@pytest.mark.requirement("runtime.identity")
@pytest.mark.parametrize("runtime_id", ["codex_app_server", "codex_exec"])
def test_program_that_differs_from_the_located_one_is_refused(tmp_path: Path, runtime_id: str) -> None:
    """The launcher starts another program after it was followed, as after an update, and is itself unchanged."""
    target = tmp_path / "target"
    target.symlink_to(locate().real_path)
    script = write(tmp_path / "codex", executing(str(target)))
    runtime = runtime_by_id(RuntimeId(runtime_id))
    source = "fake_agent.py" if runtime_id == "codex_app_server" else "fakes/codex_exec.py"

    async def main() -> None:
        program = await ProgramExaminer().examine(runtime, identify(script, source="env-override", install=""))
        assert program is not None
        assert program.sha256 == locked_codex_sha256()
        target.unlink()
        fake = write_fake(tmp_path, source=source)
        # It stays until it is ended: the program of a process that is gone is unknown, which is not refused.
        write(fake, fake.read_text() + "    import signal\n    sys.stdout.flush()\n    signal.pause()\n")
        target.symlink_to(fake)
        async with open_agent(runtime, program) as agent, agent.session(say_done(), name="a") as (session, _):
            await session.turn("Go on.")

    with pytest.raises(MachineError, match=f"was located .sha256 {locked_codex_sha256()}") as refused:
        anyio.run(main)
    assert refused.value.code == "machine.binary-changed"


@pytest.mark.real_agent
def test_launcher_is_followed_again_after_its_program_changed(tmp_path: Path) -> None:
    """What a launcher starts is not cached under the launcher's own digest."""
    target = tmp_path / "target"
    target.symlink_to(locate().real_path)
    script = write(tmp_path / "codex", executing(str(target)))
    runtime = runtime_by_id(RuntimeId("codex_exec"))

    def examined() -> Executable | None:
        located = identify(script, source="env-override", install="")
        return anyio.run(ProgramExaminer().examine, runtime, located)

    first = examined()
    target.unlink()
    answer = (
        '#!/bin/bash\nif [ "$1" = --version ]; then echo codex-cli 9.9.9; else read line; echo "$line"; read line; fi\n'
    )
    target.symlink_to(write(tmp_path / "newer", answer))
    second = examined()
    assert first is not None
    assert second is not None
    assert (first.version, second.version) == ("codex-cli 0.163.0", "codex-cli 9.9.9")
    expected = identify(tmp_path / "newer", source="", install="").sha256
    assert (first.sha256, second.sha256) == (locked_codex_sha256(), expected)
