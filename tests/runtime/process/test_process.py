"""Any command as a runtime, from YAML to sealed evidence."""

import os
import re
import shlex
import sys
from pathlib import Path
from typing import Any

import anyio
import msgspec
import pytest

from proctor.contain.ladder import FORCE_VARIABLE, Variant
from proctor.errors import InputError, MachineError, ProctorError, RefusedError
from proctor.event.model import NoteMade, ProcessExited, PromptSent, SessionBegan, TextSaid, TurnEnded, WarningRaised
from proctor.event.outcome import Outcome
from proctor.evidence.artifacts import Feedback
from proctor.evidence.health import read_health
from proctor.evidence.layout import SEAL, SEALED, AttemptPaths
from proctor.runtime.codex.program import locate
from proctor.runtime.process import RUNTIME
from proctor.transport.fault import Cut, FaultChannel, LineFault
from tests.lab import Lab, jsonl, mission, processes_with, report_of, rows_of, runner_ref_of, say_done
from tests.runtime.process.commands import flow, open_command, run_flows, run_long
from tests.transport.ways import WAYS

CLAIM = """echo 'PROCTOR-RESULT: {"done": true, "answer": "%s"}'"""


def feedback_of(paths: AttemptPaths) -> Feedback:
    return msgspec.json.decode(paths.feedback.read_bytes(), type=Feedback)


def messages(paths: AttemptPaths) -> list[str]:
    return [row["text"] for row in jsonl(paths.transcript) if row["kind"] == "message"]


def told(paths: AttemptPaths) -> list[tuple[str, str]]:
    return [(row["kind"], row["text"]) for row in jsonl(paths.transcript) if row["kind"] in ("note", "warning")]


@pytest.mark.requirement("runtime.process")
def test_a_command_leaves_the_evidence_that_every_agent_leaves(lab: Lab) -> None:
    [paths] = run_flows(lab, {"one": flow(f"echo working >&2; echo hello >made; {CLAIM % 4}")}).values()

    report, ref = report_of(paths), runner_ref_of(paths)
    assert {file.name for file in paths.folder.iterdir()} == {*SEALED, SEAL}
    assert (report.outcome, report.claimed, feedback_of(paths).answer) == (Outcome.COMPLETED, True, "4")
    assert "+hello" in paths.workspace_diff.read_text()
    assert (ref.transport, ref.thread_id, ref.facts["identity"].value["path"]) == (
        "stdio",
        "m.one.r1.1",
        "/usr/bin/bash",
    )
    assert ref.facts["fences"].value == {"writable": ["workspace", "tmp", "home"], "readOnly": [], "network": "host"}
    assert told(paths) == [("warning", "working")]
    # Which of two pipes is heard first is chance.
    assert sorted(row.dir.value for row in rows_of(paths) if row.dir.value != "self") == ["err", "in", "out"]


@pytest.mark.proctor_process
@pytest.mark.requirement("surface.docs")
def test_what_the_how_to_shows_is_verified_when_it_is_run(lab: Lab) -> None:
    lab.is_other_agent_allowed = True
    page = (Path(__file__).parents[3] / "docs/howto/any-command.md").read_text()
    spec, script = re.findall(r"^```yaml\n(version: .*?)^```", page, re.DOTALL | re.MULTILINE)
    (lab.folder / "spec.yaml").write_text(spec)
    (lab.folder / "script.yaml").write_text(script)
    done = lab.proctor("run", "spec.yaml")

    assert (done.returncode, "1 of 1 verified" in done.stdout) == (0, True), done.stderr
    [paths] = lab.attempts().values()
    assert (feedback_of(paths).result, told(paths)) == (
        {"bytes": 11},
        [("note", "prompt: Write a greeting to Ada into greeting.txt.")],
    )


def test_how_a_command_exits_is_how_its_attempt_ends(lab: Lab) -> None:
    ends = {
        "good": flow("true"),
        "bad": flow("echo no; exit 3"),
        "named": flow("exit 3", options={"exit": [0, 3]}),
        "unnamed": flow("true", options={"exit": 3}),
        "killed": flow("kill -9 $$"),
        "broken": flow("kill -SEGV $$"),
    }
    ended = {name: report_of(paths) for name, paths in run_flows(lab, ends).items()}

    assert {name: (report.outcome, report.code) for name, report in ended.items()} == {
        "good": (Outcome.COMPLETED, None),
        "bad": (Outcome.FAILED, "agent.exit-status"),
        "named": (Outcome.COMPLETED, None),
        "unnamed": (Outcome.FAILED, "agent.exit-status"),
        "killed": (Outcome.CRASHED, "agent.killed"),
        "broken": (Outcome.CRASHED, "peer.hangup"),
    }
    assert ended["bad"].detail == "the command exited with code 3"


def test_the_prompt_comes_by_stdin_as_an_argument_or_in_a_file(lab: Lab) -> None:
    show = ["python3", "-c", "import sys; print(open(sys.argv[1]).read() if len(sys.argv) > 2 else sys.argv[1])"]
    ways = {
        "stdin": flow(["cat"]),
        "last": flow(show, options={"prompt": "argument"}),
        "placed": flow(["printf", "%s", "<{prompt}>"], options={"prompt": "argument"}),
        "shell": flow('printf %s "$1"', options={"prompt": "argument"}),
        "file": flow([*show, "{prompt_file}", "more"], options={"prompt": "file"}),
        "named": flow('cat "$PROCTOR_PROMPT_FILE"', options={"prompt": "file"}),
    }
    found = run_flows(lab, ways)

    asked = found["stdin"].prompt.read_text().rstrip("\n")
    assert {name: messages(paths)[0].rstrip("\n") for name, paths in found.items()} == {
        **dict.fromkeys(ways, asked),
        "placed": f"<{asked}\n>",
    }
    for paths in found.values():
        [prompt] = [row["text"] for row in jsonl(paths.transcript) if row["kind"] == "prompt"]
        assert prompt.rstrip("\n") == asked


def test_a_command_finds_the_scripted_model_where_the_clients_of_either_provider_look(lab: Lab) -> None:
    ask = (
        "import json, os, urllib.request as u\n"
        "body = {'model': os.environ['PROCTOR_MODEL'], 'stream': True, 'input': 'Go on.'}\n"
        "request = u.Request(os.environ['OPENAI_BASE_URL'] + '/responses', json.dumps(body).encode())\n"
        "request.add_header('Authorization', 'Bearer ' + os.environ['OPENAI_API_KEY'])\n"
        "print('event: response.completed' in u.urlopen(request).read().decode())\n"
        "print(os.environ['ANTHROPIC_BASE_URL'] + '/v1' == os.environ['OPENAI_BASE_URL'])\n"
        "print(os.environ['ANTHROPIC_API_KEY'])"
    )
    [paths] = run_flows(lab, {"one": flow(["python3", "-c", ask])}).values()

    assert messages(paths) == ["True\nTrue\nscripted"]


@pytest.mark.real_agent
@pytest.mark.requirement("runtime.process")
def test_a_real_agent_works_as_a_command_inside_the_fences(lab: Lab) -> None:
    lab.is_other_agent_allowed = True
    provider = 'model_providers.p={name="p", base_url="%s", wire_api="responses", env_key="OPENAI_API_KEY"}'
    codex = (
        f'provider=$(printf {shlex.quote(provider)} "$OPENAI_BASE_URL")\n'
        f"CODEX_HOME=$HOME exec {locate().real_path} exec --skip-git-repo-check --sandbox danger-full-access \\\n"
        """-c model_provider='"p"' -c "$provider" -c "model=\\"$PROCTOR_MODEL\\"" -"""
    )
    work = mission(
        "m",
        {"run": "echo made by its shell >made"},
        say_done("made"),
        probes=[{"kind": "headless_run", "command": ["cat", "made"], "stdout": "made by its shell\n"}],
    )
    lab.run(lab.write_spec([work], flows=[{"id": "exec", **flow(codex)}]))

    [paths] = lab.attempts().values()
    report = report_of(paths)
    assert (report.outcome, report.claimed, report.verified) == (Outcome.COMPLETED, True, True)
    lab.assert_all_evidence_is_valid()


# ── what it may touch ──


@pytest.mark.requirement("attempt.contain")
def test_a_command_writes_where_its_flow_lets_it_and_sees_no_home(
    lab: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "home"
    home.mkdir()
    (home / "secret").write_text("planted")
    monkeypatch.setenv("HOME", str(home))
    tries = (
        f'for file in made ~/made "$TMPDIR/made" {home}/made {tmp_path}/evidence/made; do\n'
        '  touch "$file" 2>/dev/null && echo "$(basename "$(dirname "$file")")"\n'
        f"done; cat {home}/secret 2>/dev/null; cat kept"
    )
    flows = {
        "fenced": flow(tries),
        "reader": flow(tries, sandbox="read-only"),
        "open": flow(tries, contain="none"),
        "danger": flow(tries, sandbox="danger-full-access", isolation="process"),
    }
    found = {name: messages(paths) for name, paths in run_flows(lab, flows, workspace={"kept": "kept"}).items()}

    assert found == {
        "fenced": [".\nm.fenced.r1.1\ntmp\nkept"],
        "reader": ["m.reader.r1.1\ntmp\nkept"],
        "open": [".\nm.open.r1.1\ntmp\nhome\nevidence\nplantedkept"],
        "danger": [".\nm.danger.r1.1\ntmp\nhome\nevidence\nplantedkept"],
    }


@pytest.mark.requirement("attempt.contain")
def test_where_nothing_can_be_hidden_a_command_is_refused_unless_its_flow_says_contain_none(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(FORCE_VARIABLE, "warden")
    found = run_flows(lab, {"fenced": flow("touch made"), "open": flow("touch made", contain="none")})

    ended = {name: (report_of(paths).outcome, report_of(paths).code) for name, paths in found.items()}
    assert ended == {"fenced": (Outcome.REFUSED, "machine.no-fences"), "open": (Outcome.COMPLETED, None)}


@pytest.mark.proctor_process
@pytest.mark.requirement("attempt.no-orphans")
@pytest.mark.parametrize("way", WAYS)
def test_what_a_command_leaves_running_ends_with_it_and_keeps_nobody_waiting(
    lab: Lab, monkeypatch: pytest.MonkeyPatch, way: Variant
) -> None:
    monkeypatch.setenv(FORCE_VARIABLE, way)
    nap = f"309.{os.getpid()}{len(way)}"
    [paths] = run_flows(
        lab, {"one": flow(f"setsid sleep {nap} & echo bye; proctor note left", contain="none")}
    ).values()

    assert (report_of(paths).outcome, messages(paths), told(paths)) == (Outcome.COMPLETED, ["bye"], [("note", "left")])
    assert processes_with(nap) == []


# ── sessions ──


@pytest.mark.proctor_process
def test_an_interrupt_ends_the_whole_tree_and_the_next_turn_has_its_own(tmp_path: Path) -> None:
    nap = "302.41"

    async def main() -> list[str]:
        command = f"read -r line; test $line = stop || exit 0; setsid sleep {nap} & proctor note ready; sleep {nap}"
        async with open_command(tmp_path, command) as (session, tap):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(session.turn, "stop")
                await tap.until(NoteMade)
                with pytest.raises(RefusedError, match="a turn is already running"):
                    await session.turn("go")
                await session.interrupt()
            assert processes_with(nap) == []
            await session.interrupt()
            await session.turn("go")
            return [event.status for event in tap.of(TurnEnded)]

    assert run_long(main) == ["interrupted", "completed"]


@pytest.mark.proctor_process
@pytest.mark.requirement("attempt.contain")
def test_a_link_that_a_turn_leaves_behind_leads_the_next_one_nowhere(tmp_path: Path) -> None:
    (victim := tmp_path / "victim").write_text("as it was")
    command = f'cat "$1"; proctor note here; for file in "$1" "$PROCTOR_FEEDBACK"; do ln -sf {victim} "$file"; done'

    async def main() -> tuple[list[str], list[str]]:
        async with open_command(tmp_path, command, options={"prompt": "file"}) as (session, tap):
            await session.turn("one")
            await session.turn("two")
            return [event.text for event in tap.of(TextSaid)], [event.text for event in tap.of(NoteMade)]

    assert run_long(main) == (["one", "two"], ["here", "here"])
    assert victim.read_text() == "as it was"


@pytest.mark.long
def test_a_command_that_closes_its_output_is_heard_until_it_ends(tmp_path: Path) -> None:
    async def main() -> tuple[list[str], list[str], list[int | None]]:
        # Cut on its way to us: in most containments a wrapper holds the pipe open as long as the command lives.
        cut = [LineFault(at=2, how=Cut())]
        command = "echo last; echo lost; sleep 2.6; echo still >&2; exit 3"
        async with open_command(tmp_path, command, wrap_channel=lambda each: FaultChannel(each, cut)) as (session, tap):
            await session.turn("Go on.")
            said = [event.text for event in tap.of(TextSaid)]
            return said, [event.text for event in tap.of(WarningRaised)], [each.code for each in tap.of(ProcessExited)]

    assert run_long(main) == (["last"], ["still"], [3])


def test_a_command_that_reads_no_prompt_is_no_failure_and_its_program_may_lie_in_the_workspace(tmp_path: Path) -> None:
    async def main() -> tuple[list[str], list[str], int]:
        script = tmp_path / "one" / "workspace" / "agent.sh"
        script.parent.mkdir(parents=True)
        script.write_text("#!/bin/sh\necho mine\n")
        script.chmod(0o700)
        async with open_command(tmp_path, ["./agent.sh"]) as (session, tap):
            await session.turn("x" * 1_000_000)
            asked = sum(len(event.text) for event in tap.of(PromptSent))
            return [each.text for each in tap.of(TextSaid)], [each.status for each in tap.of(TurnEnded)], asked

    assert run_long(main) == (["mine"], ["completed"], 1_000_000)


@pytest.mark.requirement("runtime.capability.contract")
def test_what_a_command_cannot_do_is_refused_with_a_code(tmp_path: Path) -> None:
    async def main() -> list[str]:
        codes: list[str] = []
        async with open_command(tmp_path, ["true"]) as (session, tap):
            assert [event.thread for event in tap.of(SessionBegan)] == [session.thread]
            for ask in (session.steer("x"), session.compact(), session.read_history()):
                with pytest.raises(RefusedError) as refused:
                    await ask
                codes.append(refused.value.code)
            return codes

    assert run_long(main) == ["runtime.capability", "runtime.capability", "peer.refused"]


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({}, "needs `command`"),
        ({"command": []}, "length >= 1"),
        ({"command": ["true"], "prompt": "fax"}, "Invalid enum value 'fax'"),
        ({"command": ["true"], "result": {}}, "a file or a marker"),
        ({"command": ["true"], "result": {"file": "../r.json"}}, "is not inside the workspace"),
        ({"command": ["true"], "exit": 256}, "<= 255"),
    ],
)
def test_options_that_make_no_sense_are_refused_before_anything_runs(options: dict[str, Any], says: str) -> None:
    with pytest.raises(InputError, match=says):
        RUNTIME.check_options(options)


def test_a_program_that_is_not_there_is_refused_before_anything_runs() -> None:
    with pytest.raises(MachineError, match="the program no-such-agent was not found on PATH"):
        RUNTIME.locate({"command": ["no-such-agent"]})
    with pytest.raises(ProctorError):
        RUNTIME.locate({"command": ["/nowhere/agent"]})
    python = RUNTIME.locate({"command": [sys.executable]})
    assert python is not None
    assert (python.path, len(python.sha256)) == (sys.executable, 64)


@pytest.mark.requirement("ops.doctor")
def test_each_run_of_a_command_is_a_start_of_its_program(lab: Lab) -> None:
    run_flows(lab, {"one": flow(CLAIM % 4), "two": flow(["/bin/false"])}, repeats=2)

    health = read_health(lab.root / "health.db").values()
    assert sorted((its.starts, its.failed_starts, its.crashes) for its in health) == [(2, 0, 0), (2, 0, 0)]
